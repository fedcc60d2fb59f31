"""Options of the static analysis."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.devices import find_device
from modeldyno.base.stats.units import BYTES, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable


class Mode(StrEnum):
    """What is analysed: a forward pass or a training step."""

    INFERENCE = "inference"
    TRAIN = "train"
    """Forward, backward and the optimiser's step."""


OPTIMIZERS = ("adamw", "adam", "sgd", "sgd-momentum", "adafactor", "adagrad", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticOptions:
    """What to analyse, beyond the totals at the sizes of the inputs."""

    mode: Mode = Mode.INFERENCE
    optimizer: str = "adamw"
    """One of OPTIMIZERS; its state and step are part of training."""
    vary: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Dimension to its sizes; all combinations are analysed."""
    devices: tuple[str, ...] = ()
    """Devices of the rooflines to estimate: names of `models.static.roofline.DEVICES`, or ``here``."""
    memory: int | None = None
    """Bytes; the analysis finds the largest batch that fits."""
    modules: bool = False
    """Whether to report numbers for every module, not only for the whole model."""

    def checked(self) -> StaticOptions:
        """Return itself if it is valid.

        Raises:
            UnknownName: there is no such optimiser or device.
            RequestError: the grid is too large, or the memory is not a positive amount.
        """
        if self.optimizer not in OPTIMIZERS:
            raise UnknownName.among("optimizer", self.optimizer, OPTIMIZERS)
        for device in self.devices:
            if device != HERE:
                find_device(device)
        if (points := prod(map(len, self.vary.values()))) > MOST_POINTS:
            raise RequestError(
                f"`vary` asks for {points:,} combinations of sizes; ask for at most {MOST_POINTS:,}."
            )
        if self.memory is not None and self.memory <= 0:
            amount = format_quantity(self.memory, BYTES, None)
            raise RequestError(f"`memory` takes an amount such as 24GiB, not {amount}.")
        return self


HERE = "here"
"""The device of this machine, whose peaks are measured."""
MOST_POINTS = 1000
"""Most combinations of sizes at once."""
_MOST_DIGITS = 12
"""Most digits of a size."""
_SIZES = re.compile(r"(?P<low>[1-9]\d*)(?:\.\.(?P<high>[1-9]\d*))?")


def parse_vary(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Read ``vary``: ``batch=1..256 seq=128,512``; each text may hold several ``dimension=sizes``.

    ``1..256`` doubles from its first number up to its last: 1, 2, 4 and so on to 256.

    Raises:
        RequestError: a part is not ``dimension=sizes``, or a dimension is given twice.
    """
    sizes_by_name: dict[str, tuple[int, ...]] = {}
    for part in (part for text in texts for part in text.split()):
        name, separator, sizes = part.partition("=")
        if not separator or not name:
            raise RequestError(f"`vary` '{part}' is not dimension=sizes, such as batch=1..256.")
        if name in sizes_by_name:
            raise RequestError(f"`vary` gives the dimension {name} twice; write its sizes in one list.")
        sizes_by_name[name] = tuple(
            sorted({size for item in sizes.split(",") for size in _parse_sizes(part, item)})
        )
    return sizes_by_name


def _parse_sizes(part: str, text: str) -> list[int]:
    match = _SIZES.fullmatch(text)
    if match is None:
        raise RequestError(
            f"`vary` '{part}': '{text}' is not a size; write whole numbers from 1, such as 128,512, or "
            "1..256, which doubles."
        )
    if max(map(len, filter(None, match.groups()))) > _MOST_DIGITS:
        raise RequestError(
            f"`vary` '{part[:40]}': this is too large; a size has {_MOST_DIGITS} digits at most."
        )
    low, high = int(match["low"]), int(match["high"] or match["low"])
    if low > high:
        raise RequestError(f"`vary` '{part}': the range {text} is empty; write the smaller number first.")
    doubled = [low]
    while doubled[-1] * 2 < high:
        doubled.append(doubled[-1] * 2)
    return [*doubled, high]
