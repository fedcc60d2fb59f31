"""Readings of the GPUs of a Triton on another machine, from its own metrics (port 8002 by default).

Runs in the side process. Triton updates them every two seconds, unless it was told otherwise.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from modeldyno.base.system.prometheus_samples import parse_samples
from modeldyno.base.system.timed_answer import exchange

UPDATE_PERIOD = 2.0
"""Seconds between two updates by the server."""
_TIMEOUT = 1.0
_GAUGES = {
    "nv_gpu_utilization": "utilization",
    "nv_gpu_memory_total_bytes": "total",
    "nv_gpu_memory_used_bytes": "used",
    "nv_gpu_power_usage": "power",
    "nv_energy_consumption": "energy",
}
"""Metric of Triton to the reading; utilisation is a fraction, energy is joules, power is watts."""


class TritonDevices:
    """The GPUs that a Triton reports; each is named by its UUID."""

    def __init__(self, url: str) -> None:
        """Ask once; without an answer, or without a GPU, there are no devices."""
        self._url = url
        self.devices: dict[str, dict[str, Any]] = {
            name: {"kind": "gpu", "period": UPDATE_PERIOD, "span": None} for name in read_triton_devices(url)
        }

    def read(self, _pids: frozenset[int]) -> dict[str, dict[str, float]]:
        """Read each device; the server uses all of those that it reports."""
        return {name: {**reading, "ours": 1} for name, reading in read_triton_devices(self._url).items()}

    def close(self) -> None:
        """Do nothing: no connection is kept."""


def read_triton_devices(url: str) -> dict[str, dict[str, float]]:
    """Return what a Triton reports of each GPU; nothing if it does not answer or has none."""
    text = ""
    with suppress(OSError):
        text = exchange("GET", url, seconds=_TIMEOUT)[1].decode(errors="replace")
    readings: dict[str, dict[str, float]] = {}
    samples = parse_samples(text)
    for metric, reading in _GAUGES.items():
        for labels, value in samples.get(metric, {}).items():
            if name := dict(labels).get("gpu_uuid"):
                readings.setdefault(name, {})[reading] = value
    return readings
