from __future__ import annotations

import io
import sys
from math import inf
from typing import Any

import pytest

from modeldyno.base import progress
from modeldyno.base.result.result import Event, Progressed, SecondPassed
from modeldyno.base.result.trace_data import LiveSecond


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        """Somebody looks."""
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Give the time, seconds."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "monotonic", made)
    return made


def written(monkeypatch: pytest.MonkeyPatch, clock: Clock, stream: Any, after: float, **how: Any) -> str:
    """Give what is on standard error when an event comes so many seconds after the beginning."""
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.showing_progress(**how) as watch:
        clock.now += after
        watch(Progressed(stage="latency: steady", runs=50))
    return str(stream.getvalue())


def test_a_call_that_takes_a_while_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """After two seconds, on a line that is gone in the end; what is over sooner writes nothing."""
    slow = written(monkeypatch, clock, Terminal(), 3.0)

    assert "latency: steady, 50 samples" in slow
    assert slow.endswith("\r\x1b[K")
    assert not written(monkeypatch, clock, Terminal(), 1.0)


def test_nobody_is_told_who_does_not_look(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """A file gets nothing; a terminal neither, where it is not wanted."""
    assert not written(monkeypatch, clock, io.StringIO(), 3.0)
    assert not written(monkeypatch, clock, Terminal(), 3.0, progress=False)


def test_a_notebook_has_one_output_that_is_updated(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Whatever is written to standard error of a kernel would be one more output of the cell."""
    outputs: list[list[str]] = []

    class Output:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            """Replace what it shows."""
            assert raw
            outputs[-1].append(data["text/plain"])

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Output:
        assert raw
        assert display_id
        outputs.append([data["text/plain"]])
        return Output()

    module = type(sys)("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ipykernel", type(sys)("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    cell = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()

    assert written(monkeypatch, clock, cell, 3.0) == ""
    ((first, *_, last),) = outputs
    assert "latency: steady" in first
    assert last == ""


def test_whoever_watches_is_told_of_every_event(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Also of those that come too early for the line, or with none."""
    events: list[Event] = []
    written(monkeypatch, clock, io.StringIO(), 0.0, watch=events.append, progress=False)

    assert events == [Progressed(stage="latency: steady", runs=50)]


class Log:
    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        """Keep it."""
        self.text += text

    def flush(self) -> None:
        """Nothing waits."""


@pytest.mark.parametrize("stream", [None, Log()])
def test_standard_error_may_be_missing_or_a_log(monkeypatch: pytest.MonkeyPatch, stream: Log | None) -> None:
    """A program without standard error, or with a log in its place, is measured like any other."""
    monkeypatch.setattr(sys, "stderr", stream)
    events: list[Event] = []
    with progress.Progress() as display:
        display.announce("three trials")
    with progress.showing_progress(events.append) as watch:
        watch(Progressed(stage="latency: steady", runs=50))

    assert len(events) == 1
    assert stream is None or stream.text == "three trials\n"


@pytest.mark.parametrize(
    ("precision", "text"), [(0.02, "1.20 ms ± 2.0%"), (4.7, "about 1.20 ms"), (inf, "about 1.20 ms")]
)
def test_an_interval_that_bounds_nothing_is_not_told(precision: float, text: str) -> None:
    """Early on it is as wide as one likes: its width, or an infinity, helps nobody."""
    event = Progressed(stage="latency: steady", runs=20, value=1.2e-3, precision=precision)

    assert progress.line(event) == f"  latency: steady, 20 samples, {text}"


def test_a_bar_shows_runs_where_they_end_first(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """After two of three rounds it is at two thirds, and stays there, however early it is."""
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    with progress.Progress(longest=600.0) as display:
        clock.now += 6.0
        display.watch(Progressed(stage="round 1"))
        display.watch(Progressed(stage="round 3", share=2 / 3))
        display.watch(Progressed(stage="looking for causes"))

    assert [text.split(" %")[0][-2:] for text in stream.getvalue().split("\r\x1b[K")[1:-1]] == [
        " 1",
        "67",
        "67",
    ]


def of_tokens(**fields: float | None) -> SecondPassed:
    """Give a second of a load of streamed answers."""
    second = LiveSecond(at=3.0, answered=8, failed=0, **{"pieces": 100.0, **fields})  # type: ignore[arg-type]
    return SecondPassed(load="concurrency 8", second=second)


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (of_tokens(tokens=1203.6, first_token=0.0294), "20 samples, 1,204 tokens/s, first token 29.4 ms"),
        (of_tokens(first_token=0.0294), "20 samples, 100 pieces/s, first token 29.4 ms"),
        (of_tokens(tokens=1203.6), "20 samples, 1,204 tokens/s"),
        (of_tokens(pieces=None), "20 samples, 1.20 ms ± 2.0%"),
    ],
)
def test_a_load_of_tokens_says_how_many_come_and_when_the_first_ones(passed: SecondPassed, text: str) -> None:
    """In place of the time of a whole answer; pieces, while no answer has said how many tokens it has."""
    event = Progressed(stage="latency: steady", runs=20, value=1.2e-3, precision=0.02)

    assert progress.line(event, passed=passed) == f"  latency: steady, {text}"


def test_a_narrow_terminal_has_the_tokens_rather_than_the_samples() -> None:
    """No figure is cut in two."""
    event, passed = (
        Progressed(stage="latency: steady", runs=128, left=13.0),
        of_tokens(tokens=204.0, first_token=0.63),
    )

    assert progress.line(event, "", 79, passed) == (
        "  latency: steady, 204 tokens/s, first token 630 ms, about 13 s left"
    )


def test_the_tokens_of_a_load_that_is_over_are_shown_no_more(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """What follows it has none."""
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    with progress.Progress() as display:
        display.watch(of_tokens(tokens=204.0))
        display.watch(Progressed(stage="latency: steady"))
        clock.now += 4.0
        display.watch(Progressed(stage="client error"))

    assert ["204 tokens/s" in text for text in stream.getvalue().split("\r\x1b[K")[1:3]] == [True, False]
