"""PyTorch backend: runs modules eagerly or compiled, on any device that torch supports.

What a probe records is imported when it is recorded: every command imports this module for its knobs.
"""

from __future__ import annotations

import copy
import re
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import BATCH_SIZE, Knob
from modeldyno.engine.backends.output_leaves import finished_leaves, has_attributes
from modeldyno.engine.backends.torch.generate import quiet
from modeldyno.engine.backends.torch.inputs import Placement
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.models.interface import Form
from modeldyno.models.torch_signature import Forward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from torch import device, dtype
    from torch.nn import Module

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.session import Decoding, Layers, Training
    from modeldyno.engine.trace.allocations import AllocationRecorder
    from modeldyno.engine.trace.dataflow import DataFlow
    from modeldyno.engine.trace.op_events import Occurrence, WatchedCalls
    from modeldyno.models.interface import Feed, Model, ModuleFilter

requires: tuple[str, ...] = ("torch",)
accepts = frozenset({Form.TORCH})
knobs: tuple[Knob, ...] = (
    Knob(
        name="device",
        default="auto",
        sentence="Where to run: auto (the first accelerator, else the CPU), cpu, cuda, cuda:1, mps or xpu.",
    ),
    Knob(
        name="precision",
        choices=("fp32", "fp16", "bf16", "int8"),
        sentence="Convert weights and inputs; int8 quantises linear layers by torchao. As stored if not set.",
        aliases=("dtype",),
    ),
    Knob(
        name="compile",
        default="off",
        choices=("off", "default", "reduce-overhead", "max-autotune"),
        sentence="The mode of torch.compile, or off to run eagerly.",
    ),
    Knob(
        name="channels_last",
        kind=bool,
        default=False,
        sentence="Use the channels-last memory format for images and convolutions.",
    ),
    Knob(
        name="tf32",
        kind=bool,
        sentence="Compute products of float32 in TF32 on CUDA, or in float32; torch's defaults if not set.",
        aliases=("allow_tf32",),
    ),
    Knob(
        name="threads",
        kind=int,
        low=1,
        high=4096,
        sentence="Intra-operator threads on the CPU; torch decides if not set.",
        aliases=("num_threads", "intra_threads"),
    ),
    Knob(
        name="inference_mode",
        kind=bool,
        default=True,
        sentence="Run under torch.inference_mode; false runs under torch.no_grad instead.",
    ),
    BATCH_SIZE,
)
space = ("batch_size=1..32*2", "threads=1..{cores}*2", "precision=fp32,bf16")

_DEVICE = re.compile(r"auto|cpu|mps|(?:cuda|xpu)(?::\d+)?")
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse settings that exclude each other.

    Raises:
        RequestError: the device is unknown, or two settings contradict each other.
        MissingExtra: precision=int8 is set and torchao is not installed.
    """
    device_name = str(config.get("device", "auto"))
    if _DEVICE.fullmatch(device_name) is None:
        raise RequestError(f"The knob device takes auto, cpu, cuda, cuda:N, xpu or mps, not '{device_name}'.")
    if config.get("precision") == "int8":
        plugins.require(("torchao",), "setting precision=int8 of the backend 'torch'")
    _check_device_settings(device_name, config)


def _check_device_settings(kind: str, config: Mapping[str, KnobValue]) -> None:
    """Refuse settings that a kind of device does not support."""
    if kind in {"cpu", "mps"} and config.get("compile") == "reduce-overhead":
        raise RequestError(
            f"compile=reduce-overhead uses CUDA graphs and has no effect on {kind}; use compile=default."
        )
    if kind not in {"auto", "cuda"} and not kind.startswith("cuda:") and "tf32" in config:
        raise RequestError(f"tf32 is a mode of CUDA devices and has no effect on {kind}; leave it out.")
    if kind == "mps" and config.get("precision") == "int8":
        raise RequestError("precision=int8 has no kernels on mps; use fp16, or device=cpu.")


class TorchSession(LocalSession):
    """A module that is ready to be called on the CPU, where a call returns when its work is done."""

    def __init__(self, module: Callable[..., Any], forward: Forward, placement: Placement) -> None:
        import torch  # start-up is part of the product

        self._module = module
        self._forward = forward
        self._placement = placement
        self.device = str(placement.place)
        self.threads = torch.get_num_threads()
        self.converted = ""
        """The precision that the weights were converted to; empty if they were not."""

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Copy the payload to the device and bind it to the module."""
        tensors = {name: self._placement.tensor(array) for name, array in feed.items()}
        args, kwargs = self._forward.arguments(tensors)
        return partial(self._module, *args, **kwargs)

    def arrays(self, output: Any) -> Feed:
        """Return the tensors of the output as arrays; skip other objects, such as caches."""
        return {
            name: _to_numpy(leaf) for name, leaf in finished_leaves(output) if has_attributes(leaf, "detach")
        }

    def layers(self, feed: Feed, named: ModuleFilter) -> AbstractContextManager[Layers]:
        """Time the modules selected by `named` within a call."""
        from modeldyno.engine.backends.torch.layers import watch_modules  # as the others

        return watch_modules(self._module, self.prepare(feed), self._placement.place, named)

    def operators(self, feed: Feed, calls: int, trace: Path | None) -> WatchedCalls:
        """Record the operators of some calls with torch.profiler."""
        from modeldyno.engine.backends.torch.operators import watch_operators  # as the others

        run, place = TorchSession.prepare(self, feed), self._placement.place
        return watch_operators(run, self._module, place, calls, trace)

    def flow(self, feed: Feed) -> DataFlow | None:
        """Record the data flow of a call."""
        from modeldyno.engine.backends.torch.dataflow import record_flow  # as the others

        return record_flow(TorchSession.prepare(self, feed), self._module, self._placement.place)

    def allocations(self, feed: Feed) -> AllocationRecorder:
        """Record what torch's allocator does; a compiled module is not broken down by submodule."""
        from modeldyno.engine.backends.torch.memory import watch_allocations  # as the others

        return watch_allocations(self.prepare(feed), self._module, self._placement, feed)

    def training(self, feeds: Sequence[Feed], optimizer: str) -> AbstractContextManager[Training]:
        """Train a copy of the module, compiled if this one is."""
        from modeldyno.engine.backends.torch.training import train_copy  # as the others

        return train_copy(self._module, self._forward, self._placement, feeds, optimizer)

    def decoding(self, prompt: Feed, tokens: int) -> Decoding:
        """Copy a prompt to the device, for a Transformers model to continue."""
        from modeldyno.engine.backends.torch.generate import prepare_decoding  # as the others

        tensors = {name: self._placement.tensor(array) for name, array in prompt.items()}
        return prepare_decoding(self._module, tensors, tokens)


class DeviceSession(TorchSession):
    """A module on an asynchronous device: a call waits for an event recorded at its end."""

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Bind the payload; a call returns when the device has finished it."""
        import torch  # heavy

        run = super().prepare(feed)
        done = getattr(torch, self._placement.place.type).Event()

        def call() -> Any:
            output = run()
            done.record()
            done.synchronize()
            return output

        return call


class CudaSession(DeviceSession):
    """A module on a CUDA device, whose allocator records its peak."""

    def peak_reserved(self) -> int:
        """Return the peak number of bytes that torch's allocator reserved since the session was opened."""
        import torch  # heavy

        return int(torch.cuda.max_memory_reserved(self._placement.place))


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[TorchSession]:
    """Move, convert and compile the module; on exit restore process-wide settings."""
    check(config)
    _check_values(model)
    device = _resolve_device(str(config.get("device", "auto")))
    _check_device_settings(device.type, config)
    with ExitStack() as stack:
        _set_threads(config, stack)
        _set_tf32(config, stack)
        _enter_device(device, stack)
        converted = _conversion_name(model.value, config)
        module = _in_eval_mode(_move_and_convert(model, config, device), stack)
        _enter_inference_mode(config, stack)
        compiled = _compile(module, config, stack)
        placement = Placement(
            place=device,
            kind=_input_dtype(module, config),
            channels_last=bool(config.get("channels_last")),
        )
        session = _session_class(device)(compiled, Forward.of(module), placement)
        session.converted = converted
        yield session


# --- opening a session ---------------------------------------------------------------------------


def _check_values(model: Model) -> None:
    """Refuse a module whose weights are on torch's meta device: there is nothing to compute with."""
    parameters = getattr(model.value, "named_parameters", tuple)
    if absent := [name for name, tensor in parameters() if tensor.is_meta]:
        raise RequestError(
            f"{model.identity.name} has weights without values, on torch's meta device, such as {absent[0]}; "
            "build it without that device to call it, or `inspect` it, which needs no values."
        )


def record_operators(name: str) -> Callable[[], Callable[[], tuple[Occurrence, ...]]]:
    """Begin to record the operators of a block; return what ends it and gives them."""
    from modeldyno.engine.backends.torch import operators  # rarely needed

    return operators.record_operators(name)


def follow_code(most: int, *, partly: bool = False) -> Callable[[], DataFlow | None]:
    """Begin to record the data flow of a block; return what ends it and gives it."""
    from modeldyno.engine.backends.torch import dataflow  # rarely needed

    return dataflow.follow_code(most, partly=partly)


def device_of(config: Mapping[str, KnobValue]) -> str:
    """Return the device that a session would run on.

    Raises:
        RequestError: it is not there.
    """
    return str(_resolve_device(str(config.get("device", "auto"))))


def _resolve_device(name: str) -> device:
    import torch  # heavy

    accelerators = [name for name in ("cuda", "xpu", "mps") if _is_available(name)]
    if name == "auto":
        name = [*accelerators, "cpu"][0]
    device = torch.device(name)
    if device.type not in {*accelerators, "cpu"}:
        raise RequestError(
            f"The device '{name}' is not available to torch {torch.__version__} here; "
            f"available: {', '.join([*accelerators, 'cpu'])}."
        )
    kind = getattr(torch, device.type)
    if ":" in name and device.index >= kind.device_count():
        raise RequestError(
            f"There is no device '{name}': {device.type} has {kind.device_count()}, numbered from 0."
        )
    if device.type == "cpu":
        return device
    current = kind.current_device() if hasattr(kind, "current_device") else 0
    return torch.device(device.type, device.index if ":" in name else current)


def _is_available(kind: str) -> bool:
    import torch  # heavy

    library: Any = getattr(torch, kind, None)
    return library is not None and bool(library.is_available())


def _set_threads(config: Mapping[str, KnobValue], stack: ExitStack) -> None:
    import torch  # heavy

    if "threads" in config:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(int(config["threads"]))


def _set_tf32(config: Mapping[str, KnobValue], stack: ExitStack) -> None:
    import torch  # heavy

    if "tf32" in config:
        allowed, cudnn = bool(config["tf32"]), torch.backends.cudnn
        stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        stack.callback(setattr, cudnn, "allow_tf32", cudnn.allow_tf32)
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        cudnn.allow_tf32 = allowed


def _enter_device(device: device, stack: ExitStack) -> None:
    import torch  # heavy

    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        stack.enter_context(torch.cuda.device(device))
        torch.cuda.reset_peak_memory_stats(device)


def _enter_inference_mode(config: Mapping[str, KnobValue], stack: ExitStack) -> None:
    """Enter inference mode once for the whole session, so that calls do not pay for it."""
    import torch  # heavy

    if not config.get("inference_mode", True):
        stack.enter_context(torch.no_grad())
        return
    stack.enter_context(torch.inference_mode())
    stack.enter_context(_explaining_gradients())


@contextmanager
def _explaining_gradients() -> Iterator[None]:
    """Say what to do with a model that computes gradients in its forward, as those of forces do."""
    try:
        yield
    except RuntimeError as error:
        if any(phrase in str(error) for phrase in _GRADIENT_ERRORS):
            error.args = (f"{error}; if the model itself computes gradients, set inference_mode to false",)
        raise


_GRADIENT_ERRORS = ("does not require grad", "Inference tensors cannot be saved for backward")


def _in_eval_mode(module: Module, stack: ExitStack) -> Module:
    """Put the module into evaluation mode; on exit each submodule gets its own mode back."""
    in_training = [part for part in module.modules() if part.training]
    if in_training:
        stack.callback(_restore_training_mode, in_training)
        module.eval()
    return module


def _restore_training_mode(parts: list[Module]) -> None:
    for part in parts:
        part.training = True


def _session_class(device: device) -> type[TorchSession]:
    if device.type == "cpu":
        return TorchSession
    return CudaSession if device.type == "cuda" else DeviceSession


# --- conversions ---------------------------------------------------------------------------------


def _move_and_convert(model: Model, config: Mapping[str, KnobValue], device: device) -> Module:
    """Move and convert the module; work on a copy if its owner keeps using it."""
    import torch  # heavy

    module: Module = model.value
    precision = config.get("precision")
    dtype = getattr(torch, _DTYPES[str(precision)]) if precision in _DTYPES else None
    if not _needs_conversion(module, config, device, dtype):
        return module
    if precision == "int8" and isinstance(module, torch.jit.ScriptModule):
        raise RequestError("precision=int8 cannot quantise a TorchScript archive; pass the original module.")
    if model.borrowed:
        module = copy.deepcopy(module)
    module = module.to(device=device, dtype=dtype)
    if config.get("channels_last"):
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stubs lack it alone
    return _quantise(module) if precision == "int8" else module


def _conversion_name(module: Module, config: Mapping[str, KnobValue]) -> str:
    """Return the precision that weights are converted to; empty if nothing is converted."""
    import torch  # heavy

    precision = str(config.get("precision", ""))
    if precision not in _DTYPES:
        return precision
    dtype = getattr(torch, _DTYPES[precision])
    floats = (t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point())
    return precision if any(t.dtype != dtype for t in floats) else ""


def _needs_conversion(
    module: Module, config: Mapping[str, KnobValue], device: device, dtype: dtype | None
) -> bool:
    tensors = [*module.parameters(), *module.buffers()]
    return (
        config.get("precision") == "int8"
        or bool(config.get("channels_last"))
        or any(t.device != device for t in tensors)
        or (dtype is not None and any(t.is_floating_point() and t.dtype != dtype for t in tensors))
    )


def _quantise(module: Module) -> Module:
    """Quantise linear layers to int8 weights and activations, in place."""
    import torch  # heavy

    with quiet():
        from torchao.quantization import (  # optional
            Int8DynamicActivationInt8WeightConfig,
            quantize_,
        )

        if not any(isinstance(part, torch.nn.Linear) for part in module.modules()):
            raise RequestError(
                "precision=int8 quantises linear layers only, and this model has none; use bf16 or fp16."
            )
        quantize_(module, Int8DynamicActivationInt8WeightConfig(), filter_fn=_is_plain_linear)
    return module


def _is_plain_linear(part: Module, _name: str) -> bool:
    """Check whether it is a linear layer that is not quantised yet."""
    import torch  # heavy

    return isinstance(part, torch.nn.Linear) and type(part.weight) in {torch.Tensor, torch.nn.Parameter}


def _input_dtype(module: Module, config: Mapping[str, KnobValue]) -> dtype | None:
    """Return the dtype for floating-point inputs: that of the first floating-point parameter."""
    import torch  # heavy

    precision = config.get("precision")
    if precision in _DTYPES:
        target: dtype = getattr(torch, _DTYPES[str(precision)])
        return target
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), None)


def _compile(module: Module, config: Mapping[str, KnobValue], stack: ExitStack) -> Callable[..., Any]:
    import torch  # heavy

    mode = str(config.get("compile", "off"))
    if mode == "off":
        return module
    if isinstance(module, torch.jit.ScriptModule):
        raise RequestError(f"compile={mode} cannot compile a TorchScript archive; pass the original module.")
    stack.callback(torch.compiler.reset)
    with quiet():  # the compiler is imported here
        compiled: Callable[..., Any] = torch.compile(module, mode=mode)
    return compiled


# --- outputs -------------------------------------------------------------------------------------


def _to_numpy(tensor: Any) -> Any:
    import torch  # heavy

    dense = tensor.detach()
    if dense.is_quantized:
        dense = dense.dequantize()
    if dense.layout is not torch.strided:
        dense = dense.to_dense()
    dense = dense.float() if dense.dtype is torch.bfloat16 else dense
    return dense.cpu().numpy()
