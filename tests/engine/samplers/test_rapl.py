from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from modeldyno.engine.samplers import rapl

if TYPE_CHECKING:
    from pathlib import Path

TREE = {
    "intel-rapl:0": ("package-1", 5_000_000),
    "intel-rapl:0:0": ("core", 1_000_000),
    "intel-rapl:0:1": ("dram", 700_000),
    "intel-rapl:1": ("package-0", 6_000_000),
    "intel-rapl:1:0": ("dram", 800_000),
    "intel-rapl:2": ("psys", 90_000_000),
    "intel-rapl-mmio:0": ("package-0", 6_000_000),
}


def build(root: Path, tree: dict[str, tuple[str, int]] = TREE) -> Path:
    for folder, (name, energy) in tree.items():
        zone = root / "sys/class/powercap" / folder
        zone.mkdir(parents=True)
        (zone / "name").write_text(f"{name}\n")
        (zone / "energy_uj").write_text(f"{energy}\n")
        (zone / "max_energy_range_uj").write_text("262143328850\n")
    return root


def test_packages_and_their_memory_are_read_once(tmp_path: Path) -> None:
    """Neither the parts of a package, nor the whole platform, nor its second way in, count again."""
    source = rapl.open_rapl_zones(build(tmp_path))
    assert source is not None

    assert source.read(frozenset()) == {
        "package-1": {"energy": 5.0},
        "dram-1": {"energy": pytest.approx(0.7)},
        "package-0": {"energy": 6.0},
        "dram-0": {"energy": pytest.approx(0.8)},
    }
    assert [facts["span"] for facts in source.devices.values()] == [pytest.approx(262143.32885)] * 4
    source.close()


def test_no_counters_are_none(tmp_path: Path) -> None:
    """A machine without RAPL has no source at all."""
    assert rapl.open_rapl_zones(tmp_path) is None
    assert not rapl.has_readable_zones(tmp_path)


def test_a_counter_that_may_not_be_read_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most systems keep them for root; there is nothing then, and never 0."""
    build(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert rapl.open_rapl_zones(tmp_path) is None


def test_a_counter_that_goes_away_is_left_out(tmp_path: Path) -> None:
    """What cannot be read later is missing later, as is what holds no number."""
    source = rapl.open_rapl_zones(build(tmp_path))
    assert source is not None
    (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
    (tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj").write_text("none\n")

    assert source.read(frozenset()).keys() == {"dram-0", "dram-1"}
