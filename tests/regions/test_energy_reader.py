from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from modeldyno import Profiled
from modeldyno.base import plugins
from modeldyno.base.report.blocks import Table
from modeldyno.engine.samplers import device
from modeldyno.profiling import views
from modeldyno.regions import energy_reader
from modeldyno.regions.energy_reader import EnergyReader

if TYPE_CHECKING:
    from pathlib import Path


class Counters:
    """A package that has drawn five joules more each time it is read, and begins anew after 100."""

    devices: dict[str, dict[str, Any]] = {
        "package-0": {"period": 1e-9, "span": 100.0},
        "fan": {"period": 1e-9, "span": None},
    }

    def __init__(self, joules: float = 0.0) -> None:
        self.joules = joules

    def read(self, _pids: frozenset[int]) -> dict[str, dict[str, float]]:
        """Let five joules pass."""
        self.joules = (self.joules + 5.0) % 100.0
        return {"package-0": {"energy": self.joules}, "fan": {}}


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Counters:
    """The only counters of this machine."""
    fake = Counters()
    monkeypatch.setattr(energy_reader, "_open_counters", lambda: (fake,))
    return fake


@pytest.fixture
def mark() -> Profiled:
    recorder = Profiled()
    recorder.enable()
    return recorder


def test_each_device_that_is_counted_has_its_energy(mark: Profiled, counters: Counters) -> None:
    """Of one call on average; a table shows it with the power."""
    assert counters.joules == 0.0

    @mark("step", energy=True)
    def step() -> None:
        """Do nothing."""

    for _ in range(3):
        step()
    result = mark.result()
    assert result["energy_drawn@step [package-0]"] == pytest.approx(5.0)
    assert [m.scope for m in result.measurements if m.metric == "energy_drawn"] == ["step [package-0]"]
    table = next(b for b in views.blocks(result) if isinstance(b, Table) and b.title == "Energy of one call")
    assert table.rows[0][:3] == ("step", "package-0", "5.00 J")


def test_a_counter_that_begins_anew_counts_on() -> None:
    """By its span."""
    meter = EnergyReader()
    meter._counters = (Counters(93.0),)
    before = meter.read()
    assert before == {"package-0": 98.0}
    assert meter.since(before) == {"package-0": 5.0}


def test_a_generator_has_the_energy_of_its_steps(mark: Profiled, counters: Counters) -> None:
    """Not what is drawn while it waits."""
    assert counters.joules == 0.0

    @mark("steps", energy=True)
    def steps() -> Any:
        yield 1
        yield 2

    assert [*steps()] == [1, 2]
    assert mark.result()["energy_drawn@steps [package-0]"] == pytest.approx(15.0)


def test_without_a_counter_it_is_a_doubt(mark: Profiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a zero."""
    monkeypatch.setattr(energy_reader, "_open_counters", lambda: ())
    with mark("step", energy=True):
        pass
    result = mark.result()
    assert "unread-energy" in {doubt.code for doubt in result.doubts}
    assert not [m for m in result.measurements if m.metric == "energy_drawn"]


def test_calls_shorter_than_the_counter_are_a_doubt(
    mark: Profiled, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a counter that is updated once an hour."""
    monkeypatch.setitem(counters.devices, "package-0", {"period": 3600.0, "span": None})
    with mark("step", energy=True):
        pass
    assert "short-window" in {doubt.code for doubt in mark.result().doubts}


def test_the_counters_are_those_of_the_sampler(tmp_path: Path) -> None:
    """Zones of the processor that can be read; without any, and without a driver, none are opened."""
    assert device.open_counters(tmp_path, {}) == ()
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    for name, text in (("name", "package-0"), ("energy_uj", "5000000"), ("max_energy_range_uj", "9")):
        (zone / name).write_text(text)
    (counters,) = device.open_counters(tmp_path, {})
    assert counters.read(frozenset()) == {"package-0": {"energy": 5.0}}
    assert plugins.sampler("device").open_counters == device.open_counters
