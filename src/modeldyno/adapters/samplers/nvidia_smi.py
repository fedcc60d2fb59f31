"""nvidia-smi as a source: started twice, to repeat itself, and read as it goes on.

One writes a line for each device every half second, the other one for each process on a device every two.
It is never started anew in between: each start costs the driver more than many readings.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from modeldyno.environment.process_tree import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMAND = "nvidia-smi"
_LIMIT = 3.0
"""Seconds that one call may take; a driver in trouble does not answer at all."""
PERIOD, _PROCESSES_PERIOD = 0.5, 2.0
"""Seconds from one repetition to the next."""
_FORMAT = "--format=csv,noheader,nounits"
_FIELDS: dict[str, tuple[str, float]] = {
    "utilization.gpu": ("utilization", 1e-2),
    "memory.used": ("used", 2.0**20),
    "power.draw": ("power", 1.0),
    "clocks.sm": ("clock", 1e6),
    "clocks.mem": ("memory_clock", 1e6),
    "temperature.gpu": ("temperature", 1.0),
}
"""Field to the reading that it gives, and its unit."""
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The same under its name since 2023 and before; a field that a version does not know ends it at once."""
_CARD = re.compile(r"GPU (\d+): (.+?) \(UUID: (GPU-[^)]+)\)")
_PART = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")


def cards() -> list[dict[str, Any]]:
    """List the cards with their MIG instances: index, name, uuid, parts."""
    found: list[dict[str, Any]] = []
    for line in _called("-L").splitlines():
        if card := _CARD.match(line):
            found.append({"index": int(card[1]), "name": card[2], "uuid": card[3], "parts": ()})
        elif (part := _PART.match(line)) and found:
            found[-1]["parts"] += (part[1],)
    return found


class Smi:
    """Devices by nvidia-smi."""

    def __init__(self, uuids: Mapping[str, str]) -> None:
        """Begin to watch; `uuids` are those of whole cards, by the names to give them."""
        known = _called("--help-query-gpu")
        reasons = next((field for field in _REASONS if field in known), "")
        self._fields = [*_FIELDS, *filter(None, [reasons])]
        self._names = {uuid: name for name, uuid in uuids.items()}
        self._latest: dict[str, dict[str, float]] = {}
        self._memory: dict[tuple[str, int], float | None] = {}
        query = f"--query-gpu={','.join(('uuid', *self._fields))}"
        self._cards = _Lines(query, PERIOD)
        self._processes = _Lines("--query-compute-apps=gpu_uuid,pid,used_memory", _PROCESSES_PERIOD)
        self.devices: dict[str, dict[str, Any]] = {
            name: {"kind": "gpu", "period": PERIOD, "span": None} for name in uuids
        }

    def read(self, pids: frozenset[int]) -> dict[str, dict[str, float]]:
        """Give what was last said of each device; a device of which nothing new was said is left out."""
        for line in self._processes.new():
            uuid, pid, memory = _split(line, 3)
            if pid.isdecimal():
                self._memory[uuid, int(pid)] = parsed(memory, 2.0**20)
        found: dict[str, dict[str, float]] = {}
        for line in self._cards.new():
            uuid, *values = _split(line, 1 + len(self._fields))
            if uuid in self._names:
                found[self._names[uuid]] = self._reading(values) | self._ours(uuid, pids)
        return found

    def close(self) -> None:
        """End both."""
        self._cards.close()
        self._processes.close()

    def _reading(self, values: list[str]) -> dict[str, float]:
        scales = (_FIELDS.get(field, ("reasons", 1.0)) for field in self._fields)
        found = {key: parsed(text, scale) for (key, scale), text in zip(scales, values, strict=True)}
        return {key: value for key, value in found.items() if value is not None}

    def _ours(self, uuid: str, pids: frozenset[int]) -> dict[str, float]:
        ours = [size for (card, pid), size in self._memory.items() if card == uuid and pid in pids]
        sizes = [size for size in ours if size is not None]
        return ({"ours": len(ours)} if ours else {}) | ({"memory": sum(sizes)} if sizes else {})


class _Lines:
    """The lines that a repeating nvidia-smi writes."""

    def __init__(self, query: str, period: float) -> None:
        self._rest = b""
        self._process = subprocess.Popen(
            [COMMAND, query, _FORMAT, f"--loop-ms={round(period * 1000)}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - the side process has one thread
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()
        os.set_blocking(self._pipe, False)

    def new(self) -> list[str]:
        """Give the lines since the last time."""
        with suppress(BlockingIOError):
            while data := os.read(self._pipe, 1 << 16):
                self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def parsed(text: str, scale: float) -> float | None:
    """Read a number; None for ``[N/A]``, ``[Not Supported]`` and whatever else is none."""
    with suppress(ValueError):
        return int(text, 16) * scale if text.startswith("0x") else float(text) * scale
    return None


def _split(line: str, count: int) -> list[str]:
    """Give the fields of a line; empty ones for a line of another kind."""
    fields = [field.strip() for field in line.split(",")]
    return fields if len(fields) == count else [""] * count


def _called(*arguments: str) -> str:
    """Call it once; nothing where it is missing, fails, or takes too long."""
    try:
        done = subprocess.run(
            [COMMAND, *arguments], capture_output=True, text=True, timeout=_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
