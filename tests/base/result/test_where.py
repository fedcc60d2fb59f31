from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from modeldyno.base.metrics.measurement import Measurement, observed_number
from modeldyno.base.result.result import Environment
from modeldyno.base.result.where import (
    KeptNumber,
    as_number,
    as_text,
    conditions,
    facts,
    kept_numbers,
    matches,
)
from modeldyno.base.result.where_text import parse
from modeldyno.testing.sample_results import a_failed_result, a_job, a_result, an_activity, an_inspection

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MANY = [0.010 + n % 11 / 10_000 for n in range(2000)]
"""Samples between 10 and 11 ms that certify a p99."""


def held(text: str, result: object = None, tags: tuple[str, ...] = ()) -> bool:
    return matches(parse(text, now=NOW), result or a_result(), tags)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "latency.mean < 2ms", "latency.mean <= 2ms", "latency.mean > 1ms", "latency.mean >= 1ms",
        "throughput = 6200.5/s", "parameters = 4810", "weight_bytes@float32 < 20kB", "latency.max > 3ms",
        "batch_size = 8", "batch_size = 8.0", "batch_size != 4", "batch_size > 4", "threads <= 2",
        "device = cpu", "io_binding = false", "config.threads = 2", "name = digits", "name ~ DIGI",
        "backend ~ onnx", "framework = onnx", "tag = nightly", "tag ~ night",
        "tag != weekly", "created = 2026-01-02", "created >= 2026-01-02", "created < 2026-01-03",
        "created > 2026-01-01", "created <= 2026-01-02", "not failed", "failed = no",
        "failed or batch_size = 8", "not (failed or batch_size = 4)",
    ],
)  # fmt: skip
def test_a_condition_holds(text: str) -> None:
    assert held(text, tags=("nightly",))


@pytest.mark.parametrize(
    "text",
    [
        "latency.mean < 1ms", "latency.mean > 2ms", "parameters = 4811", "energy < 1J", "energy >= 0J",
        "batch_size = 4", "batch_size < 8", "batch_size > 8", "config.device > 1", "io_binding = true",
        "depth = 8", "name = digit", "name = Digits", "backend = onnx", "framework = torch", "gpu ~ A100",
        "tag = night", "created > 2026-01-02", "created < 2026-01-02", "created = 2026-01-03", "failed",
        "failed = yes", "batch_size = 8 and failed", "latency.p50@decode < 1s",
    ],
)  # fmt: skip
def test_a_condition_does_not_hold(text: str) -> None:
    assert not held(text, tags=("nightly",))


def test_what_a_result_lacks_keeps_no_bound_and_breaks_none() -> None:
    """Only the negation of such a condition holds: it was not measured."""
    assert not held("energy < 1J")
    assert not held("energy >= 1J")
    assert held("not energy < 1J")
    assert held("energy != 1J")


def test_a_percentile_that_is_not_certified_is_no_claim() -> None:
    """It keeps no bound, as its bound is undecided; its raw quantile does."""
    assert not held("latency.p99 < 20ms")
    assert held("latency.p99.raw < 20ms")
    assert held("latency.p99 < 20ms", a_result(samples=MANY))


def test_surely_asks_the_whole_interval() -> None:
    """A bound within the interval is kept by the value alone; what was seen once has no interval."""
    result = a_result(samples=MANY)
    number = kept_numbers(result)["latency.p50"]
    assert number.low is not None
    assert number.high is not None
    assert number.value is not None
    between = (number.value + number.high) / 2 if number.high > number.value else number.high

    assert held(f"latency.p50 <= {between!r}s", result)
    assert held(f"surely latency.p50 <= {between!r}s", result) == (between >= number.high)
    assert held("surely throughput > 6000/s")
    assert held("throughput > 6150/s")
    assert not held("surely throughput > 6150/s")
    assert held("load_time < 1s")
    assert not held("surely load_time < 1s")
    assert held("surely parameters < 10k")


def test_numbers_of_modules_are_not_kept() -> None:
    """Of a large model they would be thousands; the whole, its parts by type and its devices are."""
    kept = kept_numbers(an_inspection())

    assert kept["parameters"] == KeptNumber(value=22_713_216, raw=22_713_216, low=22_713_216, high=22_713_216)
    assert "weight_bytes@float32" in kept
    assert "roofline_latency@a100" in kept
    assert not any("@encoder" in query for query in kept)


def test_numbers_of_traced_layers_are_not_kept() -> None:
    path = an_activity().layers[-1].path
    latency = replace(a_result().measurements[0], scope=path)
    result = a_result(activity=an_activity(), measurements=(*a_result().measurements, latency))

    assert f"latency.p50@{path}" not in kept_numbers(result)
    assert "latency.p50" in kept_numbers(result)


def test_a_statistic_that_another_tool_told_is_kept_under_its_name() -> None:
    measurements = (observed_number("latency", 0.5, scope="p99"), observed_number("requests", 10, scope="ok"))

    assert kept_numbers(a_result(measurements=measurements))["latency.p99"] == KeptNumber(
        value=None, raw=0.5, low=None, high=None
    )


def test_a_number_that_is_not_finite_is_not_known() -> None:
    rate = Measurement(metric="throughput", value=float("inf"))

    assert not held("throughput > 1/s", a_result(measurements=(rate,)))


def test_facts_are_the_settings_and_where_it_ran() -> None:
    assert facts(a_result()) == {
        "config.batch_size": 8,
        "config.device": "cpu",
        "config.io_binding": False,
        "config.threads": 2,
        "framework": "onnx",
    }
    assert (
        facts(a_result(environment=Environment(hardware={"processor": "P", "devices": "A100"})))["gpu"]
        == "A100"
    )
    assert "framework" not in facts(a_failed_result())


@pytest.mark.parametrize(
    ("value", "text", "number"),
    [
        (True, "true", None),
        (8, "8", 8.0),
        (0.5, "0.5", 0.5),
        ("fp16", "fp16", None),
        ("8", "8", None),
        (10**400, str(10**400), None),
        (float("nan"), "nan", None),
    ],
)
def test_a_setting_as_text_and_as_a_number(
    value: bool | float | str, text: str, number: float | None
) -> None:
    assert as_text(value) == text
    assert as_number(value) == number


def test_a_setting_of_any_type_compares() -> None:
    """Text that reads like a number equals it as text; a huge number is compared as text alone."""
    result = a_result(job=replace(a_job(), config={"note": "8", "seed": 10**400}))

    assert held("note = 8", result)
    assert not held("note > 7", result)
    assert held(f"seed = {10**400}", result)
    assert not held("seed > 7", result)
    assert held("seed ~ 000", result)


def test_only_letters_a_to_z_lose_their_case() -> None:
    """As in every database; elsewhere, a list would depend on where the store is."""
    result = a_result(job=replace(a_job(), config={"note": "ÄB"}))

    assert held("note ~ 'Äb'", result)
    assert not held("note ~ 'äb'", result)


def test_the_conditions_of_an_expression() -> None:
    expression = parse("name = a or not (failed and batch_size = 8)", now=NOW)

    assert [type(each).__name__ for each in conditions(expression)] == [
        "TextCondition",
        "HasFailed",
        "SettingCondition",
    ]
