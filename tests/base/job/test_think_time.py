"""How long users think, as it is written and drawn."""

from __future__ import annotations

import statistics
from random import Random

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.think_time import ThinkTime, parse_think_time


@pytest.mark.parametrize(
    ("text", "pause", "written"),
    [
        (2, ThinkTime(low=2, high=2), "2s"),
        ("1.5", ThinkTime(low=1.5, high=1.5), "1.5s"),
        ("200 ms", ThinkTime(low=0.2, high=0.2), "0.2s"),
        ("2s~0.5s", ThinkTime(low=2, high=2, spread=0.5), "2s~0.5s"),
        ("2~0.5", ThinkTime(low=2, high=2, spread=0.5), "2s~0.5s"),
        ("2s~500ms", ThinkTime(low=2, high=2, spread=0.5), "2s~0.5s"),
        ("2s~x1.5", ThinkTime(low=2, high=2, factor=1.5), "2s~x1.5"),
        ("1..3", ThinkTime(low=1, high=3), "1s..3s"),
        ("100..300ms", ThinkTime(low=0.1, high=0.3), "0.1s..0.3s"),
        ("0", ThinkTime(low=0, high=0), "0s"),
        ("0.00005", ThinkTime(low=5e-5, high=5e-5), "0.00005s"),
    ],
)
def test_a_pause_is_read_and_written_back(text: object, pause: ThinkTime, written: str) -> None:
    """A number without a unit is in seconds, or has the unit of the end of its range."""
    assert parse_think_time(text) == pause
    assert str(pause) == written
    assert parse_think_time(written) == pause
    assert parse_think_time(pause) is pause


def test_no_pause_stays_none() -> None:
    """Without the option nobody thinks."""
    assert parse_think_time(None) is None


@pytest.mark.parametrize("text", ["soon", "", "-1", "1..2..3", "2~"])
def test_what_is_no_pause_is_refused(text: str) -> None:
    """The answer says how to write one."""
    with pytest.raises(RequestError, match=r"write 2s, 2s~0\.5s for a normal"):
        parse_think_time(text)


@pytest.mark.parametrize("text", ["3..1", "2h..30h", "2s~x0.5"])
def test_a_pause_that_cannot_be_is_refused(text: str) -> None:
    """It ends before it begins, or lasts for more than a day."""
    with pytest.raises(RequestError, match="of at most a day"):
        parse_think_time(text)


@pytest.mark.parametrize("text", ["2~500ms", "200ms~0.05", "500ms..900"])
def test_a_unit_is_not_guessed(text: str) -> None:
    """Two milliseconds, or two seconds?"""
    with pytest.raises(RequestError, match="give each its own"):
        parse_think_time(text)


def drawn(text: str) -> list[float]:
    pause, random = parse_think_time(text), Random(0)
    assert pause is not None
    return [pause.draw(random) for _ in range(4000)]


def test_pauses_are_drawn_as_was_said() -> None:
    """None is below zero."""
    assert set(drawn("2s")) == {2.0}
    assert 1 <= min(drawn("1..3")) < 1.1
    assert 2.9 < max(drawn("1..3")) <= 3
    assert statistics.fmean(drawn("2~0.5")) == pytest.approx(2, rel=0.02)
    assert statistics.stdev(drawn("2~0.5")) == pytest.approx(0.5, rel=0.05)
    assert statistics.median(drawn("2~x2")) == pytest.approx(2, rel=0.05)
    assert min(drawn("1~5")) == 0
