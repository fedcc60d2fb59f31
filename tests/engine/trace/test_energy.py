from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.engine.trace import energy
from modeldyno.engine.trace.energy import (
    EnergyMeter,
    MeterSample,
    average_power_draw,
    consumed_joules,
    energy_per_call,
    power_measurement,
)

METER = EnergyMeter(period=0.1)
LATENCY = Measurement(metric="latency", value=Distribution.of([0.01, 0.03]))


def values(yielded: list[Measurement | Doubt]) -> dict[tuple[str, str], float]:
    return {(m.metric, m.scope): m.value for m in yielded if isinstance(m, Measurement)}  # type: ignore[misc]


class TestConsumed:
    @given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.floats(0, 262))
    def test_a_counter_that_wraps_loses_nothing(self, steps: list[float], start: float) -> None:
        """Whatever was consumed between readings is found again, through any number of wraps."""
        span, true, counts = 262.0, start, [start % 262.0]
        for step in steps:
            true += step
            counts.append(true % span)

        assert consumed_joules(counts, span) == pytest.approx(true - start, abs=1e-6)

    def test_a_counter_without_a_span_that_steps_back_was_reset(self) -> None:
        """What was counted before is lost, so nothing is known."""
        assert consumed_joules([50.0, 60.0, 1.0], None) is None

    def test_a_small_step_back_is_no_wrap(self) -> None:
        """A counter of a large span that falls a little was set back, and has not gone all the way round."""
        assert consumed_joules([50.0, 40.0], 262.0) is None

    @pytest.mark.parametrize("counts", [[], [5.0]])
    def test_one_reading_tells_no_difference(self, counts: list[float]) -> None:
        """A counter tells by differences alone."""
        assert consumed_joules(counts, 262.0) is None


class TestDraw:
    def test_a_counter_gives_the_mean_power_of_its_window(self) -> None:
        """Joules over seconds, whatever the power was sampled to be."""
        samples = [MeterSample(time=t, energy=30.0 * t, power=999.0) for t in (0.0, 0.4, 2.0)]
        average = average_power_draw([samples], METER)

        assert average is not None
        assert (average.power, average.seconds, average.counted, average.enough) == (30.0, 2.0, True, True)

    def test_a_window_of_few_periods_is_too_short(self) -> None:
        """Less than ten updates of the counter leave its ends uncertain."""
        average = average_power_draw([[MeterSample(time=t, energy=t) for t in (0.0, 0.5)]], METER)

        assert average is not None
        assert not average.enough

    def test_without_a_counter_power_is_summed_over_time(self) -> None:
        """A ramp from 0 to 100 W draws 50 W on average; the samples need not be evenly spaced."""
        times = (0.0, 0.1, 0.5, 1.0, 1.1, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0)
        average = average_power_draw([[MeterSample(time=t, power=50 * t) for t in times]], METER)

        assert average is not None
        assert average.power == pytest.approx(50.0)
        assert (average.counted, average.enough) == (False, True)

    def test_a_reset_counter_falls_back_to_power(self) -> None:
        """What the counter lost is still seen in the samples of power."""
        average = average_power_draw(
            [[MeterSample(time=t, energy=9 - t, power=7.0) for t in (0.0, 1.0)]], METER
        )

        assert average is not None
        assert (average.power, average.counted) == (7.0, False)

    @pytest.mark.parametrize("quantity", ["energy", "power"])
    def test_what_is_drawn_between_windows_counts_nowhere(self, quantity: str) -> None:
        """A side that draws 10 W in its turns draws 10 W, whatever the other draws in its own."""
        windows = []
        joules = 0.0
        for start in (0.0, 4.0, 8.0):
            values = (joules, joules + 20.0) if quantity == "energy" else (10.0, 10.0)
            pairs = zip((start, start + 2.0), values, strict=True)
            windows.append([MeterSample(time=time, **{quantity: value}) for time, value in pairs])
            joules += 20.0 + 100.0
        average = average_power_draw(windows, METER)

        assert average is not None
        assert (average.power, average.seconds, average.enough) == (10.0, 6.0, True)
        assert average.error == pytest.approx(10.0 * 3 * METER.period / 6.0)

    @pytest.mark.parametrize(
        "samples",
        [
            [],
            [MeterSample(time=1.0)],
            [MeterSample(time=1.0, energy=5.0)],
            [MeterSample(time=1.0, power=5.0)],
            [MeterSample(time=1.0, energy=5.0, power=5.0)] * 2,
        ],
    )
    def test_what_was_not_told_is_unknown(self, samples: list[MeterSample]) -> None:
        """No window, no power: nothing, and never 0."""
        assert average_power_draw([samples], METER) is None


class TestPerCall:
    def test_the_idle_floor_is_subtracted(self) -> None:
        """Energy of a call: watts above the floor times the mean seconds of a call, by device and in all."""
        measurements = [
            LATENCY,
            observed_number("power", 250.0, scope="cuda:0"),
            observed_number("idle_power", 50.0, scope="cuda:0"),
            observed_number("power", 30.0, scope="package-0"),
            observed_number("idle_power", 20.0, scope="package-0"),
        ]

        assert values(list(energy_per_call(measurements))) == {
            ("energy", "cuda:0"): pytest.approx(4.0),
            ("energy", "package-0"): pytest.approx(0.2),
            ("energy", ""): pytest.approx(4.2),
        }

    def test_a_device_below_its_floor_counts_against_the_whole(self) -> None:
        """Noise goes both ways; of the device itself nothing is said."""
        measurements = [
            LATENCY,
            observed_number("power", 60.0, scope="a"),
            observed_number("idle_power", 50.0, scope="a"),
            observed_number("power", 9.0, scope="b"),
            observed_number("idle_power", 10.0, scope="b"),
        ]

        assert values(list(energy_per_call(measurements))) == {
            ("energy", "a"): pytest.approx(0.2),
            ("energy", ""): pytest.approx(0.18),
        }

    def test_nothing_above_the_floor_is_a_doubt_and_no_energy(self) -> None:
        """A number below the noise is not reported, and never as 0."""
        measurements = [
            LATENCY,
            observed_number("power", 9.0, scope="a"),
            observed_number("idle_power", 10.0, scope="a"),
        ]
        (doubt,) = energy_per_call(measurements)

        assert isinstance(doubt, Doubt)
        assert doubt.code == "at-idle-power"
        assert doubt.seen == "a drew -1.0 W to -1.0 W more in the timed pass than before loading"

    def test_what_the_counters_cannot_tell_from_the_floor_is_left_out(self) -> None:
        """An interval that reaches down to nothing is no energy; what is clear is told all the same."""
        wide, sharp = Interval(low=40.0, high=60.0), Interval(low=29.0, high=31.0)
        measurements = [
            Measurement(metric="latency", value=Distribution.of([0.1])),
            observed_number("power", 51.0, scope="a", interval=wide),
            observed_number("idle_power", 50.0, scope="a"),
            observed_number("power", 30.0, scope="b", interval=sharp),
            observed_number("idle_power", 10.0, scope="b"),
        ]
        (doubt,) = energy_per_call([*measurements[:3]])
        (energy,) = (
            m for m in energy_per_call(measurements) if isinstance(m, Measurement) and m.scope == "b"
        )

        assert isinstance(doubt, Doubt)
        assert doubt.seen == "a drew -10 W to 10 W more in the timed pass than before loading"
        assert energy.value == pytest.approx(2.0)
        assert energy.interval is not None
        assert [energy.interval.low, energy.interval.high] == pytest.approx([1.9, 2.1])
        assert ("energy", "a") not in values(list(energy_per_call(measurements)))

    def test_the_interval_of_the_latency_is_in_that_of_the_energy(self) -> None:
        """Watts that are known exactly still take as many joules as the call takes seconds."""
        latency = Distribution.of([0.01, 0.012, 0.011] * 50)
        measurements = [
            Measurement(metric="latency", value=latency),
            observed_number("power", 11.0, scope="a"),
            observed_number("idle_power", 1.0, scope="a"),
        ]
        (energy, _whole) = energy_per_call(measurements)
        mean = latency.interval("mean")
        assert mean is not None
        assert isinstance(energy, Measurement)

        assert energy.interval == Interval(low=10 * mean.low, high=10 * mean.high)

    def test_power_of_pooled_processes_has_an_interval_of_its_own(self) -> None:
        """Several processes disagree by more than their counters err."""
        window = average_power_draw([[MeterSample(time=t, energy=30.0 * t) for t in (0.0, 3.0)]], METER)
        assert window is not None
        one = power_measurement("power", "a", window)
        assert one.interval == Interval(low=29.0, high=31.0)
        pooled = one.pooled(observed_number("power", 40.0, scope="a"))

        assert (pooled.value, pooled.runs) == (35.0, (30.0, 40.0))

    def test_without_latency_the_rate_of_calls_serves(self) -> None:
        """A run of the throughput probe alone knows its calls as well; the slower, the dearer."""
        measurements = [
            observed_number("batch_rate", 100.0, interval=Interval(low=0.0, high=200.0)),
            observed_number("power", 30.0, scope="a"),
            observed_number("idle_power", 20.0, scope="a"),
        ]
        energy = next(iter(energy_per_call(measurements)))

        assert isinstance(energy, Measurement)
        assert energy.value == pytest.approx(0.1)
        assert energy.interval is not None
        assert [energy.interval.low, energy.interval.high] == pytest.approx([0.05, 0.1])

    def test_tokens_have_their_energy_too(self) -> None:
        """Watts above the floor over tokens a second, of each phase; the slower end is the dearer."""
        rate = observed_number("token_rate", 100.0, interval=Interval(low=50.0, high=200.0))
        measurements = [
            rate,
            observed_number("token_rate", 1000.0, scope="prefill"),
            observed_number("token_rate", 0.0, scope="decode"),
            observed_number("power", 30.0, scope="a"),
            observed_number("idle_power", 20.0, scope="a"),
        ]
        of_all, of_prefill = energy_per_call(measurements)

        assert values([of_all, of_prefill]) == {
            ("energy_per_token", ""): pytest.approx(0.1),
            ("energy_per_token", "prefill"): pytest.approx(0.01),
        }
        assert isinstance(of_all, Measurement)
        assert of_all.interval is not None
        assert [of_all.interval.low, of_all.interval.high] == pytest.approx([0.05, 0.2])

    def test_without_power_above_the_floor_tokens_have_no_energy(self) -> None:
        """One doubt stands for all."""
        measurements = [
            observed_number("token_rate", 100.0),
            observed_number("power", 9.0, scope="a"),
            observed_number("idle_power", 20.0, scope="a"),
        ]
        (doubt,) = energy_per_call(measurements)
        assert isinstance(doubt, Doubt)

    @pytest.mark.parametrize(
        "measurements",
        [
            [],
            [LATENCY, observed_number("power", 30.0, scope="a")],
            [observed_number("power", 30.0, scope="a"), observed_number("idle_power", 20.0, scope="a")],
            [
                Measurement(metric="latency", value=Distribution.of([])),
                observed_number("power", 30.0, scope="a"),
                observed_number("idle_power", 20.0, scope="a"),
            ],
        ],
    )
    def test_without_a_floor_or_a_call_there_is_no_energy(self, measurements: list[Measurement]) -> None:
        """Nothing is attributed silently."""
        assert list(energy_per_call(measurements)) == []


def test_each_window_needs_its_length() -> None:
    """Both ends of a window are uncertain: two need twice the time of one."""
    windows = [[MeterSample(time=t, energy=t) for t in (begin, begin + 0.6)] for begin in (0.0, 5.0)]
    drawn = average_power_draw(windows, METER)

    assert drawn is not None
    assert not drawn.enough
    assert "1.2 s of calls, and 2.0 s are needed" in energy.short_window_doubt("cuda:0", drawn).seen


def test_doubts_name_the_device_first() -> None:
    """So that those of several processes are told together."""
    drawn = average_power_draw([[MeterSample(time=t, energy=t) for t in (0.0, 0.5)]], METER)
    assert drawn is not None

    short, sampled = energy.short_window_doubt("cuda:0", drawn), energy.sampled_power_doubt("cuda:0")

    assert (
        short.seen == "cuda:0 was sampled during 500 ms of calls, and 1.0 s are needed to determine its power"
    )
    assert sampled.seen.startswith("cuda:0 ")
