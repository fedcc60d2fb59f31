"""Under a clock that was replaced, times are right or there are none; and a run ends by its limit."""

from __future__ import annotations

import itertools
import re
import sys
import time
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno import Plan
from modeldyno.base import clock
from modeldyno.base.clock import ClockCheck, WrongClock
from modeldyno.base.result.result import FailureKind
from modeldyno.regions.recorder import Profiled

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns")
PLAN = Plan(max_time=0.6, min_time=0.05, precision=0.5)
BUSY = 0.002


def busy() -> float:
    """Take 2 ms of the processor, whatever the clock says."""
    end = thread_time() + BUSY
    while thread_time() < end:
        pass
    return 1.0


def replace_everywhere(monkeypatch: pytest.MonkeyPatch, fake: Callable[[str], Callable[[], Any]]) -> None:
    """Replace the clocks of the module `time` and each reference to them in a module, as freezegun does."""
    real = {id(getattr(time, name)): name for name in NAMES}
    for module in tuple(sys.modules.values()):
        if module.__name__.startswith(("_pytest", "pytest", "threading", "xdist", "execnet")):
            continue
        for key, value in list(vars(module).items()):
            if id(value) in real:
                monkeypatch.setitem(vars(module), key, fake(real[id(value)]))


def frozen(name: str) -> Callable[[], Any]:
    """Return a clock that stands still."""
    return lambda: 10**18 if name.endswith("_ns") else 1e9


@pytest.mark.usefixtures("brief_measurements")
def test_a_live_function_is_measured_under_a_frozen_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the time it was given; a doubt says that the clock was replaced."""
    begin = clock.monotonic()
    replace_everywhere(monkeypatch, frozen)

    result = modeldyno.profile(busy, plan=PLAN, probes="latency", store=False, progress=False)

    assert clock.monotonic() - begin < 30
    assert result.number("latency", statistic="min") >= BUSY  # type: ignore[operator]
    assert "replaced-clock" in {doubt.code for doubt in result.doubts}


def test_regions_are_timed_under_a_frozen_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of our own."""
    replace_everywhere(monkeypatch, frozen)
    profiled = Profiled()
    profiled.enable()

    with profiled("work"):
        busy()

    assert profiled.tallies()["work"].seconds()[0] >= BUSY


def _steps(step: float) -> Callable[[], float]:
    numbers = itertools.count()
    return lambda: next(numbers) * step


OWN = clock.perf_counter
BROKEN: dict[str, Callable[[], float]] = {
    "stands still": lambda: 5.0,
    "runs backwards": lambda: -OWN(),
    "runs at double speed": lambda: 2 * OWN(),
    "runs at half speed": lambda: OWN() / 2,
    "jumps at each reading": _steps(100.0),
}


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the clock with which we measure, wherever it is."""
    read = BROKEN[request.param]
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("modeldyno"):
            for key, value in list(vars(module).items()):
                if value is OWN:
                    monkeypatch.setitem(vars(module), key, read)
                elif value is clock.perf_counter_ns:
                    monkeypatch.setitem(vars(module), key, lambda: int(read() * 1e9))


@pytest.mark.usefixtures("brief_measurements", "broken")
def test_a_run_whose_own_clock_is_broken_fails_and_ends() -> None:
    """There is a failure and no figure."""
    plan = Plan(max_time=3.0, min_time=1.0, precision=0.001)
    result = modeldyno.profile(busy, plan=plan, probes="latency", store=False, progress=False)

    assert result.failure is not None
    assert result.failure.kind is FailureKind.CLOCK
    assert result.find("latency") is None


@pytest.mark.parametrize(
    ("least", "total"), [(-1.0, 1.0), (0.001, 1000.0)], ids=["negative", "longer than what passed"]
)
def test_samples_that_cannot_be_are_refused(least: float, total: float) -> None:
    """Whatever else the clocks say."""
    with pytest.raises(WrongClock):
        ClockCheck()(least, total)


def test_samples_of_nothing_are_refused_if_time_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's count of ticks says that it has."""
    check = ClockCheck()
    monkeypatch.setattr(clock, "system_seconds", lambda: check._before + 1.0)

    with pytest.raises(WrongClock, match="calls took 0 s by the clock that measures while 1 s passed"):
        check(0.0, 0.0)


def test_our_clock_is_another_object_than_that_of_the_module_time() -> None:
    """Or what replaces that one by its identity would find ours."""
    assert all(getattr(clock, name) is not getattr(time, name) for name in NAMES[:4])


def test_only_the_module_of_clocks_and_programs_of_their_own_read_those_of_the_module_time() -> None:
    """A new module would be reached by whatever replaces them."""
    source = Path(modeldyno.__file__).parent
    pattern = re.compile(
        r"from time import .*\b(perf_counter|monotonic|process_time)|time\.(perf_counter|monotonic)"
    )
    programs = {"process_sidecar.py", "device_sidecar.py", "reaper.py"}  # nothing of the user runs in these
    readers = {path.name for path in source.rglob("*.py") if pattern.search(path.read_text("utf-8"))}

    assert readers - programs <= {"clock.py", "checked_calls.py"} | {
        path.name for path in (source / "serving" / "servers" / "inside_server").glob("*.py")
    }
