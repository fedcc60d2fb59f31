"""The rule of a gate, on rounds that are told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval, observed_number
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.result import Environment
from modeldyno.comparison.change.change_test import NOT_THE_SAME_WORK, judge_numbers
from modeldyno.comparison.change.comparison import Change, ChangeVerdict
from modeldyno.comparison.change.gate_rule import (
    GateRule,
    against_stored,
    all_held,
    check_directions,
    decide_gate,
    decide_gate_on_stored,
    shown_to_hold,
    worse_in_both,
)
from modeldyno.comparison.change.other_times import OtherTimes
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from collections.abc import Callable

SPEED, RATE = Query.parse("latency.p50"), Query.parse("throughput")
RULE = GateRule(first=5, most=20)
TIMES = OtherTimes(baseline=a_small_result(), candidate=a_small_result())
"""Of two results that nobody disturbed."""


def a_change(
    outcome: ChangeVerdict,
    *,
    low: float = 0.05,
    high: float = 0.2,
    query: Query = SPEED,
    smallest: float = 0.03,
) -> Change:
    """Make a change with an interval."""
    return Change(
        query=query,
        baseline=1.0,
        candidate=1.1,
        difference=(low + high) / 2,
        interval=Interval(low=low, high=high),
        outcome=outcome,
        smallest=smallest,
    )


WORSE = a_change(ChangeVerdict.WORSE)
SAME = a_change(ChangeVerdict.SAME, low=-0.01, high=0.01)
OPEN = a_change(ChangeVerdict.UNDECIDED, low=-0.05, high=0.08)  # its middle does not matter


def compare_in_turn(
    *changes: Change | None, stretches: list[tuple[int, int]] | None = None
) -> Callable[[int, int, float], tuple[Change, ...] | None]:
    """Answer one stretch of rounds after the other, the same at any level."""
    answers: dict[tuple[int, int], tuple[Change, ...] | None] = {}
    rest = iter(changes)

    def compare(begin: int, end: int, level: float) -> tuple[Change, ...] | None:
        del level
        if (begin, end) not in answers:
            if stretches is not None:
                stretches.append((begin, end))
            change = next(rest, None)
            answers[begin, end] = None if change is None else (change,)
        return answers[begin, end]

    return compare


@pytest.mark.parametrize(
    "why", ["the work is done when the output is read", f"only one of them: {NOT_THE_SAME_WORK}"]
)
def test_what_no_run_can_show_ends_at_the_first_look(why: str) -> None:
    """Further rounds would be in vain, and are not asked for; a regression of another metric still fails."""
    void = replace(OPEN, baseline=None, candidate=None, difference=None, interval=None, why=why)
    ruling = decide_gate(compare_in_turn(void, OPEN, SAME), RULE)
    assert (ruling.verdict, ruling.rounds, ruling.why, ruling.open) == (Verdict.UNDECIDED, 5, "", (void,))

    stored = decide_gate_on_stored((void,), (void,), (void,), TIMES)
    assert (stored.verdict, stored.why) == (Verdict.UNDECIDED, "")
    assert decide_gate(lambda *_: (void, WORSE), RULE).verdict is Verdict.BROKEN


def test_what_is_shown_to_hold_passes_after_the_first_look() -> None:
    """Five rounds are enough for what is plain."""
    ruling = decide_gate(compare_in_turn(SAME), RULE)
    assert (ruling.verdict, ruling.rounds, ruling.worse, ruling.open) == (Verdict.HELD, 5, (), ())


def test_what_is_worse_fails_when_as_many_fresh_rounds_confirm_it() -> None:
    """The second run is judged by itself, and all rounds together."""
    stretches: list[tuple[int, int]] = []
    ruling = decide_gate(compare_in_turn(WORSE, WORSE, WORSE, stretches=stretches), RULE)
    assert stretches == [(0, 5), (5, 10), (0, 10)]
    assert (ruling.verdict, ruling.rounds, ruling.worse) == (Verdict.BROKEN, 10, (WORSE,))


def test_what_a_second_run_does_not_confirm_goes_on_with_all_rounds() -> None:
    """The rounds of the second run join the first ones, and are not bought again."""
    stretches: list[tuple[int, int]] = []
    ruling = decide_gate(compare_in_turn(WORSE, SAME, WORSE, SAME, stretches=stretches), RULE)
    assert stretches == [(0, 5), (5, 10), (0, 10), (0, 13)]
    assert (ruling.verdict, ruling.worse) == (Verdict.HELD, ())


def test_another_metric_does_not_confirm() -> None:
    """What was not worse at first is no confirmation."""
    other = a_change(ChangeVerdict.WORSE, query=RATE, low=-0.3, high=-0.1)
    ruling = decide_gate(compare_in_turn(WORSE, other, other, SAME), RULE)
    assert ruling.verdict is Verdict.HELD


@pytest.mark.parametrize(
    ("second", "confirmed"),
    [
        (WORSE, True),
        (a_change(ChangeVerdict.UNDECIDED, low=-0.02, high=0.2), True),
        (OPEN, False),
        (SAME, False),
        (a_change(ChangeVerdict.UNDECIDED, low=-0.3, high=0.02, query=RATE), False),
        (Change(query=SPEED, baseline=None, candidate=1.0, difference=None, interval=None,
                outcome=ChangeVerdict.UNDECIDED), False),
    ],
)  # fmt: skip
def test_a_second_run_confirms_by_an_effect_that_matters(second: Change, *, confirmed: bool) -> None:
    """Its own test need not be passed, as that of both together must be."""
    assert worse_in_both((WORSE,), (second,)) == ({SPEED} if confirmed else set())


def test_a_rate_is_worse_when_it_falls() -> None:
    """An effect is a factor either way."""
    fell = a_change(ChangeVerdict.WORSE, low=-0.3, high=-0.1, query=RATE)
    slightly = a_change(ChangeVerdict.UNDECIDED, low=-0.05, high=0.03, query=RATE)
    open_ = a_change(ChangeVerdict.UNDECIDED, low=-0.3, high=0.02, query=RATE)
    assert worse_in_both((fell,), (open_,)) == {RATE}
    assert worse_in_both((fell,), (slightly,)) == set()


def test_rounds_are_bought_while_it_is_undecided_and_not_beyond() -> None:
    """After the last look it stays undecided."""
    stretches: list[tuple[int, int]] = []
    ruling = decide_gate(compare_in_turn(OPEN, OPEN, OPEN, OPEN, stretches=stretches), RULE)
    assert stretches == [(0, 5), (0, 8), (0, 13), (0, 20)]
    assert (ruling.verdict, ruling.rounds, ruling.open) == (Verdict.UNDECIDED, 20, (OPEN,))


@pytest.mark.parametrize("most", [5, 20, 40, 60])
def test_the_error_of_the_looks_is_that_of_the_whole(most: int) -> None:
    """What all looks together may err is what a single one might, and the first one errs least."""
    rule = GateRule(most=most)
    errors = [1 - rule.level(rounds) for rounds in rule.interim_rounds]
    assert sum(errors) == pytest.approx(1 - rule.passing)
    assert errors[0] == min(errors)


@pytest.mark.no_cover
@pytest.mark.parametrize(("spread", "most"), [(0.03, 40), pytest.param(0.06, 20, marks=pytest.mark.slow)])
def test_a_slowdown_of_what_matters_is_let_through_in_one_of_twenty_cases(spread: float, most: int) -> None:
    """At the margin, all looks together let through no more than the five percent of a single one."""
    source = np.random.default_rng(1)

    def let_through() -> bool:
        before, after = np.exp(spread * source.standard_normal((2, 2 * most)) / 2**0.5)

        def compare(begin: int, end: int, level: float) -> tuple[Change, ...]:
            pair = before[begin:end].tolist(), (1.03 * after[begin:end]).tolist()
            return (judge_numbers(SPEED, *pair, smallest=0.03, level=level, paired=True),)

        return decide_gate(compare, GateRule(most=most)).verdict is Verdict.HELD

    assert sum(let_through() for _ in range(300)) / 300 <= 0.05


@pytest.mark.parametrize("rounds", [*range(1, 60)])
def test_a_limited_gate_keeps_rounds_to_confirm_every_look_but_the_last(rounds: int) -> None:
    """A suspicion at a look needs fresh rounds: without them nothing could fail."""
    rule = GateRule().within(rounds)
    *earlier, last = rule.interim_rounds
    assert rule.first == max(3, min(5, rounds // 2))
    assert all(look + rule.first <= max(rounds, 6) for look in earlier)
    assert last == max(3, min(40, rounds))


def test_a_suspicion_at_the_first_of_few_rounds_is_confirmed() -> None:
    """Within seven rounds the first look is at three, and the confirmation has three more."""
    stretches: list[tuple[int, int]] = []
    compare = compare_in_turn(WORSE, WORSE, WORSE, stretches=stretches)
    assert decide_gate(compare, GateRule().within(7)).verdict is Verdict.BROKEN
    assert stretches == [(0, 3), (3, 6), (0, 6)]


def test_where_nothing_is_comparable_nothing_is_decided() -> None:
    """It is undecided, and says why."""
    decision = decide_gate_on_stored((), (), (), TIMES)
    assert (decision.verdict, decision.why) == (
        Verdict.UNDECIDED,
        "nothing was measured in the same way on both sides",
    )


def test_without_rounds_nothing_is_decided() -> None:
    """Neither a first look nor a confirmation that could not be had is a verdict."""
    none, unconfirmed = decide_gate(compare_in_turn(), RULE), decide_gate(compare_in_turn(WORSE), RULE)
    assert (none.verdict, none.why) == (Verdict.UNDECIDED, "too few rounds could be run")
    assert (unconfirmed.verdict, unconfirmed.rounds) == (Verdict.UNDECIDED, 5)
    assert "no second run" in unconfirmed.why


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (SAME, True),
        (a_change(ChangeVerdict.BETTER, low=-0.3, high=-0.1), True),
        (WORSE, False),
        (OPEN, False),
        (a_change(ChangeVerdict.UNDECIDED, low=-0.4, high=0.02), True),
        (a_change(ChangeVerdict.UNDECIDED, low=-0.02, high=0.4, query=RATE), True),
        (a_change(ChangeVerdict.UNDECIDED, low=-0.1, high=0.01, query=RATE), False),
        (Change(query=SPEED, baseline=None, candidate=1.0, difference=None, interval=None,
                outcome=ChangeVerdict.UNDECIDED), False),
    ],
)  # fmt: skip
def test_a_metric_holds_when_it_is_shown_to_be_not_worse(change: Change, *, expected: bool) -> None:
    """It may be better by any amount; the end of the interval that is worse must be within what matters."""
    assert shown_to_hold(change) is expected


def test_nothing_shows_nothing() -> None:
    """A gate without metrics does not pass."""
    assert not all_held(())
    assert not all_held(None)


@pytest.mark.parametrize(
    ("alarm", "verdict"),
    [
        (SAME, Verdict.HELD),
        (OPEN, Verdict.UNDECIDED),
        (a_change(ChangeVerdict.WORSE, low=0.01, high=0.2), Verdict.UNDECIDED),
        (a_change(ChangeVerdict.WORSE, low=0.2, high=0.4), Verdict.BROKEN),
        (a_change(ChangeVerdict.WORSE, low=0.001, high=0.001, smallest=0.0), Verdict.BROKEN),
        (a_change(ChangeVerdict.WORSE, query=RATE, low=-0.4, high=-0.2), Verdict.BROKEN),
    ],
)
def test_stored_results_fail_only_by_more_than_a_machine_changes(alarm: Change, verdict: Verdict) -> None:
    """What was measured at another time is worse when it is so by more than that, and a count always."""
    assert decide_gate_on_stored((alarm,), (alarm,), (alarm,), TIMES).verdict is verdict


def test_a_restless_machine_is_no_witness_that_nothing_changed() -> None:
    """What holds by itself, and not with what the machine may have done in between, is undecided."""
    decision = decide_gate_on_stored((SAME,), (SAME,), (OPEN,), TIMES)
    assert decision.verdict is Verdict.UNDECIDED
    assert "measure both in turns" in decision.why


def test_what_is_better_neither_way_is_refused() -> None:
    """Such a metric cannot get worse."""
    check_directions((SPEED,))
    with pytest.raises(RequestError, match="no better direction"):
        check_directions((SPEED, Query.parse("cpu_utilization")))


def test_a_lower_accuracy_needs_no_second_run() -> None:
    """The machine may have changed since the baseline, which changes times and no answers."""
    answers = a_change(ChangeVerdict.WORSE, low=-0.02, high=-0.01, query=Query.parse("accuracy"))
    time = a_change(ChangeVerdict.WORSE, low=0.01, high=0.02)
    assert decide_gate_on_stored((answers,), (answers,), (answers,), TIMES).verdict is Verdict.BROKEN
    assert decide_gate_on_stored((time,), (time,), (time,), TIMES).verdict is Verdict.UNDECIDED


def test_a_withheld_rate_asks_for_no_more_processes() -> None:
    """It says itself why it is not known."""
    alarm = replace(OPEN, difference=None, interval=None, why="withheld in the candidate: short-load")
    decision = decide_gate_on_stored((alarm,), (alarm,), (alarm,), TIMES)
    assert (decision.verdict, decision.why) == (Verdict.UNDECIDED, "")


DISTURBED = a_small_result(
    measurements=(observed_number("foreign_cpu", 1.0),),
    doubts=(Doubt(code="interference", seen="other processes kept 1 core busy", advice=""),),
    environment=Environment(hardware={"cores_allowed": 2}),
)


def test_a_neighbour_of_the_candidate_is_no_regression() -> None:
    """Half as slow again beside one that took half of the cores is undecided; 3 times is not."""
    times = OtherTimes(baseline=a_small_result(), candidate=DISTURBED)
    slow, slower = (a_change(ChangeVerdict.WORSE, low=low, high=low + 0.1) for low in (0.5, 2.0))

    stored = decide_gate_on_stored((slow,), (slow,), (slow,), times)
    alone = against_stored(decide_gate(compare_in_turn(slow, slow, slow), RULE), times)

    for decision in (stored, alone):
        assert decision.verdict is Verdict.UNDECIDED
        assert "other processes may have made the candidate up to 2 times slower" in decision.why
    assert decide_gate_on_stored((slower,), (slower,), (slower,), times).verdict is Verdict.BROKEN
    ruling = decide_gate(compare_in_turn(slower, slower, slower), RULE)
    assert against_stored(ruling, times) is ruling


def test_a_neighbour_of_the_baseline_hides_what_has_become_slower() -> None:
    """What then looks as fast as before is undecided."""
    times = OtherTimes(baseline=DISTURBED, candidate=a_small_result())

    stored = decide_gate_on_stored((SAME,), (SAME,), (SAME,), times)
    alone = against_stored(decide_gate(compare_in_turn(SAME), RULE), times)

    for decision in (stored, alone):
        assert decision.verdict is Verdict.UNDECIDED
        assert decision.why.endswith("other processes slowed the baseline down; measure it again")
    undisturbed = decide_gate(compare_in_turn(SAME), RULE)
    assert against_stored(undisturbed, TIMES).verdict is Verdict.HELD
    undecided = decide_gate(compare_in_turn(), RULE)
    assert against_stored(undecided, times) is undecided


def test_a_candidate_passes_by_the_intervals_that_are_for_passing() -> None:
    """Those of another time are wider, and what holds without them does not pass."""
    ruling = decide_gate(compare_in_turn(*[SAME] * 8), RULE, lambda *_: (OPEN,))
    assert ruling.verdict is Verdict.UNDECIDED
