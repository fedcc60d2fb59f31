"""What a comparison says as a whole."""

from __future__ import annotations

import pytest

from modeldyno.base.metrics.metric import Query
from modeldyno.comparison.change.comparison import (
    CandidateComparison,
    Cause,
    CausePart,
    Change,
    ChangeVerdict,
)
from modeldyno.testing.sample_results import a_small_result
from modeldyno.testing.sample_series import a_comparison

P50, RATE = Query.parse("latency.p50"), Query.parse("throughput")


def changed(query: Query, outcome: ChangeVerdict) -> Change:
    """Make a change of some outcome."""
    return Change(query=query, baseline=1.0, candidate=1.0, difference=0.0, interval=None, outcome=outcome)


@pytest.mark.parametrize(
    ("one", "other", "whole"),
    [
        (ChangeVerdict.WORSE, ChangeVerdict.BETTER, ChangeVerdict.WORSE),
        (ChangeVerdict.WORSE, ChangeVerdict.UNDECIDED, ChangeVerdict.WORSE),
        (ChangeVerdict.BETTER, ChangeVerdict.UNDECIDED, ChangeVerdict.UNDECIDED),
        (ChangeVerdict.BETTER, ChangeVerdict.SAME, ChangeVerdict.BETTER),
        (ChangeVerdict.SAME, ChangeVerdict.SAME, ChangeVerdict.SAME),
    ],
)
def test_the_whole_is_as_its_worst_part(
    one: ChangeVerdict, other: ChangeVerdict, whole: ChangeVerdict
) -> None:
    """Worse where anything is, undecided where anything may be, and better where something is."""
    comparison = CandidateComparison(
        candidate=a_small_result(), changes=(changed(P50, one), changed(RATE, other))
    )

    assert comparison.outcome is whole


def test_only_what_is_judged_makes_the_verdict() -> None:
    """A load time that nobody judges leaves it as it is; the changes are listed all the same."""
    changes = (changed(P50, ChangeVerdict.SAME), changed(RATE, ChangeVerdict.UNDECIDED))
    comparison = CandidateComparison(candidate=a_small_result(), changes=changes, judged=(P50,))

    assert comparison.outcome is ChangeVerdict.SAME
    assert list(comparison.of(ChangeVerdict.UNDECIDED)) == [changes[1]]


@pytest.mark.parametrize(
    ("outputs", "whole"),
    [
        (None, ChangeVerdict.BETTER),
        (ChangeVerdict.SAME, ChangeVerdict.BETTER),
        (ChangeVerdict.WORSE, ChangeVerdict.WORSE),
        (ChangeVerdict.UNDECIDED, ChangeVerdict.UNDECIDED),
    ],
)
def test_outputs_that_will_not_do_are_worse_than_any_speed(
    outputs: ChangeVerdict | None, whole: ChangeVerdict
) -> None:
    """Those that nobody could compare leave the whole open."""
    comparison = CandidateComparison(
        candidate=a_small_result(), changes=(changed(P50, ChangeVerdict.BETTER),), outputs_verdict=outputs
    )

    assert comparison.outcome is whole


def test_nothing_to_judge_is_undecided() -> None:
    """Nothing was measured in both, so nothing is claimed."""
    assert CandidateComparison(candidate=a_small_result(), changes=()).outcome is ChangeVerdict.UNDECIDED


def test_the_rest_of_a_cause_makes_the_sum_whole() -> None:
    """Parts and rest add up to the change, whatever the parts are."""
    parts = (
        CausePart(scope="a", kind="Linear", baseline=1.0, candidate=4.0),
        CausePart(scope="b", kind="Norm", baseline=1.0, candidate=0.5),
    )
    cause = Cause(query=P50, by="layers", total=3.0, parts=parts)

    assert sum(part.difference for part in parts) + cause.rest == pytest.approx(cause.total)
    assert cause.rest == pytest.approx(0.5)


def test_a_comparison_is_of_all_its_results() -> None:
    """The baseline comes first, and the comparison has the name of its model."""
    comparison = a_comparison()

    assert comparison.results[0] == comparison.baseline
    assert comparison.results[1:] == tuple(contrast.candidate for contrast in comparison.contrasts)
    assert comparison.name == comparison.baseline.name
