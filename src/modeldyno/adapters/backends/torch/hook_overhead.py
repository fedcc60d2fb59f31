"""What hooks cost: on modules that do nothing, and in the model itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.backends.torch.hooks import Mark, Part, hook
from modeldyno.core.trace import layer_times
from modeldyno.core.trace.layer_times import Toll, quiet

if TYPE_CHECKING:
    from torch import device

_ROUNDS, _EMPTY = 30, 40
"""How often the cost of hooks is measured, on how many modules in a row."""
_SETTLING = 0.5
"""Seconds in which twice as many calls are made, to see what hooks cost in a model; of fewer it is left."""
_QUEUED = 0.8
"""A call whose modules are all submitted in this share of its time keeps the device busy."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of the host, or of a device."""

    stamp: Callable[[], Any]
    """Gives a moment."""
    seconds: Callable[[Sequence[Any]], list[float]]
    """Turns moments into seconds after the first of them."""


def clock(place: device) -> Clock:
    """Give the time of a device, or of the host for the CPU."""
    if place.type == "cpu":
        return Clock(perf_counter_ns, lambda moments: [(moment - moments[0]) * 1e-9 for moment in moments])
    import torch  # noqa: PLC0415 - heavy

    make = getattr(torch, place.type).Event

    def stamp() -> Any:
        event = make(enable_timing=True)
        event.record()
        return event

    return Clock(stamp, lambda events: [events[0].elapsed_time(event) * 1e-3 for event in events])


def filler(run: Callable[[], Any], parts: Sequence[Part], place: device) -> Callable[[], None] | None:
    """Give work that keeps the device busy, if the call does so: hooks then cost what their events cost.

    None where the host is what the time is spent on, as it always is on the CPU.
    """
    if place.type == "cpu":
        return None
    import torch  # noqa: PLC0415 - heavy

    marks: list[Mark] = []
    with ExitStack() as stack:
        hook(parts, perf_counter_ns, marks, stack)
        begin = perf_counter_ns()
        run()
        end = perf_counter_ns()
    if not marks or marks[-1][1] - begin > _QUEUED * (end - begin):
        return None
    square = torch.ones(4096, 4096, device=place)

    def fill() -> None:
        for _ in range(4):
            torch.mm(square, square)

    return fill


def measured(reading: Clock, fill: Callable[[], None] | None) -> Toll:
    """Measure what a pair of hooks costs, on modules that do nothing, one after the other.

    Args:
        reading: what the hooks read.
        fill: keeps the device busy meanwhile, so that its time is measured; None for that of the host.
    """
    import torch  # noqa: PLC0415 - heavy

    modules = [torch.nn.Identity() for _ in range(_EMPTY)]
    given = torch.zeros(1)
    plain = forward = 0.0
    if fill is None:
        plain = _each(modules, given)
        forward = _each([module.forward for module in modules], given)
    marks: list[Mark] = []
    inside, whole = [], []
    with ExitStack() as stack:
        hook([Part(module, "", ("",)) for module in modules], reading.stamp, marks, stack)
        for _ in range(_ROUNDS):
            marks.clear()
            if fill is not None:
                fill()
            for module in modules:
                module(given)
            if fill is not None:
                marks[-1][1].synchronize()
            at = reading.seconds([moment for _, moment in marks])
            inside.append(median(end - begin for begin, end in zip(at[::2], at[1::2], strict=True)))
            whole.append((at[-2] - at[0]) / (_EMPTY - 1))
    within = max(0.0, quiet(inside) - forward)
    return Toll(inside=within, outside=max(0.0, quiet(whole) - plain - within))


def unasked(parts: Sequence[Part]) -> int:
    """Count the modules that hooks in common are run for though nobody asks: the whole, or none."""
    return int(any(not part.apart for part in parts))


def in_place(toll: Toll, run: Callable[[], Any], parts: Sequence[Part]) -> Toll:
    """Scale the cost by what it is in this model: it is seen in calls with hooks and without, in turns.

    Where a call takes so long that few can be made, it hardly matters, and is left as it is.
    """
    marks: list[Mark] = []
    more: list[float] = []
    run()
    begin = perf_counter_ns()
    while len(more) < 2 * _ROUNDS and (perf_counter_ns() - begin) * 1e-9 < _SETTLING:
        marks.clear()
        with ExitStack() as stack:
            hook(parts, perf_counter_ns, marks, stack)
            watched = _timed(run)
        more.append(watched - _timed(run))
    if len(more) < _ROUNDS:
        return toll
    return layer_times.in_place(toll, more, len(marks) // 2 + unasked(parts))


def _timed(run: Callable[[], Any]) -> float:
    begin = perf_counter_ns()
    run()
    return (perf_counter_ns() - begin) * 1e-9


def _each(callees: Sequence[Callable[..., Any]], given: Any) -> float:
    """Measure the seconds of one of several calls that do nothing."""
    found = []
    for _ in range(_ROUNDS):
        begin = perf_counter_ns()
        for callee in callees:
            callee(given)
        found.append((perf_counter_ns() - begin) * 1e-9 / len(callees))
    return quiet(found)
