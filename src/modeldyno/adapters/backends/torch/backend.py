"""Runs torch modules eagerly or compiled, on any device that torch has."""

from __future__ import annotations

import copy
import logging
import re
import warnings
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno import plugins
from modeldyno.adapters.backends.output_leaves import finished_leaves
from modeldyno.adapters.backends.torch import dataflow
from modeldyno.adapters.backends.torch import layers as torch_layers
from modeldyno.adapters.backends.torch import memory as torch_memory
from modeldyno.adapters.backends.torch import operators as torch_operators
from modeldyno.adapters.backends.torch import training as torch_training
from modeldyno.adapters.backends.torch.inputs import Placement
from modeldyno.core.spec.knob import BATCH_SIZE, Knob
from modeldyno.data.torch_signature import Forward
from modeldyno.errors import RequestError
from modeldyno.interfaces import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from torch import device, dtype
    from torch.nn import Module

    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.core.trace.allocations import Watching
    from modeldyno.core.trace.dataflow import Flow
    from modeldyno.core.trace.op_events import WatchedCalls
    from modeldyno.interfaces import Decoding, Feed, Layers, Model, Named, Training

requires: tuple[str, ...] = ("torch",)
accepts = frozenset({Form.TORCH})
knobs: tuple[Knob, ...] = (
    Knob(
        name="device",
        kind=str,
        default="auto",
        sentence="Where to run: auto (the first accelerator, or else the CPU), cpu, cuda, cuda:1, mps, xpu.",
    ),
    Knob(
        name="precision",
        kind=str,
        default=None,
        choices=("fp32", "fp16", "bf16", "int8"),
        sentence="Convert weights and inputs, int8 by torchao in linear layers; as stored if not set.",
        aliases=("dtype",),
    ),
    Knob(
        name="compile",
        kind=str,
        default="off",
        choices=("off", "default", "reduce-overhead", "max-autotune"),
        sentence="The mode of torch.compile, or off to run eagerly.",
    ),
    Knob(
        name="channels_last",
        kind=bool,
        default=False,
        sentence="Keep images and convolutions in memory with the channels last.",
    ),
    Knob(
        name="threads",
        kind=int,
        default=None,
        low=1,
        high=4096,
        sentence="Threads within an operator on the CPU; torch decides if not set.",
        aliases=("num_threads", "intra_threads"),
    ),
    Knob(
        name="inference_mode",
        kind=bool,
        default=True,
        sentence="Run under torch.inference_mode; false runs under torch.no_grad only.",
    ),
    BATCH_SIZE,
)
space = ("batch_size=1..32*2", "threads=1..{cores}*2", "precision=fp32,bf16")

_DEVICE = re.compile(r"auto|cpu|mps|(?:cuda|xpu)(?::\d+)?")
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse settings that exclude each other.

    Raises:
        RequestError: a device that there is not, or two settings that do not go together.
        MissingExtra: precision=int8 without torchao.
    """
    place = str(config.get("device", "auto"))
    if _DEVICE.fullmatch(place) is None:
        raise RequestError(f"The knob device takes auto, cpu, cuda, cuda:N, xpu or mps, not '{place}'.")
    if config.get("precision") == "int8":
        plugins.require(("torchao",), "setting precision=int8 of the backend 'torch'")
    _check_on(place, config)


def _check_on(place: str, config: Mapping[str, KnobValue]) -> None:
    """Refuse what a kind of device cannot do."""
    if place in {"cpu", "mps"} and config.get("compile") == "reduce-overhead":
        raise RequestError(
            f"compile=reduce-overhead works by CUDA graphs and does nothing on {place}; use compile=default."
        )
    if place == "mps" and config.get("precision") == "int8":
        raise RequestError("precision=int8 has no kernels on mps; use fp16, or device=cpu.")


class Session:
    """A module that is ready on a device that works as it is called: the CPU."""

    def __init__(self, module: Callable[..., Any], forward: Forward, placement: Placement) -> None:
        import torch  # noqa: PLC0415 - start-up is part of the product

        self._module = module
        self._forward = forward
        self._placement = placement
        self.device = str(placement.place)
        self.threads = torch.get_num_threads()
        self.converted = ""
        """The precision that weights were converted to, if they were."""

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Copy the payload to the device, and bind it to the module."""
        tensors = {name: self._placement.tensor(array) for name, array in feed.items()}
        args, kwargs = self._forward.arguments(tensors)
        return partial(self._module, *args, **kwargs)

    def arrays(self, output: Any) -> Feed:
        """Give the tensors of the output as arrays; other objects, such as caches, are left out."""
        return {name: _array(leaf) for name, leaf in finished_leaves(output) if hasattr(leaf, "detach")}

    def layers(self, feed: Feed, named: Named) -> AbstractContextManager[Layers]:
        """Watch the modules within a call, those that are named."""
        return torch_layers.watching(self._module, self.prepare(feed), self._placement.place, named)

    def operators(self, feed: Feed, calls: int, trace: Path | None) -> WatchedCalls:
        """Watch the operators of some calls by torch.profiler."""
        run, place = Session.prepare(self, feed), self._placement.place
        return torch_operators.watched(run, self._module, place, calls, trace)

    def flow(self, feed: Feed) -> Flow | None:
        """Follow the data of a call."""
        return dataflow.flow(Session.prepare(self, feed), self._module, self._placement.place)

    def allocations(self, feed: Feed) -> Watching:
        """Watch torch's allocator; the parts of a compiled module are not told apart."""
        return torch_memory.watching(self.prepare(feed), self._module, self._placement, feed)

    def training(self, feeds: Sequence[Feed], optimizer: str) -> AbstractContextManager[Training]:
        """Train a copy of the module, compiled where this one is."""
        return torch_training.training(self._module, self._forward, self._placement, feeds, optimizer)

    def decoding(self, prompt: Feed, tokens: int) -> Decoding:
        """Place a prompt on the device, for a model of transformers to continue."""
        from modeldyno.adapters.backends.torch import generate as torch_generate  # noqa: PLC0415 - it imports this module

        tensors = {name: self._placement.tensor(array) for name, array in prompt.items()}
        return torch_generate.decoding(self._module, tensors, tokens)


class DeviceSession(Session):
    """A module on a device that works on by itself: a call waits for an event at its end."""

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Bind the payload; a call returns when the device has reached the event after it."""
        import torch  # noqa: PLC0415 - heavy

        run = super().prepare(feed)
        done = getattr(torch, self._placement.place.type).Event()

        def call() -> Any:
            output = run()
            done.record()
            done.synchronize()
            return output

        return call


class CudaSession(DeviceSession):
    """A module on a CUDA device, whose allocator keeps the peak."""

    def peak_reserved(self) -> int:
        """Give the most bytes that torch's allocator held since the session was opened."""
        import torch  # noqa: PLC0415 - heavy

        return int(torch.cuda.max_memory_reserved(self._placement.place))


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:  # noqa: A001 - the port's word
    """Place, convert and compile the module; restore on leaving what was changed for the process."""
    check(config)
    place = _device(str(config.get("device", "auto")))
    _check_on(place.type, config)
    with ExitStack() as stack:
        _set_threads(config, stack)
        _enter_device(place, stack)
        converted = _conversion(model.value, config)
        module = _evaluating(_converted(model, config, place), stack)
        _enter_mode(config, stack)
        callee = _compiled(module, config, stack)
        placement = Placement(
            place=place,
            kind=_input_dtype(module, config),
            channels_last=bool(config.get("channels_last")),
        )
        session = _session(place)(callee, Forward.of(module), placement)
        session.converted = converted
        yield session


# --- what a session is opened with ---------------------------------------------------------------


def _device(place: str) -> device:
    import torch  # noqa: PLC0415 - heavy

    there = [name for name in ("cuda", "xpu", "mps") if _is_available(name)]
    if place == "auto":
        place = [*there, "cpu"][0]
    found = torch.device(place)
    if found.type not in {*there, "cpu"}:
        raise RequestError(
            f"The device '{place}' is not available to torch {torch.__version__} here; "
            f"available: {', '.join([*there, 'cpu'])}."
        )
    kind = getattr(torch, found.type)
    if ":" in place and found.index >= kind.device_count():
        raise RequestError(f"There is no device '{place}'; {found.type} has {kind.device_count()}, from 0.")
    if found.type == "cpu":
        return found
    current = kind.current_device() if hasattr(kind, "current_device") else 0
    return torch.device(found.type, found.index if ":" in place else current)


def _is_available(kind: str) -> bool:
    import torch  # noqa: PLC0415 - heavy

    library: Any = getattr(torch, kind, None)
    return library is not None and bool(library.is_available())


def _set_threads(config: Mapping[str, KnobValue], stack: ExitStack) -> None:
    import torch  # noqa: PLC0415 - heavy

    if "threads" in config:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(int(config["threads"]))


def _enter_device(place: device, stack: ExitStack) -> None:
    import torch  # noqa: PLC0415 - heavy

    if place.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        stack.enter_context(torch.cuda.device(place))
        torch.cuda.reset_peak_memory_stats(place)


def _enter_mode(config: Mapping[str, KnobValue], stack: ExitStack) -> None:
    """Enter it once for the whole session: a call then pays nothing for it."""
    import torch  # noqa: PLC0415 - heavy

    stack.enter_context(torch.inference_mode() if config.get("inference_mode", True) else torch.no_grad())


def _evaluating(module: Module, stack: ExitStack) -> Module:
    """Have the module in evaluation mode; each part gets back its own mode at the end."""
    training = [part for part in module.modules() if part.training]
    if training:
        stack.callback(_train, training)
        module.eval()
    return module


def _train(parts: list[Module]) -> None:
    for part in parts:
        part.training = True


def _session(place: device) -> type[Session]:
    if place.type == "cpu":
        return Session
    return CudaSession if place.type == "cuda" else DeviceSession


# --- conversions ---------------------------------------------------------------------------------


def _converted(model: Model, config: Mapping[str, KnobValue], place: device) -> Module:
    """Move and convert the module; a copy of it, if someone else goes on using it."""
    import torch  # noqa: PLC0415 - heavy

    module: Module = model.value
    precision = config.get("precision")
    kind = getattr(torch, _DTYPES[str(precision)]) if precision in _DTYPES else None
    if not _is_altered(module, config, place, kind):
        return module
    if precision == "int8" and isinstance(module, torch.jit.ScriptModule):
        raise RequestError(
            "precision=int8 cannot quantise a TorchScript archive; give the module it came from."
        )
    if model.borrowed:
        module = copy.deepcopy(module)
    module = module.to(device=place, dtype=kind)
    if config.get("channels_last"):
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stubs lack it alone
    return _quantised(module) if precision == "int8" else module


def _conversion(module: Module, config: Mapping[str, KnobValue]) -> str:
    """Name the precision that weights are converted to; empty where they have it, or keep their own."""
    import torch  # noqa: PLC0415 - heavy

    precision = str(config.get("precision", ""))
    if precision not in _DTYPES:
        return precision
    kind = getattr(torch, _DTYPES[precision])
    floats = (t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point())
    return precision if any(t.dtype != kind for t in floats) else ""


def _is_altered(module: Module, config: Mapping[str, KnobValue], place: device, kind: dtype | None) -> bool:
    tensors = [*module.parameters(), *module.buffers()]
    return (
        config.get("precision") == "int8"
        or bool(config.get("channels_last"))
        or any(t.device != place for t in tensors)
        or (kind is not None and any(t.is_floating_point() and t.dtype != kind for t in tensors))
    )


def _quantised(module: Module) -> Module:
    """Quantise linear layers to int8 weights and activations, in place."""
    import torch  # noqa: PLC0415 - heavy

    with quiet():
        from torchao.quantization import (  # noqa: PLC0415 - optional
            Int8DynamicActivationInt8WeightConfig,
            quantize_,
        )

        if not any(isinstance(part, torch.nn.Linear) for part in module.modules()):
            raise RequestError(
                "precision=int8 quantises linear layers, and this model has none; use bf16 or fp16."
            )
        quantize_(module, Int8DynamicActivationInt8WeightConfig(), filter_fn=_is_plain_linear)
    return module


def _is_plain_linear(part: Module, _name: str) -> bool:
    """Whether it is a linear layer that is not quantised yet."""
    import torch  # noqa: PLC0415 - heavy

    return isinstance(part, torch.nn.Linear) and type(part.weight) in {torch.Tensor, torch.nn.Parameter}


def _input_dtype(module: Module, config: Mapping[str, KnobValue]) -> dtype | None:
    """Give the dtype for floating-point inputs: that of the first weights that they may meet."""
    import torch  # noqa: PLC0415 - heavy

    precision = config.get("precision")
    if precision in _DTYPES:
        found: dtype = getattr(torch, _DTYPES[str(precision)])
        return found
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), None)


def _compiled(module: Module, config: Mapping[str, KnobValue], stack: ExitStack) -> Callable[..., Any]:
    import torch  # noqa: PLC0415 - heavy

    mode = str(config.get("compile", "off"))
    if mode == "off":
        return module
    if isinstance(module, torch.jit.ScriptModule):
        raise RequestError(
            f"compile={mode} cannot compile a TorchScript archive; give the module it came from."
        )
    stack.callback(torch.compiler.reset)
    with quiet():  # the compiler is imported here
        compiled: Callable[..., Any] = torch.compile(module, mode=mode)
    return compiled


# --- small things --------------------------------------------------------------------------------


def _array(tensor: Any) -> Any:
    import torch  # noqa: PLC0415 - heavy

    plain = tensor.detach()
    if plain.is_quantized:
        plain = plain.dequantize()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    plain = plain.float() if plain.dtype is torch.bfloat16 else plain
    return plain.cpu().numpy()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep from the user what libraries say of themselves while they are imported and set up."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
