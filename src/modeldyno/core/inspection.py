"""How to look at a model: what the static probe is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


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
    """Whose roofline to estimate: names of `core.roofline.DEVICES`, or ``here``."""
    memory: int | None = None
    """Bytes; the largest batch that fits them is asked for."""
    modules: bool = False
    """Whether every module gets its numbers, beside the whole."""
