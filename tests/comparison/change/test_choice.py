"""The first preference that can be met decides which form of a model is chosen."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.metric import Query
from modeldyno.base.stats.schedule import RoundSchedule
from modeldyno.comparison.change.build import CompareOptions
from modeldyno.comparison.change.choice import SOURCE, Choice, Optimized, Preference, choose
from modeldyno.comparison.run import build_comparison
from modeldyno.conversion.agreement.conversion import Conversion
from modeldyno.testing.sample_results import a_failed_result, a_small_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result
    from modeldyno.comparison.change.comparison import Comparison

FORMS = ("onnx", "openvino")


def parsed(*texts: str) -> list[Preference]:
    """Read preferences."""
    return [Preference.parse(text, FORMS) for text in texts]


def run(median: float) -> Result:
    """Make the Result of five processes with this median latency, in seconds."""
    steps = random.Random(7).sample(range(-20, 21), 41)
    runs = [[median * (1 + (step + number) / 1000) for step in steps] for number in range(5)]
    return a_small_result(measurements=(Measurement(metric="latency", value=Distribution.of(*runs)),))


def compared(source: Result, *forms: Result) -> Comparison:
    """Compare forms with their source, as if they had been run in turns."""
    return build_comparison(
        [source, *forms],
        CompareOptions(),
        turns=RoundSchedule(side_count=1 + len(forms)),
        order="alternating",
    )


def test_a_preference_is_a_form_or_a_metric_with_bounds() -> None:
    """Latency without a statistic is its median."""
    form, latency, bounded, source = parsed(
        "openvino", "latency", "throughput if latency.p99 <= 10ms, latency.p50 <= 1ms", SOURCE
    )

    assert (form.form, form.query, source.form) == ("openvino", None, SOURCE)
    assert latency.query == Query.parse("latency.p50")
    assert bounded.query == Query.parse("throughput")
    assert [str(bound) for bound in bounded.bounds] == ["latency.p99 <= 10 ms", "latency.p50 <= 1 ms"]


def test_a_metric_without_a_better_way_is_no_preference() -> None:
    """Nor is an unknown word."""
    with pytest.raises(RequestError, match="Neither more nor less"):
        parsed("offered_rate")
    with pytest.raises(UnknownName):
        parsed("opnvino")


def test_the_form_that_is_surely_best_is_chosen() -> None:
    """By how much it is better is said."""
    choice = choose(parsed("latency"), FORMS, compared(run(1.0), run(0.5), run(0.3)))

    assert choice.form == "openvino"
    assert choice.change is not None
    assert choice.change.difference == pytest.approx(-0.7, abs=0.01)


def test_the_source_stays_where_no_form_is_surely_better() -> None:
    """It costs nothing to keep it."""
    assert choose(parsed("latency"), FORMS, compared(run(1.0), run(1.2), run(1.0))).form == SOURCE
    assert choose(parsed("latency"), (), None).form == SOURCE


def test_a_form_that_holds_the_bounds_is_chosen_though_the_source_is_as_fast() -> None:
    """If the source does not hold them; a preference whose bounds nothing holds is left to the next."""
    comparison = compared(run(1.0), run(1.01), run(0.97))

    held = choose(parsed("latency.p50 if latency.p50 <= 0.99s"), FORMS, comparison)
    after = choose(parsed("latency if latency.p50 <= 1ms", "source"), FORMS, comparison)
    nothing = choose(parsed("latency if latency.p50 <= 1ms"), FORMS, comparison)

    assert held.form == "openvino"
    assert (after.form, after.unmet) == (SOURCE, ("latency if latency.p50 <= 1ms",))
    assert (nothing.form, nothing.preference) == ("", None)


def test_a_form_that_failed_is_not_chosen() -> None:
    """Whatever it measured before."""
    comparison = compared(run(1.0), run(0.5), a_failed_result(environment=a_small_result().environment))

    assert choose(parsed("latency"), FORMS, comparison).form == "onnx"


def test_forms_are_taken_in_their_order() -> None:
    """The first that is still the model; nothing needs to be measured."""
    assert choose(parsed("openvino", "onnx"), ("onnx",)).form == "onnx"
    assert choose(parsed("openvino", "source"), ()).form == SOURCE
    assert choose(parsed("openvino", "latency"), ("onnx",)).unmet == ("openvino", "latency")


def test_what_was_optimized_is_shown_in_a_line() -> None:
    """With its form and its package, where it has them."""
    conversion = Conversion(id="0123456789ab", created="", source="net", model=None)
    made = Optimized(
        conversion=conversion, comparison=None, choice=Choice(form="onnx"), path="net-optimized.zip"
    )

    assert repr(made) == "<Optimized net: onnx in net-optimized.zip>"
    assert repr(Optimized(conversion=conversion, comparison=None, choice=Choice(form=""))) == (
        "<Optimized net: no form>"
    )
