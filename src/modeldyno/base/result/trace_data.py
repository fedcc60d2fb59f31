"""The trace of a second pass: layers, operators, redundant operations, and the memory timeline.

Each probe of the second pass contributes its own part of an Activity. Numbers with a name in the table of
metrics are Measurements instead, with a module path or a stage as their scope. All times and counts are per
call of the model: counts and bytes are means over the traced calls, times of operators the lower quartile,
which is robust against calls that were held up.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from modeldyno.base.result.static_data import MemoryItem

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One timed call of a module; an interim value that no document stores."""

    path: str
    """``""`` is the whole model."""
    kind: str
    """The class of the module, or the operator if a runtime knows no modules."""
    begin: float
    end: float
    """Seconds of one clock."""
    parent: int | None = None
    """Index of the enclosing span in the same call; None for the outermost."""
    output: str = ""
    """Shape and dtype of its output, such as ``8x128x768 float32``."""
    output_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A module that was called; its times are Measurements at its path."""

    path: str
    kind: str
    calls: float = 1.0
    output: str = ""
    """Of its last call."""


class EventKind(StrEnum):
    """Kind of event inside a call."""

    OPERATOR = "operator"
    KERNEL = "kernel"
    TRANSFER = "transfer"
    """Between host and device, or between devices."""
    SYNCHRONISATION = "synchronisation"
    RANGE = "range"
    """A block that the model's own code has named."""
    LINE = "line"
    """A line of the user's code: its total time is wall time, where lines were sampled, its own time that
    of what the framework runs for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedOp:
    """All events of one name, with one set of shapes, in one module."""

    name: str
    """The framework's name: ``aten::addmm``, ``MatMul``, a kernel's name."""
    kind: EventKind = EventKind.OPERATOR
    scope: str = ""
    """Path of the module."""
    shapes: str = ""
    calls: float
    self_time: float
    """Seconds, without what it called."""
    total_time: float
    device_time: float = 0.0
    """Seconds on a device."""
    allocated: float = 0.0
    """Bytes that it allocated and did not free itself."""


class RedundancyKind(StrEnum):
    """Kind of redundant operation."""

    COPY = "copy"
    """To a place that already has the same data."""
    CAST = "cast"
    """To another dtype and back."""
    LAYOUT = "layout"
    """To another memory layout and back."""
    TRANSFER = "transfer"
    """Between host and device within a call."""
    SYNCHRONISATION = "synchronisation"
    """Waiting for a device within a call."""
    LOADER = "loader-bound"
    """Waiting for the data of a loader."""
    GROWTH = "growing-array"
    """An array that is copied whole whenever it grows."""
    ELEMENTS = "element-by-element"
    """A tensor that Python makes number by number."""
    PRECISION = "float64"
    """Computing in float64 that nobody has named."""
    GRADIENT = "unused-gradient"
    """What is kept for gradients that nobody computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedundantOp:
    """An operation that the result does not need."""

    kind: RedundancyKind
    name: str
    """The operator."""
    scope: str
    """Path of the module whose code caused it."""
    line: str = ""
    """The user's line of code, such as ``mynet.py:19``; empty if unknown."""
    calls: float
    time: float
    """Seconds in one call of the model."""
    bytes: float = 0.0
    """Bytes that it moves."""
    reason: str
    """What was observed and what to do about it, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTimeline:
    """Memory in use over time, by category."""

    times: bytes
    """Seconds from the start of the call; little-endian float64, as in a Distribution."""
    levels: dict[str, bytes]
    """Category (weights, inputs, activations, workspace, gradients, optimizer) to bytes in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One allocation of a call, with its lifetime."""

    bytes: int
    scope: str
    """The module that made it; in the backward pass the one whose gradient is computed."""
    operator: str
    """The operator called by the module, such as ``aten.linear``; empty outside of any."""
    category: str
    made: float
    """Seconds from the start of the call."""
    freed: float | None
    """Likewise; None if it outlives the call and what it returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSecond:
    """What ended in a second of a load."""

    at: float
    """Seconds from when the first request was due, the ramp and the warm-up included."""
    length: float = 1.0
    """Seconds that it stands for: more than one in a long load."""
    answered: int
    failed: int
    p50: float | None = None
    """Seconds, of the answers of this second, as the next two; None if there was none."""
    p95: float | None = None
    p99: float | None = None
    tokens: float = 0.0
    """Tokens that came in it, of answers that ended well."""
    first_token: float | None = None
    """Seconds, the median time to the first token of those whose first one came in it; None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowAnswer:
    """One of the slowest streamed answers, in seconds."""

    at: float
    """When its request was due, from when the first one was."""
    lag: float
    """Until it was sent."""
    first_token: float
    """From there to the first piece of the answer."""
    further: float
    """From there to the end."""
    tokens: int
    """As the server counts them; -1 if it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSecond:
    """What ended in a second of a load that goes on: provisional, none of it is certified."""

    at: float
    """Seconds from when the first request was due, the ramp and the warm-up included."""
    answered: int
    failed: int
    p50: float | None = None
    """Seconds, by nearest rank over the answers of this second, as `p99`; None if there was none."""
    p99: float | None = None
    """The slowest one, where there are fewer than a hundred."""
    worst: float | None = None
    in_flight: int = 0
    """Requests that were sent and had not ended, at its end."""
    waiting: int = 0
    """Requests that were due and not sent, at its end."""
    pieces: float | None = None
    """Pieces of answers that came in it, also of those in flight and of failed ones; None before any came."""
    tokens: float | None = None
    """Tokens that came in it: a piece is worth what those of the answers that have ended so far were; None
    while no answer that ended has said how many it had."""
    first_token: float | None = None
    """Seconds, the median time to the first token of those that came in it, as `first_token_p99`; None for
    none."""
    first_token_p99: float | None = None
    time_per_token: float | None = None
    """Seconds, the median time per output token of the answers that ended in it; None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """The trace of a second pass, and of a load second by second."""

    layers: tuple[Layer, ...] = ()
    """Parents before their children."""
    executed: tuple[ExecutedOp, ...] = ()
    """The costliest first, by their own time."""
    tick: float = 0.0
    """Seconds in which the times of these are counted; 0: as finely as our own clock counts."""
    wastes: tuple[RedundantOp, ...] | None = None
    """The costliest first; None if they were not searched for."""
    course: MemoryTimeline | None = None
    held: tuple[MemoryItem, ...] = ()
    """Contents of memory at the measured peak, the largest first."""
    held_in: str = ""
    """The module during which the peak was reached."""
    allocations: tuple[Allocation, ...] = ()
    """The largest of that call, the largest first."""
    seconds: tuple[LoadSecond, ...] = ()
    """Of a load."""
    slowest: tuple[SlowAnswer, ...] = ()
    """Of a load whose answers were streamed, the slowest first."""

    def joined(self, other: TraceReport) -> TraceReport:
        """Add the parts that another Activity has."""
        parts = {part.name: getattr(other, part.name) for part in fields(other)}
        defaults = {part.name: part.default for part in fields(other)}
        return replace(self, **{name: part for name, part in parts.items() if part != defaults[name]})


def join_reports(activities: Iterable[TraceReport]) -> TraceReport | None:
    """Join the traces of several probes; None if there are none."""
    joined_activity: TraceReport | None = None
    for activity in activities:
        joined_activity = activity if joined_activity is None else joined_activity.joined(activity)
    return joined_activity
