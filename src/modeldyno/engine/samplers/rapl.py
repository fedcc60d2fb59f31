"""RAPL: energy of processor packages and their memory, from the kernel's counters (Intel and AMD).

Most systems let only root read them; unreadable zones are left out. Standard library only.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_ZONES = "sys/class/powercap/intel-rapl:*"
"""Also on AMD. The zones of ``intel-rapl-mmio`` are the same packages again."""
PERIOD = 0.001
"""Seconds between two updates of the counters."""
_MICRO = 1e-6


class Rapl:
    """Reads the readable RAPL zones."""

    def __init__(self, zones: dict[str, Path]) -> None:
        """Read the zones in these folders, by name."""
        self.zones = zones
        self.devices: dict[str, dict[str, Any]] = {
            name: {"kind": "processor", "period": PERIOD, "span": _joules(zone / "max_energy_range_uj")}
            for name, zone in zones.items()
        }

    def read(self, _pids: frozenset[int]) -> dict[str, dict[str, float]]:
        """Return each zone's counter, in joules."""
        counters = {name: _joules(zone / "energy_uj") for name, zone in self.zones.items()}
        return {name: {"energy": joules} for name, joules in counters.items() if joules is not None}

    def close(self) -> None:
        """Do nothing: no resources are held."""


def open_rapl_zones(root: Path) -> Rapl | None:
    """Open the readable zones below `root`; None if there are none."""
    zones = _zones(root)
    return Rapl(zones) if zones else None


def has_readable_zones(root: Path) -> bool:
    """Check whether any zone can be read."""
    return bool(_zones(root))


def _zones(root: Path) -> dict[str, Path]:
    """Find the readable zones of packages and memory, named ``package-0`` and ``dram-0`` by package number.

    Other zones would count twice: subzones are part of their package, and the platform contains all.
    """
    zones: dict[str, Path] = {}
    for zone in sorted(root.glob(_ZONES)):
        name = _text(zone / "name")
        if name == "dram":
            name = f"dram-{_package(zone, root)}"
        if name.startswith(("package-", "dram-")) and os.access(zone / "energy_uj", os.R_OK):
            zones[name] = zone
    return zones


def _package(zone: Path, root: Path) -> str:
    """Return the number of the package that a zone belongs to."""
    number = zone.name.split(":")[1]
    name = _text(root / _ZONES.replace("*", number) / "name")
    return name.removeprefix("package-") or number


def _joules(path: Path) -> float | None:
    with suppress(ValueError):
        return int(_text(path)) * _MICRO
    return None


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace").strip()
    return ""
