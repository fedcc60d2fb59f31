"""Two Results beside each other: what is judged, what differs, what is doubted."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.job import IMPORTED
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.doubt import CODES, Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.result import Environment
from modeldyno.base.result.static_data import StaticReport
from modeldyno.base.result.trace_data import Layer, TraceReport
from modeldyno.comparison.change.build import (
    CompareOptions,
    compare_results,
    job_facts,
    other_shapes,
    parse_max_regressions,
    parse_smallest_effects,
    selected_queries,
    with_second_pass,
)
from modeldyno.comparison.change.comparison import ChangeVerdict, SettingDiff, differing_facts
from modeldyno.comparison.change.default_metrics import ALL, SMALLEST
from modeldyno.testing.sample_results import a_job, a_small_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Fact, Result

PLAIN = CompareOptions()
MACHINE: dict[str, Fact] = {"processor": "a test processor", "cores": 2}


def run(*medians: float, **changes: Any) -> Result:
    """Make the Result of processes whose latencies have these medians, with a load time and a count."""
    steps = random.Random(7).sample(range(-20, 21), 41)
    runs = [[median * (1 + step / 1000) for step in steps] for median in medians]
    measurements = (
        Measurement(metric="latency", value=Distribution.of(*runs)),
        observed_number("load_time", 1.0),
        Measurement(metric="parameters", value=100),
    )
    return a_small_result(**({"measurements": measurements} | changes))


BEFORE = run(1.0, 1.001, 0.999, 1.002, 0.998)
AFTER = run(1.2, 1.201, 1.199, 1.202, 1.198)


def codes(*doubts: Doubt) -> list[str]:
    """Name doubts."""
    return [doubt.code for doubt in doubts]


def test_the_verdict_rests_on_the_headlines_and_every_metric_is_told() -> None:
    """The time of a call decides; load time and counts are listed with it."""
    comparison = compare_results(BEFORE, AFTER, PLAIN)

    assert comparison.outcome is ChangeVerdict.WORSE
    assert comparison.judged == (Query.parse("latency.p50"),)
    assert [str(change.query) for change in comparison.changes] == ["latency.p50", "load_time", "parameters"]


def test_a_question_narrows_what_is_judged() -> None:
    """What is asked for by its metric has its usual statistic, and nothing else is judged."""
    comparison = compare_results(BEFORE, AFTER, CompareOptions(metrics=("latency", "parameters")))

    assert [str(change.query) for change in comparison.changes] == ["latency.p50", "parameters"]


def test_a_metric_that_neither_has_is_refused() -> None:
    """The refusal says what both have."""
    with pytest.raises(RequestError, match=r"Neither of the two has energy; .* latency, load_time, param"):
        selected_queries(("energy",), BEFORE, AFTER)
    with pytest.raises(RequestError, match="what both have is nothing"):
        selected_queries(("energy",), a_small_result(), a_small_result())


def test_a_rate_that_both_withheld_is_refused_with_the_reason() -> None:
    """It was asked for, and a longer measurement would have it."""
    withheld = replace(BEFORE, doubts=(Doubt(code="short-load", seen="few", advice=""),))
    with pytest.raises(RequestError, match=r"has throughput, as it was withheld \(short-load\); what both"):
        selected_queries(("throughput",), withheld, withheld)


def test_a_query_is_taken_as_it_is_and_once() -> None:
    """Its own statistic counts."""
    queries = ("latency.p99.raw", "latency.p99.raw", "parameters")

    assert list(map(str, selected_queries(queries, BEFORE, AFTER))) == ["latency.p99.raw", "parameters"]


def test_unlike_hardware_is_refused_in_one_sentence() -> None:
    """The sentence names what is unlike, and the way out."""
    here = replace(BEFORE, environment=Environment(hardware=MACHINE))
    there = replace(AFTER, environment=Environment(hardware={**MACHINE, "cores": 8, "devices": "a card"}))

    with pytest.raises(RequestError, match=r"cores 2 and 8, devices not told and a card.*`force`"):
        compare_results(here, there, PLAIN)
    forced = compare_results(here, there, CompareOptions(force=True))

    assert "unlike-hardware" in codes(*forced.doubts)
    assert [difference.name for difference in forced.hardware] == ["cores", "devices"]


def test_what_is_not_known_is_not_unlike() -> None:
    """A Result that tells no hardware can be compared with any."""
    assert differing_facts({}, MACHINE) == ()
    assert differing_facts(MACHINE, {**MACHINE, "cores": 4}) == (
        SettingDiff(name="cores", baseline=2, candidate=4),
    )


def test_unlike_software_is_part_of_the_change() -> None:
    """It is listed, and doubts nothing."""
    here = replace(BEFORE, environment=Environment(software={"torch": "2.1"}))
    there = replace(AFTER, environment=Environment(software={"torch": "2.2"}))

    comparison = compare_results(here, there, PLAIN, in_turns=True)

    assert comparison.software == (SettingDiff(name="torch", baseline="2.1", candidate="2.2"),)
    assert comparison.doubts == ()


def test_runs_that_did_not_take_turns_are_doubted() -> None:
    """What the machine did in between counts, too."""
    assert codes(*compare_results(BEFORE, AFTER, PLAIN).doubts) == ["not-in-turns"]
    assert compare_results(BEFORE, AFTER, PLAIN, in_turns=True).doubts == ()


def test_counts_are_the_same_whenever_they_are_taken() -> None:
    """Models that were analysed one after the other are compared without a doubt."""
    parameters = [Measurement(metric="parameters", value=count) for count in (100, 50)]
    before, after = (a_small_result(measurements=(each,)) for each in parameters)

    comparison = compare_results(before, after, PLAIN)

    assert (comparison.outcome, comparison.doubts) == (ChangeVerdict.BETTER, ())


def test_what_another_tool_measured_was_measured_somewhere() -> None:
    """That nothing is known of the machine is doubted; where unlike machines are known, that is told."""
    foreign = replace(AFTER, job=replace(AFTER.job, backend=IMPORTED))

    (doubt,) = compare_results(BEFORE, foreign, PLAIN, in_turns=True).doubts

    assert (doubt.code, doubt.seen) == ("imported", f"where {foreign.id[:6]} was measured is not known")


def test_inputs_of_another_shape_are_doubted_whatever_they_are_called() -> None:
    """A name is none of the work."""
    one = replace(BEFORE, inputs=(InputSpec(name="x", shape=(8, 4), dtype="float32"),))
    named = replace(AFTER, inputs=(InputSpec(name="y", shape=(8, 4), dtype="float32"),))
    wider = replace(AFTER, inputs=(InputSpec(name="x", shape=(16, 4), dtype="float32"),))

    assert codes(*compare_results(one, named, PLAIN, in_turns=True).doubts) == []
    assert codes(*compare_results(one, wider, PLAIN, in_turns=True).doubts) == ["unlike-inputs"]
    assert (other_shapes(one, named), other_shapes(one, wider)) == ("", "8x4 and 16x4")
    assert other_shapes(one, replace(AFTER, inputs=())) == ""
    two = replace(AFTER, inputs=(*one.inputs, InputSpec(name="z", shape=None), InputSpec(name="n", shape=())))
    assert other_shapes(one, two) == "nothing and a scalar"


def test_every_doubt_is_in_the_table() -> None:
    """So that the reference explains it."""
    assert {"unlike-hardware", "unlike-inputs", "not-in-turns", "study-winner"} <= set(CODES)


def test_settings_are_the_knobs_inputs_load_and_plan() -> None:
    """What differs in them is told by name."""
    inputs = (
        InputSpec(name="x", shape=(8, 4), dtype="float32", low=0.0, high=1.0, digest="sha256:" + "ab" * 32),
        InputSpec(name="s", shape=(), dtype="int64", source="s.npy"),
        InputSpec(),
    )
    job = replace(a_job(), config={"threads": 2}, load=Load(concurrency=4))
    result = a_small_result(job=job, inputs=inputs)

    facts = job_facts(result)

    assert facts["threads"] == 2
    assert facts["load"] == "concurrency 4"
    assert facts["input x"] == "8x4 float32 0..1 values abababababab"
    assert facts["input s"] == "scalar int64 s.npy"
    assert facts["plan.target"] == "p50"
    assert facts["content"] == "5a5a5a5a5a5a"
    assert "plan.processes" not in facts
    assert "optimizer" not in facts


def test_the_optimizer_counts_where_a_model_is_trained() -> None:
    """And what never loaded has no content."""
    job = replace(a_job(), inspection=StaticOptions(mode=Mode.TRAIN))

    facts = job_facts(a_small_result(job=job, model=None))

    assert (facts["mode"], facts["optimizer"], facts["content"]) == ("train", "adamw", "not known")


def test_smallest_effects_are_read_for_all_or_for_one() -> None:
    """One for all replaces what is usual; one for a metric is added to it."""
    assert parse_smallest_effects(("5%",)) == {ALL: 0.05}
    assert parse_smallest_effects(("latency=1%", "0.1")) == {"latency": 0.01, ALL: 0.1}
    assert parse_smallest_effects(("latency.p99=1%",)) == {**SMALLEST, "latency.p99": 0.01}
    assert parse_smallest_effects(()) == SMALLEST


@pytest.mark.parametrize("text", ["latency", "latency=2", "-1%", "latncy=5%", "latency=5ms", "quick"])
def test_what_is_no_smallest_effect_is_refused(text: str) -> None:
    """A size is a part of a whole, and a metric is one of the table."""
    with pytest.raises(RequestError):
        parse_smallest_effects((text,))


def test_a_largest_regression_is_read_as_a_smallest_effect_but_is_never_zero() -> None:
    """Noise alone exceeds 0, and a whole is no bound."""
    assert parse_max_regressions(("latency=5%",)) == {**SMALLEST, "latency": 0.05}
    assert parse_smallest_effects(("0%",)) == {ALL: 0.0}
    with pytest.raises(RequestError, match=r"`max_regression` '0%' cannot be told apart from noise"):
        parse_max_regressions(("0%",))
    with pytest.raises(RequestError, match=r"`max_regression` 'latency=5' is not between 0% and 100%"):
        parse_max_regressions(("latency=5",))


def test_a_second_look_adds_what_the_first_has_not() -> None:
    """What was timed stays; layers, outline and new doubts come from the look."""
    first = replace(BEFORE, doubts=(Doubt(code="drift", seen="a", advice="b"),))
    second = run(
        9.0,
        measurements=(*run(9.0).measurements, observed_number("unattributed", 0.1, scope="layers")),
        activity=TraceReport(layers=(Layer(path="", kind="Net"),)),
        outline=StaticReport(),
        doubts=(Doubt(code="drift", seen="c", advice="d"), Doubt(code="parts-differ", seen="e", advice="f")),
    )

    joined = with_second_pass(first, second)

    assert joined.measurements[:3] == first.measurements
    assert joined.find("unattributed", "layers") is not None
    assert joined.activity == second.activity
    assert joined.outline == second.outline
    assert codes(*joined.doubts) == ["drift", "parts-differ"]
    assert with_second_pass(joined, run(1.0)).activity == second.activity


def test_a_question_of_no_metric_is_refused() -> None:
    """As soon as it is asked."""
    with pytest.raises(RequestError, match="foo"):
        CompareOptions(metrics=("latency", "foo"))


def test_as_many_other_cores_are_a_doubt() -> None:
    """The hardware is one, but a slow core is no fast one."""
    one, other = (
        replace(each, job=replace(each.job, plan=replace(each.job.plan, pin=pin)))
        for each, pin in ((BEFORE, (0,)), (AFTER, (1,)))
    )
    by_code = {doubt.code: doubt for doubt in compare_results(one, other, CompareOptions()).doubts}

    assert re.search(r"pinned to core 0 .*, .* pinned to core 1 ", by_code["unlike-cores"].seen)
    assert "unlike-cores" not in {doubt.code for doubt in compare_results(one, one, CompareOptions()).doubts}


def test_one_machine_with_other_pins_is_named_by_them() -> None:
    """The sentence tells of `pin`, and not of unlike hardware; other hardware is told as before."""
    here, there = ({**MACHINE, "cores_allowed": cores, "cpu_quota": 2.0} for cores in (1, 2))
    before = replace(BEFORE, environment=Environment(hardware=here))
    pinned = replace(before, job=replace(before.job, plan=replace(before.job.plan, pin=(0, 1))))
    free = replace(AFTER, environment=Environment(hardware=there))

    with pytest.raises(
        RequestError, match=r"pinned to cores 0, 1 \(`pin`\) and .* not pinned; .* same `pin`"
    ):
        compare_results(pinned, free, CompareOptions())
    with pytest.raises(RequestError, match="unlike hardware"):
        compare_results(before, free, CompareOptions())
