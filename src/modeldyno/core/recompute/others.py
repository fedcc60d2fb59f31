"""Recompute studies, load series and comparisons, from the results that they were made of."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from modeldyno.core.comparison.build import CompareOptions, compare_results
from modeldyno.core.comparison.comparison import ChangeVerdict
from modeldyno.core.load.capacity import Capacity, answer_so_far
from modeldyno.core.load.load_curve import LoadCurve, LoadPoint
from modeldyno.core.recompute.checks import FigureCheck, at, compare, kept, objects, to_plain
from modeldyno.core.recompute.result import check_judgement, check_result
from modeldyno.core.study.ranking import ranking
from modeldyno.core.study.study import Study, Trial, TrialRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.core.comparison.comparison import Change, Comparison
    from modeldyno.core.load.explanation import Explanation
    from modeldyno.core.metrics.constraints import Answer, Constraint, Judgement
    from modeldyno.core.recompute.checks import Plain
    from modeldyno.core.result.result import Result

    FindResult = Callable[[str], Result | None]
    """Gives the Result of an id; None if there is none."""

ELSEWHERE = "its figures, as its result {} is not at hand"
ONCE_LESS_WAS_BETTER = frozenset({"buffers"})
"""Metrics that are neither better nor worse today, and of which less was better in earlier versions."""
_OLDER_RULE = "its verdict by an older rule, under which less of it was better"
_OTHER_TIMES = "its verdict by an older rule, without what the machine may do from one time to another"
_AGREEMENT = "how far the outputs agreed, without the outputs"


def check_study(written: Mapping[str, Plain], study: Study, find_result: FindResult) -> Iterator[FigureCheck]:
    """Yield a check of every trial of a study, by its Result, and of the ranking by the trials."""
    for trial in study.trials:
        place, result = f"trial {trial.number}", find_result(trial.result) if trial.result else None
        yield from _check_judgements(place, trial.judgements)
        if result is None:
            yield from _kept_answers(place, trial.answers, trial.result)
        else:
            request = TrialRequest(point=trial.point, stage=trial.stage, care=trial.care)
            again = Trial.of(result, study.goal, request, number=trial.number, seconds=trial.seconds)
            parts = ("answers", "judgements", "doubts", *(("slowed",) if trial.slowed > 1 else ()))
            yield from _check_parts(place, trial, again, parts)
    if written.get("ranking") is not None:
        yield from compare("ranking", written["ranking"], ranking(study), "the trials")


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
        yield from _check_parts("search", series, again, ("passed", "failed", "broke"))
        if series.verified is not None:
            yield from _check_rung("verification", series.verified, bounds, find_result)


def check_explanation(written: Mapping[str, Plain], explanation: Explanation) -> Iterator[FigureCheck]:
    """Yield a check of every Result in an explanation, and of every hop by these Results."""
    for key, results in (("results", explanation.results), ("baseline", explanation.baseline)):
        for level, result in results.items():
            place = level if key == "results" else f"{key} {level}"
            yield from _within(place, check_result(at(at(written, key), level), result))
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


def check_comparison(written: Mapping[str, Plain], comparison: Comparison) -> Iterator[FigureCheck]:
    """Yield a check of every Result in a comparison, and of every change and verdict by these Results."""
    yield from _within("baseline", check_result(at(written, "baseline"), comparison.baseline))
    for contrast, plain in zip(comparison.contrasts, objects(written, "contrasts"), strict=True):
        name = "candidate" if len(comparison.contrasts) == 1 else f"candidate {contrast.candidate.id[:6]}"
        yield from _within(name, check_result(at(plain, "candidate"), contrast.candidate))
        turned = bool(comparison.sequence)
        both = {result.processes for result in comparison.results}
        question = CompareOptions(
            metrics=tuple(str(change.query) for change in contrast.changes),
            smallest={str(change.query): change.smallest for change in contrast.changes},
            force=True,
        )
        recompute = partial(
            compare_results,
            comparison.baseline,
            contrast.candidate,
            question,
            level=comparison.level,
            paired=turned and comparison.order != "block" and len(both) == 1,
        )
        again = recompute(in_turns=turned)
        as_in_turns = {change.query: change for change in recompute(in_turns=True).changes}
        for change in contrast.changes:
            other = next(
                (new_change for new_change in again.changes if new_change.query == change.query), None
            )
            place = f"{name} change of {change.query}"
            if other is not None and (older := _older_rule(change, other, as_in_turns[change.query])):
                yield kept(f"{place} outcome", change.outcome, older)
                earlier = as_in_turns[change.query] if older is _OTHER_TIMES else other
                other = replace(earlier, outcome=change.outcome, why=change.why)
            yield from compare(place, to_plain(change), other, "the two results")
        yield from _check_parts(name, contrast, again, ("settings", "software", "hardware"))
        yield from (
            kept(f"{name} output {each.output}", to_plain(each), _AGREEMENT) for each in contrast.outputs
        )


def _older_rule(change: Change, again: Change, in_turns: Change) -> str:
    """Return by which earlier rule a verdict is what is written, and undecided today; empty if by none.

    Two of different times were once judged as if they had taken turns.
    """
    if again.outcome is not ChangeVerdict.UNDECIDED or change.outcome is ChangeVerdict.UNDECIDED:
        return ""
    if (change.outcome, change.why) == (in_turns.outcome, in_turns.why):
        return _OTHER_TIMES
    if change.query.metric not in ONCE_LESS_WAS_BETTER or again.baseline is None or again.candidate is None:
        return ""
    less = again.candidate < again.baseline
    return _OLDER_RULE if change.outcome is (ChangeVerdict.BETTER if less else ChangeVerdict.WORSE) else ""


def _within(place: str, checks: Iterator[FigureCheck]) -> Iterator[FigureCheck]:
    """Return the checks with the part of the document that they are of."""
    return (replace(check, place=f"{place}: {check.place}") for check in checks)


def _check_rung(
    place: str, rung: LoadPoint, bounds: Sequence[Constraint], find_result: FindResult
) -> Iterator[FigureCheck]:
    result = find_result(rung.result) if rung.result else None
    yield from _check_judgements(place, rung.judgements)
    if result is None:
        yield from _kept_answers(place, rung.answers, rung.result)
        return
    again = LoadPoint.of(result, rung.load, bounds, care=rung.care)
    yield from _check_parts(place, rung, again, ("answers", "judgements", "doubts", "failure"))


def _check_parts(place: str, written: object, again: object, names: Sequence[str]) -> Iterator[FigureCheck]:
    for name in names:
        plain = to_plain(getattr(written, name))
        yield from compare(f"{place} {name}", plain, getattr(again, name), "its result")


def _check_judgements(place: str, judgements: Sequence[Judgement]) -> Iterator[FigureCheck]:
    for judgement in judgements:
        yield check_judgement(place, judgement.constraint, judgement.answer, judgement.verdict)


def _kept_answers(place: str, answers: Sequence[Answer], result: str) -> Iterator[FigureCheck]:
    why = ELSEWHERE.format(result[:12]) if result else "its figures, without a result"
    yield from (kept(f"{place} {answer.query}", answer.value, why) for answer in answers)
