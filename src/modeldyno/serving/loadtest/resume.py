"""Go on with a stored load series, or judge it by other bounds without measuring."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnreadableDocument
from modeldyno.base.identity import new_identity
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.result.multi_model import bounds_of_each_model
from modeldyno.profiling.request import server_for
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.capacity_steps import RATE, CapacitySearch
from modeldyno.serving.load.load_curve import LoadCurve, ends_at_plateau, parse_ladder
from modeldyno.serving.load.replicas import bounds_of
from modeldyno.serving.load.series_steps import (
    answer_again,
    judge_again,
    search_again,
    unknown_loads,
    without_unfinished,
)
from modeldyno.stores.catalog import stored_result
from modeldyno.stores.lookup import find_any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.base.document import StoredDocument
    from modeldyno.serving.load.series_steps import AnySeries

_CURVE_CHANGES = frozenset({"concurrency", "require"})
_SEARCH_CHANGES = frozenset({"most", "measurements", "max_time", "require"})


def find_series(source: str) -> LoadCurve | Capacity:
    """Find a load curve or a search by the path of its file, or by its id in the store.

    Raises:
        RequestError: there is none, or it is another document.
    """
    try:
        document: StoredDocument | None = find_any(source)
    except UnreadableDocument:
        raise
    except RequestError:  # it speaks of results, as their ids are asked for most
        document = None
    if not isinstance(document, LoadCurve | Capacity):
        raise RequestError(
            f"'{source}' is neither a stored load curve nor a search for a load; "
            "modeldyno list shows their ids."
        )
    return document


def check_changes(given: Mapping[str, str], *, search: bool) -> None:
    """Refuse fields of what a resumed search or load curve cannot change.

    Args:
        given: what is to change: fields, and how each was typed, such as ``--backend``.
        search: whether it is a search.

    Raises:
        RequestError: one of them cannot change.
    """
    changes, kind = (_SEARCH_CHANGES, "search for a load") if search else (_CURVE_CHANGES, "load curve")
    wrong = sorted(typed for field, typed in given.items() if field not in changes)
    if wrong:
        *first, last = (f"`{field}`" for field in sorted(changes))
        raise RequestError(
            f"A resumed {kind} cannot change {', '.join(wrong)}; only {', '.join(first)} and {last} can."
        )


def check_rerank(given: Mapping[str, str]) -> None:
    """Refuse fields that have no effect where nothing is measured.

    Raises:
        RequestError: something other than a bound is given.
    """
    unused = sorted(typed for field, typed in given.items() if field != "require")
    if unused:
        raise RequestError(
            f"`rerank` measures nothing, so {', '.join(unused)} would have no effect; it takes `require`."
        )


def resume_curve(
    stored: LoadCurve | Capacity, *, concurrency: str | None = None, require: Sequence[str] = ()
) -> LoadCurve:
    """Return the load curve to continue; with other bounds it is a new one that has all loads of the first.

    Args:
        stored: as it was stored.
        concurrency: the loads wanted now, of which those that are missing are measured; None for those that
            were wanted before.
        require: bounds; none for those before.

    Raises:
        RequestError: it is a search, an earlier version wrote it, or a value is wrong.
    """
    if not isinstance(stored, LoadCurve):
        raise RequestError(f"{stored.id[:6]} is a search for a load; go on with find_load.")
    curve = without_unfinished(_resumable(stored))
    if concurrency is not None and curve.knob == RATE:
        raise RequestError(f"The loads of {stored.id[:6]} are rates; measure other ones anew, with `rate`.")
    if concurrency is not None:
        curve = replace(curve, loads=parse_ladder(concurrency), until_plateau=ends_at_plateau(concurrency))
    bounds = _parse_bounds(require, curve)
    if bounds in {(), bounds_of(curve)}:
        return curve
    judged = judge_again(curve, bounds, stored_result)
    _check_known(judged)
    return replace(judged, **new_identity())


def resume_search(
    stored: LoadCurve | Capacity,
    *,
    most: float | None = None,
    measurements: int | None = None,
    max_time: float | None = None,
    require: Sequence[str] = (),
) -> Capacity:
    """Return the search to continue; with other bounds, or from a load curve, it is a new one.

    Args:
        stored: as it was stored; the loads of a load curve begin a search.
        most: the largest load to try; None for the one before.
        measurements: maximum number of loads, those measured before included; None for as many as before,
            and with other bounds for as many more.
        max_time: seconds for the loads that follow; None for as many as before.
        require: bounds; none for those before.

    Raises:
        RequestError: an earlier version wrote it, or there is no bound, or a value is wrong.
    """
    series = without_unfinished(_resumable(stored))
    search = _search_of(series, require)
    new = isinstance(series, LoadCurve) or search.bounds != series.search.bounds
    made = len(series.rungs) if new else 0
    limits: dict[str, Any] = {
        "most": search.most if most is None else most,
        "measurements": search.measurements + made if measurements is None else measurements,
        "max_time": search.max_time if max_time is None else max_time,
    }
    capacity = search_again(series, replace(search, **limits), stored_result)
    if not new:
        return capacity
    _check_known(capacity)
    return replace(capacity, ours=_starts_server(capacity), **new_identity())


def rerank_series(stored: LoadCurve | Capacity, require: Sequence[str]) -> Capacity:
    """Return what the loads of a series say about other bounds, without measuring; it is not stored.

    Raises:
        RequestError: there is no bound, no load that measured its metric, or a value is wrong.
    """
    if not stored.rungs:
        raise RequestError(f"{stored.id[:6]} has no load that was measured; measure one first.")
    search = _search_of(stored, require)
    answer = answer_again(stored, search, stored_result)
    _check_known(answer)
    return replace(answer, id="", ours=_starts_server(answer))


def _resumable(series: AnySeries) -> AnySeries:
    if series.job is None:
        raise RequestError(
            f"{series.id[:6]} cannot be resumed, because an earlier version of ModelDyno wrote it without "
            "what a resumption needs; measure it anew."
        )
    return series


def _search_of(series: LoadCurve | Capacity, require: Sequence[str]) -> CapacitySearch:
    """Return the search that a series was, or that its loads could begin, with other bounds if any."""
    bounds = _parse_bounds(require, series) or bounds_of(series)
    if not bounds:
        raise RequestError(
            "The loads were measured without a bound; give one: `require=latency.p99 <= 50ms`."
        )
    if isinstance(series, Capacity):
        return replace(series.search, bounds=bounds)
    loads = [rung.load for rung in series.rungs] or [1.0]
    search = CapacitySearch(bounds=bounds, knob=series.knob, start=min(loads))
    return replace(search, most=max(search.most, *loads))


def _parse_bounds(require: Sequence[str], series: LoadCurve | Capacity) -> tuple[Constraint, ...]:
    """Parse bounds; one that names no model applies to each."""
    bounds = tuple(map(Constraint.parse, require))
    job = series.job
    if job is None or not job.beside:
        return bounds
    return bounds_of_each_model(bounds, str(job.name), [str(other.name) for other in job.beside])


def _starts_server(capacity: Capacity) -> bool:
    """Return whether the server is started by us, rather than a running one that a URL names."""
    return capacity.ours if capacity.job is None else server_for(str(capacity.job.model)) is not None


def _check_known(series: LoadCurve | Capacity) -> None:
    """Refuse bounds of which no load says anything."""
    unknown = unknown_loads(series)
    if unknown and len(unknown) == len([rung for rung in series.rungs if not rung.failure]):
        bounds = ", ".join(map(str, bounds_of(series)))
        raise RequestError(
            f"No load of {series.id[:6]} says anything about {bounds}: its metric was not measured, or the "
            "results are not in the store; measure the loads anew."
        )
