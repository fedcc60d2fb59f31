"""How to look at a model: what the static probe is asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING

from modeldyno.core.spec.devices import device_named
from modeldyno.core.stats.units import BYTES, format_quantity
from modeldyno.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable


class Mode(StrEnum):
    """Which course is analysed."""

    INFERENCE = "inference"
    TRAIN = "train"
    """Forward, backward and the optimiser's step."""


OPTIMIZERS = ("adamw", "adam", "sgd", "sgd-momentum", "adafactor", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What to analyse, beyond the totals at the sizes of the inputs."""

    mode: Mode = Mode.INFERENCE
    optimizer: str = "adamw"
    """One of OPTIMIZERS; whose state and step are part of training."""
    vary: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Dimension to the sizes that it is to have; the grid of all of them is answered."""
    devices: tuple[str, ...] = ()
    """Whose roofline to estimate: names of `core.static.roofline.DEVICES`, or ``here``."""
    memory: int | None = None
    """Bytes; the largest batch that fits them is asked for."""
    modules: bool = False
    """Whether every module gets its numbers, beside the whole."""

    def checked(self) -> Inspection:
        """Give itself, when it can be carried out as written.

        Raises:
            UnknownName: there is no such optimiser or device.
            RequestError: the grid is too large, or the memory is no amount.
        """
        if self.optimizer not in OPTIMIZERS:
            raise UnknownName.among("optimizer", self.optimizer, OPTIMIZERS)
        for device in self.devices:
            if device != HERE:
                device_named(device)
        if (points := prod(map(len, self.vary.values()))) > MOST_POINTS:
            raise RequestError(
                f"--vary asks for {points:,} combinations of sizes; ask for at most {MOST_POINTS:,}."
            )
        if self.memory is not None and self.memory <= 0:
            given = format_quantity(self.memory, BYTES, None)
            raise RequestError(f"--memory takes an amount such as 24GiB, not {given}.")
        return self


HERE = "here"
"""The device that this machine has, whose peaks are measured."""
MOST_POINTS = 1000
"""Combinations of sizes that may be asked for at once."""
_DIGITS = 12
"""That a size may have."""
_SIZES = re.compile(r"(?P<low>[1-9]\d*)(?:\.\.(?P<high>[1-9]\d*))?")


def parse_vary(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Read ``--vary``: ``batch=1..256 seq=128,512``; each text may hold several ``dimension=sizes``.

    ``1..256`` doubles from its first number and ends with its last: 1, 2, 4 and so on to 256.

    Raises:
        RequestError: a part is no ``dimension=sizes``, or a dimension is given twice.
    """
    found: dict[str, tuple[int, ...]] = {}
    for part in (part for text in texts for part in text.split()):
        name, separator, sizes = part.partition("=")
        if not separator or not name:
            raise RequestError(f"--vary '{part}' is not dimension=sizes, such as batch=1..256.")
        if name in found:
            raise RequestError(f"--vary gives the dimension {name} twice; write its sizes in one list.")
        found[name] = tuple(sorted({size for each in sizes.split(",") for size in _sizes(part, each)}))
    return found


def _sizes(part: str, text: str) -> list[int]:
    match = _SIZES.fullmatch(text)
    if match is None:
        raise RequestError(
            f"--vary '{part}': '{text}' is no size; write whole numbers from 1, such as 128,512, or 1..256, "
            "which doubles."
        )
    if max(map(len, filter(None, match.groups()))) > _DIGITS:
        raise RequestError(f"--vary '{part[:40]}': this is too large; a size has {_DIGITS} digits at most.")
    low, high = int(match["low"]), int(match["high"] or match["low"])
    if low > high:
        raise RequestError(f"--vary '{part}': the range {text} is empty; write the smaller number first.")
    doubled = [low]
    while doubled[-1] * 2 < high:
        doubled.append(doubled[-1] * 2)
    return [*doubled, high]
