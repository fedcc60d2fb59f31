"""A load of streamed answers states the client's own error, where there is time for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import RunFailed
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.engine.runtime.engine import run
from modeldyno.profiling.request import Request
from modeldyno.profiling.views.result.served import describe_client
from modeldyno.serving.load.client_error import FIRST_TOKEN, GAP, LAG
from modeldyno.serving.loadgen import calibration
from modeldyno.serving.probes.client_calibration import sparing_time, standing_by
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.result.result import Result

PLAN = Plan(max_time=1.0, min_time=0.3, precision=0.5, may_extend=True)
"""As without a wish: the calibration comes after the load, however long that took."""


@pytest.fixture(scope="module")
def streaming() -> Iterator[str]:
    """A server of 20 tokens at 5 ms."""
    with serve_in_subprocess("--pace", "0.005", "--tokens", "20", "--workers", "64") as running:
        yield f"http://127.0.0.1:{running.port}#echo,protocol=openai"


def loaded(url: str, plan: Plan = PLAN, interrupted: Any = bool, **load: Any) -> Result:
    settings = {"max_tokens": 20}
    request = Request(
        model=url, settings=settings, load=Load(calibration=0.5, **load), plan=plan, probes=("load",)
    )
    return run(request.job(), interrupted=interrupted)


@pytest.mark.parametrize(
    "load",
    [
        {"concurrency": 1},
        {"concurrency": 16, "drivers": 2},
        {"arrivals": Arrivals.POISSON, "rate": 40.0},
    ],
)
def test_streamed_answers_have_the_clients_error_beside_them(streaming: str, load: dict[str, Any]) -> None:
    """Closed and open loops, one driver and several; none of it is in the load's own figures."""
    result = loaded(streaming, **load)
    for metric in (FIRST_TOKEN, GAP, LAG):
        times = result.distribution(metric)
        assert times is not None
        assert times.statistic("min") >= 0
    assert describe_client(result).startswith("adds ")
    assert " to a first token, " in describe_client(result)
    assert "uncalibrated" not in {doubt.code for doubt in result.doubts}


def test_answers_that_come_whole_have_none(streaming: str) -> None:
    """Nor has a load that leaves it out."""
    plain = Request(
        model=streaming, settings={"stream": False},
        load=Load(concurrency=1), plan=PLAN, probes=("load",),
    )  # fmt: skip
    for result in (run(plain.job()), loaded(streaming, concurrency=1)):
        has = result.job.load is not None and result.job.load.calibration == 0.5
        assert (result.distribution(FIRST_TOKEN) is not None) is has
        assert bool(describe_client(result)) is has


def test_a_calibration_that_fails_leaves_the_load_as_it_is(
    streaming: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says why."""

    def fail(*_: Any, **__: Any) -> None:
        raise RunFailed("A load driver died with code 9.")

    monkeypatch.setattr(calibration, "calibrate", fail)
    result = loaded(streaming, concurrency=2)
    assert result.distribution("time_to_first_token") is not None
    assert result.distribution(FIRST_TOKEN) is None
    (doubt,) = (doubt for doubt in result.doubts if doubt.code == "uncalibrated")
    assert doubt.seen.endswith("A load driver died with code 9")


def test_one_that_cannot_begin_is_left_out(streaming: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no more process can be started."""

    def fail() -> None:
        raise OSError("no processes")

    monkeypatch.setattr(calibration, "playback_server", fail)
    result = loaded(streaming, concurrency=2)
    assert result.distribution("time_to_first_token") is not None
    assert result.distribution(FIRST_TOKEN) is None


def test_an_interruption_ends_it(streaming: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the load said is kept, and nothing more is measured."""
    begun: list[str] = []
    begin = calibration.PlaybackServer.begin

    def note(*arguments: Any) -> int:
        begun.append("begun")
        return begin(*arguments)

    monkeypatch.setattr(calibration.PlaybackServer, "begin", note)
    result = loaded(streaming, interrupted=lambda: bool(begun), concurrency=2)
    assert begun
    assert result.distribution("time_to_first_token") is not None
    assert result.distribution(FIRST_TOKEN) is None
    assert "interrupted" in {doubt.code for doubt in result.doubts}


STREAM = Target(protocol="openai", transport=Transport.HTTP, host="", port=1, messages=(b"",), stream=True)


def test_a_load_leaves_time_for_it_within_its_limit() -> None:
    """At most a quarter; where that is too little, nothing."""
    load, plan = Load(concurrency=1), Plan(max_time=20.0)
    assert sparing_time(plan, load, STREAM).max_time == pytest.approx(18.0)
    assert sparing_time(replace(plan, max_time=6.0), load, STREAM).max_time == pytest.approx(4.5)
    assert sparing_time(replace(plan, max_time=2.0), load, STREAM).max_time == 2.0


def test_a_load_that_needs_not_leave_time_leaves_none() -> None:
    """Without streams, without a calibration, with a duration of its own, and where nobody set a limit."""
    load, plan = Load(concurrency=1), Plan(max_time=20.0)
    assert sparing_time(plan, load, replace(STREAM, stream=False)) == plan
    assert sparing_time(plan, load, None) == plan
    assert sparing_time(plan, replace(load, calibration=0.0), STREAM) == plan
    assert sparing_time(plan, replace(load, duration=5.0), STREAM) == plan
    extended = replace(plan, may_extend=True)
    assert sparing_time(extended, load, STREAM) == extended


def test_several_models_at_once_are_not_calibrated() -> None:
    """One client at a time would not show what they do to each other."""
    with standing_by([STREAM, STREAM], Load(concurrency=1)) as server:
        assert server is None
