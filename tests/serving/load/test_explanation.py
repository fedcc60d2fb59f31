"""A latency is divided into hops that add up; each delay lands in its own hop."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

import pytest
from tests.support.sample_explanations import (
    ALONE,
    LOADED,
    MILLI,
    STAMPED_ALONE,
    STAMPED_LOADED,
    a_called_result,
    a_served_result,
    a_stamped_result,
    an_explanation,
    spread,
)

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import INTERRUPTED, Distribution, Interval, Measurement
from modeldyno.base.result.result import Failure, FailureKind, Result
from modeldyno.serving.load.explanation import (
    ECHO,
    HopName,
    RunLevel,
    TimeEstimate,
    explain_levels,
    explanation_doubts,
    hop_changes,
    level_of,
    measured_time,
    sum_times,
    tail_time,
    unexplained_share,
    usual_statistic,
)
from modeldyno.serving.load.request_stages import RequestStage
from modeldyno.testing.sample_results import a_small_result


def times(results: dict[str, Result], statistic: str = "mean") -> dict[str, float | None]:
    """Return the milliseconds of each hop by its label, rounded to a microsecond; None if unknown."""
    return {
        hop.label: None if hop.time is None else round(hop.time.seconds / MILLI, 3)
        for level in explain_levels(results, statistic)
        for hop in level.hops
    }


def estimate(seconds: float, low: float, high: float) -> TimeEstimate:
    """Return an estimate with an interval."""
    return TimeEstimate(seconds=seconds, interval=Interval(low=low, high=high))


def test_every_hop_from_the_bound_to_the_load_is_told() -> None:
    """Each is what was measured of it; watching costs 0.04 ms, half of which is outside of operators."""
    assert times(an_explanation().results) == {
        "bound": 3.0,
        "kernels": 1.18,
        "framework": 0.78,
        "rest in process": 0.04,
        "server compute": 0.2,
        "queue": 0.02,
        "server inputs": 0.1,
        "server outputs": 0.08,
        "protocol": 0.45,
        "wait for the client": 0.01,
        "rest served alone": 0.05,
        "server compute under load": 0.4,
        "queue under load": 8.98,
        "server inputs under load": 0.0,
        "server outputs under load": 0.02,
        "wait for the client under load": 0.01,
        "rest under load": 0.1,
    }


def test_the_hops_add_up_to_the_whole() -> None:
    """The sum of all hops is the latency of the last level, and each level ends at its own."""
    explanation = an_explanation()
    total = 0.0
    for level in explanation.levels:
        total += sum(hop.time.seconds for hop in level.hops if hop.time is not None)
        assert total == pytest.approx(level.whole.seconds)
    assert explanation.whole is not None
    assert explanation.whole.seconds == pytest.approx(15.42 * MILLI)
    assert explanation["under load"] == explanation.whole.seconds
    assert explanation["queue under load"] == pytest.approx(8.98 * MILLI)


@pytest.mark.parametrize(
    ("stage", "label"),
    [
        ("compute", "server compute under load"),
        ("queue", "queue under load"),
        ("input", "server inputs under load"),
        ("output", "server outputs under load"),
        ("network", "rest under load"),
        ("wait", "wait for the client under load"),
    ],
)
def test_a_delay_lands_in_its_own_hop(stage: str, label: str) -> None:
    """What is added to one stage under load is in one hop, and in no other."""
    results = an_explanation().results
    before = times(results)
    slower = a_served_result({**LOADED, stage: LOADED[stage] + 2.0}, 4)
    after = times({**results, RunLevel.LOADED: slower})
    changed = {name: round((after[name] or 0) - (before[name] or 0), 3) for name in before}
    assert {name: change for name, change in changed.items() if change} == {label: 2.0}


def stamped_results() -> dict[str, Result]:
    """Return those of a server that traced requests."""
    return {
        RunLevel.IN_PROCESS: a_called_result(),
        RunLevel.ALONE: a_stamped_result(a_served_result(ALONE), STAMPED_ALONE),
        RunLevel.LOADED: a_stamped_result(a_served_result(LOADED, 4), STAMPED_LOADED),
    }


def test_time_stamps_leave_nothing_of_a_request() -> None:
    """Each stage has its hop, on the way to the server and back, too; there is no echo."""
    assert {name: time for name, time in times(stamped_results()).items() if "process" not in name} == {
        "bound": 3.0,
        "kernels": 1.18,
        "framework": 0.78,
        "way to the server": 0.1,
        "request parsed": 0.05,
        "queue": 0.02,
        "server inputs": 0.1,
        "server compute": 0.2,
        "server outputs": 0.06,
        "answer formed": 0.07,
        "way to the client": 0.3,
        "wait for the client": 0.01,
        "rest served alone": 0.0,
        "way to the server under load": 0.1,
        "request parsed under load": 0.0,
        "queue under load": 8.98,
        "server inputs under load": 0.0,
        "server compute under load": 0.4,
        "server outputs under load": 0.02,
        "answer formed under load": 0.0,
        "way to the client under load": 0.0,
        "wait for the client under load": 0.01,
        "rest under load": 0.0,
    }


@pytest.mark.parametrize("stage", RequestStage)
def test_a_delay_between_two_stamps_lands_in_its_own_hop(stage: RequestStage) -> None:
    """What is added to one stage under load is in one hop, and in no rest."""
    results = stamped_results()
    before = times(results)
    stages = {**STAMPED_LOADED, stage: STAMPED_LOADED[stage] + 2.0}
    slower = a_served_result({**LOADED, "network": LOADED["network"] + 2.0}, 4)
    after = times({**results, RunLevel.LOADED: a_stamped_result(slower, stages)})
    changed = {name: round((after[name] or 0) - (before[name] or 0), 3) for name in before}
    assert {name: change for name, change in changed.items() if change} == {f"{stage} under load": 2.0}


def test_the_stages_of_the_traced_are_carried_over_to_all() -> None:
    """In proportion; the interval of each holds what it would be with all of the difference, or none."""
    slower = {stage: 1.25 * time for stage, time in STAMPED_LOADED.items()}
    result = a_stamped_result(a_served_result(LOADED, 4), slower, untraced=-0.25 * 15.4)
    (level,) = explain_levels({RunLevel.LOADED: result})
    queue = next(hop.time for hop in level.hops if hop.name is HopName.QUEUE)
    assert queue is not None
    assert queue.interval is not None
    times_of_queue = (queue.seconds, queue.interval.low, queue.interval.high)
    assert times_of_queue == pytest.approx((9.0 * MILLI, 8.992 * MILLI, 11.26 * MILLI))
    assert level.hops[-1].time == estimate(0.0, 0.0, 0.0)


def test_the_median_of_stamped_requests_leaves_its_difference_to_the_mean() -> None:
    """Stages are means; the rest says so, and has an interval."""
    loaded = stamped_results()[RunLevel.LOADED]
    latencies = Distribution.of([14 * MILLI, 14 * MILLI, 14 * MILLI, 19.68 * MILLI] * 10)
    skewed = Measurement(metric="latency", value=latencies)
    loaded = replace(loaded, measurements=(skewed, *loaded.measurements[1:]))
    (level,) = explain_levels({RunLevel.LOADED: loaded}, "p50")
    rest = level.hops[-1]
    assert rest.time is not None
    assert rest.time.seconds == pytest.approx(-1.42 * MILLI)
    assert rest.time.interval is not None
    assert rest.how.startswith("the difference from the mean")


def test_stages_without_a_service_time_stay_as_they_are() -> None:
    """And one of which a document has no interval has none."""
    whole = a_stamped_result(a_served_result(LOADED, 4), STAMPED_LOADED)
    bare = tuple(replace(each, interval=None) for each in whole.measurements if each.metric != "service_time")
    (level,) = explain_levels({RunLevel.LOADED: replace(whole, measurements=bare)})
    assert level.hops[2].time == TimeEstimate(seconds=9.0 * MILLI)


def test_stamps_of_one_level_alone_are_not_used() -> None:
    """What a request under load takes more than alone needs those of both."""
    results = {**stamped_results(), RunLevel.LOADED: a_served_result(LOADED, 4)}
    assert {"protocol", "rest served alone"} <= times(results).keys()
    assert "way to the client" not in times(results)


def test_the_echo_takes_the_protocol_out_of_the_rest() -> None:
    """Without it the protocol is unknown, and the rest has all of the network."""
    results = {name: result for name, result in an_explanation().results.items() if name != ECHO}
    hop_times = times(results)
    assert hop_times["protocol"] is None
    assert hop_times["rest served alone"] == 0.5


def test_nothing_is_filled_in_without_statistics() -> None:
    """A server that reports nothing leaves its stages unknown, and the rest is all but the client's wait."""
    hop_times = times({
        RunLevel.IN_PROCESS: a_called_result(), RunLevel.ALONE: a_served_result(ALONE, known=False),
    })  # fmt: skip
    unknown = {name for name, time in hop_times.items() if time is None}
    assert unknown == {"server compute", "queue", "server inputs", "server outputs", "protocol"}
    assert hop_times["rest served alone"] == 0.9
    (level,) = explain_levels({RunLevel.ALONE: a_served_result(ALONE, known=False)})
    rest = level.hops[-1]
    assert rest.how.startswith("network, protocol, client, and the server")


def test_a_stage_that_one_server_lacks_is_unknown() -> None:
    """Its reason is another than that of a server without any statistics."""
    whole = a_served_result(ALONE)
    part = replace(whole, measurements=tuple(m for m in whole.measurements if m.metric != "queue_time"))
    (level,) = explain_levels({RunLevel.LOADED: part})
    queue = next(hop for hop in level.hops if hop.name is HopName.QUEUE)
    assert (queue.time, queue.how) == (None, "this server does not report its queue")


def test_a_model_that_is_only_called() -> None:
    """Its hops end at the call; without operators all above the bound is the rest."""
    assert list(times({RunLevel.IN_PROCESS: a_called_result()})) == [
        "bound", "kernels", "framework", "rest in process",
    ]  # fmt: skip
    unwatched = times({RunLevel.IN_PROCESS: a_called_result(parts=None)})
    assert unwatched == {"bound": 3.0, "kernels": None, "framework": None, "rest in process": 2.0}
    unbounded = times({RunLevel.IN_PROCESS: a_called_result(bound=None)})
    assert (unbounded["bound"], unbounded["kernels"]) == (None, 4.18)


def test_a_model_that_is_only_served() -> None:
    """The server's compute is told in full where no call in process is known."""
    assert times({RunLevel.ALONE: a_served_result(ALONE)})["server compute"] == 5.2
    assert times({RunLevel.LOADED: a_served_result(LOADED, 4)})["server compute under load"] == 5.6


@pytest.mark.parametrize(
    ("parts", "framework"),
    [
        ((4.2, 0.8, 5.0), 0.8),
        ((4.2, 0.8, 4.6), 0.6),
        ((4.2, 0.8, 2.0), 0.4),
        ((4.2, 0.8, 6.0), 0.8),
        ((0.0, 3.0, 1.0), 1.0),
    ],
    ids=["free", "half of the cost", "dear", "noise", "longer than a call"],
)
def test_the_cost_of_watching_is_divided(parts: tuple[float, float, float], framework: float) -> None:
    """Half of it is taken off the time outside of operators, of which at most half can be cost."""
    hop_times = times({RunLevel.IN_PROCESS: a_called_result(parts=parts)})
    assert hop_times["framework"] == framework


def test_times_without_intervals_have_none_together() -> None:
    """One call that was watched tells no interval, and neither does what follows from it."""
    one = Distribution.of([4.2 * MILLI])
    called = a_called_result()
    measurements = tuple(
        replace(m, value=one) if m.metric == "operator_time" else m for m in called.measurements
    )
    (level,) = explain_levels({RunLevel.IN_PROCESS: replace(called, measurements=measurements)})
    assert [hop.time and hop.time.interval for hop in level.hops][1:3] == [None, None]


def test_the_median_leaves_its_difference_to_the_mean_in_the_rest() -> None:
    """A server's stages are means: with the median of the latency, the rest is smaller by the difference."""
    loaded = a_served_result(LOADED, 4)
    skewed = Distribution.of([10 * MILLI] * 30 + [30 * MILLI] * 10)
    loaded = replace(
        loaded, measurements=(Measurement(metric="latency", value=skewed), *loaded.measurements[1:])
    )
    mean, median = (times({RunLevel.LOADED: loaded}, statistic) for statistic in ("mean", "p50"))
    assert median["queue under load"] == mean["queue under load"] == 9.0
    rests = [hop_times["rest under load"] for hop_times in (mean, median)]
    assert rests[0] is not None
    assert rests[1] == pytest.approx(rests[0] - 5.0)
    assert [usual_statistic(level) for level in RunLevel] == ["p50", "mean", "mean"]


def test_a_result_has_the_level_of_its_job() -> None:
    """Requests are under load, calls in process; a level without a latency is left out."""
    assert [level_of(a_called_result()), level_of(a_served_result(ALONE))] == [
        RunLevel.IN_PROCESS,
        RunLevel.LOADED,
    ]
    assert list(explain_levels({RunLevel.IN_PROCESS: a_small_result()})) == []


# --- doubts ------------------------------------------------------------------------------------------


def test_a_hop_that_is_surely_negative_is_doubted() -> None:
    """A server that computes faster than the process, and one whose queue shrinks under load."""
    fast = {**ALONE, "compute": 3.0, "queue": 2.0, "input": 0.15}
    results: dict[str, Result] = {
        RunLevel.IN_PROCESS: a_called_result(),
        RunLevel.ALONE: a_served_result(fast),
        RunLevel.LOADED: a_served_result({**LOADED, "queue": 0.5}, 4),
    }
    doubts = explanation_doubts(tuple(explain_levels(results)))
    sentences = [doubt.seen for doubt in doubts if doubt.code == "negative-hop"]
    assert sentences[0].startswith(
        "server compute: -2.00 ms, although it adds work: the server runs the model faster"
    )
    assert sentences[1].startswith("queue under load: -1.50 ms")
    assert "unlike conditions" in sentences[1]
    assert len(sentences) == 2  # that the inputs take 0.05 ms less is below a hundredth of the whole


def test_a_bound_above_the_time_of_the_operators_is_left_out() -> None:
    """No hop is below zero by it: the operators have their whole time, and a doubt says why."""
    called = a_called_result()
    bound = Measurement(metric="roofline_latency", value=1.0, scope=called.peaks_scope)
    called = replace(
        called, measurements=(bound, *(m for m in called.measurements if m.metric != "roofline_latency"))
    )
    levels = tuple(explain_levels({RunLevel.IN_PROCESS: called}))
    hops = {hop.name: hop.time for hop in levels[0].hops}
    assert hops[HopName.BOUND] is None
    assert all(time is None or time.seconds >= 0 for time in hops.values())
    (doubt,) = [doubt for doubt in explanation_doubts(levels) if doubt.code == "negative-hop"]
    assert doubt.seen.startswith("bound is left out: the operators are faster than the bound")


@pytest.mark.parametrize("watched", [True, False])
def test_a_bound_of_busy_peaks_above_a_call_is_not_known(watched: bool) -> None:
    """Also where the operators were not watched: no part of a call takes longer than the whole."""
    called = a_called_result()
    bound = Measurement(metric="roofline_latency", value=1.0, scope=called.peaks_scope)
    known = [m for m in called.measurements if m.metric != "roofline_latency"]
    known = [m for m in known if watched or m.scope != "ops"]
    doubt = Doubt(code="busy-peaks", seen="s", advice="a")
    levels = tuple(
        explain_levels({RunLevel.IN_PROCESS: replace(called, measurements=(bound, *known), doubts=(doubt,))})
    )
    (hop,) = [hop for hop in levels[0].hops if hop.name is HopName.BOUND]

    assert hop.time is None
    assert hop.how == (
        "this machine's peaks were measured while it was busy, and are too low: no bound is known"
    )
    assert [doubt.seen for doubt in explanation_doubts(levels) if hop.how in doubt.seen]


def with_noisy_framework(called: Result) -> Result:
    """Return it with a time outside of operators that is anything up to the whole call."""
    noisy = Measurement(
        metric="dispatch_time", value=8e-4, scope="ops", interval=Interval(low=0.0, high=5e-3)
    )
    measurements = tuple(noisy if m.metric == noisy.metric else m for m in called.measurements)
    return replace(called, measurements=measurements)


def test_a_bound_that_may_be_above_the_operators_is_left_out_too() -> None:
    """What they took is below it, though not surely: a part below zero would be drawn."""
    called = with_noisy_framework(a_called_result(bound=4.3))
    (level,) = explain_levels({RunLevel.IN_PROCESS: called})
    times = {hop.name: hop.time for hop in level.hops}
    assert times[HopName.BOUND] is None
    kernels = times[HopName.KERNELS]
    assert kernels is not None
    assert kernels.seconds > 0


def test_no_operator_takes_less_than_no_time() -> None:
    """Where the bound is within their interval, what they take beyond it is at least nothing."""
    (level,) = explain_levels({RunLevel.IN_PROCESS: with_noisy_framework(a_called_result())})
    kernels = next(hop.time for hop in level.hops if hop.name is HopName.KERNELS)
    assert kernels is not None
    assert kernels.interval is not None
    assert kernels.interval.low == 0.0


def test_a_large_rest_is_doubted() -> None:
    """Three percent of the whole are enough; rests of both signs do not cancel."""
    good = an_explanation()
    assert [doubt.code for doubt in good.doubts] == []
    assert unexplained_share(good.levels) == pytest.approx(0.19 / 15.42)
    results = {**good.results, RunLevel.LOADED: a_served_result({**LOADED, "network": 2.0}, 4)}
    assert [doubt.code for doubt in explanation_doubts(tuple(explain_levels(results)))] == ["large-rest"]
    assert list(explanation_doubts(())) == []


def test_an_overload_explains_nothing() -> None:
    """A latency without a steady value has a rest of no bound, and no share of it is told."""
    zero = replace(
        a_called_result(), measurements=(Measurement(metric="latency", value=Distribution.of([0.0])),)
    )
    assert unexplained_share(tuple(explain_levels({RunLevel.IN_PROCESS: zero}))) == 0.0


# --- the document ------------------------------------------------------------------------------------


def test_what_is_not_known_has_no_number() -> None:
    """Asking for it raises, as asking for what does not exist."""
    explanation = an_explanation(results={RunLevel.ALONE: a_served_result(ALONE)})
    with pytest.raises(KeyError, match="protocol is not known"):
        explanation["protocol"]
    with pytest.raises(KeyError, match="kernels"):
        explanation["kernels"]


def test_failures_and_interruptions_of_its_results_are_its_own() -> None:
    """So are their doubts."""
    failed = a_small_result(
        failures=(Failure(where="load", kind=FailureKind.OOM, message="out of memory"),),
        doubts=(Doubt(code=INTERRUPTED, seen="Ctrl-C", advice=""),),
    )
    explanation = an_explanation(results={RunLevel.IN_PROCESS: failed})
    assert explanation.failures == {"in process": "load: out of memory"}
    assert explanation.interrupted
    assert [doubt.code for doubt in explanation.doubts] == [INTERRUPTED]
    assert explanation.whole is None


def test_the_change_of_each_hop() -> None:
    """Between two explanations each hop has its difference; what only one knows has none."""
    before, now = an_explanation(), an_explanation()
    slower = {**now.results, RunLevel.LOADED: a_served_result({**LOADED, "queue": 13.0}, 4)}
    changes = hop_changes(before.levels, tuple(explain_levels(slower)))
    moved = {hop.label: hop.time.seconds for hop in changes if hop.time and abs(hop.time.seconds) > 1e-9}
    assert moved == {"queue under load": pytest.approx(4 * MILLI)}
    served = tuple(explain_levels({RunLevel.LOADED: a_served_result(LOADED, known=False)}))
    lost = {hop.label for hop in hop_changes(before.levels, served) if hop.time is None}
    assert {"bound", "queue under load", "server compute under load"} <= lost
    assert "protocol" in lost
    nothing = hop_changes(served, served)
    assert {hop.label for hop in nothing} == {"wait for the client under load", "rest under load"}


def test_an_explanation_compares_with_its_baseline() -> None:
    """The levels before are those of the baseline."""
    explanation = an_explanation(baseline=an_explanation().results)
    assert explanation.levels_before == explanation.levels
    assert explanation.name == "onnx:models/mini.onnx"


# --- tails -------------------------------------------------------------------------------------------


def a_tailed_result(waits: list[float], serves: list[float]) -> Result:
    """Return a load of requests that waited for the client and were served so many seconds."""
    latency = [wait + serve for wait, serve in zip(waits, serves, strict=True)]
    return a_small_result(
        measurements=(
            Measurement(metric="latency", value=Distribution.of(latency)),
            Measurement(metric="send_lag", value=Distribution.of(waits)),
        )
    )


def test_the_slowest_requests_are_divided_by_their_own_record() -> None:
    """The client's wait of the slowest is theirs, not the mean of all."""
    serves = [0.010 + 1e-6 * place for place in range(1000)]
    random.Random(4).shuffle(serves)
    waits = [0.003 if serve > 0.0108 else 0.0 for serve in serves]
    tail = tail_time(a_tailed_result(waits, serves))
    assert tail is not None
    assert (tail.percentile, tail.requests) == ("p99", 11)
    assert tail.waited == pytest.approx(0.003)
    assert tail.served == pytest.approx(0.010994)


@pytest.mark.parametrize(
    "result",
    [
        a_small_result(),
        a_tailed_result([0.0] * 20, [0.01] * 20),
        replace(a_tailed_result([0.0] * 999, [0.01] * 999), measurements=(
            Measurement(metric="latency", value=spread(10, 1000)),
            Measurement(metric="send_lag", value=spread(1, 999)),
        )),
        a_small_result(measurements=(
            Measurement(metric="latency", value=0.01), Measurement(metric="send_lag", value=0.0),
        )),
    ],
    ids=["no latency", "too few", "thinned", "numbers"],
)  # fmt: skip
def test_no_tail_without_the_record_of_each_request(result: Result) -> None:
    """Nor below the certified floor."""
    assert tail_time(result) is None


# --- estimates ---------------------------------------------------------------------------------------


def test_distances_add_up_in_squares() -> None:
    """The interval of a sum or difference may be lopsided, as those that it is of."""
    one, other = estimate(5.0, 2.0, 6.0), estimate(3.0, 2.0, 7.0)
    total, difference = one + other, one - other
    assert total.interval == Interval(low=8 - 10**0.5, high=8 + 17**0.5)
    assert difference.interval == Interval(low=2 - 5.0, high=2 + 2**0.5)
    assert (one + TimeEstimate(seconds=1.0)) == TimeEstimate(seconds=6.0)
    assert sum_times([]).seconds == 0.0
    assert sum_times([one, other]).seconds == 8.0


def test_what_an_interval_says_of_zero() -> None:
    """It may be zero, or is surely negative; without an interval neither is known."""
    assert estimate(1.0, -1.0, 2.0).may_be_zero
    assert not estimate(1.0, 0.5, 2.0).may_be_zero
    assert estimate(-1.0, -2.0, -0.5).is_known_negative
    assert not TimeEstimate(seconds=-1.0).is_known_negative
    assert not TimeEstimate(seconds=0.0).may_be_zero


def test_an_estimate_that_moves_keeps_the_width_of_its_interval() -> None:
    """One without an interval only moves."""
    assert estimate(1.0, 0.0, 3.0).moved_to(10.0) == estimate(10.0, 9.0, 12.0)
    assert TimeEstimate(seconds=1.0).moved_to(2.0) == TimeEstimate(seconds=2.0)


def test_the_mean_is_that_of_the_means_of_the_processes() -> None:
    """So it adds up with numbers, of which each process gives one; the median is that of all samples."""
    value = Distribution.of([1.0] * 30, [3.0] * 10)
    result = a_small_result(measurements=(Measurement(metric="latency", value=value),))
    mean, median = (measured_time(result, "latency", name) for name in ("mean", "p50"))
    assert mean is not None
    assert median is not None
    assert (mean.seconds, median.seconds) == (2.0, 1.0)
    assert measured_time(result, "queue_time", "mean") is None


def test_processes_that_bound_nothing_alone_do_so_together() -> None:
    """Samples that only rise have no interval; Student's of the processes is one, but not of an overload."""
    rising = [float(sample) for sample in range(1, 9)]
    value = Distribution.of(rising, [sample + 1 for sample in rising], [sample + 2 for sample in rising])

    def of(value: Distribution) -> TimeEstimate | None:
        result = a_small_result(measurements=(Measurement(metric="latency", value=value),))
        return measured_time(result, "latency", "mean")

    assert value.interval("mean") == Interval(low=0.0, high=inf)
    together = of(value)
    assert together is not None
    assert together.seconds == 5.5
    assert together.interval is not None
    assert together.interval.low == pytest.approx(5.5 - 4.30265 / 3**0.5, abs=1e-4)
    assert together.interval.high == pytest.approx(5.5 + 4.30265 / 3**0.5, abs=1e-4)
    assert of(replace(value, void="saturated")) == estimate(5.5, 5.5, inf)


def test_an_interval_of_a_hundred_means_bounds_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of samples that hardly vary independently: hours of a call that takes milliseconds."""
    monkeypatch.setattr(Distribution, "interval", lambda *_of: Interval(low=0.0, high=201.0))
    value = Distribution.of([1.0] * 8, [2.0] * 8, [3.0] * 8)
    result = a_small_result(measurements=(Measurement(metric="latency", value=value),))

    together = measured_time(result, "latency", "mean")

    assert together is not None
    assert together.interval is not None
    assert together.interval.high == pytest.approx(2 + 4.30265 / 3**0.5, abs=1e-4)


def test_an_interval_that_tells_nothing_is_none() -> None:
    """One with a single end stays, and holds its value."""

    def of(low: float, high: float) -> TimeEstimate | None:
        number = Measurement(metric="queue_time", value=2.0, interval=Interval(low=low, high=high))
        return measured_time(a_small_result(measurements=(number,)), "queue_time", "mean")

    assert of(-inf, inf) == TimeEstimate(seconds=2.0)
    assert of(1.0, inf) == estimate(2.0, 1.0, inf)
    assert of(3.0, 4.0) == estimate(2.0, 2.0, 4.0)
