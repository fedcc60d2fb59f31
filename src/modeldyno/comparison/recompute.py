"""Recompute a comparison from the two results that it was made of."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from modeldyno.base.report.figure_checks import FigureCheck, at, compare, kept, objects, to_plain
from modeldyno.comparison.change.build import CompareOptions, compare_results
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.profiling.recompute import check_parts, check_result, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from modeldyno.base.report.figure_checks import Plain
    from modeldyno.base.result.result import Result
    from modeldyno.comparison.change.comparison import Change, Comparison

    FindResult = Callable[[str], Result | None]
    """Gives the Result of an id; None if there is none."""

ONCE_LESS_WAS_BETTER = frozenset({"buffers"})
"""Metrics that are neither better nor worse today, and of which less was better in earlier versions."""
_OLDER_RULE = "its verdict by an older rule, under which less of it was better"
_OTHER_TIMES = "its verdict by an older rule, without what the machine may do from one time to another"
_AGREEMENT = "how far the outputs agreed, without the outputs"


def check_comparison(written: Mapping[str, Plain], comparison: Comparison) -> Iterator[FigureCheck]:
    """Yield a check of every Result in a comparison, and of every change and verdict by these Results."""
    yield from within("baseline", check_result(at(written, "baseline"), comparison.baseline))
    for contrast, plain in zip(comparison.contrasts, objects(written, "contrasts"), strict=True):
        name = "candidate" if len(comparison.contrasts) == 1 else f"candidate {contrast.candidate.id[:6]}"
        yield from within(name, check_result(at(plain, "candidate"), contrast.candidate))
        turned = bool(comparison.sequence)
        both = {result.processes for result in comparison.results}
        criteria = CompareOptions(
            metrics=tuple(str(change.query) for change in contrast.changes),
            smallest={str(change.query): change.smallest for change in contrast.changes},
            force=True,
        )
        recompute = partial(
            compare_results,
            comparison.baseline,
            contrast.candidate,
            criteria,
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
        yield from check_parts(name, contrast, again, ("settings", "software", "hardware"))
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
