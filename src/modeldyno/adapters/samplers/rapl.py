"""RAPL: what processor packages and their memory take, by counters of the kernel (Intel and AMD).

Most systems let only root read them; where they cannot be read, there are none. Standard library only.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_ZONES = "sys/class/powercap/intel-rapl:*"
"""Also on AMD. Those behind ``intel-rapl-mmio`` are the same packages once more."""
PERIOD = 0.001
"""Seconds between two updates of the counters."""
_MICRO = 1e-6


class Rapl:
    """The zones that can be read."""

    def __init__(self, zones: dict[str, Path]) -> None:
        """Take the folder of each zone, by its name."""
        self.zones = zones
        self.devices: dict[str, dict[str, Any]] = {
            name: {"kind": "processor", "period": PERIOD, "span": _joules(zone / "max_energy_range_uj")}
            for name, zone in zones.items()
        }

    def read(self, _pids: frozenset[int]) -> dict[str, dict[str, float]]:
        """Give each zone's counter, in joules."""
        found = {name: _joules(zone / "energy_uj") for name, zone in self.zones.items()}
        return {name: {"energy": joules} for name, joules in found.items() if joules is not None}

    def close(self) -> None:
        """Leave nothing behind."""


def opened(root: Path) -> Rapl | None:
    """Give the zones below `root` that can be read; None where there are none."""
    zones = _zones(root)
    return Rapl(zones) if zones else None


def there(root: Path) -> bool:
    """Say whether any zone can be read."""
    return bool(_zones(root))


def _zones(root: Path) -> dict[str, Path]:
    """Find packages, and memory: the parts of a package are in it, and the platform holds all.

    They are named ``package-0`` and ``dram-0``, by the number of their package.
    """
    found: dict[str, Path] = {}
    for zone in sorted(root.glob(_ZONES)):
        name = _text(zone / "name")
        if name == "dram":
            name = f"dram-{_package(zone, root)}"
        if name.startswith(("package-", "dram-")) and os.access(zone / "energy_uj", os.R_OK):
            found[name] = zone
    return found


def _package(zone: Path, root: Path) -> str:
    """Give the number of the package that a zone is part of."""
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
