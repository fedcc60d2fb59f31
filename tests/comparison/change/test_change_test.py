"""Changes between two Results: intervals by processes, verdicts, families."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import (
    Distribution,
    Interval,
    Measurement,
    SampleScores,
    observed_number,
    pack,
)
from modeldyno.base.metrics.metric import Query
from modeldyno.base.stats.statistics import share_interval
from modeldyno.comparison.change.change_test import judge_change, judge_changes, judge_numbers
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.change.default_metrics import ALL, headline_queries, shared_queries
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.comparison.change.comparison import Change

P50 = Query.parse("latency.p50")
RATE = Query.parse("throughput")
COUNT = Query.parse("parameters")


def latency(medians: Iterable[float], samples: int = 41, spread: float = 0.02) -> Measurement:
    """Make processes whose samples lie evenly around a median each."""
    steps = np.linspace(-spread, spread, samples)
    runs = [median * (1 + np.random.default_rng(7).permutation(steps)) for median in medians]
    return Measurement(metric="latency", value=Distribution.of(*runs))


def rates(values: Sequence[float], metric: str = "throughput") -> Measurement:
    """Make a number that was seen in several processes."""
    measurement = observed_number(metric, values[0])
    for value in values[1:]:
        measurement = measurement.pooled(observed_number(metric, value))
    return measurement


def count(value: int, metric: str = "parameters", interval: Interval | None = None) -> Measurement:
    """Make a count."""
    return Measurement(metric=metric, value=value, interval=interval)


def judged(before: Sequence[float], after: Sequence[float], **how: float | bool) -> Change:
    """Compare the medians of processes."""
    return judge_change(P50, latency(before), latency(after), **how)  # type: ignore[arg-type]


def result(*measurements: Measurement) -> Result:
    """Make a Result of what was measured."""
    return a_small_result(measurements=measurements)


# --- intervals ---------------------------------------------------------------------------------------

TIMES = st.lists(st.floats(1e-4, 10), min_size=3, max_size=9)


@settings(deadline=None)
@given(TIMES, TIMES)
def test_the_interval_is_welchs_on_logarithms(before: list[float], after: list[float]) -> None:
    """Processes that did not take turns are compared as scipy compares them."""
    change = judge_change(RATE, rates(before), rates(after))
    logs = np.log(before), np.log(after)
    if min(np.ptp(logs[0]), np.ptp(logs[1])) < 1e-6:
        return
    reference = stats.ttest_ind(logs[1], logs[0], equal_var=False, trim=0.15).confidence_interval(0.95)
    assert change.interval is not None
    assert change.interval.low == pytest.approx(math.expm1(reference.low), rel=1e-6, abs=1e-9)
    assert math.log1p(change.interval.high) == pytest.approx(min(reference.high, 700), rel=1e-6, abs=1e-9)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=3, max_size=9))
def test_runs_that_took_turns_are_paired(rounds: list[tuple[float, float]]) -> None:
    """Rounds are compared as scipy compares pairs."""
    before, after = zip(*rounds, strict=True)
    change = judge_change(RATE, rates(before), rates(after), paired=True)
    logs = np.log(before), np.log(after)
    if np.ptp(logs[1] - logs[0]) < 1e-6 or "fastest" in change.why:
        return  # nothing differs; or the fastest are compared, which scipy does not know
    differences = np.sort(logs[1] - logs[0])
    out = int(0.15 * differences.size)
    inner = differences[out : differences.size - out]
    spread = stats.mstats.winsorize(differences, (0.15, 0.15)).std(ddof=1)
    error = spread / ((1 - 2 * out / differences.size) * math.sqrt(differences.size))
    # Yuen's error, as scipy has it for two samples, is that of h (h - 1) instead of h^2 (n - 1) / n.
    error *= math.sqrt(inner.size / (inner.size - 1) * (differences.size - 1) / differences.size)
    reach = stats.t.ppf(0.975, inner.size - 1) * error
    assert change.interval is not None
    assert change.interval.low == pytest.approx(math.expm1(inner.mean() - reach), rel=1e-6, abs=1e-9)
    assert change.interval.high == pytest.approx(math.expm1(inner.mean() + reach), rel=1e-6, abs=1e-9)


def test_pairing_takes_out_what_both_of_a_round_met() -> None:
    """A machine that drifts by half hides 10 % from groups, and not from pairs."""
    drift = [1.0, 1.1, 1.25, 1.4, 1.5]
    slower = [1.1 * each * (1 + 0.002 * sign) for each, sign in zip(drift, (1, -1, 1, -1, 1), strict=True)]
    assert judged(drift, slower).outcome is ChangeVerdict.UNDECIDED
    assert judged(drift, slower, paired=True).outcome is ChangeVerdict.WORSE


def test_two_times_of_a_restless_machine_are_not_the_same() -> None:
    """Apart, the interval is that of a process of another time; a quiet machine passes."""
    quiet, restless = ([1 + size * at for at in (-2, -1, 0, 1, 2)] for size in (0.001, 0.01))
    assert judged(quiet, quiet, apart=True).outcome is ChangeVerdict.SAME
    assert judged(restless, restless, level=0.9, smallest=0.03).outcome is ChangeVerdict.SAME
    change = judged(restless, restless, level=0.9, smallest=0.03, apart=True)
    error = np.log(restless).std(ddof=1) * math.sqrt(2 + 2 / 5)
    assert change.outcome is ChangeVerdict.UNDECIDED
    assert change.interval is not None
    assert math.log1p(change.interval.high) == pytest.approx(stats.t.ppf(0.95, 8) * error)


def test_unequal_numbers_of_rounds_are_no_pairs() -> None:
    """Where a process is missing, nothing says which is whose."""
    change = judged([1.0, 1.01, 1.02], [1.0, 1.01, 1.02, 1.0], paired=True)
    assert "paired" not in change.why


@settings(deadline=None, max_examples=10)
@given(TIMES, TIMES, st.booleans())
def test_the_figures_agree_with_the_difference(before: list[float], after: list[float], paired: bool) -> None:
    """Whatever is compared: processes, rounds, or the fastest of them."""
    count = min(len(before), len(after))
    for here, there in ((before, after), (before[:count], after[:count]), (before * 3, before[::-1] * 3)):
        change = judge_change(Query.parse("latency.p50"), latency(here), latency(there), paired=paired)
        assert change.baseline is not None
        assert change.candidate is not None
        assert change.difference is not None
        assert change.candidate / change.baseline - 1 == pytest.approx(change.difference, rel=1e-9, abs=1e-12)
        assert min(here) * 0.97 <= change.baseline <= max(here) * 1.03


# --- verdicts ----------------------------------------------------------------------------------------

STEADY = [1.0, 1.004, 0.997, 1.002, 0.999]


@pytest.mark.parametrize(
    ("factor", "outcome"),
    [
        (1.1, ChangeVerdict.WORSE),
        (0.9, ChangeVerdict.BETTER),
        (1.005, ChangeVerdict.SAME),
        (1.028, ChangeVerdict.UNDECIDED),
    ],
)
def test_a_verdict_needs_the_test_and_the_effect(factor: float, outcome: ChangeVerdict) -> None:
    """What is certain and matters is worse or better; certain and small is the same, or undecided."""
    assert judged(STEADY, [factor * each for each in STEADY]).outcome is outcome


def test_a_large_difference_that_is_not_certain_is_undecided() -> None:
    """An effect alone is no verdict."""
    change = judged([1.0, 1.3, 0.8], [1.2, 1.5, 0.9])
    assert change.outcome is ChangeVerdict.UNDECIDED
    assert change.difference is not None
    assert change.difference > change.smallest
    assert change.why.startswith("further processes are needed")


def test_a_certain_difference_near_what_matters_is_undecided() -> None:
    """A test alone is no verdict, and the reason says so."""
    change = judged(STEADY, [1.028 * each for each in STEADY])
    assert change.why.startswith("there is a change, and it may be less")


def test_more_throughput_is_better() -> None:
    """The table of metrics says which way is better."""
    fast = [1.2 * each for each in STEADY]
    assert judge_change(RATE, rates(STEADY), rates(fast)).outcome is ChangeVerdict.BETTER
    assert judge_change(RATE, rates(fast), rates(STEADY)).outcome is ChangeVerdict.WORSE


def test_what_is_better_neither_way_gets_no_verdict() -> None:
    """A metric without a direction is undecided, or the same."""
    query, slow, fast = Query.parse("cpu_utilization"), STEADY, [2 * each for each in STEADY]
    change = judge_change(query, rates(slow, "cpu_utilization"), rates(fast, "cpu_utilization"))
    assert (change.outcome, change.why.split(";")[0]) == (
        ChangeVerdict.UNDECIDED,
        "it has no better direction",
    )
    assert (
        judge_change(query, rates(slow, "cpu_utilization"), rates(slow, "cpu_utilization")).outcome
        is ChangeVerdict.SAME
    )


def test_a_percentile_that_is_no_claim_is_undecided() -> None:
    """Ten samples a process certify no p99; the reason says what is missing."""
    change = judge_change(Query.parse("latency.p99"), latency(STEADY), latency(STEADY))
    assert (change.outcome, change.baseline, change.interval) == (ChangeVerdict.UNDECIDED, None, None)
    assert "is not certified" in change.why


def test_any_statistic_of_a_distribution_is_compared() -> None:
    """The mean of each process serves as well as its median."""
    change = judge_change(
        Query.parse("latency.mean"), latency(STEADY), latency([2 * each for each in STEADY])
    )
    assert change.difference == pytest.approx(1.0)
    assert change.outcome is ChangeVerdict.WORSE


# --- few processes -----------------------------------------------------------------------------------


def test_one_process_a_side_tells_a_factor_of_two_and_not_a_tenth() -> None:
    """What starts differ by is assumed where it was not seen, and said."""
    double, tenth = judged([1.0], [2.0]), judged([1.0], [1.1])
    assert (double.outcome, tenth.outcome) == (ChangeVerdict.WORSE, ChangeVerdict.UNDECIDED)
    assert "fewer than 3" in double.why
    assert tenth.interval is not None
    assert tenth.interval.half_width() > 0.15


def test_starts_of_a_lone_baseline_differ_as_those_of_five_candidates() -> None:
    """The spread of the five replaces the assumed one, and decides +10 %; in 95 % of draws it covers none."""
    alone, borrowed = judged([1.0], [1.1]), judged([1.0], [1.1, 1.105, 1.095, 1.1, 1.1])
    assert [change.outcome for change in (alone, borrowed)] == [ChangeVerdict.UNDECIDED, ChangeVerdict.WORSE]
    assert "as in the 5" in borrowed.why
    chance = random.Random(7)
    draws = [[math.exp(chance.gauss(0, 0.02)) for _ in range(6)] for _ in range(2000)]
    covered = [judge_numbers(P50, numbers[:1], numbers[1:]).interval for numbers in draws]
    share = sum(interval.low <= 0 <= interval.high for interval in covered if interval) / len(draws)
    assert share == pytest.approx(0.95, abs=0.015)


def test_five_loads_say_nothing_of_a_lone_one() -> None:
    """Files may be in the machine's caches for the five, and not for the one."""
    query = Query.parse("load_time")
    assert judge_numbers(query, [1.0], [0.6] * 5, smallest=0.25).outcome is ChangeVerdict.UNDECIDED


@pytest.mark.parametrize(("metric", "factor"), [("load_time", 2.5), ("first_call", 1.7)])
def test_what_happens_once_a_process_is_not_judged_from_one_process(metric: str, factor: float) -> None:
    """Loads of one model differ by such factors, as files may or may not be in the machine's caches."""
    query = Query.parse(metric)
    lone = judge_numbers(query, [factor], [1.0], smallest=0.25)
    few = judge_numbers(query, [factor, factor], [1.0, 1.0], smallest=0.25)
    several = judge_numbers(
        query, [factor * x for x in (1.0, 1.1, 0.9, 1.05)], [1.0, 1.1, 0.9, 1.05], smallest=0.25
    )
    assert [change.outcome for change in (lone, few, several)] == [
        ChangeVerdict.UNDECIDED,
        ChangeVerdict.UNDECIDED,
        ChangeVerdict.BETTER,
    ]


def test_two_processes_that_differ_widen_the_interval() -> None:
    """What is seen of the spread joins what is assumed."""
    calm, wild = judged([1.0, 1.0], [1.0, 1.0]), judged([1.0, 1.3], [1.0, 1.3])
    assert calm.interval is not None
    assert wild.interval is not None
    assert wild.interval.half_width() > 2 * calm.interval.half_width()


def test_few_samples_of_a_lone_process_widen_the_interval() -> None:
    """The error within a run counts where nothing else shows it."""
    fine, rough = judged([1.0], [1.0]), judge_change(P50, latency([1.0], 13, 0.5), latency([1.0], 13, 0.5))
    assert fine.interval is not None
    assert rough.interval is not None
    assert rough.interval.half_width() > 1.5 * fine.interval.half_width()


# --- counts, and what has no ratio -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "smallest", "outcome"),
    [
        (1000, 1000, 0.0, ChangeVerdict.SAME),
        (1000, 1001, 0.0, ChangeVerdict.WORSE),
        (1000, 999, 0.0, ChangeVerdict.BETTER),
        (1000, 1001, 0.05, ChangeVerdict.SAME),
        (1000, 1049, 0.05, ChangeVerdict.SAME),
        (1000, 953, 0.05, ChangeVerdict.SAME),
        (1000, 952, 0.05, ChangeVerdict.BETTER),
        (0, 7, 0.05, ChangeVerdict.WORSE),
        (0, 0, 0.0, ChangeVerdict.SAME),
    ],
)
def test_counts_compare_exactly(before: int, after: int, smallest: float, outcome: ChangeVerdict) -> None:
    """A count has no interval but itself; an effect that was given holds for it, too."""
    change = judge_change(COUNT, count(before), count(after), smallest=smallest)
    assert change.outcome is outcome
    assert (change.interval is None) is (before == 0 < after)


def test_what_could_not_be_counted_leaves_counts_undecided() -> None:
    """Bounds of counts that overlap allow no verdict."""
    open_ended = Interval(low=1000, high=math.inf)
    query = Query.parse("macs")
    change = judge_change(query, count(1000, "macs", open_ended), count(1100, "macs"), smallest=0.0)
    assert change.outcome is ChangeVerdict.UNDECIDED


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ([0.0] * 5, [0.0] * 5, ChangeVerdict.SAME),
        ([0.0] * 5, [0.1, 0.2, 0.1, 0.3, 0.2], ChangeVerdict.WORSE),
        ([0.1, 0.2, 0.1, 0.3, 0.2], [0.0] * 5, ChangeVerdict.BETTER),
        ([0.0] * 2, [0.1, 0.2], ChangeVerdict.UNDECIDED),
        ([0.0] * 5, [0.0, 0.2, 0.1, 0.3, 0.2], ChangeVerdict.UNDECIDED),
    ],
)
def test_what_has_no_ratio_is_judged_by_order(
    before: list[float], after: list[float], outcome: ChangeVerdict
) -> None:
    """Errors where there were none are worse when every process agrees and there are enough of them."""
    query = Query.parse("error_rate")
    change = judge_change(query, rates(before, "error_rate"), rates(after, "error_rate"))
    assert change.outcome is outcome


# --- several metrics together ------------------------------------------------------------------------


def test_a_gate_judges_the_headlines_that_the_baseline_has() -> None:
    """What the candidate lacks of them is undecided, not forgotten."""
    memory = Measurement(metric="process_memory", value=Distribution.of([5e8] * 20, [5e8] * 20, [5e8] * 20))
    before = result(latency(STEADY), rates(STEADY), count(10), memory)
    changes = judge_changes(before, result(latency(STEADY), rates(STEADY)))
    assert [str(each.query) for each in changes] == ["latency.p50", "process_memory.max"]
    assert [each.outcome for each in changes] == [ChangeVerdict.SAME, ChangeVerdict.UNDECIDED]
    assert changes[1].why == "not measured in the candidate"


def test_a_rate_that_was_withheld_is_undecided_and_says_so() -> None:
    """On either side, or on both; what was not measured for another reason is not withheld."""
    has = result(latency(STEADY), rates(STEADY))
    lacks, other = (
        replace(result(latency(STEADY)), doubts=(Doubt(code=code, seen="few", advice=""),))
        for code in ("short-load", "little-law")
    )

    def why(before: Result, after: Result, query: str = "throughput") -> str:
        (change,) = judge_changes(before, after, queries=[query])
        assert (change.outcome, change.difference) == (ChangeVerdict.UNDECIDED, None)
        return change.why

    assert why(has, lacks) == "withheld in the candidate: short-load"
    assert why(other, has) == "withheld in the baseline: little-law"
    assert why(lacks, other) == "withheld in both: little-law and short-load"
    assert why(lacks, result(latency(STEADY))) == "not measured in either"
    assert why(lacks, lacks, "energy") == "not measured in either"


def test_without_headlines_all_that_both_have_is_judged() -> None:
    """Two static Results are compared by their counts."""
    changes = judge_changes(result(count(10), count(7, "trainable_parameters")), result(count(11)))
    assert [(str(each.query), each.outcome) for each in changes] == [("parameters", ChangeVerdict.WORSE)]


def test_a_model_that_was_analysed_is_judged_by_what_it_costs() -> None:
    """Work, weights and memory decide; what follows from them is told beside it."""
    before = result(count(10), count(5, "macs"), count(7, "bytes_read"))
    assert list(map(str, headline_queries(before, before))) == ["parameters", "macs"]
    file = result(count(7, "file_bytes"))
    assert list(map(str, headline_queries(file, file))) == ["file_bytes"]
    state = result(count(7, "buffers"))
    assert headline_queries(state, state) == (), "how a model is stored is neither better nor worse"


def test_intervals_widen_with_unlike_metrics_and_not_with_kin() -> None:
    """Throughput beside latency costs nothing; a load time does."""

    def width(*queries: str) -> float:
        both = result(latency(STEADY), rates(STEADY), rates(STEADY, "load_time"), count(3))
        interval = judge_changes(both, both, queries=queries)[0].interval
        assert interval is not None
        return interval.half_width()

    assert width("latency.p50", "throughput", "parameters") == pytest.approx(width("latency.p50"))
    assert width("latency.p50", "load_time") > 1.1 * width("latency.p50")


def test_the_smallest_effect_is_found_by_query_then_metric_then_for_all() -> None:
    """The most particular one counts."""
    both = result(latency(STEADY), rates(STEADY), count(3))
    queries = ("latency.p50", "latency.mean", "throughput", "parameters")

    def smallest(**by_metric: float) -> list[float]:
        changes = judge_changes(
            both, both, queries=queries, smallest={k.replace("_p", ".p"): v for k, v in by_metric.items()}
        )
        return [each.smallest for each in changes]

    assert smallest() == [0.03, 0.03, 0.03, 0.03]
    assert smallest(latency_p50=0.1, latency=0.2, **{ALL: 0.05}) == [0.1, 0.2, 0.05, 0.05]


def test_what_neither_has_is_undecided_and_what_cannot_be_asked_is_refused() -> None:
    """A metric without measurements gives a row; a query that does not fit gives an error."""
    both = result(latency(STEADY))
    (absent,) = judge_changes(both, both, queries=["throughput"])
    assert (absent.outcome, absent.why) == (ChangeVerdict.UNDECIDED, "not measured in either")
    (new,) = judge_changes(result(), both, queries=["latency.p50"])
    assert (new.baseline, new.why) == (None, "not measured in the baseline")
    assert new.candidate == pytest.approx(1.0, rel=0.01)
    with pytest.raises(RequestError, match="name a statistic"):
        judge_changes(both, both, queries=["latency"])


def test_a_whole_call_is_a_headline_beside_that_of_the_model() -> None:
    """Whoever gives a function before or after the model sees its effect; a single stage is not judged."""
    scoped = tuple(replace(latency(STEADY), scope=scope) for scope in ("end_to_end", "preprocess"))
    both = result(latency(STEADY), *scoped)
    assert list(map(str, headline_queries(both, both))) == ["latency.p50", "latency.p50@end_to_end"]


def test_shared_metrics_leave_out_circumstances_scopes_and_other_kinds() -> None:
    """A metric is compared as a whole, where both have it alike, and where it tells of the model."""
    scoped = Measurement(metric="macs", value=5, scope="layer")
    lone = Measurement(metric="process_memory", value=3)
    memory = Measurement(metric="process_memory", value=Distribution.of([5e8] * 20))
    before = result(latency(STEADY), rates(STEADY, "steal"), scoped, memory, rates(STEADY, "calls"))
    after = result(latency(STEADY), rates(STEADY, "steal"), scoped, lone, rates(STEADY, "calls"))
    assert list(map(str, shared_queries(before, after))) == ["latency.p50"]
    assert list(map(str, shared_queries(before, before))) == ["latency.p50", "process_memory.max"]
    assert list(map(str, headline_queries(after, before))) == ["latency.p50"]


def test_memory_that_differs_by_less_than_an_allocator_takes_at_once_is_the_same() -> None:
    """A page more, of none or of one, is no change; a megabyte more, of two, is one."""
    query = Query.parse("process_memory.max")

    def compared(before: Sequence[float], after: Sequence[float]) -> ChangeVerdict:
        distributions = (Distribution.of(*([each] for each in side)) for side in (before, after))
        return judge_change(
            query, *(Measurement(metric="process_memory", value=side) for side in distributions)
        ).outcome

    assert compared([0.0] * 5, [4096.0] * 5) is ChangeVerdict.SAME
    assert compared([4096.0] * 5, [0.0] * 5) is ChangeVerdict.SAME
    assert compared([4096.0] * 5, [8192.0] * 5) is ChangeVerdict.SAME
    assert compared([2e6, 2.001e6, 2.002e6] * 2, [3e6, 3.001e6, 3.002e6] * 2) is ChangeVerdict.WORSE


# --- evaluations -------------------------------------------------------------------------------------


def evaluated(
    right: int, n: int = 1000, *, first: int = 0, data: str = "d", metric: str = "accuracy"
) -> Measurement:
    """Make an evaluation of which all samples are right from `first` on, `right` of them."""
    scores = np.zeros(n)
    scores[first : first + right] = 1.0
    low, high = share_interval(right, n)
    return Measurement(
        metric=metric,
        value=right / n,
        interval=Interval(low=low, high=high),
        scores=SampleScores(data=data, values=pack(scores)),
    )


ACCURACY = Query.parse("accuracy")


def test_evaluations_of_the_same_samples_are_compared_sample_by_sample() -> None:
    """Ten samples lost of a thousand are certain if no other differs, and not if the samples were others."""
    before = evaluated(990)
    paired = judge_change(ACCURACY, before, evaluated(980), smallest=0.005)
    apart = judge_change(ACCURACY, before, evaluated(980, data="other"), smallest=0.005)

    assert (paired.outcome, apart.outcome) == (ChangeVerdict.WORSE, ChangeVerdict.UNDECIDED)
    assert [paired.difference, apart.difference] == pytest.approx([-0.01 / 0.99] * 2)
    assert "1,000 samples" in paired.why
    assert "more labelled samples are needed" in apart.why


def test_equal_scores_of_all_samples_are_the_same() -> None:
    """Although so few samples could hide a difference; as many right ones elsewhere are no such proof."""
    before = evaluated(90, 100)
    assert judge_change(ACCURACY, before, evaluated(90, 100)).outcome is ChangeVerdict.SAME
    moved = judge_change(ACCURACY, before, evaluated(90, 100, first=10), smallest=0.005)
    assert (moved.difference, moved.outcome) == (0, ChangeVerdict.UNDECIDED)


def test_a_change_from_no_wrong_answer_has_no_ratio() -> None:
    """It is judged all the same."""
    none, some, few = (evaluated(count, metric="misclassification") for count in (0, 100, 1))
    query = Query.parse("misclassification")
    change = judge_change(query, none, some)
    assert (change.difference, change.outcome) == (None, ChangeVerdict.WORSE)
    assert judge_change(query, none, few).outcome is ChangeVerdict.UNDECIDED
