"""What a gate looked at, as one list."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base.metrics.constraints import Constraint, Verdict
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.comparison.change.comparison import Change, ChangeVerdict
from modeldyno.comparison.change.gate_report import GateReport, Undecided, describe_change
from modeldyno.comparison.change.gate_rule import GateDecision
from modeldyno.testing.sample_results import a_failed_result, a_result

WORSE = Change(
    query=Query.parse("latency.p50"),
    baseline=0.01,
    candidate=0.012,
    difference=0.2,
    interval=Interval(low=0.15, high=0.25),
    outcome=ChangeVerdict.WORSE,
)
SAME = replace(
    WORSE, query=Query.parse("process_memory.max"), baseline=1e6, candidate=1e6, difference=0.0,
    interval=Interval(low=0.0, high=0.0), outcome=ChangeVerdict.SAME,
)  # fmt: skip
OPEN = replace(
    WORSE, difference=0.02, interval=Interval(low=-0.01, high=0.05), outcome=ChangeVerdict.UNDECIDED
)
UNKNOWN = Change(
    query=Query.parse("error_rate"), baseline=0.0, candidate=None, difference=None, interval=None,
    outcome=ChangeVerdict.UNDECIDED, why="not measured in the candidate",
)  # fmt: skip
RESULT = a_result()
JUDGEMENTS = tuple(
    RESULT.judge(Constraint.parse(text)) for text in ("latency.p50.raw <= 1s", "throughput >= 9M/s")
)


def ruling(verdict: Verdict, *changes: Change) -> GateDecision:
    """Make a ruling whose confirmation says what the first run said."""
    return GateDecision(verdict=verdict, changes=changes, rounds=5, confirmation=changes)


def test_bounds_changes_and_failures_are_one_list() -> None:
    """Each check has its kind, its name, its verdict."""
    report = GateReport(result=RESULT, ruling=ruling(Verdict.BROKEN, WORSE, SAME)).with_bounds(JUDGEMENTS)
    assert [(check.kind, check.verdict) for check in report.checks] == [
        ("bound", JUDGEMENTS[0].verdict),
        ("bound", JUDGEMENTS[1].verdict),
        ("change", Verdict.BROKEN),
        ("change", Verdict.HELD),
    ]
    assert report.verdict is Verdict.BROKEN
    failed = GateReport(result=a_failed_result())
    assert (failed.checks[0].kind, failed.verdict) == ("failure", Verdict.BROKEN)


@pytest.mark.parametrize(
    ("verdict", "undecided", "outcome"),
    [
        (Verdict.UNDECIDED, None, Verdict.UNDECIDED),
        (Verdict.UNDECIDED, Undecided.PASS, Verdict.HELD),
        (Verdict.UNDECIDED, Undecided.FAIL, Verdict.BROKEN),
        (Verdict.BROKEN, Undecided.PASS, Verdict.BROKEN),
        (Verdict.HELD, Undecided.FAIL, Verdict.HELD),
    ],
)
def test_only_an_undecided_verdict_counts_as_something_else(
    verdict: Verdict, undecided: Undecided | None, outcome: Verdict
) -> None:
    """The verdict itself stays."""
    change = {Verdict.UNDECIDED: OPEN, Verdict.BROKEN: WORSE, Verdict.HELD: SAME}[verdict]
    report = GateReport(result=RESULT, ruling=ruling(verdict, change), undecided=undecided)
    assert (report.verdict, report.outcome) == (verdict, outcome)


def test_what_could_not_be_compared_is_a_check() -> None:
    """Without any change there is one undecided check, which says why."""
    for why in ("too few rounds could be run", ""):
        decision = GateDecision(verdict=Verdict.UNDECIDED, changes=(), rounds=0, why=why)
        (check,) = GateReport(result=RESULT, ruling=decision).checks
        assert (check.verdict, check.text) == (Verdict.UNDECIDED, why or "nothing was compared")


def test_a_gate_holds_only_where_everything_does() -> None:
    """One open change leaves the whole open; nothing at all is undecided."""
    held = GateReport(result=RESULT, ruling=ruling(Verdict.HELD, SAME, OPEN))
    assert held.verdict is Verdict.HELD
    assert held.of(Verdict.HELD) == held.checks
    undecided = GateReport(result=RESULT, ruling=ruling(Verdict.UNDECIDED, SAME, OPEN))
    assert undecided.verdict is Verdict.UNDECIDED
    assert [check.name for check in undecided.of(Verdict.UNDECIDED)] == ["latency.p50"]
    assert GateReport(result=RESULT).verdict is Verdict.UNDECIDED


def test_what_was_not_confirmed_is_open() -> None:
    """A metric that was worse at first fails nothing by itself."""
    report = GateReport(result=RESULT, ruling=replace(ruling(Verdict.UNDECIDED, WORSE), confirmation=()))
    assert report.checks[0].verdict is Verdict.UNDECIDED
    assert report.checks[0].text.endswith("(+15.0 to +25.0%): looks worse, not confirmed")


def test_a_change_is_told_with_its_figures() -> None:
    """Values, difference, interval, outcome; or why there is none."""
    assert describe_change(WORSE) == "10.00 ms -> 12.00 ms, +20.0% (+15.0 to +25.0%): worse"
    assert describe_change(SAME).endswith(" 0%: same")
    assert describe_change(UNKNOWN) == "0% -> not known: undecided (not measured in the candidate)"
    assert describe_change(replace(WORSE, interval=None, why="a count")).endswith("+20.0%: worse (a count)")


def test_a_share_changes_in_points() -> None:
    """One in a hundred of 99 % is 1 point, not 1.01 %; without an interval it is bare."""
    share = replace(
        WORSE, query=Query.parse("accuracy"), baseline=0.99, candidate=0.98, difference=-0.01 / 0.99,
        interval=Interval(low=-0.017 / 0.99, high=-0.003 / 0.99),
    )  # fmt: skip
    assert describe_change(share) == "99.00% -> 98.00%, -1.0 points (-1.7 to -0.3): worse"
    exact = replace(share, interval=None, why="a count")
    assert describe_change(exact) == "99.00% -> 98.00%, -1.0 points: worse (a count)"
    equal = replace(
        share,
        candidate=0.99,
        difference=0.0,
        interval=Interval(low=0.0, high=0.0),
        outcome=ChangeVerdict.SAME,
    )
    assert describe_change(equal) == "99.00% -> 99.00%, 0 points: same"


def test_notes_are_added_in_order() -> None:
    """Empty ones are left out."""
    assert GateReport(result=RESULT, notes=("a",)).with_notes("", "b").notes == ("a", "b")
