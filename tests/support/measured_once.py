"""Measures what no test has asked for yet, and tells it again to whoever asks for the same.

For tests of what happens to a measurement afterwards; tests/runtime proves that each has a fresh process.
A model of known latency is measured here, unless something is asked that only a child can do.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest

from modeldyno.base import codec
from modeldyno.base.identity import new_identity
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.runtime.engine import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event, Result
    from modeldyno.engine.interfaces.executor import Executor


@contextmanager
def measured_once() -> Iterator[None]:
    """Measure equal Jobs once; one that failed is measured again."""
    kept: dict[tuple[str, int], tuple[Result, list[Event]]] = {}

    @contextmanager
    def executor(*arguments: object) -> Iterator[Executor]:
        numbers = count()  # the processes of one request are told apart
        with subprocess_executor(*arguments) as execute:  # type: ignore[arg-type]

            def execute_once(job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
                key = repr(replace(job, name=None)), next(numbers)
                if key in kept:
                    result, events = kept[key]
                    for event in events:
                        watch(event)
                    return replace(result, job=job, **new_identity())
                events = []

                def note(event: Event) -> None:
                    events.append(event)
                    watch(event)

                result = execute(job, watch=note) if _needs_child(job) else _measure_here(job, note)
                if not result.failures and not result.interrupted:
                    kept[key] = result, events
                return result

            yield execute_once

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("modeldyno.profiling.run.subprocess_executor", executor)
        yield


def _measure_here(job: Job, watch: Callable[[Event], None]) -> Result:
    return codec.decode(codec.encode(run(job, watch=watch)))  # as a child sends it: a whole number is one


def _needs_child(job: Job) -> bool:
    plan = job.plan
    known = job.model.locator.startswith("modeldyno.testing.known_latency:")
    return not known or bool(plan.pin or plan.timeout or plan.memory_limit)
