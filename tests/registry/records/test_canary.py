from __future__ import annotations

import random

import pytest

from modeldyno.registry.records.staleness import CanaryReading, baseline, machine_change


def readings(*milliseconds: float) -> list[CanaryReading]:
    return [
        CanaryReading(at=f"2026-01-{day:02}T00:00:00+00:00", seconds=each * 1e-3)
        for day, each in enumerate(milliseconds, 1)
    ]


def test_two_slow_readings_are_a_change_since_the_last_good_one() -> None:
    """The day before them is the last that is known to be good."""
    change = machine_change(readings(10, 10.1, 9.9, 10), readings(13, 13.2))

    assert change is not None
    assert change.since == "2026-01-04T00:00:00+00:00"
    assert change.factor == pytest.approx(1.31)
    assert change.sentence == (
        "the machine has changed: its reference model takes 1.31 times as long since 2026-01-04"
    )


def test_a_faster_machine_is_a_change_as_well() -> None:
    """Its figures are not those of the one before."""
    change = machine_change(readings(10, 10, 10), readings(5, 5))

    assert change is not None
    assert "2.00 times as fast" in change.sentence


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ((10, 10), (20, 20)),
        ((10, 10, 10), (10.9, 10.9)),
        ((10, 10, 10), (20, 10)),
        ((10, 10, 10), (20, 5)),
        ((8, 10, 12, 9, 11), (13, 13)),
        ((10, 10, 10), ()),
    ],
    ids=["too few", "too little", "once only", "either way", "a machine that varies", "none"],
)
def test_this_is_no_change(earlier: tuple[float, ...], now: tuple[float, ...]) -> None:
    """It is too few readings, too little, seen once only, contradictory, or within what is usual."""
    assert machine_change(readings(*earlier), readings(*now)) is None


def test_after_a_change_the_new_level_is_the_usual_one() -> None:
    """Three readings of it suffice."""
    history = readings(10, 10, 10, 20, 20, 20)

    assert [reading.seconds for reading in baseline(history)] == [0.02] * 3
    assert machine_change(history, readings(20.5, 20.4)) is None
    assert machine_change(history, readings(10, 10)) is not None


@pytest.mark.no_cover
def test_a_quiet_machine_raises_no_alarm_in_a_year() -> None:
    """With 2 % of variation from day to day: at most one of a thousand days."""
    source = random.Random(1)
    alarms = 0
    for _ in range(1000):
        history = readings(*(10 * source.gauss(1, 0.02) for _ in range(10)))
        now = readings(*(10 * source.gauss(1, 0.02) for _ in range(2)))
        alarms += machine_change(history, now) is not None

    assert alarms <= 1
