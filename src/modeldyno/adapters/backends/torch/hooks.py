"""Forward hooks on torch modules that take a time stamp and do nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import ExitStack

Mark = tuple[int, Any]
"""The number of a module that begins (``~number`` if it ends), and a time stamp: nanoseconds or an event."""


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
    from torch.nn.modules import module as modules  # noqa: PLC0415 - heavy

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
