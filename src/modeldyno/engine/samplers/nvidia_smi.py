"""Readings of NVIDIA devices from two looping nvidia-smi processes.

One writes a line for each device every half second, the other a line for each process on a device every two
seconds. They are not restarted in between: a start costs the driver more than many readings.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from modeldyno.base.system.process_tree import end_with_parent
from modeldyno.engine.environment.nvidia_smi import COMMAND, FORMAT, parse_number, run_once, split_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

PERIOD, _PROCESSES_PERIOD = 0.5, 2.0
"""Seconds between two outputs: of devices, of processes."""
_FIELDS: dict[str, tuple[str, float]] = {
    "utilization.gpu": ("utilization", 1e-2),
    "memory.used": ("used", 2.0**20),
    "memory.total": ("total", 2.0**20),
    "power.draw": ("power", 1.0),
    "clocks.sm": ("clock", 1e6),
    "clocks.mem": ("memory_clock", 1e6),
    "temperature.gpu": ("temperature", 1.0),
}
"""Field to the name of its reading and its unit."""
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The same field under its names since 2023 and before; nvidia-smi exits at an unknown field."""


class Smi:
    """Reads devices with nvidia-smi."""

    def __init__(self, uuids: Mapping[str, str]) -> None:
        """Start both processes; `uuids` are those of whole cards, by the devices' names."""
        help_text = run_once("--help-query-gpu")
        reasons = next((field for field in _REASONS if field in help_text), "")
        self._fields = [*_FIELDS, *filter(None, [reasons])]
        self._names = {uuid: name for name, uuid in uuids.items()}
        self._latest: dict[str, dict[str, float]] = {}
        self._memory: dict[tuple[str, int], float | None] = {}
        query = f"--query-gpu={','.join(('uuid', *self._fields))}"
        self._cards = _LoopingQuery(query, PERIOD)
        self._processes = _LoopingQuery("--query-compute-apps=gpu_uuid,pid,used_memory", _PROCESSES_PERIOD)
        self.devices: dict[str, dict[str, Any]] = {
            name: {"kind": "gpu", "period": PERIOD, "span": None} for name in uuids
        }

    def read(self, pids: frozenset[int]) -> dict[str, dict[str, float]]:
        """Return the latest reading of each device; skip devices without a new one."""
        for line in self._processes.new():
            uuid, pid, memory = split_fields(line, 3)
            if pid.isdecimal():
                self._memory[uuid, int(pid)] = parse_number(memory, 2.0**20)
        readings: dict[str, dict[str, float]] = {}
        for line in self._cards.new():
            uuid, *values = split_fields(line, 1 + len(self._fields))
            if uuid in self._names:
                readings[self._names[uuid]] = self._reading(values) | self._process_memory(uuid, pids)
        return readings

    def close(self) -> None:
        """Stop both processes."""
        self._cards.close()
        self._processes.close()

    def _reading(self, values: list[str]) -> dict[str, float]:
        scales = (_FIELDS.get(field, ("reasons", 1.0)) for field in self._fields)
        parsed_values = {
            key: parse_number(text, scale) for (key, scale), text in zip(scales, values, strict=True)
        }
        return {key: value for key, value in parsed_values.items() if value is not None}

    def _process_memory(self, uuid: str, pids: frozenset[int]) -> dict[str, float]:
        memory = [size for (card, pid), size in self._memory.items() if card == uuid and pid in pids]
        sizes = [size for size in memory if size is not None]
        return ({"ours": len(memory)} if memory else {}) | ({"memory": sum(sizes)} if sizes else {})


class _LoopingQuery:
    """A looping nvidia-smi process and its output lines."""

    def __init__(self, query: str, period: float) -> None:
        self._rest = b""
        self._process = subprocess.Popen(
            [COMMAND, query, FORMAT, f"--loop-ms={round(period * 1000)}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - the side process has one thread
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()
        os.set_blocking(self._pipe, False)

    def new(self) -> list[str]:
        """Return the lines since the last call."""
        with suppress(BlockingIOError):
            while data := os.read(self._pipe, 1 << 16):
                self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()
