"""The time limit of a command: probes are shortened for it, and what still runs soon after it is ended."""

from __future__ import annotations

import time
from dataclasses import replace
from math import inf

import pytest

from modeldyno.base.errors import OutOfTime
from modeldyno.base.job.job import Job
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.runtime import engine
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.runtime.engine import run
from modeldyno.engine.runtime.session import open_run_session
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.profiling.request import Request
from modeldyno.testing.server import serve_in_subprocess


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the monotonic seconds that the limit sees."""
    seconds = [100.0]
    monkeypatch.setattr("modeldyno.engine.runtime.time_limit.monotonic", lambda: seconds[0])
    return seconds


def limit_of(seconds: float) -> TimeLimit:
    limit = TimeLimit.begin(seconds)
    assert limit is not None
    return limit


def job(name: str, *probes: str, **plan: float) -> Job:
    return Job(
        model=ModelRef(scheme="call", locator=name),
        backend="python",
        probes=probes or ("latency",),
        plan=Plan(**plan),  # type: ignore[arg-type]
    )


def test_no_time_is_no_limit() -> None:
    """None and infinity mean that a command may take as long as it does."""
    assert TimeLimit.begin(None) is None
    assert TimeLimit.begin(inf) is None


def test_probes_share_what_is_left(now: list[float]) -> None:
    """A probe gets its part, in each of the processes that take turns, but never more than planned."""
    limit, plan = replace(limit_of(20), side_count=2), Plan(max_time=4.0, min_time=1.0)

    assert limit.shorten(plan, 2) is plan
    now[0] += 18.0
    assert limit.shorten(plan, 2) == replace(plan, max_time=0.5, min_time=0.25)
    now[0] += 10.0
    assert limit.shorten(plan, 2).max_time == pytest.approx(0.1)


@pytest.mark.parametrize(("seconds", "grace"), [(1, 1.5), (60, 6.0)])
def test_what_runs_is_ended_soon_after_the_limit(now: list[float], seconds: float, grace: float) -> None:
    """After a second and a half, or a tenth of a long limit."""
    limit = limit_of(seconds)
    now[0] += seconds + grace - 0.1
    assert not limit.is_exhausted
    now[0] += 0.2
    assert limit.is_exhausted


def test_a_child_reads_what_its_parent_wrote(now: list[float]) -> None:
    """The words of the command line are the limit again."""
    del now
    limit = replace(limit_of(2.5), name="budget", side_count=3)

    assert TimeLimit.parse(limit.arguments()) == limit


@pytest.mark.parametrize(("spent", "advised"), [(0.5, "5s"), (6.5, "25s"), (50.0, "3m")])
def test_the_error_says_how_far_it_came_and_what_to_give(
    now: list[float], spent: float, advised: str
) -> None:
    """In one sentence, with an option that can be typed."""
    limit = replace(limit_of(5), name="max_time")
    now[0] += spent

    message = str(limit.exceeded("import"))
    assert message == (
        f"Nothing could be measured within 5 s: after {spent:.0f} s the stage 'import' had begun; give more "
        f"time, such as --max-time {advised}."
    )
    assert "had only been started" in str(limit.exceeded(""))


def test_a_model_that_hangs_is_ended_at_the_limit() -> None:
    """Its child is ended, although its Plan would give it minutes, and nothing was measured."""
    began = time.monotonic()
    with (
        subprocess_executor(limit=replace(limit_of(0.01), end=began - 1.0)) as execute,
        pytest.raises(OutOfTime, match="Nothing could be measured"),
    ):
        execute(job("tests.support.faulty_models:hang"), watch=lambda _event: None)
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_probes_for_which_no_time_is_left_are_named() -> None:
    """What was measured before stays, and a doubt names the rest."""
    result = run(
        job("modeldyno.testing.sample_network:network", "static", "latency", "throughput", min_time=0.0),
        limit=replace(limit_of(1), end=time.monotonic() - 1),
    )

    assert result.find("latency") is not None
    assert result.find("throughput") is None
    assert not result.failures
    left_out = [doubt.seen for doubt in result.doubts if doubt.code == "out-of-time"]
    assert left_out[0] == "no time was left for static"
    assert "no time was left for throughput" in left_out


def test_a_running_server_has_nothing_to_analyse(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of the time its first answers took, no doubt asks for more of it for an analysis."""
    monkeypatch.setattr(engine, "_lacks_time_for_analysis", lambda *_: True)
    with serve_in_subprocess() as server:
        request = Request(
            model=f"http://127.0.0.1:{server.port}#echo",
            settings={},
            inputs=("x=1x8",),
            load=Load(concurrency=1, duration=0.5),
            plan=Plan(),
        )
        result = run(request.job())

    assert result.find("throughput") is not None
    assert "out-of-time" not in {doubt.code for doubt in result.doubts}


def test_a_round_that_is_cut_off_raises() -> None:
    """What the other side measured has nothing beside it."""
    with open_run_session(limit=replace(limit_of(0.01), end=time.monotonic() - 1.0)) as session:
        operands = [
            ("a", job("modeldyno.testing.sample_network:network", max_time=0.1)),
            ("b", job("tests.support.faulty_models:hang")),
        ]
        with pytest.raises(OutOfTime):
            session.run_round(operands)
