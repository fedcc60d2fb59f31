"""A document holds if its figures follow from what it keeps; whatever is changed in it is found."""

from __future__ import annotations

import base64
import json
import random
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.sample_explanations import an_explanation

from modeldyno import verify
from modeldyno.base import codec
from modeldyno.base.errors import UnreadableDocument
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.kinds import kind_of
from modeldyno.base.metrics import doubt
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.measurement import (
    Distribution,
    Interval,
    Measurement,
    SampleScores,
    observed_number,
    pack,
    ratio_number,
)
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import METRICS, Better
from modeldyno.base.report.figure_checks import DigestState, Recomputation
from modeldyno.base.result.result import Environment, Result, merge
from modeldyno.base.result.static_data import Operator, StaticReport
from modeldyno.base.stats.evaluation import Evaluation
from modeldyno.base.stats.statistics import mean_interval, share_interval
from modeldyno.comparison import codec as codec_comparison
from modeldyno.comparison.change.build import CompareOptions
from modeldyno.comparison.change.other_times import OtherTimes
from modeldyno.comparison.run import build_comparison
from modeldyno.exchange.verify import verify_bytes
from modeldyno.serving.load import load_analysis
from modeldyno.serving.load.capacity import answer_so_far
from modeldyno.serving.load.capacity_steps import CapacitySearch, SearchEnd
from modeldyno.serving.load.load_curve import LoadCurve, LoadPoint
from modeldyno.serving.load.request_log import COLUMNS, Records
from modeldyno.serving.load.steady_window import DriverSums, SteadyWindow
from modeldyno.stores.catalog import store_results
from modeldyno.sweeps import codec as codec_study
from modeldyno.sweeps.study.study import Trial, TrialRequest
from modeldyno.testing.sample_conversions import a_conversion
from modeldyno.testing.sample_results import a_result, a_small_result
from modeldyno.testing.sample_studies import a_study

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BLOCK = 99
"""Characters from which on a text is a block of samples."""
SECOND = 1_000_000_000
BOUND = Constraint.parse("latency.p50 <= 8ms")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep documents in a store of this test."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")


def a_load_result(seed: int = 0, *, count: int = 1000, failed: int = 3, **changes: Any) -> Result:
    """Return the Result of an open load of ten seconds, made as the probe makes it."""
    rng = np.random.default_rng(seed)
    due = np.sort(rng.integers(0, 10 * SECOND, count))
    sent = due + rng.integers(0, 100_000, count)
    end = sent + (rng.gamma(20, 5e6 / 20, count)).astype("int64")
    columns: dict[str, Any] = {"due": due, "sent": sent, "first": end, "end": end}
    columns["outcome"] = np.where(np.arange(count) < failed, 1, 0)
    arrays = {name: np.asarray(columns.get(name, 0), kind) for name, kind in COLUMNS.items()}
    filled: dict[str, Any] = {name: np.broadcast_to(column, due.shape) for name, column in arrays.items()}
    load = Load(arrivals=Arrivals.POISSON, rate=100.0, within=0.008)
    window = SteadyWindow(
        records=Records(**filled), begin=0, end=10 * SECOND, load=load, how={"stop": "time limit"},
        clients=(0.1,), drivers=(_sums(rng),),
    )  # fmt: skip
    plan = Plan(percentiles=("p99.9",))
    measurements = [*load_analysis.measurements(window)]
    (latency,) = (m.value for m in measurements if m.metric == "latency")
    assert isinstance(latency, Distribution)
    measurements += [observed_number("foreign_cpu", 0.5), observed_number("steal", 0.0)]
    doubts = (
        *load_analysis.doubts(window),
        *doubt.distribution_doubts("latency", latency, plan.percentiles, "duration"),
        *doubt.noise_doubts(0.5, 0.0),
        doubt.Doubt(code="repeated-request", seen="every request was the same", advice="give more"),
    )
    job = replace(a_result().job, probes=("load",), load=load, plan=plan)
    result = a_result(job=job, measurements=tuple(measurements), doubts=doubts)
    return replace(result, **changes)


def _sums(rng: np.random.Generator) -> DriverSums:
    """Return what a driver did in forty readings of a quarter of a second."""
    return DriverSums(cpu=tuple(rng.uniform(0.02, 0.03, 40)), wall=(0.25,) * 40, sent=(25,) * 40)


def a_written_load() -> dict[str, Any]:
    """Return its JSON with the verdict on a bound."""
    result = a_load_result()
    document: dict[str, Any] = json.loads(codec.encode(result, judgements=[result.judge(BOUND)]))
    return document


def check(document: dict[str, Any], *, forged: bool = False) -> Recomputation:
    """Verify a document; a forger makes its digest anew."""
    if forged:
        document = document | {codec.DIGEST: codec.digest_of(document)}
    return verify_bytes(json.dumps(document).encode())


def holds(document: dict[str, Any], *, forged: bool = False) -> bool:
    """Return whether a document is readable and holds."""
    with suppress(UnreadableDocument):
        return check(document, forged=forged).holds
    return False


def leaves(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value of a document."""
    pairs = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    if not isinstance(part, dict | list):
        yield path
    for key, value in pairs:
        yield from leaves(value, (*path, key))


def changed(document: dict[str, Any], path: tuple[Any, ...], change: Any) -> dict[str, Any]:
    """Return a copy of a document with one value changed."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    holder: Any = copy
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = change(holder[path[-1]])
    return copy


def another(value: Any) -> Any:
    """Return a value a little different from this one."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * 1.001 + 1e-12
        case str():
            return with_first(value, 1.001) if len(value) > _BLOCK else f"{value}x"
        case _:
            return 0.125


def with_first(block: str, factor: float) -> str:
    """Return a block of samples with the first one multiplied."""
    numbers = np.frombuffer(base64.b64decode(block), "<f8").copy()
    numbers[0] *= factor
    return base64.b64encode(numbers.tobytes()).decode()


def place(document: dict[str, Any], metric: str, *keys: Any) -> tuple[Any, ...]:
    """Return the path of a part of a measurement."""
    number = next(n for n, m in enumerate(document["measurements"]) if m["metric"] == metric)
    return ("measurements", number, *keys)


def test_a_document_holds_as_it_was_written() -> None:
    """Every figure of a load is recomputed: nothing is wrong, and what is not recomputed has a reason."""
    recomputation = check(a_written_load())
    assert (recomputation.holds, recomputation.wrong, recomputation.digest) == (
        True,
        (),
        DigestState.UNCHANGED,
    )
    assert recomputation.verified > 100
    assert set(recomputation.kept) == {"one observation, without samples", "what the run saw, in words"}


@pytest.mark.no_cover
def test_every_change_of_a_document_is_found() -> None:
    """Of 100 values drawn from all that a document has, of every kind, each change is found by the digest."""
    document = a_written_load()
    paths = sorted(leaves(document), key=str)
    drawn = random.Random(0).sample([path for path in paths if path != (codec.DIGEST,)], 100)
    assert {path[0] for path in drawn} >= {"measurements", "environment", "job", "judgements", "doubts"}
    assert [path for path in drawn if holds(changed(document, path, another))] == []


@pytest.mark.no_cover
def test_every_change_of_a_recomputable_figure_is_found_though_the_digest_was_forged() -> None:
    """Of over 100 figures and verdicts, each change is found by recomputing, whoever makes a new digest."""
    document = a_written_load()
    aggregates = {"offered_rate", "foreign_cpu", "steal", "requests"}
    figures = [
        path
        for number, measurement in enumerate(document["measurements"])
        if measurement["metric"] not in aggregates
        for path in leaves(measurement, ("measurements", number))
        if {"certificate", "interval", "runs", "amounts", "counts"} & {*path} or path[-1] == "value"
        if path[-3:-1] != ("value", "runs")  # samples have a test of their own
    ]
    verdicts = leaves(document["judgements"], ("judgements",))
    figures += [path for path in verdicts if path[-1] in {"verdict", "value"}]
    metrics = {document["measurements"][path[1]]["metric"] for path in figures if path[0] == "measurements"}
    assert metrics >= {"client_cpu", "client_time", "in_flight"}
    assert len(figures) >= 120
    assert [path for path in figures if holds(changed(document, path, another), forged=True)] == []


@pytest.mark.parametrize(
    "keys",
    [
        ("latency", "value", "certificate", "percentiles", "p99"),
        ("latency", "value", "certificate", "intervals", "p50", "low"),
        ("latency", "value", "certificate", "intervals", "mean", "high"),
        ("latency", "value", "certificate", "n"),
        ("latency", "value", "certificate", "n_eff"),
        ("latency", "value", "certificate", "outliers"),
        ("latency", "value", "certificate", "stop"),
        ("latency", "value", "warmup_dropped"),
        ("throughput", "value"),
        ("throughput", "interval", "low"),
        ("goodput", "interval", "high"),
        ("request_rate", "runs", 0),
        ("client_cpu", "interval", "high"),
        ("client_time", "value"),
        ("in_flight", "interval", "low"),
        ("error_rate", "value"),
        ("requests", "value"),
    ],
    ids=lambda keys: " ".join(map(str, keys)),
)
def test_a_forged_figure_is_named_with_both_values(keys: tuple[Any, ...]) -> None:
    """A point, an end of an interval, a number of samples: the check names it and says what it should be."""
    document = a_written_load()
    recomputation = check(changed(document, place(document, *keys), another), forged=True)
    assert (recomputation.holds, recomputation.digest) == (False, DigestState.UNCHANGED)
    assert recomputation.wrong
    assert all(check.written != check.recomputed for check in recomputation.wrong)


def a_written_memory() -> dict[str, Any]:
    """Return the JSON of a Result of the memory of two processes."""
    memory = Distribution.of([5e7, 8e7], [5e7, 9e7, 7e7], stop="run ended")
    result = a_result(measurements=(Measurement(metric="process_memory", value=memory),), doubts=())
    document: dict[str, Any] = json.loads(codec.encode(result))
    return document


def test_the_peaks_of_several_processes_are_an_interval_that_is_recomputed() -> None:
    """Its ends are the least and the greatest peak; each figure that was changed is found."""
    document = a_written_memory()
    certificate = place(document, "process_memory", "value", "certificate")
    ends = document["measurements"][0]["value"]["certificate"]["intervals"]["max"]
    assert (ends["low"], ends["high"]) == (8e7, 9e7)
    figures = [path for path in leaves(document) if path[:4] == certificate]
    assert [path for path in figures if holds(changed(document, path, another), forged=True)] == []


def test_a_document_of_before_the_interval_of_a_peak_holds() -> None:
    """Its certificates have none; its other figures are recomputed as ever."""
    document = a_written_memory()
    ends = place(document, "process_memory", "value", "certificate", "intervals")
    older = changed(
        document, ends, lambda interval: {name: interval[name] for name in interval if name != "max"}
    )
    assert check(older, forged=True).holds


@pytest.mark.parametrize("metric", ["latency", "service_time", "send_lag"])
def test_a_forged_sample_is_found_even_with_a_certificate_that_fits(metric: str) -> None:
    """The times of a request belong together, so one that was changed contradicts the other two."""
    result = a_load_result()
    forged = [
        replace(m, value=Distribution.of(m.value.samples() * 0.5, **_how(m.value)))
        if m.metric == metric and isinstance(m.value, Distribution)
        else m
        for m in result.measurements
    ]
    recomputation = check(json.loads(codec.encode(replace(result, measurements=tuple(forged)))))
    assert any(wrong.why == "its send lag and its service time" for wrong in recomputation.wrong)
    document = a_written_load()
    alone = changed(document, place(document, metric, "value", "runs", 0), lambda block: with_first(block, 2))
    assert any("raw samples" in wrong.why for wrong in check(alone, forged=True).wrong)


def test_a_call_end_to_end_is_the_sum_of_its_stages() -> None:
    """A stage that was changed, with a certificate that fits, contradicts the whole call."""
    stages = {"copy": np.linspace(1.0, 2.0, 100), "compute": np.linspace(3.0, 6.0, 100)}

    def written(**times: Any) -> dict[str, Any]:
        scopes = {"end_to_end": stages["copy"] + stages["compute"], **stages, **times}
        measurements = tuple(
            Measurement(metric="latency", scope=scope, value=Distribution.of(samples, stop="converged"))
            for scope, samples in scopes.items()
        )
        document: dict[str, Any] = json.loads(codec.encode(a_result(measurements=measurements)))
        return document

    assert check(written()).wrong == ()
    (wrong,) = check(written(compute=stages["compute"] * 2)).wrong
    assert (wrong.place, wrong.why) == ("latency of call end to end 1 and 99 more", "its stages")
    assert (wrong.written, wrong.recomputed) == (4.0, 7.0)


def _how(spread: Distribution) -> dict[str, Any]:
    return {"stop": spread.stop, "clock": spread.clock}


def test_a_removed_doubt_is_missed_and_an_invented_one_has_no_ground() -> None:
    """Doubts that follow from figures are raised again; of those in words only the digest knows."""
    document = a_written_load()
    codes = [raised["code"] for raised in document["doubts"]]
    assert codes == ["failed-requests", "time-limit", "few-samples", "interference", "repeated-request"]
    for code in codes:
        left = [raised for raised in document["doubts"] if raised["code"] != code]
        recomputation = check(document | {"doubts": left}, forged=True)
        assert [wrong.place for wrong in recomputation.wrong] == (
            [f"doubt {code}"] if code != codes[-1] else []
        )
        assert check(document | {"doubts": left}).digest is DigestState.CHANGED
    others = {"few-samples": "latency.p50 lacks 3", "steal": "much", "noise-floor": "latency stopped"}
    for code, sentence in others.items():
        invented = [*document["doubts"], {"code": code, "seen": sentence, "advice": ""}]
        (wrong,) = check(document | {"doubts": invented}, forged=True).wrong
        assert (wrong.place, wrong.recomputed) == (f"doubt {code}", "nothing")


def test_a_load_that_was_saturated_says_so() -> None:
    """A latency without a steady value needs its doubt, and the doubt such a latency."""
    result = a_load_result(doubts=())
    spread = result.measurements[0].value
    assert isinstance(spread, Distribution)
    void = replace(result.measurements[0], value=replace(spread, void="saturated"))
    recomputation = check(
        json.loads(codec.encode(replace(result, measurements=(void, *result.measurements[1:]))))
    )
    assert "doubt saturated" in {wrong.place for wrong in recomputation.wrong}
    false_doubts = (doubt.Doubt(code="client-limited", seen="the client was busy", advice=""),)
    invented = verify(replace(a_load_result(), doubts=(*a_load_result().doubts, *false_doubts)))
    assert {wrong.place for wrong in invented.wrong} == {"doubt client-limited"}
    failed = a_load_result().doubts[0]
    none_failed = verify(replace(a_load_result(failed=0), doubts=(failed, *a_load_result(failed=0).doubts)))
    assert {wrong.place for wrong in none_failed.wrong} == {"doubt failed-requests"}


def test_a_verdict_follows_from_the_measurements() -> None:
    """A bound that is said to be held, and is not, is found."""
    document = a_written_load()
    assert document["judgements"][0]["verdict"] == "held"
    forged = check(changed(document, ("judgements", 0, "verdict"), lambda _: "broken"), forged=True)
    (wrong,) = forged.wrong
    assert wrong.place == "bound latency.p50 <= 8 ms verdict"
    assert (wrong.written, wrong.recomputed) == ("broken", "held")


def test_pooled_processes_are_recomputed() -> None:
    """Of several processes the mean and its interval follow from the number of each process."""
    results = [a_load_result(seed) for seed in range(3)]
    document = json.loads(codec.encode(merge(results)))
    recomputation = check(document)
    assert (recomputation.holds, recomputation.wrong) == (True, ())
    for keys in (("throughput", "interval", "low"), ("throughput", "runs", 1), ("in_flight", "value")):
        assert check(changed(document, place(document, *keys), another), forged=True).wrong


def test_costs_evaluations_and_energy_are_recomputed() -> None:
    """MACs are the sum over operators, an accuracy the mean of its scores, energy power by time."""
    calls = (
        Operator(kind="matmul", calls=3, macs=100, elementwise=10),
        Operator(kind="mystery", calls=1, counted=False, elementwise=7),
    )
    costs = {"macs": 100, "elementwise": 17, "flops": 217, "coverage": 0.75, "bytes_read": 50}
    costs |= {"bytes_written": 20, "arithmetic_intensity": 3.1}
    costed = tuple(Measurement(metric=metric, value=value) for metric, value in costs.items())
    outline = StaticReport(operators=calls)
    static = json.loads(codec.encode(a_result(measurements=costed, outline=outline, doubts=())))
    assert check(static).wrong == ()
    for metric in ("macs", "elementwise", "flops", "coverage", "arithmetic_intensity"):
        assert check(changed(static, place(static, metric, "value"), another), forged=True).wrong, metric
    scores = np.array([1.0, 0.0, 1.0, 1.0])
    right = Evaluation(0.75, *share_interval(3, 4), scores)
    loss = Evaluation(0.75, *mean_interval(scores, 4), scores)
    measurements = [
        Measurement(
            metric=metric,
            value=estimate.value,
            interval=Interval(low=estimate.low, high=estimate.high),
            scores=SampleScores(data="x", values=pack(scores)),
        )
        for metric, estimate in (("accuracy", right), ("evaluation_loss", loss))
    ]
    interval = Interval(low=19.0, high=21.0)
    measurements += [
        observed_number("power", 20.0, scope="package 0", interval=interval),
        observed_number("idle_power", 5.0, scope="package 0", interval=Interval(low=4.0, high=6.0)),
        ratio_number("batch_rate", [1.0] * 8, [0.1] * 8),
        observed_number("energy", 1.5, scope="package 0", interval=Interval(low=1.3, high=1.7)),
    ]
    document = json.loads(codec.encode(a_result(measurements=tuple(measurements), doubts=())))
    assert check(document).wrong == ()
    for keys in (("accuracy", "value"), ("evaluation_loss", "interval", "high"), ("energy", "value")):
        assert check(changed(document, place(document, *keys), another), forged=True).wrong


def test_a_contradiction_of_latency_and_rate_is_recomputed() -> None:
    """The doubt that the two contradict each other must say what they are; it need not be there."""
    result = a_load_result()
    both = (*result.measurements, ratio_number("batch_rate", [1.0] * 8, [0.1] * 8))
    latency = result.ask("latency.mean").value
    (raised,) = doubt.rate_doubts(latency or 0.0, 10.0)
    doubted = replace(result, measurements=both, doubts=(*result.doubts, raised))
    assert verify(doubted).wrong == ()
    (wrong,) = verify(replace(doubted, doubts=(*result.doubts, replace(raised, seen="they agree")))).wrong
    assert (wrong.place, wrong.recomputed) == ("doubt inconsistent", "nothing")


def test_what_another_tool_measured_is_kept() -> None:
    """Its samples are recomputed as ours, but its other figures and doubts do not follow our rules."""
    result = a_load_result()
    imported = replace(result, job=replace(result.job, backend="imported"))
    recomputation = verify(imported)
    assert recomputation.wrong == ()
    assert "error_rate" in recomputation.kept["one observation, without samples"]
    document = json.loads(codec.encode(imported))
    del document["measurements"][0]["value"]["certificate"]
    assert check(document, forged=True).wrong == ()


def test_a_document_of_before_has_no_digest() -> None:
    """A document that an earlier version wrote is recomputed; whether it was changed is not known."""
    document = a_written_load()
    del document[codec.DIGEST]
    assert (check(document).digest, check(document).holds) == (DigestState.ABSENT, True)


def test_another_layout_of_the_same_document_is_unchanged() -> None:
    """Spaces, the order of keys and the fraction of a whole number are not the document."""
    assert codec.digest_of({"a": [1.0, {"b": 2.5}]}) == codec.digest_of({"a": [1, {"b": 2.5}]})
    document = dict(sorted(a_written_load().items(), reverse=True))
    assert verify_bytes(json.dumps(document, indent=7).encode()).digest is DigestState.UNCHANGED


def test_rounding_is_no_change() -> None:
    """Another processor rounds a sum differently: a difference below 1e-9 of a figure is none."""
    document = a_written_load()
    nudged = changed(document, place(document, "throughput", "value"), lambda value: value * (1 + 1e-12))
    assert check(nudged, forged=True).holds


def test_a_comparison_is_recomputed_from_its_results() -> None:
    """Each change follows from the two results in the document; so do the figures of these."""
    comparison = build_comparison([a_load_result(0), a_load_result(1)], CompareOptions())
    document = json.loads(codec_comparison.encode(comparison))
    assert check(document).wrong == ()
    for path in (
        ("contrasts", 0, "changes", 0, "outcome"),
        ("contrasts", 0, "changes", 0, "difference"),
        ("baseline", "measurements", 0, "value", "certificate", "n_eff"),
        ("contrasts", 0, "candidate", "measurements", 3, "interval", "low"),
    ):
        assert not holds(changed(document, path, another), forged=True), path
    better = changed(document, ("contrasts", 0, "changes", 0, "outcome"), lambda _: "better")
    assert [wrong.recomputed for wrong in check(better, forged=True).wrong] == ["undecided"]
    two = build_comparison([a_load_result(0), a_load_result(1), a_load_result(2)], CompareOptions())
    assert verify(two).wrong == ()


@pytest.mark.parametrize(("before", "after", "outcome"), [(100, 80, "better"), (100, 120, "worse")])
def test_a_verdict_of_an_older_rule_is_kept(
    monkeypatch: pytest.MonkeyPatch, before: int, after: int, outcome: str
) -> None:
    """Fewer buffers were better once, and are neither today: it holds, and the opposite does not."""

    def with_buffers(seed: int, buffers: int) -> Result:
        result = a_load_result(seed)
        counted = Measurement(metric="buffers", value=buffers)
        return replace(result, measurements=(*result.measurements, counted))

    with monkeypatch.context() as earlier:
        earlier.setitem(METRICS, "buffers", replace(METRICS["buffers"], better=Better.LOWER))
        comparison = build_comparison([with_buffers(0, before), with_buffers(1, after)], CompareOptions())
        document = json.loads(codec_comparison.encode(comparison))
    (at,) = [n for n, one in enumerate(comparison.contrasts[0].changes) if one.query.metric == "buffers"]
    assert comparison.contrasts[0].changes[at].outcome == outcome

    judged = check(document)
    assert judged.holds
    assert judged.kept["its verdict by an older rule, under which less of it was better"] == (
        "candidate change of buffers outcome",
    )
    opposite = {"better": "worse", "worse": "better"}[outcome]
    for verdict in (opposite, "same"):
        forged = changed(document, ("contrasts", 0, "changes", at, "outcome"), lambda _, to=verdict: to)
        assert not check(forged, forged=True).holds


def test_a_verdict_from_before_other_times_counted_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as long beside a neighbour was worse, and is undecided today; that it was better never held."""
    quiet, disturbed = timed_beside(0.01, others=0.0), timed_beside(0.019, others=1.0)
    with monkeypatch.context() as earlier:
        earlier.setattr(OtherTimes, "judge", lambda _self, changes, _apart: changes)
        comparison = build_comparison([quiet, disturbed], CompareOptions())
    document = json.loads(codec_comparison.encode(comparison))
    assert comparison.contrasts[0].changes[0].outcome == "worse"

    judged = check(document)

    assert judged.holds
    assert judged.kept[
        "its verdict by an older rule, without what the machine may do from one time to another"
    ] == ("candidate change of latency.p50 outcome",)
    forged = changed(document, ("contrasts", 0, "changes", 0, "outcome"), lambda _: "better")
    assert not check(forged, forged=True).holds


def timed_beside(seconds: float, *, others: float) -> Result:
    """Make the Result of calls that take so long while others keep so many of two cores busy."""
    return a_small_result(
        measurements=(
            Measurement(metric="latency", value=Distribution.of(*[[seconds] * 40 for _ in range(5)])),
            observed_number("foreign_cpu", others),
        ),
        doubts=tuple(doubt.Doubt(code="interference", seen="", advice="") for _ in range(int(others > 0))),
        environment=Environment(hardware={"cores_allowed": 2}),
    )


def test_an_explanation_is_recomputed_from_its_results() -> None:
    """Each hop follows from the results of the levels, which are checked themselves."""
    explanation = an_explanation()
    again = an_explanation(baseline=explanation.results)
    for document in map(json.loads, (kind_of(each).encode(each) for each in (explanation, again))):
        hops = [
            wrong for wrong in check(document).wrong if wrong.place.startswith(("hops", "whole", "doubts"))
        ]
        assert hops == []
        value = next(
            path for path in leaves(document["hops"], ("hops",)) if isinstance(_at(document, path), float)
        )
        assert check(changed(document, value, another), forged=True).wrong
        del document["hops"]
        assert check(document).digest is DigestState.CHANGED


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


@pytest.mark.usefixtures("store")
def test_a_study_is_recomputed_from_the_results_in_the_store() -> None:
    """Each trial follows from its result, and the ranking from the trials."""
    study = a_study()
    results = [a_load_result(seed, id=f"{seed:012x}") for seed in range(2)]
    for number, result in enumerate(results, 1):
        request = TrialRequest(point={"threads": number})
        study = study.add(Trial.of(result, study.goal, request, number=number, seconds=1.0))
    document = json.loads(kind_of(study).encode(study))
    assert all("not at hand" in why for why in check(document).kept)
    store_results(results)
    recomputation = check(document)
    assert (recomputation.wrong, recomputation.kept) == ((), {})
    for path, part in (
        (("trials", 0, "answers", 0, "value"), "trial"),
        (("ranking", "near_best"), "ranking"),
    ):
        forged = check(changed(document, path, another), forged=True)
        assert {wrong.place.split(" ")[0] for wrong in forged.wrong} == {part}
    assert verify(study).holds
    assert json.loads(codec_study.encode(study))[codec.DIGEST]


@pytest.mark.usefixtures("store")
def test_a_load_series_is_recomputed_from_the_results_in_the_store() -> None:
    """Each load follows from its result, and the largest load from the loads."""
    results = [a_load_result(seed, id=f"{seed:012x}") for seed in range(2)]
    rungs = tuple(LoadPoint.of(result, float(n), (BOUND,)) for n, result in enumerate(results, 1))
    curve = LoadCurve(knob="concurrency", rungs=rungs, bounds=(BOUND,), id="1add" * 3, name="mlp")
    search = answer_so_far(CapacitySearch(bounds=(BOUND,)), rungs, SearchEnd.INTERRUPTED)
    largest = replace(search, id="2add" * 3, name="mlp", verified=rungs[0])
    for series in (curve, largest, replace(largest, verified=None)):
        document = json.loads(kind_of(series).encode(series))
        assert check(document).wrong == ()
        assert check(document).kept
        forged = changed(document, ("rungs", 0, "judgements", 0, "verdict"), lambda _: "undecided")
        assert check(forged, forged=True).wrong
    store_results(results)
    assert verify(curve).kept == {}
    document = json.loads(kind_of(largest).encode(largest))
    assert check(changed(document, ("passed",), lambda value: (value or 0) + 1), forged=True).wrong


def test_a_conversion_keeps_how_far_outputs_agreed() -> None:
    """Outputs are not kept, so their agreement cannot be recomputed; the digest still shows a change."""
    document = json.loads(kind_of(a_conversion()).encode(a_conversion()))
    recomputation = check(document)
    assert (recomputation.holds, recomputation.verified) == (True, 0)
    assert any(recomputation.kept.values())


@pytest.mark.usefixtures("store")
def test_a_stored_document_is_verified_as_it_was_written() -> None:
    """The store keeps a result with its digest; a study, which it keeps in parts, has none."""
    store_results([a_load_result()])
    assert verify("0123456789ab").digest is DigestState.UNCHANGED
    assert verify(a_load_result()).digest is DigestState.ABSENT


def test_the_answer_is_plain_json(tmp_path: Path) -> None:
    """The answer is a document for programs: counts, wrong figures with both values, and what is kept."""
    path = tmp_path / "load.json"
    document = a_written_load()
    path.write_text(json.dumps(changed(document, place(document, "throughput", "value"), another)))
    printed = json.loads(codec.encode_document(verify(path)))
    assert printed["digest"] == "changed"
    assert printed["wrong"][0]["place"] == "throughput"
    assert printed["tolerance"] == 1e-9
