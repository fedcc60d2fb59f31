"""Hooks and profiler ranges that mark where submodules begin and end within a call."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.nn import Module


def eager_module(callee: Callable[..., Any]) -> Module | None:
    """Return the module if all of its code runs eagerly; None if any part is compiled."""
    import torch  # heavy

    if not isinstance(callee, torch.nn.Module):
        return None
    compiled = (
        hasattr(part, "_orig_mod") or getattr(part, "_compiled_call_impl", None) is not None
        for part in callee.modules()
    )
    return None if any(compiled) else callee


@contextmanager
def watch_module_calls(
    module: Module, begin: Callable[[str], object], end: Callable[[str], object]
) -> Iterator[None]:
    """Call `begin` and `end` with the first path of each submodule as it begins and ends, errors included.

    The hooks are global: hooks on a module would switch off some of its fast paths.
    """
    paths = {id(part): path for path, part in module.named_modules()}

    def before(part: Module, _args: Any) -> None:
        path = paths.get(id(part))
        if path is not None:
            begin(path)

    def after(part: Module, _args: Any, _output: Any) -> None:
        path = paths.get(id(part))
        if path is not None:
            end(path)

    with _hooks_on_all_modules(before, after):
        yield


@contextmanager
def annotate_modules(module: Module | None, prefix: str) -> Iterator[None]:
    """Make each submodule of `module` a profiler range, named by a prefix and its path.

    The root module gets no range; with None there are no ranges.
    """
    if module is None:
        yield
        return
    from torch.profiler import record_function  # heavy

    open_ranges: list[Any] = []

    def begin(path: str) -> None:
        if path:
            open_ranges.append(record_function(prefix + path))
            open_ranges[-1].__enter__()

    def end(path: str) -> None:
        if path:
            open_ranges.pop().__exit__(None, None, None)

    with watch_module_calls(module, begin, end):
        yield


@contextmanager
def watch_all_module_calls(
    begin: Callable[[str], object],
    end: Callable[[], object],
    returned: Callable[[Module, Any], object] = lambda _module, _output: None,
) -> Iterator[None]:
    """Call `begin` and `end` as any module begins and ends, errors included.

    `returned` gets each module that is called by no other, and what it returned.

    A module that is called by no other is named by its class, those within it by their paths from there:
    ``Net``, ``Net.layers.0``. A module that is no part of it, such as one in a list, is named by its class.
    """
    open_modules: list[Module] = []
    paths: dict[int, str] = {}

    def before(part: Module, _args: Any) -> None:
        if not open_modules:
            paths.clear()
            name = type(part).__name__
            paths.update(
                (id(inner), f"{name}.{path}" if path else name) for path, inner in part.named_modules()
            )
        open_modules.append(part)
        begin(paths.get(id(part)) or type(part).__name__)

    def after(part: Module, _args: Any, output: Any) -> None:
        if open_modules and open_modules[-1] is part:
            open_modules.pop()
            end()
            if not open_modules:
                returned(part, output)

    with _hooks_on_all_modules(before, after):
        yield


@contextmanager
def _hooks_on_all_modules(before: Callable[..., None], after: Callable[..., None]) -> Iterator[None]:
    from torch.nn.modules import module as modules  # heavy

    handles = [
        modules.register_module_forward_pre_hook(before),
        modules.register_module_forward_hook(after, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
