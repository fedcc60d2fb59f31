"""Where the modules of a torch module begin and end within a call, as whoever watches the call needs it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.nn import Module


def eager(callee: Callable[..., Any]) -> Module | None:
    """Give the module whose code runs as it is written; None where a part of it is compiled."""
    import torch  # noqa: PLC0415 - heavy

    if not isinstance(callee, torch.nn.Module):
        return None
    compiled = (
        hasattr(part, "_orig_mod") or getattr(part, "_compiled_call_impl", None) is not None
        for part in callee.modules()
    )
    return None if any(compiled) else callee


@contextmanager
def entered(module: Module, begin: Callable[[str], object], end: Callable[[str], object]) -> Iterator[None]:
    """Tell of each module within `module` as it begins and ends, an error included, by its first path.

    The hooks are global ones: those of a module would show on it, and switch off some of its fast paths.
    """
    from torch.nn.modules import module as modules  # noqa: PLC0415 - heavy

    paths = {id(part): path for path, part in module.named_modules()}

    def before(part: Module, _args: Any) -> None:
        path = paths.get(id(part))
        if path is not None:
            begin(path)

    def after(part: Module, _args: Any, _output: Any) -> None:
        path = paths.get(id(part))
        if path is not None:
            end(path)

    handles = [
        modules.register_module_forward_pre_hook(before),
        modules.register_module_forward_hook(after, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def as_ranges(module: Module | None, prefix: str) -> Iterator[None]:
    """Meanwhile have each module within `module` be a range of the profiler, by its path behind a prefix.

    The whole has none; None has no parts that could be told apart.
    """
    if module is None:
        yield
        return
    from torch.profiler import record_function  # noqa: PLC0415 - heavy

    is_open: list[Any] = []

    def begin(path: str) -> None:
        if path:
            is_open.append(record_function(prefix + path))
            is_open[-1].__enter__()

    def end(path: str) -> None:
        if path:
            is_open.pop().__exit__(None, None, None)

    with entered(module, begin, end):
        yield
