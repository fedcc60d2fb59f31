"""Measures the overhead of hooks: on modules that do nothing, and in the model itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import perf_counter_ns
from modeldyno.engine.trace import layer_times
from modeldyno.engine.trace.layer_times import HookOverhead, lower_quartile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import device

_ROUNDS, _EMPTY_MODULES = 30, 40
"""How often the overhead of hooks is measured, and on how many modules in a row."""
_TIME_LIMIT = 0.5
"""Seconds for twice as many calls that measure the overhead in a model; with fewer calls it is not scaled."""
_BUSY_SHARE = 0.8
"""A call that submits all of its modules within this share of its time keeps the device busy."""
Mark = tuple[int, Any]
"""The number of a module that begins (``~number`` if it ends), and a time stamp: nanoseconds or an event."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of the host or of a device."""

    stamp: Callable[[], Any]
    """Takes a time stamp."""
    seconds: Callable[[Sequence[Any]], list[float]]
    """Turns time stamps into seconds after the first of them."""


def device_clock(place: device) -> Clock:
    """Return the clock of a device; that of the host for the CPU."""
    if place.type == "cpu":
        return Clock(perf_counter_ns, lambda moments: [(moment - moments[0]) * 1e-9 for moment in moments])
    import torch  # heavy

    make = getattr(torch, place.type).Event

    def stamp() -> Any:
        event = make(enable_timing=True)
        event.record()
        return event

    return Clock(stamp, lambda events: [events[0].elapsed_time(event) * 1e-3 for event in events])


def make_filler(
    run: Callable[[], Any], parts: Sequence[HookedModule], place: device
) -> Callable[[], None] | None:
    """Return work that keeps the device busy if the call does so; hooks then cost only their events.

    None if the call is bound by the host, as it always is on the CPU.
    """
    if place.type == "cpu":
        return None
    import torch  # heavy

    marks: list[Mark] = []
    with ExitStack() as stack:
        add_hooks(parts, perf_counter_ns, marks, stack)
        begin = perf_counter_ns()
        run()
        end = perf_counter_ns()
    if not marks or marks[-1][1] - begin > _BUSY_SHARE * (end - begin):
        return None
    square = torch.ones(4096, 4096, device=place)

    def fill() -> None:
        for _ in range(4):
            torch.mm(square, square)

    return fill


def measure_hook_cost(reading: Clock, fill: Callable[[], None] | None) -> HookOverhead:
    """Measure the overhead of a pair of hooks on modules that do nothing, one after the other.

    Args:
        reading: the clock that the hooks read.
        fill: keeps the device busy, so that device time is measured; None to measure host time.
    """
    import torch  # heavy

    modules = [torch.nn.Identity() for _ in range(_EMPTY_MODULES)]
    tensor = torch.zeros(1)
    plain = forward = 0.0
    if fill is None:
        plain = _seconds_per_call(modules, tensor)
        forward = _seconds_per_call([module.forward for module in modules], tensor)
    marks: list[Mark] = []
    inside, per_module = [], []
    with ExitStack() as stack:
        add_hooks([HookedModule(module, "", ("",)) for module in modules], reading.stamp, marks, stack)
        for _ in range(_ROUNDS):
            marks.clear()
            if fill is not None:
                fill()
            for module in modules:
                module(tensor)
            if fill is not None:
                marks[-1][1].synchronize()
            times = reading.seconds([moment for _, moment in marks])
            inside.append(median(end - begin for begin, end in zip(times[::2], times[1::2], strict=True)))
            per_module.append((times[-2] - times[0]) / (_EMPTY_MODULES - 1))
    within = max(0.0, lower_quartile(inside) - forward)
    return HookOverhead(inside=within, outside=max(0.0, lower_quartile(per_module) - plain - within))


def count_unwatched_hooks(parts: Sequence[HookedModule]) -> int:
    """Count the modules that global hooks run for although they are not watched: the root module, or none."""
    return int(any(not part.apart for part in parts))


def scale_hook_cost(
    overhead: HookOverhead, run: Callable[[], Any], parts: Sequence[HookedModule]
) -> HookOverhead:
    """Scale the overhead to this model, by calls with and without hooks in alternation.

    If a call takes so long that only a few fit in, the overhead hardly matters and is not scaled.
    """
    marks: list[Mark] = []
    differences: list[float] = []
    run()
    begin = perf_counter_ns()
    while len(differences) < 2 * _ROUNDS and (perf_counter_ns() - begin) * 1e-9 < _TIME_LIMIT:
        marks.clear()
        with ExitStack() as stack:
            add_hooks(parts, perf_counter_ns, marks, stack)
            watched = _seconds(run)
        differences.append(watched - _seconds(run))
    if len(differences) < _ROUNDS:
        return overhead
    return layer_times.scale_overhead_to_model(
        overhead, differences, len(marks) // 2 + count_unwatched_hooks(parts)
    )


def _seconds(run: Callable[[], Any]) -> float:
    begin = perf_counter_ns()
    run()
    return (perf_counter_ns() - begin) * 1e-9


def _seconds_per_call(callees: Sequence[Callable[..., Any]], argument: Any) -> float:
    """Measure the seconds of one of several calls that do nothing."""
    rounds = []
    for _ in range(_ROUNDS):
        begin = perf_counter_ns()
        for callee in callees:
            callee(argument)
        rounds.append((perf_counter_ns() - begin) * 1e-9 / len(callees))
    return lower_quartile(rounds)


@dataclass(frozen=True, slots=True)
class HookedModule:
    """A module that is watched by hooks."""

    module: Any
    kind: str
    paths: tuple[str, ...]
    """Several if the module is shared."""
    apart: bool = False
    """Whether it gets hooks of its own: it has others already, or only a few modules are watched.

    Global hooks do not show on a module: some modules switch to slower code if they have hooks.
    """


def add_hooks(
    parts: Sequence[HookedModule], stamp: Callable[[], Any], marks: list[Mark], stack: ExitStack
) -> None:
    """Record the begin and end of each module call until the stack is closed."""
    from torch.nn.modules import module as modules  # heavy

    record = marks.append
    numbers = {id(part.module): number for number, part in enumerate(parts)}
    common = {key: number for key, number in numbers.items() if not parts[number].apart}

    def pair(numbers: Mapping[int, int]) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(module: Any, _args: Any) -> None:
            if id(module) in numbers:
                record((numbers[id(module)], stamp()))

        def leave(module: Any, _args: Any, _output: Any) -> None:
            if id(module) in numbers:
                record((~numbers[id(module)], stamp()))

        return enter, leave

    if common:
        enter, leave = pair(common)
        stack.callback(modules.register_module_forward_pre_hook(enter).remove)
        stack.callback(modules.register_module_forward_hook(leave, always_call=True).remove)
    for part in parts:
        if part.apart:
            register_hooks(part.module, *pair(numbers), stack)


def register_hooks(
    module: Any, enter: Callable[..., None], leave: Callable[..., None], stack: ExitStack
) -> None:
    """Add hooks around existing ones; `leave` is also called if the module raises."""
    if hasattr(module, "_c"):  # a ScriptModule takes hooks, but knows no `always_call`
        stack.callback(module.register_forward_pre_hook(enter).remove)
        stack.callback(module.register_forward_hook(leave).remove)
        return
    stack.callback(module.register_forward_pre_hook(enter, prepend=True).remove)
    stack.callback(module.register_forward_hook(leave, always_call=True).remove)
