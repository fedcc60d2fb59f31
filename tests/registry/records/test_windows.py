from __future__ import annotations

from datetime import datetime

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.registry.records.policy import Window, opens_at


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-{text}")


NIGHT, NOON = Window.parse("22:00-06:00"), Window.parse("12:00-13:30")


@pytest.mark.parametrize("text", ["22:00-06:00", "00:00-24:00", "07:05-07:06", "23:59-24:00"])
def test_a_window_reads_as_it_is_written(text: str) -> None:
    assert str(Window.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [("9:00-17:00", "09:00-17:00"), (" 22:00 - 6:00 ", "22:00-06:00"), ("24:00-06:00", "00:00-06:00")],
)
def test_spaces_and_short_hours_are_read(text: str, meant: str) -> None:
    assert str(Window.parse(text)) == meant


@pytest.mark.parametrize(
    "text", ["", "22-06", "22:00", "25:00-06:00", "22:60-06:00", "08:00-08:00", "24:30-06:00", "a:b-c:d"]
)
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="is no time of day; write 22:00-06:00"):
        Window.parse(text)


@pytest.mark.parametrize(
    ("now", "open_"),
    [
        ("01T21:59:59", False),
        ("01T22:00", True),
        ("01T23:59:59", True),
        ("02T00:00", True),
        ("02T05:59:59", True),
        ("02T06:00", False),
        ("02T12:00", False),
    ],
)
def test_a_night_goes_over_midnight(now: str, open_: bool) -> None:
    assert NIGHT.holds(at(now)) is open_


@pytest.mark.parametrize(
    ("now", "open_"), [("01T11:59", False), ("01T12:00", True), ("01T13:29", True), ("01T13:30", False)]
)
def test_the_end_of_a_window_is_outside(now: str, open_: bool) -> None:
    assert NOON.holds(at(now)) is open_


def test_the_whole_day_is_always_open() -> None:
    day = Window.parse("00:00-24:00")
    assert all(day.holds(at(f"01T{hour:02}:{minute:02}")) for hour in range(24) for minute in (0, 59))


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("01T06:00", "01T12:00"),
        ("01T13:30", "01T22:00"),
        ("01T11:59:59", "01T12:00"),
    ],
)
def test_the_first_window_to_come_is_waited_for(now: str, opens: str) -> None:
    assert opens_at((NIGHT, NOON), at(now)) == at(opens)


def test_a_window_that_is_over_today_begins_again_tomorrow() -> None:
    assert opens_at((NOON,), at("31T14:00")) == datetime.fromisoformat("2026-04-01T12:00")


def test_an_open_window_is_not_waited_for() -> None:
    assert opens_at((NIGHT, NOON), at("01T23:00")) is None


def test_without_windows_any_time_will_do() -> None:
    assert opens_at((), at("01T14:00")) is None
