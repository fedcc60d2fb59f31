"""What an analysis sets for its length in this process, and puts back; how it copies what is not its own."""

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

from modeldyno.core.spec.static_options import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.nn import Module

_unoptimised: Any = torch.jit.optimized_execution  # type: ignore[attr-defined]  # not in the stubs
_TURN = RLock()
"""One analysis at a time: much of what it sets is the whole process's."""


@contextmanager
def alone() -> Iterator[None]:
    """Wait for one's turn; keep warnings and log from the user meanwhile."""
    with _TURN:
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        with warnings.catch_warnings(), _unoptimised(should_optimize=False):
            # a script that was once optimised for a training step would be run so for good
            warnings.simplefilter("ignore")
            try:
                yield
            finally:
                logging.disable(before)


def eager() -> AbstractContextManager[Any]:
    """Run what is compiled as it was written; what was never imported has compiled nothing."""
    return torch.compiler.set_stance("force_eager") if has_compiler() else nullcontext()


def has_compiler() -> bool:
    """Whether torch's compiler was imported, which takes as long as torch itself."""
    return "torch._dynamo" in sys.modules


@contextmanager
def unwritten() -> Iterator[None]:
    """Refuse to write files: what a factory would write of shadows is false, and would stay."""

    def refuse(*_args: object, **_options: object) -> None:
        raise TypeError("Shadows cannot be saved.")

    def reading(make: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if set(mode) & set("wax+") and str(file) != os.devnull:
                raise TypeError("A factory that is called on shadows writes no files.")
            return make(file, mode, *args, **options)

        return opened

    before = torch.save, builtins.open, io.open
    torch.save, builtins.open, io.open = refuse, reading(before[1]), reading(before[2])
    try:
        yield
    finally:
        torch.save, builtins.open, io.open = before


@contextmanager
def collected() -> Iterator[None]:
    """Collect no garbage meanwhile: what lives how long is told by references alone."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def in_mode(module: Module, mode: Mode) -> Iterator[None]:
    """Set the mode of training, where it can be set, and put it back."""
    before = [(part, part.training) for part in module.modules() if hasattr(part, "training")]
    for part, _ in before:
        part.training = mode is Mode.TRAIN
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def copied(module: Module, memo: dict[int, Any]) -> Module:
    """Copy a module, its tensors as `memo` has them by their ids; what cannot be copied is shared."""
    try:
        with torch.no_grad():  # a script clones its weights, which are to be leaves
            found: Module = copy.deepcopy(module, dict(memo))
    except Exception:  # noqa: BLE001 - whatever a part of it has against being copied, such as a lock
        return module if isinstance(module, torch.jit.ScriptModule) else _shells(module, memo)
    if isinstance(found, torch.jit.ScriptModule):
        for before, after in zip(module.parameters(), found.parameters(), strict=True):
            after.requires_grad_(before.requires_grad)
    return found


def _shells(module: Module, memo: dict[int, Any]) -> Module:
    """Copy module by module and attribute by attribute."""
    parts = list(module.modules())
    for part in parts:
        # A GraphModule's own __new__ would make another class, one without its forward.
        memo[id(part)] = object.__new__(type(part))
    for part in parts:
        for name, value in vars(part).items():
            memo[id(part)].__dict__[name] = _copy(value, memo)
    made: Module = memo[id(module)]
    return made


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # noqa: BLE001 - the same
        return value


def attributes(module: Module) -> Iterator[Tensor]:
    """Find tensors that are attributes without being parameters or buffers, such as a weight that is made."""
    for part in module.modules():
        yield from (value for value in vars(part).values() if isinstance(value, Tensor))
