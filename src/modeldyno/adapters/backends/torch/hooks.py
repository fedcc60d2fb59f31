"""Hooks before and after the modules of torch that are watched: they note the moment, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import ExitStack

Mark = tuple[int, Any]
"""A part that begins, or ``~part`` that ends, and when: nanoseconds, or an event."""


@dataclass(frozen=True, slots=True)
class Part:
    """A module that is watched."""

    module: Any
    kind: str
    paths: tuple[str, ...]
    """Several where it is shared."""
    apart: bool = False
    """Whether it has hooks of its own: there are some, around which ours go, or few modules are watched.

    Hooks that all modules have in common show on none: some switch to slower code where one does.
    """


def hook(parts: Sequence[Part], stamp: Callable[[], Any], marks: list[Mark], stack: ExitStack) -> None:
    """Have the beginning and the end of each call noted, until the stack is left."""
    from torch.nn.modules import module as modules  # noqa: PLC0415 - heavy

    note = marks.append
    numbers = {id(part.module): number for number, part in enumerate(parts)}
    common = {key: number for key, number in numbers.items() if not parts[number].apart}

    def pair(numbers: Mapping[int, int]) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(module: Any, _given: Any) -> None:
            if id(module) in numbers:
                note((numbers[id(module)], stamp()))

        def leave(module: Any, _given: Any, _output: Any) -> None:
            if id(module) in numbers:
                note((~numbers[id(module)], stamp()))

        return enter, leave

    if common:
        enter, leave = pair(common)
        stack.callback(modules.register_module_forward_pre_hook(enter).remove)
        stack.callback(modules.register_module_forward_hook(leave, always_call=True).remove)
    for part in parts:
        if part.apart:
            register(part.module, *pair(numbers), stack)


def register(module: Any, enter: Callable[..., None], leave: Callable[..., None], stack: ExitStack) -> None:
    """Put hooks around those that are there already; `leave` is called also where the module raises."""
    if hasattr(module, "_c"):  # a ScriptModule takes hooks, but knows no `always_call`
        stack.callback(module.register_forward_pre_hook(enter).remove)
        stack.callback(module.register_forward_hook(leave).remove)
        return
    stack.callback(module.register_forward_pre_hook(enter, prepend=True).remove)
    stack.callback(module.register_forward_hook(leave, always_call=True).remove)
