"""Measure the reference model on a worker's machine once a day; when it changes, older figures are stale."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from modeldyno.base.kinds import kind_of
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.profiling.request import Request
from modeldyno.profiling.run import run_request
from modeldyno.registry.records.records import FigureState
from modeldyno.registry.records.staleness import CanaryReading, forbidding_doubts, machine_change

if TYPE_CHECKING:
    from collections.abc import Sized

    from modeldyno.base.result.result import Result
    from modeldyno.engine.runtime.measured_region import Region
    from modeldyno.stores.interface import Store

PERIOD = 86400.0
"""Seconds between two readings."""
_MODEL = "call:modeldyno.registry.reference_model:multiply"
_NAME = "canary"
_READINGS = 20
"""Readings that are looked back at."""
_MAX_TIME = 2.0


def is_due(store: Store, target: str) -> bool:
    """Return whether the last reading of a target is older than a day, or there is none."""
    entries = store.find(tag=reading_tag(target), limit=1)
    return not entries or _age(entries[0].created) > PERIOD


def check_machine(
    store: Store, target: str, interrupts: Sized | None = None, guard: Region | None = None
) -> str:
    """Take a reading, and another if it differs; mark the figures of a changed machine as stale.

    Readings that others disturbed say nothing, and are not kept.

    Returns:
        What has changed, in a sentence; empty if nothing has, or nothing is known.

    Raises:
        DeviceInUse: the guard, which is entered around what is measured, says so.
    """
    entries = store.find(tag=reading_tag(target), limit=_READINGS)
    earlier = [_reading(store.get(entry.id)) for entry in reversed(entries)]
    results = [_measure(interrupts, guard)]
    if machine_change(earlier, [_reading(results[0])] * 2) is not None:
        results.append(_measure(interrupts, guard))
    if any(result.failures or forbidding_doubts(result.doubts) for result in results):
        return ""
    change = machine_change(earlier, [_reading(result) for result in results] if len(results) > 1 else [])
    for result in results:
        store.put(result, headline=kind_of(result).brief(result))
        store.tag(result.id, add=(reading_tag(target),))
    if change is None:
        return ""
    registry = store.registry
    registry.put_figures(
        [
            replace(figure, state=FigureState.STALE, why=change.sentence)
            for figure in registry.figures_on(target, FigureState.FRESH)
        ]
    )
    return change.sentence


def _measure(interrupts: Sized | None, guard: Region | None) -> Result:
    request = Request(
        model=_MODEL,
        settings={},
        probes=("latency",),
        plan=Plan(max_time=_MAX_TIME),
        name=_NAME,
    )
    return run_request(request, interrupts=interrupts, guard=guard).result


def _reading(result: Result) -> CanaryReading:
    return CanaryReading(at=result.created, seconds=result.number("latency", statistic="p50") or 0.0)


def reading_tag(target: str) -> str:
    """Return the tag of the readings of a target."""
    return f"{_NAME}:{target}"


def _age(created: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds()
