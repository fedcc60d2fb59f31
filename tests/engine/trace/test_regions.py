from __future__ import annotations

import pytest

from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.result.trace_data import EventKind, ExecutedOp
from modeldyno.engine.trace import regions as trace_regions
from modeldyno.engine.trace.regions import RegionMemory, RegionTally

MS = 1_000_000
CLOCK = {"clock_resolution": 1e-9, "timer_cost": 5e-8}


def tally(times: list[int], *, most: int = trace_regions.MOST, seed: int = 0) -> RegionTally:
    made = RegionTally(most=most, seed=seed)
    for time in times:
        made.add([(time, time, time, 0)])
    return made


def test_few_calls_are_kept_one_by_one() -> None:
    """Up to the bound every call is there, in the order in which it was made."""
    made = tally([3 * MS, 1 * MS, 2 * MS])

    assert list(made.seconds()) == pytest.approx([0.003, 0.001, 0.002])
    assert (made.calls, made.total, made.least, made.longest) == (3, 6 * MS, 1 * MS, 3 * MS)


@pytest.mark.parametrize("calls", [16, 31, 32, 100, 10_000])
def test_many_calls_take_no_more_room(calls: int) -> None:
    """The samples stay below the bound, each stands for one stretch of consecutive calls, in their order."""
    made = tally(list(range(1, calls + 1)), most=16)
    kept = list(made.kept)
    stride = next(2**n for n in range(20) if calls < 16 * 2**n)

    assert 16 // 2 <= len(kept) < 16
    assert [(time - 1) // stride for time in kept] == list(range(len(kept)))
    assert made.calls == calls
    assert made.total == calls * (calls + 1) // 2


def test_the_extremes_are_always_kept() -> None:
    """The quickest and the slowest call are among the samples, however many were left out."""
    times = [100] * 1000
    times[500], times[501] = 1, 9999
    for seed in range(5):
        seconds = tally(times, most=16, seed=seed).seconds()

        assert min(seconds) == pytest.approx(1e-9)
        assert max(seconds) == pytest.approx(9999e-9)


def test_a_pattern_cannot_hide_between_the_samples() -> None:
    """Of calls that alternate, about half of the samples are of each kind, whatever the stride."""
    times = [1 if number % 2 else 1000 for number in range(100_000)]
    kept = tally(times, most=2048).kept

    assert 0.4 < sum(time == 1 for time in kept) / len(kept) < 0.6


def test_tallies_become_measurements() -> None:
    """The region with most time of its own comes first; memory has its place in the scope."""
    small, large = tally([1 * MS]), tally([5 * MS, 6 * MS])
    small.sizes["cuda:0"] = RegionMemory()
    small.sizes["cuda:0"].add(100, 40, 80)
    small.sizes["cuda:0"].add(300, 60, 90)
    small.sizes["process"] = RegionMemory()
    small.sizes["process"].add(10, 0, None)
    by_metric = {
        (m.metric, m.scope): m.value
        for m in trace_regions.region_measurements({"small": small, "large": large}, CLOCK)
    }

    assert next(iter(by_metric)) == ("latency", "large")
    latency = by_metric["latency", "large"]
    assert isinstance(latency, Distribution)
    assert latency.timer_cost == 5e-8
    assert by_metric["calls", "large"] == 2
    assert by_metric["first_call", "large"] == min(latency.samples())
    assert by_metric["total_time", "large"] == pytest.approx(0.011)
    assert by_metric["total_self_time", "large"] == pytest.approx(0.011)
    assert by_metric["allocated", "small [cuda:0]"] == 200
    assert by_metric["freed", "small [cuda:0]"] == 50
    assert by_metric["allocated_peak", "small [cuda:0]"] == 90
    assert ("allocated_peak", "small [process]") not in by_metric


def test_a_scope_of_memory_is_taken_apart() -> None:
    """A region and its place are found again; a name with brackets of its own is no place."""
    assert trace_regions.split_region_scope(trace_regions.region_memory_scope("load [x] it", "cuda:0")) == (
        "load [x] it",
        "cuda:0",
    )
    assert trace_regions.split_region_scope("load") == ("load", "")
    assert trace_regions.split_region_scope("a [b] c") == ("a [b] c", "")


def test_own_time_that_is_mostly_noting_down_is_doubted() -> None:
    """A region that calls many small ones is named with the share that noting them down takes."""
    busy, calm, idle = RegionTally(), RegionTally(), RegionTally()
    busy.add([(2 * MS, 1 * MS, 2 * MS, 400)])
    calm.add([(2 * MS, 1 * MS, 2 * MS, 60)])
    idle.add([(0, 0, 0, 5)])
    tallies = {"busy": busy, "calm": calm, "idle": idle}
    (doubt,) = trace_regions.region_doubts(tallies, cost=1e-6, slowed=None)

    assert doubt.code == "timer-bound"
    assert "40% of the own time of busy" in doubt.seen
    assert "the same holds for 1 more" in doubt.seen
    (alone,) = trace_regions.region_doubts({"busy": busy}, cost=1e-6, slowed=None)
    assert "so it is" not in alone.seen
    assert not list(trace_regions.region_doubts(tallies, cost=1e-9, slowed=None))


def test_tracing_is_doubted_with_what_it_costs() -> None:
    """Times of a run whose allocations were traced say so."""
    (doubt,) = trace_regions.region_doubts({}, cost=1e-6, slowed=3.2)

    assert doubt.code == "traced-memory"
    assert "3.2 times" in doubt.seen


@pytest.mark.parametrize(
    ("schedule", "recorded", "kept"),
    [
        (trace_regions.Schedule(), [*range(10)], [*range(10)]),
        (trace_regions.Schedule(wait=2, warmup=1, active=2), [2, 3, 4], [3, 4]),
        (trace_regions.Schedule(wait=1, active=1, repeat=2), [1, 3], [1, 3]),
    ],
)
def test_a_schedule_is_rounds_of_calls(
    schedule: trace_regions.Schedule, recorded: list[int], kept: list[int]
) -> None:
    """Those that wait, those that warm up, and those that are kept."""
    assert [call for call in range(20) if schedule.records(call)] == recorded
    assert [call for call in range(20) if schedule.keeps(call)] == kept


def test_recorded_operators_are_doubted() -> None:
    """With how many calls it concerns."""
    assert trace_regions.operators_doubt(3).seen.endswith("; it was done in 3")


def metered(joules: float | None, seconds: float = 1.0, calls: int = 2) -> RegionTally:
    """A region whose energy was asked for; None if no counter was read."""
    made = tally([round(seconds * 1e9 / calls)] * calls)
    made.metered = calls
    made.drawn = {} if joules is None else {"package-0": joules}
    return made


def test_energy_is_that_of_one_call_on_each_device() -> None:
    """What is not counted has none."""
    measurements = trace_regions.region_measurements({"step": metered(10.0), "other": metered(None)}, CLOCK)
    assert {m.scope: m.value for m in measurements if m.metric == "energy_drawn"} == {"step [package-0]": 5.0}


def test_energy_is_doubted_where_it_is_not_read_or_the_counter_is_too_slow() -> None:
    """One sentence for each reason; a region whose energy nobody asked for has none."""
    tallies = {
        "plain": tally([1]),
        "good": metered(1.0),
        "short": metered(1.0, 0.5),
        "brief": metered(1.0, 0.1),
    }
    assert [doubt.code for doubt in trace_regions.energy_doubts(tallies, 0.01)] == []
    (doubt,) = trace_regions.energy_doubts(tallies, 0.1)
    assert doubt.code == "short-window"
    assert doubt.seen.startswith("all calls of short together took less than 10 periods")
    assert doubt.seen.endswith("the same holds for 1 more")
    (unread,) = trace_regions.energy_doubts({"step": metered(None)}, 0.0)
    assert unread.code == "unread-energy"


def test_operators_of_one_call_are_counted_by_region() -> None:
    """With those in its modules; kernels and ranges are none."""
    rows = [
        ExecutedOp(name="mm", scope=scope, kind=kind, calls=2.0, self_time=0.0, total_time=0.0)
        for scope, kind in (
            ("step", EventKind.OPERATOR),
            ("step > Net.a", EventKind.OPERATOR),
            ("step", EventKind.KERNEL),
            ("block", EventKind.OPERATOR),
        )
    ]

    assert [(one.metric, one.scope, one.value) for one in trace_regions.operator_measurements(rows)] == [
        ("operator_calls", "step", 4.0),
        ("operator_calls", "block", 2.0),
    ]


def test_no_calls_change_nothing() -> None:
    """As where a thread has counted them already."""
    made = tally([5 * MS])
    made.add([])

    assert made.calls == 1
    assert list(made.seconds()) == pytest.approx([0.005])
