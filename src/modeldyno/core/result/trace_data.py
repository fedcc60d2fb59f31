"""What went on inside the calls of a second pass: layers, operators, waste, memory moment by moment.

Each probe of the second pass gives an Activity that holds its own part. Numbers that have a name in the
table of metrics are Measurements beside it, with the path of a module or the name of a stage as scope.
All times and counts here are of one call of the model: counts and bytes are means over the calls that were
watched, times of operators the lower quartile, which a call that was held up does not touch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from modeldyno.core.result.static_data import Held

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One call of a module, as it was timed; an interim value that no document keeps."""

    path: str
    """``""`` is the whole."""
    kind: str
    """The name of the module's class, or of the operator where a runtime knows no modules."""
    begin: float
    end: float
    """Seconds of one clock."""
    parent: int | None = None
    """Place of the span that it lies in, among those of the same call; None for the outermost."""
    output: str = ""
    """Shape and dtype of what it gave, such as ``8x128x768 float32``."""
    output_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A module that was called; its times are Measurements at its path."""

    path: str
    kind: str
    calls: float = 1.0
    output: str = ""
    """Of its last call."""


class Happening(StrEnum):
    """What can happen inside a call."""

    OPERATOR = "operator"
    KERNEL = "kernel"
    TRANSFER = "transfer"
    """Between host and device, or from device to device."""
    SYNCHRONISATION = "synchronisation"
    RANGE = "range"
    """A block that the model's own code has named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """All that happened under one name, with one set of shapes, in one module."""

    name: str
    """As the framework calls it: ``aten::addmm``, ``MatMul``, a kernel's name."""
    kind: Happening = Happening.OPERATOR
    scope: str = ""
    """Path of the module."""
    shapes: str = ""
    calls: float
    self_time: float
    """Seconds, without what it called in turn."""
    total_time: float
    device_time: float = 0.0
    """Seconds on a device."""
    allocated: float = 0.0
    """Bytes that it took from the allocator and did not give back itself."""


class WasteKind(StrEnum):
    """What a needless operation does."""

    COPY = "copy"
    """To where there is the same already."""
    CAST = "cast"
    """To another dtype and back."""
    LAYOUT = "layout"
    """Of memory into another order and back."""
    TRANSFER = "transfer"
    """Between host and device within a call."""
    SYNCHRONISATION = "synchronisation"
    """Waiting for a device within a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """An operation that the result does not need."""

    kind: WasteKind
    name: str
    """The operator."""
    scope: str
    """Path of the module whose code caused it."""
    line: str = ""
    """Of the user's code that asks for it, such as ``mynet.py:19``; empty where that is not known."""
    calls: float
    time: float
    """Seconds that it takes in one call of the model."""
    bytes: float = 0.0
    """Bytes that it moves."""
    reason: str
    """What was seen, and what to do about it, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Memory in use, moment by moment, by category."""

    times: bytes
    """Seconds from the beginning of the call; little-endian float64, as in a Distribution."""
    levels: dict[str, bytes]
    """Category (weights, inputs, activations, workspace, gradients, optimizer) to bytes in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a second pass saw."""

    layers: tuple[Layer, ...] = ()
    """Parents before their children."""
    executed: tuple[Executed, ...] = ()
    """The costliest first, by their own time."""
    wastes: tuple[Waste, ...] | None = None
    """The costliest first; None where nobody looked for any, or could."""
    course: Course | None = None
    held: tuple[Held, ...] = ()
    """What lay in memory at the measured peak, the largest first."""
    held_in: str = ""
    """The module during which the peak was reached."""

    def joined(self, other: Activity) -> Activity:
        """Add the parts that another has looked at."""
        seen = {part.name: getattr(other, part.name) for part in fields(other)}
        unseen = {part.name: part.default for part in fields(other)}
        return replace(self, **{name: part for name, part in seen.items() if part != unseen[name]})


def joined(found: Iterable[Activity]) -> Activity | None:
    """Join what several probes saw; None where there was nothing."""
    whole: Activity | None = None
    for each in found:
        whole = each if whole is None else whole.joined(each)
    return whole
