"""Measure the energy that devices draw during a region of code, by their own counters.

A counter is of a whole device: what other threads and programs do meanwhile is included, and so is the floor
that it draws when it is idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.engine.interfaces.sampler import EnergyCounters


class EnergyReader:
    """Reads all counters of this machine; it opens them when they are first read."""

    def __init__(self) -> None:
        self._counters: Sequence[EnergyCounters] | None = None

    def read(self) -> dict[str, float]:
        """Return the joules that each counter shows; empty if none can be read."""
        if self._counters is None:
            self._counters = _open_counters()
        return {
            device: reading["energy"]
            for counters in self._counters
            for device, reading in counters.read(frozenset()).items()
            if "energy" in reading
        }

    def since(self, before: Mapping[str, float]) -> dict[str, float]:
        """Return the joules that each device has drawn since a reading."""
        spans = {
            device: float(facts.get("span") or 0.0)
            for counters in self._counters or ()
            for device, facts in counters.devices.items()
        }
        drawn = {device: now - before[device] for device, now in self.read().items() if device in before}
        return {
            device: joules + spans.get(device, 0.0) if joules < 0 else joules
            for device, joules in drawn.items()
        }

    def longest_period(self) -> float:
        """Return the most seconds between two updates of a counter; 0 without one."""
        facts = (facts for counters in self._counters or () for facts in counters.devices.values())
        return max((float(fact["period"]) for fact in facts), default=0.0)


def _open_counters() -> Sequence[EnergyCounters]:
    from modeldyno.base import plugins  # not needed while no energy is measured

    return plugins.sampler("device").open_counters()
