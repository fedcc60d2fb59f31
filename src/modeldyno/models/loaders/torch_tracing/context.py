"""Process-wide settings of an analysis, set for its duration and restored; and copying of modules."""

from __future__ import annotations

import builtins
import copy
import gc
import io
import logging
import os
import sys
import warnings
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from modeldyno.base.job.static_options import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.nn import Module

_jit_optimisation: Any = torch.jit.optimized_execution  # type: ignore[attr-defined]  # not in the stubs
_ANALYSIS_LOCK = RLock()
"""One analysis at a time: much of what it sets is process-wide."""


@contextmanager
def analysis_lock() -> Iterator[None]:
    """Hold the analysis lock, with warnings and logging suppressed."""
    with _ANALYSIS_LOCK:
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        with warnings.catch_warnings(), _jit_optimisation(should_optimize=False):
            # a script once optimised for a training step would stay optimised
            warnings.simplefilter("ignore")
            try:
                yield
            finally:
                logging.disable(before)


def force_eager() -> AbstractContextManager[Any]:
    """Run compiled code uncompiled; without torch's compiler imported nothing is compiled."""
    return torch.compiler.set_stance("force_eager") if has_compiler() else nullcontext()


def has_compiler() -> bool:
    """Whether torch's compiler was imported, which takes as long as torch itself."""
    return "torch._dynamo" in sys.modules


@contextmanager
def forbid_file_writes() -> Iterator[None]:
    """Forbid writing files: what a factory writes from meta tensors is wrong, and would stay."""

    def refuse(*_args: object, **_options: object) -> None:
        raise TypeError("Meta tensors cannot be saved.")

    def read_only(open_file: Callable[..., Any]) -> Callable[..., Any]:
        def open_for_reading(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if set(mode) & set("wax+") and str(file) != os.devnull:
                raise TypeError("A factory that runs on meta tensors may not write files.")
            return open_file(file, mode, *args, **options)

        return open_for_reading

    originals = torch.save, builtins.open, io.open
    torch.save, builtins.open, io.open = refuse, read_only(originals[1]), read_only(originals[2])
    try:
        yield
    finally:
        torch.save, builtins.open, io.open = originals


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: memory lifetimes are measured by reference counts alone."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def training_mode(module: Module, mode: Mode) -> Iterator[None]:
    """Set the training mode of all parts, where they have one, and restore it."""
    before = [(part, part.training) for part in module.modules() if hasattr(part, "training")]
    for part, _ in before:
        part.training = mode is Mode.TRAIN
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def copy_module(module: Module, memo: dict[int, Any]) -> Module:
    """Copy a module with its tensors replaced as in `memo`, by their ids; what cannot be copied is shared.

    So are packed weights: compiled code copies them, and reads memory that a meta tensor does not have.
    """
    memo = memo | {id(value): value for value in _compiled_objects(module)}
    try:
        with torch.no_grad():  # a script clones its weights, which must be leaves
            result: Module = copy.deepcopy(module, dict(memo))
    except Exception:  # noqa: BLE001 - parts may refuse to be copied for any reason, such as a lock
        return module if isinstance(module, torch.jit.ScriptModule) else _copy_by_attribute(module, memo)
    if isinstance(result, torch.jit.ScriptModule):
        for before, after in zip(module.parameters(), result.parameters(), strict=True):
            after.requires_grad_(before.requires_grad)
    return result


def _compiled_objects(module: Module) -> Iterator[Any]:
    """Yield the compiled objects in the attributes of a module's parts."""
    for part in module.modules():
        yield from (value for value in vars(part).values() if isinstance(value, torch.ScriptObject))


def _copy_by_attribute(module: Module, memo: dict[int, Any]) -> Module:
    """Copy module by module and attribute by attribute."""
    parts = list(module.modules())
    for part in parts:
        # A GraphModule's own __new__ would make another class, one without its forward.
        memo[id(part)] = object.__new__(type(part))
    for part in parts:
        for name, value in vars(part).items():
            memo[id(part)].__dict__[name] = _copy_or_share(value, memo)
    result: Module = memo[id(module)]
    return result


def _copy_or_share(value: Any, memo: dict[int, Any]) -> Any:
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # noqa: BLE001 - the same
        return value


def tensor_attributes(module: Module) -> Iterator[Tensor]:
    """Yield tensor attributes that are neither parameters nor buffers, such as a computed weight."""
    for part in module.modules():
        yield from (value for value in vars(part).values() if isinstance(value, Tensor))
