"""What other tools say a call costs, in MACs, and which operators they say they did not count.

One function for each, ``(module, args, kwargs) -> (macs, uncounted)``, in the unit that its tool documents.
A tool counts as listing an operator where its result or a warning of it does so unasked for. Tools that
are not installed are left out; `make peers` installs them.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

Found = tuple[float, tuple[str, ...]]
Arguments = tuple[Any, ...]
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a tool said."""

    macs: int | None = None
    uncounted: tuple[str, ...] = ()
    error: str = ""
    """Name of the exception's class."""
    seconds: float = 0.0
    """Of processor time."""


class Plain(nn.Module):
    """Positional inputs in, a flat tuple of tensors out: what every tool can take."""

    def __init__(self, module: nn.Module, args: Arguments, kwargs: Options) -> None:
        super().__init__()
        self.module = module
        self.positional = len(args)
        self.names = tuple(kwargs)
        # Two tools ask the first parameter where the inputs have to be, and stop where there is none.
        tensors = (item for item in pytree.tree_leaves((args, kwargs)) if isinstance(item, Tensor))
        device = next((tensor.device for tensor in tensors), None)
        self.anchor = nn.Parameter(torch.empty(0, device=device))

    def forward(self, *args: Any, pack: Arguments = ()) -> tuple[Tensor, ...]:
        """Call the module."""
        arguments = (*args, *pack)
        named = dict(zip(self.names, arguments[self.positional :], strict=True))
        output = self.module(*arguments[: self.positional], **named)
        return tuple(item for item in pytree.tree_leaves(output) if isinstance(item, Tensor))


def plain(module: nn.Module, args: Arguments, kwargs: Options) -> tuple[Plain, Arguments]:
    """Wrap a module; give its inputs in their order, too."""
    return Plain(module, args, kwargs), (*args, *kwargs.values())


def flop_counter(module: nn.Module, args: Arguments, kwargs: Options) -> Found:
    """torch.utils.flop_counter: 2 FLOPs for each MAC."""
    with FlopCounterMode(display=False) as counter:
        module(*args, **kwargs)
    return counter.get_total_flops() / 2, ()


def fvcore(module: nn.Module, args: Arguments, kwargs: Options) -> Found:
    """fvcore: "one fused multiply-add as one flop"; it knows what it has no handle for."""
    from fvcore.nn import FlopCountAnalysis  # may be absent

    analysis = FlopCountAnalysis(*plain(module, args, kwargs))
    analysis.unsupported_ops_warnings(enabled=False).uncalled_modules_warnings(enabled=False)
    return analysis.tracer_warnings("none").total(), tuple(analysis.unsupported_ops())


def deepspeed(module: nn.Module, args: Arguments, kwargs: Options) -> Found:
    """DeepSpeed's profiler, which patches torch.nn.functional: its MACs."""
    from deepspeed.profiling.flops_profiler import get_model_profile  # may be absent

    net, arguments = plain(module, args, kwargs)
    return get_model_profile(net, args=list(arguments), print_profile=False, as_string=False, warm_up=0)[
        1
    ], ()


def calflops(module: nn.Module, args: Arguments, kwargs: Options) -> Found:
    """Calflops, made from DeepSpeed's: its MACs."""
    from calflops import calculate_flops  # may be absent

    net, arguments = plain(module, args, kwargs)
    return calculate_flops(net, args=list(arguments), print_results=False, output_as_string=False)[1], ()


def _ptflops(backend: str) -> Callable[[nn.Module, Arguments, Options], Found]:
    def ask(module: nn.Module, args: Arguments, kwargs: Options) -> Found:
        """Ptflops: "complexity" in MACs, to which its rules add biases, norms and activations."""
        import ptflops  # may be absent

        net, arguments = plain(module, args, kwargs)
        macs, _ = ptflops.get_model_complexity_info(
            net,
            (1,),
            input_constructor=lambda _shape: {"pack": arguments},
            print_per_layer_stat=False,
            as_strings=False,
            backend=backend,
        )
        if macs is None:
            raise RuntimeError("It printed what went wrong and gave None.")
        return float(macs), ()

    return ask


def thop(module: nn.Module, args: Arguments, kwargs: Options) -> Found:
    """Thop: MACs by module class, norms and activations included."""
    from thop import profile  # may be absent

    net, arguments = plain(module, args, kwargs)
    return profile(net, inputs=arguments, verbose=False)[0], ()


def torchprofile(module: nn.Module, args: Arguments, kwargs: Options) -> Found:
    """Torchprofile: MACs, and a warning for each operator without a handler."""
    from torchprofile import profile_macs  # may be absent

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        macs = profile_macs(*plain(module, args, kwargs))
    messages = [str(warning.message) for warning in caught]
    return macs, tuple(text.split('"')[1] for text in messages if text.startswith("No handlers found"))


PEERS: dict[str, tuple[str, Callable[[nn.Module, Arguments, Options], Found]]] = {
    "FlopCounter": ("torch", flop_counter),
    "fvcore": ("fvcore.nn", fvcore),
    "DeepSpeed": ("deepspeed.profiling.flops_profiler", deepspeed),
    "calflops": ("calflops", calflops),
    "ptflops": ("ptflops", _ptflops("pytorch")),
    "ptflops aten": ("ptflops", _ptflops("aten")),
    "thop": ("thop", thop),
    "torchprofile": ("torchprofile", torchprofile),
}
"""Name to its module and its function."""


def installed_tools() -> list[str]:
    """Name the tools that are here, after importing them: that is no part of their time."""
    logging.disable(logging.WARNING)
    names = []
    for name, (package, _) in PEERS.items():
        if has(package.partition(".")[0]):
            with quiet():
                importlib.import_module(package)
            names.append(name)
    return names


def has(package: str) -> bool:
    """Say whether a package is installed, without importing it."""
    return importlib.util.find_spec(package) is not None


def ask(name: str, module: nn.Module, args: Arguments, kwargs: Options | None = None) -> Answer:
    """Ask a tool about a module that nobody else needs any more: some leave their traces on it."""
    return answer(lambda: PEERS[name][1](module, args, kwargs or {}))


def answer(call: Callable[[], Found]) -> Answer:
    """Call, without what it prints, and tell how it went."""
    begin = time.process_time()
    with quiet(), restore_patches(), torch.no_grad():
        try:
            macs, uncounted = call()
        except Exception as error:  # noqa: BLE001 - any tool may fail in any way
            return Answer(error=type(error).__name__, seconds=time.process_time() - begin)
    return Answer(macs=round(macs), uncounted=uncounted, seconds=time.process_time() - begin)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop what is printed and warned of."""
    nowhere = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def restore_patches() -> Iterator[None]:
    """Undo what a tool that failed has left patched."""
    spaces: tuple[Any, ...] = (torch, torch.nn.functional, torch.Tensor)
    before = [dict(vars(space)) for space in spaces]
    try:
        yield
    finally:
        for space, names in zip(spaces, before, strict=True):
            for name, value in dict(vars(space)).items():
                if name not in names and space is torch.Tensor:
                    delattr(space, name)
                elif name in names and names[name] is not value:
                    setattr(space, name, names[name])
