"""Recompute load series and explanations from the results that they were made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.figure_checks import FigureCheck, at, compare, to_plain
from modeldyno.profiling.recompute import (
    check_judgement_list,
    check_parts,
    check_result,
    keep_answers,
    within,
)
from modeldyno.serving.load.capacity import Capacity, answer_so_far
from modeldyno.serving.load.load_curve import LoadCurve, LoadPoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.base.report.figure_checks import Plain
    from modeldyno.base.result.result import Result
    from modeldyno.serving.load.explanation import Explanation

    FindResult = Callable[[str], Result | None]
    """Gives the Result of an id; None if there is none."""


def check_series(
    written: Mapping[str, Plain], series: LoadCurve | Capacity, find_result: FindResult
) -> Iterator[FigureCheck]:
    """Yield a check of every load of a series, by its Result, and of the answer of a search by the loads."""
    del written
    bounds = series.bounds if isinstance(series, LoadCurve) else series.search.bounds
    for rung in series.rungs:
        yield from _check_rung(f"load {rung.load:g}", rung, bounds, find_result)
    if isinstance(series, Capacity):
        again = answer_so_far(series.search, series.rungs, series.end)
        yield from check_parts("search", series, again, ("passed", "failed", "broke"))
        if series.verified is not None:
            yield from _check_rung("verification", series.verified, bounds, find_result)


def check_explanation(written: Mapping[str, Plain], explanation: Explanation) -> Iterator[FigureCheck]:
    """Yield a check of every Result in an explanation, and of every hop by these Results."""
    for key, results in (("results", explanation.results), ("baseline", explanation.baseline)):
        for level, result in results.items():
            place = level if key == "results" else f"{key} {level}"
            yield from within(place, check_result(at(at(written, key), level), result))
    derived = {
        "whole": explanation.whole,
        "hops": [{"label": hop.label, **_fields(hop)} for hop in explanation.hops],
        "doubts": explanation.doubts,
    }
    for key, again in derived.items():
        if key in written:
            yield from compare(key, written[key], again, "the results in it")


def _fields(part: object) -> dict[str, Plain]:
    plain = to_plain(part)
    assert isinstance(plain, dict)
    return plain


def _check_rung(
    place: str, rung: LoadPoint, bounds: Sequence[Constraint], find_result: FindResult
) -> Iterator[FigureCheck]:
    result = find_result(rung.result) if rung.result else None
    yield from check_judgement_list(place, rung.judgements)
    if result is None:
        yield from keep_answers(place, rung.answers, rung.result)
        return
    again = LoadPoint.of(result, rung.load, bounds, care=rung.care)
    yield from check_parts(place, rung, again, ("answers", "judgements", "doubts", "failure"))
