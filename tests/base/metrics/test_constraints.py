from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.errors import RequestError, RunFailed, UnknownName
from modeldyno.base.metrics.constraints import Answer, Constraint, Verdict
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.base.metrics.metric import Query

HUNDREDTHS = [n / 1000 for n in range(1, 101)]
"""1 ms to 100 ms."""
LATENCY = Measurement(metric="latency", value=Distribution.of(HUNDREDTHS * 20))


def rate(low: float, value: float, high: float) -> Measurement:
    """Make an estimate with its interval."""
    return Measurement(metric="throughput", value=value, interval=Interval(low=low, high=high))


def judge(text: str, *measurements: Measurement) -> Verdict:
    """Judge a constraint as it is written."""
    return Constraint.parse(text).judge(measurements).verdict


class TestParse:
    @pytest.mark.parametrize(
        ("text", "at_most", "bound", "strict"),
        [
            ("latency.p99 <= 50ms", True, 0.05, False),
            ("latency.p99<50ms", True, 0.05, True),
            ("throughput >= 1,000/s", False, 1000.0, False),
            ("throughput>1000", False, 1000.0, True),
            ("latency.cv <= 5%", True, 0.05, False),
            ("latency.p99 <= 0", True, 0.0, False),
            ("latency.n >= 2k", False, 2000.0, False),
            ("latency.p50@a.b<=5ms", True, 0.005, False),
            ("latency.p50@prompt=128,generate=32 >= 5ms", False, 0.005, False),
            ("latency.p50@prompt=128<5ms", True, 0.005, True),
        ],
    )
    def test_a_bound_is_read(self, text: str, at_most: bool, bound: float, strict: bool) -> None:
        """A constraint is a query, a sign, and a quantity in the unit of the answer."""
        parsed = Constraint.parse(text)

        assert parsed.bound == pytest.approx(bound)
        assert (parsed.at_most, parsed.strict) == (at_most, strict)

    @pytest.mark.parametrize(
        "text", ["latency.p99", "latency.p99 = 5", "<= 5ms", "latency.p99 <=", "latency.p99 <= ", ""]
    )
    def test_what_is_no_constraint_is_refused(self, text: str) -> None:
        """Text outside the grammar is refused, with an example."""
        with pytest.raises(RequestError, match="is not a constraint; write query <= quantity"):
            Constraint.parse(text)

    def test_an_interval_cannot_be_bounded(self) -> None:
        """A bound on an interval is refused."""
        with pytest.raises(RequestError, match=r"drop the \.ci"):
            Constraint.parse("latency.p99.ci <= 50ms")

    def test_names_are_checked(self) -> None:
        """A misspelt metric is refused before anything is measured."""
        with pytest.raises(UnknownName, match="did you mean 'latency'"):
            Constraint.parse("latenc.p99 <= 50ms")

    @given(st.sampled_from(["<=", "<", ">=", ">"]), st.floats(1e-9, 1e9))
    def test_a_constraint_reads_itself(self, sign: str, bound: float) -> None:
        """What a constraint is written as is read as the same constraint."""
        written = Constraint.parse(f"latency.p99.9@a.b {sign} {bound!r}s")
        again = Constraint.parse(str(written))

        assert again.bound == pytest.approx(written.bound, rel=1e-11)
        assert (again.query, again.at_most, again.strict) == (written.query, written.at_most, written.strict)

    @pytest.mark.parametrize(
        ("text", "percentile"),
        [
            ("latency.p99 <= 1s", "p99"),
            ("latency.p99.raw <= 1s", None),
            ("latency.mean <= 1s", None),
            ("throughput >= 1", None),
        ],
    )
    def test_it_asks_for_a_percentile(self, text: str, percentile: str | None) -> None:
        """Only a percentile that is not raw asks to be certified."""
        assert Constraint.parse(text).percentile == percentile


class TestJudge:
    @pytest.mark.parametrize(
        ("text", "verdict"),
        [
            ("throughput >= 89", Verdict.HELD),
            ("throughput >= 90", Verdict.HELD),
            ("throughput > 90", Verdict.UNDECIDED),
            ("throughput >= 91", Verdict.UNDECIDED),
            ("throughput >= 110", Verdict.UNDECIDED),
            ("throughput > 110", Verdict.BROKEN),
            ("throughput >= 111", Verdict.BROKEN),
            ("throughput <= 111", Verdict.HELD),
            ("throughput <= 110", Verdict.HELD),
            ("throughput < 110", Verdict.UNDECIDED),
            ("throughput <= 90", Verdict.UNDECIDED),
            ("throughput < 90", Verdict.BROKEN),
            ("throughput <= 89", Verdict.BROKEN),
        ],
    )
    def test_the_whole_interval_decides(self, text: str, verdict: Verdict) -> None:
        """A bound is held or broken when the whole interval says so, else it is undecided."""
        assert judge(text, rate(90, 100, 110)) is verdict

    @pytest.mark.parametrize(
        ("text", "verdict"),
        [
            ("parameters <= 100", Verdict.HELD),
            ("parameters < 100", Verdict.BROKEN),
            ("parameters >= 100", Verdict.HELD),
            ("parameters > 100", Verdict.BROKEN),
            ("parameters <= 99", Verdict.BROKEN),
        ],
    )
    def test_an_exact_number_is_always_decided(self, text: str, verdict: Verdict) -> None:
        """A count bounds itself."""
        assert judge(text, Measurement(metric="parameters", value=100)) is verdict

    def test_a_certified_percentile_is_judged(self) -> None:
        """A percentile with enough samples is held or broken by its interval."""
        assert judge("latency.p50 <= 70ms", LATENCY) is Verdict.HELD
        assert judge("latency.p50 <= 30ms", LATENCY) is Verdict.BROKEN
        assert judge("latency.p50 <= 50ms", LATENCY) is Verdict.UNDECIDED

    @pytest.mark.parametrize(
        ("text", "verdict"),
        [("latency.p99 <= 1h", Verdict.UNDECIDED), ("latency.p99 <= 1ms", Verdict.BROKEN)],
    )
    def test_an_uncertified_percentile_is_never_held(self, text: str, verdict: Verdict) -> None:
        """A hundred samples can break a bound on the p99 and never hold it."""
        few = Measurement(metric="latency", value=Distribution.of(HUNDREDTHS))

        assert judge(text, few) is verdict

    def test_a_percentile_that_is_no_claim_holds_a_bound_that_enough_samples_keep(self) -> None:
        """A hundred independent samples, all of them within the bound, show that the p95 is."""
        samples = np.random.default_rng(3).permutation(HUNDREDTHS)
        few = Measurement(metric="latency", value=Distribution.of(samples))

        assert judge("latency.p95 <= 100ms", few) is Verdict.HELD
        assert judge("latency.p95 <= 99ms", few) is Verdict.UNDECIDED
        assert judge("latency.p95 <= 99ms", LATENCY) is Verdict.HELD
        assert Answer.to(Query.parse("latency.p95"), [few]).value is None

    def test_a_number_that_is_none_decides_nothing(self) -> None:
        """What is not a number is neither within a bound nor beyond it."""
        assert judge("throughput >= 1", rate(math.nan, math.nan, math.nan)) is Verdict.UNDECIDED

    @given(st.floats(0, 1e6), st.floats(0, 1e3), st.floats(0, 1e6))
    def test_opposite_bounds_agree(self, value: float, half: float, bound: float) -> None:
        """A strict bound is broken exactly where the opposite one is held."""
        measured = rate(value - half, value, value + half)
        opposite = {Verdict.HELD: Verdict.BROKEN, Verdict.BROKEN: Verdict.HELD}
        most = judge(f"throughput <= {bound!r}", measured)

        assert judge(f"throughput > {bound!r}", measured) is opposite.get(most, Verdict.UNDECIDED)


class TestAnswer:
    def test_a_scope_is_looked_up(self) -> None:
        """The measurement of the scope that was asked for answers."""
        measurements = [
            Measurement(metric="weight_bytes", value=n, scope=s) for n, s in ((5, ""), (3, "int8"))
        ]

        assert Answer.to(Query.parse("weight_bytes@int8"), measurements).value == 3
        assert Answer.to(Query.parse("weight_bytes"), measurements).value == 5

    def test_a_wrong_scope_is_refused(self) -> None:
        """A scope at which nothing was measured is refused with those at which something was."""
        with pytest.raises(RequestError, match=r"was not measured at 'b'; it was as a whole"):
            Answer.to(Query.parse("latency.p50@b"), [LATENCY])

    def test_of_many_scopes_the_nearest_are_named(self) -> None:
        """Five of those that are called most alike, the nearest first, and how many others there are."""
        scopes = [f"encoder.layer.{n}.{part}" for n in range(99) for part in ("attention", "mlp")]
        measurements = [Measurement(metric="macs", value=1, scope=scope) for scope in scopes]

        with pytest.raises(RequestError, match=r"at 'encoder.layer.7.attention', .* and 193 others\.$"):
            Answer.to(Query.parse("macs@encoder.layer.7.atention"), measurements)

    def test_what_has_scopes_only_is_not_asked_for_as_a_whole(self) -> None:
        """The scopes at which it was measured are named, the first of them where there are many."""
        few = [Measurement(metric="macs", value=1, scope=scope) for scope in "ab"]
        many = [Measurement(metric="macs", value=1, scope=scope) for scope in "gfedcba"]

        with pytest.raises(RequestError, match=r"not measured as a whole; it was at 'a', at 'b'\.$"):
            Answer.to(Query.parse("macs"), few)
        with pytest.raises(RequestError, match=r"it was at 'a', .* at 'e' and 2 others\.$"):
            Answer.to(Query.parse("macs"), many)

    def test_a_metric_that_was_not_measured_fails(self) -> None:
        """A metric that the run did not give is the run's failure."""
        with pytest.raises(RunFailed, match="This run has no throughput"):
            Answer.to(Query.parse("throughput"), [LATENCY])

    def test_a_distribution_needs_a_statistic(self) -> None:
        """Asking a distribution without naming a statistic is refused."""
        with pytest.raises(RequestError, match=r"name a statistic, such as latency\.p50"):
            Answer.to(Query.parse("latency"), [LATENCY])

    @pytest.mark.parametrize("bound", ["5", "0.005", "1e-3"])
    def test_a_time_needs_its_unit(self, bound: str) -> None:
        """Others count in milliseconds, and we in seconds: nobody is to guess."""
        with pytest.raises(RequestError, match=f"has no unit; write {bound}ms or {bound}s"):
            Constraint.parse(f"latency.p99 <= {bound}")

    def test_a_unit_of_something_else_is_refused(self) -> None:
        """The whole bound is named, and the units that a time has."""
        with pytest.raises(
            RequestError, match=r"'latency\.p99 <= 5%': '%' in '5%' is not a unit here; use one"
        ):
            Constraint.parse("latency.p99 <= 5%")

    def test_a_number_has_no_statistic(self) -> None:
        """Asking a plain number for its percentile is refused."""
        with pytest.raises(RequestError, match="has no p99; drop the statistic"):
            Answer.to(Query.parse("throughput.p99"), [rate(1, 2, 3)])

    def test_a_percentile_without_enough_samples_says_why(self) -> None:
        """An uncertified percentile has no value, and says how many samples are missing."""
        few = [Measurement(metric="latency", value=Distribution.of(HUNDREDTHS))]
        answer = Answer.to(Query.parse("latency.p99"), few)

        assert answer.value is None
        assert "effective samples are missing; latency.p99.raw gives the raw quantile" in answer.why
        assert Answer.to(Query.parse("latency.p99.raw"), few).value == 0.099

    def test_a_percentile_that_lacks_one_sample_says_so_in_the_singular(self) -> None:
        """Where a single effective sample is missing, the sentence speaks of one."""
        samples = [0.001 * (1 + (n * 7) % 13) for n in range(40)]
        few = next(
            distribution
            for distribution in (Distribution.of(samples[:size]) for size in range(1, len(samples)))
            if distribution.missing("p50") == 1
        )
        answer = Answer.to(Query.parse("latency.p50"), [Measurement(metric="latency", value=few)])

        assert answer.why.startswith("p50 is not certified: 1 effective sample is missing; ")

    def test_nothing_known_bounds_nothing(self) -> None:
        """An answer without value and interval could be anything."""
        bounds = Answer(query=Query.parse("latency.p99"), value=None).bounds()

        assert (bounds.low, bounds.high) == (-math.inf, math.inf)


class TestSentence:
    @pytest.mark.parametrize(
        ("text", "measured", "sentence"),
        [
            (
                "throughput >= 50/s",
                rate(90, 100, 110),
                "throughput >= 50/s: held (100/s, 95 % interval 90 to 110/s)",
            ),
            (
                "parameters <= 25M",
                Measurement(metric="parameters", value=22_713_216),
                "parameters <= 25 M: held (22.7 M)",
            ),
            (
                "load_time < 100ms",
                observed_number("load_time", 0.125),
                "load_time < 100 ms: broken (125 ms, seen once)",
            ),
            (
                "latency.p99 <= 50ms",
                Measurement(metric="latency", value=Distribution.of([0.125, 0.125])),
                "latency.p99 <= 50 ms: broken (not certified, at least 125 ms)",
            ),
            (
                "latency.n >= 10",
                Measurement(metric="latency", value=Distribution.of([0.125, 0.125])),
                "latency.n >= 10: broken (2)",
            ),
            (
                "throughput >= 1000/s",
                rate(0, 5.4, math.inf),
                "throughput >= 1,000/s: undecided (5.4/s, from too few samples to bound it)",
            ),
            (
                "latency.p50 <= 1ms",
                Measurement(metric="latency", value=Distribution.of([0.3, 0.2, 0.4])),
                "latency.p50 <= 1 ms: undecided (not certified: 8 effective samples are missing)",
            ),
        ],
    )
    def test_a_judgement_is_said_with_figures(self, text: str, measured: Measurement, sentence: str) -> None:
        """A judgement is one line: the bound, the verdict, and what it rests on."""
        assert Constraint.parse(text).judge([measured]).sentence() == sentence

    def test_what_is_known_of_an_uncertified_percentile_is_said(self) -> None:
        """Where a percentile is not certified, the side that its samples bound is given."""
        samples = np.random.default_rng(3).permutation(HUNDREDTHS)
        few = [Measurement(metric="latency", value=Distribution.of(samples))]
        sentence = Constraint.parse("latency.p99 <= 50ms").judge(few).sentence()

        assert sentence.startswith("latency.p99 <= 50 ms: broken (not certified, at least ")


def test_what_was_not_measured_is_undecided() -> None:
    """A bound on a metric that the run does not have is neither held nor broken, and says why."""
    judgement = Constraint.parse("allocator_reserved <= 1GiB").judge(())

    assert judgement.verdict is Verdict.UNDECIDED
    assert "no allocator_reserved" in judgement.answer.why
    assert "undecided (this run has no allocator_reserved; the probe" in judgement.sentence()


def test_what_only_an_accelerator_has_says_what_to_set() -> None:
    """A bound on a device's memory names the knob that runs the model on a device."""
    judgement = Constraint.parse("device_memory.max <= 1GiB").judge(())

    assert judgement.verdict is Verdict.UNDECIDED
    assert "no accelerator was watched; where there is one, `device=cuda` runs" in judgement.answer.why


@pytest.mark.parametrize(
    ("bound", "says"),
    [("latency <= 5ms", "name a statistic"), ("throughput.p99 >= 1/s", "is one number and has no p99")],
)
def test_a_bound_of_the_wrong_kind_is_refused_before_anything_runs(bound: str, says: str) -> None:
    """The table of metrics knows which are distributions."""
    with pytest.raises(RequestError, match=says):
        Constraint.parse(bound)


def test_a_number_that_was_only_seen_is_told_apart_from_a_count() -> None:
    """A count is exact; one load time, or a maximum, has no interval."""
    measurements = (
        Measurement(metric="parameters", value=3),
        observed_number("load_time", 1.0),
        Measurement(metric="latency", value=Distribution.of([1.0, 2.0])),
    )
    observed = [
        Answer.to(Query.parse(q), measurements).observed for q in ("parameters", "load_time", "latency.max")
    ]

    assert observed == [False, True, True]


def test_a_void_load_says_why_nothing_is_claimed_of_it() -> None:
    """However many samples there are; the plain quantile is still to be had."""
    spoilt = replace(LATENCY, value=replace(LATENCY.value, void="saturated"))  # type: ignore[type-var]

    refused = Answer.to(Query.parse("latency.p99"), [spoilt])
    assert (refused.value, refused.why) == (None, "the load was saturated")
    assert Answer.to(Query.parse("latency.p99.raw"), [spoilt]).value is not None


def test_a_rate_that_a_load_withheld_is_undecided() -> None:
    """A load without its rate says where the reason is; it is no matter of a probe that did not run."""
    judgement = Constraint.parse("token_rate >= 100/s").judge([observed_number("in_flight", 4.0)])

    assert judgement.verdict is Verdict.UNDECIDED
    assert "it was withheld, or not counted; see its doubts" in judgement.sentence()


def test_what_a_later_version_makes_void_has_no_value_either() -> None:
    """It says the code of the doubt, which this version does not know."""
    spoilt = replace(LATENCY, value=replace(LATENCY.value, void="of-tomorrow"))  # type: ignore[type-var]
    answer = Answer.to(Query.parse("latency.p50"), (spoilt,))
    assert (answer.value, answer.why) == (None, "it has the doubt of-tomorrow")


def test_a_cost_that_is_missing_says_what_it_follows_from() -> None:
    """A price and the rate that it is divided by."""
    judgement = Constraint.parse("token_cost <= 2").judge(())
    assert "from the price of the machine, `price=1.20/h`, and the token_rate" in judgement.answer.why


def test_an_amount_of_money_has_no_unit() -> None:
    """It is in the currency of the price."""
    assert str(Constraint.parse("cost<=0.5")) == "cost <= 0.5"
    with pytest.raises(RequestError, match=r"'0\.5EUR' has a unit; write the number alone"):
        Constraint.parse("cost <= 0.5EUR")
