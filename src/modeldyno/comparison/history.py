"""The history of a model: what the store has of it, as far as the results can be held against each other."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.core.comparison.comparison import SMALLEST_EFFECT
from modeldyno.core.comparison.history_noise import FEWEST, scatter
from modeldyno.core.comparison.trend import LONGEST, Reading, Trend, setup, trend, usual_query
from modeldyno.core.metrics.metric import Query
from modeldyno.core.spec.model_ref import ModelRef
from modeldyno.errors import ModelDynoError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modeldyno.core.comparison.history_noise import Scatter
    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces import Entry, Store


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

    They are those with the backend, the settings, the inputs and the load of the newest one that fits what
    is asked for; results of another setup are counted and left out.

    Args:
        model: its name in the store, or a reference that gives it that name.
        metric: a query, such as ``latency.p99``; by default the typical time of a call.
        backend: only results of this one.
        settings: only results with these knobs.
        limit: results that are looked at, the newest.
        smallest: relative change that matters.

    Raises:
        RequestError: the store has no such results, or the query is wrong.
    """
    query = None if metric is None else Query.parse(metric)
    with plugins.store() as store:
        name, entries = _entries(store, model, limit)
        wanted = [e for e in entries if not e.failed and _fits(e, backend, settings or {})]
        if not wanted:
            raise RequestError(
                f"Of the {len(entries)} stored results of {name} none has that backend and those settings, "
                "or all of them failed; see modeldyno list."
            )
        newest = _newest(store, wanted, query)
        alike = [e for e in wanted if (e.backend, e.config) == (newest.job.backend, newest.job.config)]
        results = [newest, *(store.get(each.id) for each in alike if each.id != newest.id)]
    asked = query or usual_query(newest)
    same = [result for result in results if setup(result) == setup(newest)]
    readings = [reading for result in same if (reading := Reading.of(result, asked)) is not None]
    if not readings:
        raise RequestError(_nothing(name, asked, newest))
    left_out = len(entries) - len(readings)
    return trend(name, asked, readings, smallest=smallest, left_out=left_out, setup=setup(newest))


def scatter_of(baseline: Result, candidate: Result, queries: Iterable[Query]) -> dict[Query, Scatter]:
    """Learn from the store what results of the baseline's model differ by, metric by metric.

    Those count that were measured on the same machine with the same software, as the baseline was. Results of
    one version of the model are held against each other where that tells enough, so that a change of the
    model is no noise; else all are, around the levels of their history. A store that cannot be read tells
    nothing.
    """
    results: list[Result] = []
    with suppress(ModelDynoError), plugins.store() as store:
        alike = [e for e in store.find(name=baseline.name, limit=_NEWEST) if not e.failed]
        results = [store.get(each.id) for each in alike if each.config == baseline.job.config]
    known = [result for result in results if result.id != candidate.id and _is_alike(baseline, result)]
    found: dict[Query, Scatter] = {}
    for query in queries:
        readings = [reading for each in known if (reading := Reading.of(each, query)) is not None]
        if len(readings) > FEWEST and min(reading.value for reading in readings) > 0:
            whole = [trend(baseline.name, query, readings)]
            told = scatter(_versions(whole[0]), baseline, candidate) or scatter(whole, baseline, candidate)
            found |= {} if told is None else {query: told}
    return found


def _versions(whole: Trend) -> list[Trend]:
    """Part a history by the digest of the model; results without one tell nothing of a version."""
    digests = {reading.digest for reading in whole.readings} - {""}
    parts = [[reading for reading in whole.readings if reading.digest == each] for each in sorted(digests)]
    return [trend(whole.name, whole.query, part) for part in parts]


_NEWEST = 100
"""Stored results of which the noise of a history is learnt."""


def _is_alike(baseline: Result, result: Result) -> bool:
    """Whether a result is of the same setup, machine and software."""
    places = (baseline.environment, result.environment)
    same = places[0].hardware == places[1].hardware and places[0].software == places[1].software
    return same and setup(baseline) == setup(result)


def _entries(store: Store, model: str, limit: int) -> tuple[str, Sequence[Entry]]:
    """Find by name; what is written as a reference is named for its last part."""
    names = dict.fromkeys((model, Path(ModelRef.parse(model).locator).stem))
    for name in names:
        if found := store.find(name=name, limit=limit):
            return name, found
    raise RequestError(
        f"The store has no results of '{model}'; modeldyno list names those it has, and modeldyno profile "
        "MODEL makes one."
    )


def _newest(store: Store, entries: Sequence[Entry], query: Query | None) -> Result:
    """Give the newest result that has what is asked for: an inspection, say, has no times."""
    opened = (store.get(each.id) for each in entries)
    having = (found for found in opened if Reading.of(found, query or usual_query(found)) is not None)
    return next(having, None) or store.get(entries[0].id)


def _fits(entry: Entry, backend: str | None, settings: Mapping[str, KnobValue]) -> bool:
    """Say whether a result is one of those asked for; values are compared as they are written."""
    if backend not in {None, entry.backend}:
        return False
    return all(str(entry.config.get(name)).lower() == str(value).lower() for name, value in settings.items())


def _nothing(name: str, query: Query, newest: Result) -> str:
    known = ", ".join(sorted({m.metric for m in newest.measurements if not m.scope})[:8])
    return f"No result of {name} has a {query} that is a claim; the newest has {known or 'nothing'}."
