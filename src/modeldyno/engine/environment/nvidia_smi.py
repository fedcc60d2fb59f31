"""Calls of nvidia-smi, and what its output says."""

from __future__ import annotations

import re
from contextlib import suppress

from modeldyno.engine.environment.nvidia import Card

COMMAND = "nvidia-smi"
FORMAT = "--format=csv,noheader,nounits"
TIMEOUT = 3.0
"""Timeout of a call in seconds; a broken driver may not answer at all."""
_CARD = re.compile(r"GPU (\d+): (.+?) \(UUID: (GPU-[^)]+)\)")
_PART = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")


def run_once(*arguments: str) -> str:
    """Run nvidia-smi once; return an empty string if it is missing, fails or takes too long."""
    import subprocess  # takes longer to import than everything else where there is no device

    try:
        result = subprocess.run(
            [COMMAND, *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""


def list_smi_cards() -> list[Card]:
    """List the cards with their MIG instances."""
    return parse_cards(run_once("-L"))


def parse_cards(listed: str) -> list[Card]:
    """Read the output of ``nvidia-smi -L``."""
    cards: list[Card] = []
    parts: dict[str, tuple[str, ...]] = {}
    for line in listed.splitlines():
        if card := _CARD.match(line):
            cards.append(Card(index=int(card[1]), name=card[2], uuid=card[3]))
        elif (part := _PART.match(line)) and cards:
            parts[cards[-1].uuid] = (*parts.get(cards[-1].uuid, ()), part[1])
    return [
        Card(index=card.index, name=card.name, uuid=card.uuid, parts=parts.get(card.uuid, ()))
        for card in cards
    ]


def parse_number(text: str, scale: float) -> float | None:
    """Parse a number; None for ``[N/A]``, ``[Not Supported]`` and any other text."""
    with suppress(ValueError):
        return int(text, 16) * scale if text.startswith("0x") else float(text) * scale
    return None


def split_fields(line: str, count: int) -> list[str]:
    """Split a line into fields; return empty ones if their number differs."""
    fields = [field.strip() for field in line.split(",")]
    return fields if len(fields) == count else [""] * count
