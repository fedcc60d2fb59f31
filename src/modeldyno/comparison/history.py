"""The history of a model: its stored results, as far as they are comparable."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from modeldyno.base import plugins
from modeldyno.base.errors import ModelDynoError, RequestError
from modeldyno.base.job.model_ref import ModelRef, names_of_file
from modeldyno.base.job.version_name import parse_registered
from modeldyno.base.metrics.metric import Query
from modeldyno.comparison.change.comparison import SMALLEST_EFFECT
from modeldyno.comparison.change.trend import (
    FEWEST,
    LONGEST,
    Reading,
    Trend,
    default_query,
    history_setup,
    scatter,
    trend,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.result.result import Result
    from modeldyno.comparison.change.trend import Scatter
    from modeldyno.stores.interface import Entry, Store


class StoredReading(NamedTuple):
    """What a history takes of a stored result."""

    setup: tuple[str, ...]
    query: Query
    """What was asked for, or the typical latency of this result."""
    reading: Reading | None
    """None if it has no certified number."""


def read_stored(store: Store, identifier: str, query: Query | None) -> StoredReading:
    """Read what a history takes of a result; without a query, its typical latency.

    The number is taken from the table of numbers, and no sample is read, if the table has it.
    """
    if query is not None:
        head = _head(store, identifier)
        return StoredReading(history_setup(head), query, _reading(store, head, query))
    result = store.get(identifier)
    query = default_query(result)
    return StoredReading(history_setup(result), query, Reading.of(result, query))


def _head(store: Store, identifier: str) -> Result:
    return store.head(identifier)


def _reading(store: Store, head: Result, query: Query) -> Reading | None:
    """Return what a history takes of a result whose head was read."""
    number = store.registry.numbers([head.id], [str(query)]).get(head.id, {}).get(str(query))
    if number is None:  # the store keeps none of this query for lists
        return Reading.of(store.get(head.id), query)
    return Reading.of_number(head, number)


def trend_of(
    model: str,
    *,
    metric: str | None = None,
    backend: str | None = None,
    settings: Mapping[str, KnobValue] | None = None,
    limit: int = LONGEST,
    smallest: float = SMALLEST_EFFECT,
) -> Trend:
    """Find levels and steps in the stored results of a model.

    Used are those with the backend, settings, inputs and load of the newest one that matches the
    request; results of other setups are counted and left out.

    Args:
        model: its name in the store, or a reference from which that name follows.
        metric: a query, such as ``latency.p99``; by default the typical latency.
        backend: only results of this one.
        settings: only results with these knobs.
        limit: number of newest results to search.
        smallest: relative change that matters.

    Raises:
        RequestError: the store has no such results, or the query is wrong.
    """
    query = None if metric is None else Query.parse(metric)
    with plugins.store() as store:
        name, entries = _find_entries(store, model, limit)
        matching = [e for e in entries if not e.failed and _matches(e, backend, settings or {})]
        if not matching:
            raise RequestError(
                f"None of the {len(entries)} stored results of {name} has that backend and those settings, "
                "or all of them failed; see modeldyno list."
            )
        history = trend_of_entries(store, name, matching, query, smallest=smallest)
    return replace(history, left_out=len(entries) - len(history.readings))


def trend_of_entries(
    store: Store,
    name: str,
    entries: Sequence[Entry],
    query: Query | None = None,
    *,
    smallest: float = SMALLEST_EFFECT,
    read: Callable[[Store, str, Query | None], StoredReading] | None = None,
) -> Trend:
    """Find levels and steps in stored results of a model, as far as they are of the setup of the newest one.

    The entries are of results that have not failed, the newest first. Their metric is the typical latency
    without a query. One result is read by `read`, by default `read_stored`; it may remember what it has read,
    as results do not change.

    Raises:
        RequestError: none of them has the metric.
    """
    read = read or read_stored
    stored = ((entry, read(store, entry.id, query)) for entry in entries)
    with_metric = (
        (entry, one) for entry, one in stored if one.reading is not None
    )  # an inspection has no times
    newest, first = next(with_metric, None) or (entries[0], read(store, entries[0].id, query))
    requested = query or first.query
    same_config = [e for e in entries if (e.backend, e.config) == (newest.backend, newest.config)]
    stored_readings = [
        first,
        *(read(store, entry.id, requested) for entry in same_config if entry.id != newest.id),
    ]
    readings = [
        one.reading for one in stored_readings if one.setup == first.setup and one.reading is not None
    ]
    if not readings:
        raise RequestError(_no_readings_message(name, requested, store.get(newest.id)))
    return trend(
        name,
        requested,
        readings,
        smallest=smallest,
        left_out=len(entries) - len(readings),
        setup=first.setup,
    )


def scatter_of(baseline: Result, candidate: Result, queries: Iterable[Query]) -> dict[Query, Scatter]:
    """Estimate from the store how much results of the baseline's model scatter, by metric.

    Only results on the same machine with the same software as the baseline count. If there are enough, only
    results of one version of the model are compared, so that a change of the model is not noise; otherwise
    all are, around the levels of their history. A store that cannot be read yields nothing.
    """
    readings_of: dict[Query, list[Reading]] = {query: [] for query in queries}
    with suppress(ModelDynoError), plugins.store() as store:
        entries = [e for e in store.find(name=baseline.name, limit=_SCATTER_RESULTS) if not e.failed]
        for entry in entries:
            if entry.config != baseline.job.config or entry.id == candidate.id:
                continue
            head = _head(store, entry.id)
            if _same_setup(baseline, head):
                for query, readings in readings_of.items():
                    if (reading := _reading(store, head, query)) is not None:
                        readings.append(reading)
    scatters: dict[Query, Scatter] = {}
    for query, readings in readings_of.items():
        if len(readings) > FEWEST and min(reading.value for reading in readings) > 0:
            whole_trend = trend(baseline.name, query, readings)
            scatter_estimate = scatter(_split_by_version(whole_trend), baseline, candidate)
            scatter_estimate = scatter_estimate or scatter([whole_trend], baseline, candidate)
            scatters |= {} if scatter_estimate is None else {query: scatter_estimate}
    return scatters


def _split_by_version(whole_trend: Trend) -> list[Trend]:
    """Split a history by the digest of the model; results without a digest are left out."""
    digests = {reading.digest for reading in whole_trend.readings} - {""}
    parts = [[r for r in whole_trend.readings if r.digest == digest] for digest in sorted(digests)]
    return [trend(whole_trend.name, whole_trend.query, part) for part in parts]


_SCATTER_RESULTS = 100
"""Stored results from which the scatter is estimated."""


def _same_setup(baseline: Result, result: Result) -> bool:
    """Return whether a result has the same setup, machine and software."""
    environments = (baseline.environment, result.environment)
    same_machine = (
        environments[0].hardware == environments[1].hardware
        and environments[0].software == environments[1].software
    )
    return same_machine and history_setup(baseline) == history_setup(result)


def _find_entries(store: Store, model: str, limit: int) -> tuple[str, Sequence[Entry]]:
    """Find entries by name; a reference is looked up under its last part, a version under its model."""
    registered = parse_registered(model)
    of_versions = () if registered is None else (registered[0].model,)
    names = dict.fromkeys((model, *of_versions, *names_of_file(ModelRef.parse(model).locator)))
    for name in names:
        if entries := store.find(name=name, limit=limit):
            return name, entries
    raise RequestError(
        f"The store has no results of '{model}'; modeldyno list shows its names, and modeldyno profile "
        "MODEL adds a result."
    )


def _matches(entry: Entry, backend: str | None, settings: Mapping[str, KnobValue]) -> bool:
    """Return whether an entry matches the request; values are compared as text."""
    if backend not in {None, entry.backend}:
        return False
    return all(str(entry.config.get(name)).lower() == str(value).lower() for name, value in settings.items())


def _no_readings_message(name: str, query: Query, newest: Result) -> str:
    available = ", ".join(sorted({m.metric for m in newest.measurements if not m.scope})[:8])
    return f"No result of {name} has a valid {query}; the newest has {available or 'nothing'}."
