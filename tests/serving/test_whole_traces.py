"""How much of a trace is replayed if nobody says how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.serving.probes import load as probe

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Requests at 0, 6 and 12 seconds."""
    path = tmp_path / "trace.txt"
    path.write_text("0\n6\n12\n")
    return str(path)


def test_a_trace_is_replayed_to_its_end(trace: str) -> None:
    """At its speed, and of a window only that."""
    plan = Plan(may_extend=True)
    for load, seconds in (
        (Load(arrivals=Arrivals.TRACE, trace=trace), 12),
        (Load(arrivals=Arrivals.TRACE, trace=trace, speed=2), 6),
        (Load(arrivals=Arrivals.TRACE, trace=trace, window=7), 6),
    ):
        assert probe._whole_trace(load, plan).duration == seconds


def test_what_was_asked_for_is_replayed(trace: str) -> None:
    """A duration, a number of requests or a limit; a load without a trace has no length of its own."""
    plan = Plan(may_extend=True)
    for load in (
        Load(arrivals=Arrivals.TRACE, trace=trace, duration=3),
        Load(arrivals=Arrivals.TRACE, trace=trace, requests=2),
        Load(),
    ):
        assert probe._whole_trace(load, plan) == load
    whole = Load(arrivals=Arrivals.TRACE, trace=trace)
    assert probe._whole_trace(whole, Plan(may_extend=False)) == whole


def test_a_long_trace_is_cut_and_says_so(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to write for more."""
    load = Load(arrivals=Arrivals.TRACE, trace=trace)
    assert not [*probe._cut_of_trace(probe._whole_trace(load, Plan(may_extend=True)))]
    monkeypatch.setattr(probe, "_LONGEST_TRACE", 5.0)
    cut = probe._whole_trace(load, Plan(may_extend=True))
    assert cut.duration == 5
    (doubt,) = probe._cut_of_trace(cut)
    assert doubt.code == "trace-reduced"
    assert "the trace takes 12 s, of which the first 5.0 s were replayed" in doubt.seen
