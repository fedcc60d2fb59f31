"""Many measurements as one piece of work that a user may interrupt."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Progressed
from modeldyno.engine.runtime.session import open_run_session

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.result.result import Event

_MODEL = """
import time

def call(x=None):
    time.sleep(0.001)
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a Job of some runs of a millisecond."""
    path = tmp_path / "model.py"
    path.write_text(_MODEL)
    plan = Plan(min_time=0.1, max_time=0.2)
    model = ModelRef(scheme="call", locator=f"{path}:call")
    return Job(model=model, backend="python", probes=("latency",), plan=plan)


def test_the_first_interruption_lets_the_measurement_at_work_end(job: Job) -> None:
    """It counts before the next measurement, and causes no doubt about the current one."""
    with open_run_session() as bench:
        before = bench.interrupted()

        def press(event: Event) -> None:
            if isinstance(event, Progressed) and not bench.interrupted():
                signal.raise_signal(signal.SIGINT)

        result = bench.execute(job, watch=press)

    assert (before, bench.interrupted()) == (0, 1)
    assert result.find("latency") is not None
    assert "interrupted" not in {doubt.code for doubt in result.doubts}


def test_who_watches_is_handed_on(job: Job) -> None:
    """The watch can be replaced together with the executor; by default events are ignored."""
    events: list[Event] = []
    with open_run_session(events.append) as bench:
        bench.execute(job, watch=bench.watch)
    with open_run_session() as silent:
        silent.watch(events[0])

    assert any(isinstance(event, Progressed) for event in events)
