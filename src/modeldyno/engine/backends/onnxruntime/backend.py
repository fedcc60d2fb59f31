"""ONNX Runtime backend: runs ONNX files in this process.

A call is `InferenceSession.run` with explicit output names, or `run_with_iobinding`: what users of ONNX
Runtime call, so its cost is part of the latency. Unset knobs keep ONNX Runtime's defaults: as many threads as
physical cores, which spin while they wait and so keep their cores busy between calls.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.knob import BATCH_SIZE, Knob, count_knob
from modeldyno.engine.backends.onnxruntime import layers as onnxruntime_layers
from modeldyno.engine.backends.onnxruntime import operators as onnxruntime_operators
from modeldyno.engine.backends.onnxruntime.layers import SessionStarter
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.models.interface import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from numpy import ndarray

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.session import Layers
    from modeldyno.engine.trace.op_events import WatchedCalls
    from modeldyno.models.interface import Feed, Model, ModuleFilter

requires = ("onnxruntime",)
accepts = frozenset({Form.ONNX})
knobs = (
    Knob(
        name="device",
        default="cpu",
        sentence="Where to run: cpu, cuda, cuda:1, tensorrt, openvino ..., or an execution provider.",
        aliases=("provider",),
    ),
    count_knob(
        "threads",
        "Intra-operator threads; ONNX Runtime's default is one per physical core.",
        aliases=("intra_threads", "intra_op_num_threads"),
    ),
    count_knob(
        "inter_threads",
        "Inter-operator threads; used with parallel=true only.",
        aliases=("inter_op_num_threads",),
    ),
    Knob(
        name="graph_optimization",
        default="all",
        choices=("disable", "basic", "extended", "all"),
        sentence="How much the graph is optimised before it runs.",
        aliases=("graph_optimization_level",),
    ),
    Knob(
        name="parallel",
        kind=bool,
        default=False,
        sentence="Run independent operators at the same time.",
    ),
    Knob(
        name="spinning",
        kind=bool,
        sentence="Let idle threads spin for work: lower latency, busier cores; ONNX Runtime's default is on.",
    ),
    Knob(
        name="arena",
        kind=bool,
        default=True,
        sentence="Keep freed memory for the next call; if off, each call returns it to the system.",
    ),
    Knob(
        name="io_binding",
        kind=bool,
        default=False,
        sentence="Copy inputs to the device once, before the calls, and leave outputs there.",
    ),
    BATCH_SIZE,
)
space = ("batch_size=1..32*2", "threads=1..{cores}*2")

_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "gpu": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "dnnl": "DnnlExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
    "qnn": "QNNExecutionProvider",
}
_MEMORY_DEVICES = {
    "CUDAExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "cuda",
    "ROCMExecutionProvider": "cuda",
}
"""Provider to the device memory of its bound tensors; all others use host memory."""
_LEVELS = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_DEVICE = re.compile(r"(?P<name>\w+)(?::(?P<index>\d+))?")
_EXTERNAL_WEIGHTS = "session.optimized_model_external_initializers_file_name"
"""Makes a saved graph keep its weights in a separate file: a single file holds at most 2 GiB."""
_STOP_SPINNING = "session.force_spinning_stop"
"""Makes threads stop spinning when a call returns."""
_FATAL = 4
"""ONNX Runtime's log level at which errors are raised but not printed."""


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse an unknown device, and knobs without effect."""
    _provider(str(config.get("device", "cpu")))
    if int(config.get("inter_threads", 1)) > 1 and not config.get("parallel"):
        raise RequestError(
            "The knob inter_threads has no effect without parallel=true; set both, or neither."
        )


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[_Session]:
    """Open a session of ONNX Runtime.

    Raises:
        RequestError: the execution provider is not in this build of ONNX Runtime, or does not start.
    """
    import onnxruntime  # optional, and heavy

    provider, index = _provider(str(config.get("device", "cpu")))
    available = onnxruntime.get_available_providers()
    if provider not in available:
        raise RequestError(
            f"This build of onnxruntime has no {provider}; available: {', '.join(sorted(available))}."
        )
    onnxruntime.set_default_logger_severity(_FATAL)
    if provider in _MEMORY_DEVICES:
        _load_device_libraries(onnxruntime)

    def start(
        profile: str = "", saved: str = "", graph: bytes | None = None, *, resting: bool = False
    ) -> Any:
        options = _session_options(onnxruntime, config)
        if resting:
            options.add_session_config_entry(_STOP_SPINNING, "1")
        if profile:
            options.enable_profiling, options.profile_file_prefix = True, profile
        if saved:
            options.optimized_model_filepath = saved
            options.add_session_config_entry(_EXTERNAL_WEIGHTS, f"{Path(saved).name}.weights")
        providers = [(provider, {"device_id": str(index)} if provider in _MEMORY_DEVICES else {})]
        return onnxruntime.InferenceSession(graph or str(model.value), options, providers=providers)

    session = start()
    if session.get_providers()[0] != provider:
        raise RequestError(
            f"{provider} is in this build of onnxruntime but did not start; check its driver and libraries."
        )
    session.disable_fallback()
    _refuse_bfloat16(session)
    memory = (_MEMORY_DEVICES.get(provider, "cpu"), index)
    session_class = _Session if memory[0] == "cpu" else partial(_DeviceSession, device=device_of(config))
    yield session_class(
        ort=onnxruntime,
        session=session,
        outputs=tuple(output.name for output in session.get_outputs()),
        bound_to=memory if config.get("io_binding") else None,
        spins=_has_spinning_threads(config) and provider == _PROVIDERS["cpu"],
        start=start,
        path=Path(model.value),
    )


@dataclass(frozen=True, slots=True)
class _Session(LocalSession):
    ort: Any
    session: Any
    outputs: tuple[str, ...]
    bound_to: tuple[str, int] | None
    """Device and index of the memory that inputs and outputs are bound to; None without binding."""
    spins: bool
    """Whether it has host threads that keep spinning for a while after a call."""
    start: SessionStarter
    path: Path
    """The model's file."""

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Make the arrays contiguous, so that a call makes no avoidable copies, and bind them."""
        import numpy as np  # slow to import

        dense = {name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in feed.items()}
        if self.bound_to is not None:
            return self._prepare_bound(dense, *self.bound_to)
        values = {name: self._run_argument(array) for name, array in dense.items()}
        return partial(self.session.run, list(self.outputs), values)

    def arrays(self, output: Any) -> Feed:
        """Return the outputs by name; sequences and maps are flattened into one array per entry."""
        if self.bound_to is not None:
            output = output.copy_outputs_to_cpu()
        return dict(
            pair
            for name, value in zip(self.outputs, output, strict=True)
            for pair in _named_arrays(name, value)
        )

    def layers(self, feed: Feed, named: ModuleFilter) -> AbstractContextManager[Layers]:
        """Time the nodes in a second session, with ONNX Runtime's own profiler."""

        def prepare(session: Any) -> Callable[[], Any]:
            return replace(self, session=session).prepare(feed)

        provider = self.session.get_providers()[0]
        return onnxruntime_layers.watch_nodes(
            self.start, prepare, self.path, named, device=provider, usual=None if self.spins else self.session
        )

    def operators(self, feed: Feed, calls: int, trace: Path | None) -> WatchedCalls:
        """Record the nodes of some calls in a second session, with ONNX Runtime's own profiler."""

        def start(profile: str) -> tuple[Callable[[], Any], Callable[[], str]]:
            session = self.start(profile)
            return replace(self, session=session).prepare(feed), session.end_profiling

        return onnxruntime_operators.watch_operators(start, calls, trace)

    def _prepare_bound(self, feed: Feed, device: str, index: int) -> Callable[[], Any]:
        text = [name for name, array in feed.items() if array.dtype.kind in "OUS"]
        if text:
            raise RequestError(
                f"The knob io_binding does not support text, and input '{text[0]}' is text; leave it off."
            )
        binding = self.session.io_binding()
        for name, array in feed.items():
            binding.bind_ortvalue_input(name, self._ort_value(array, device, index))
        for name in self.outputs:
            binding.bind_output(name, device, index)
        run = self.session.run_with_iobinding

        def call() -> Any:
            run(binding)
            return binding

        return call

    def _run_argument(self, array: ndarray) -> Any:
        """Return what `run` takes: the array itself, or an OrtValue for bfloat16, which NumPy lacks."""
        return self._ort_value(array, "cpu", 0) if array.dtype.name == "bfloat16" else array

    def _ort_value(self, array: ndarray, device: str, index: int) -> Any:
        if array.dtype.name == "bfloat16":
            bits = array.view("uint16")
            return self.ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _BFLOAT16)
        return self.ort.OrtValue.ortvalue_from_numpy(array, device, index)


@dataclass(frozen=True, slots=True)
class _DeviceSession(_Session):
    device: str
    """Such as ``cuda:0``."""


def device_of(config: Mapping[str, KnobValue]) -> str:
    """Return the device whose memory a session would use: ``cpu``, or ``cuda:0`` and so on."""
    provider, index = _provider(str(config.get("device", "cpu")))
    memory = _MEMORY_DEVICES.get(provider, "cpu")
    return memory if memory == "cpu" else f"{memory}:{index}"


_BFLOAT16 = 16
"""TensorProto.BFLOAT16."""


def _load_device_libraries(ort: Any) -> None:
    """Load the libraries of CUDA that pip installed, which lie where no loader looks for them."""
    if preload := getattr(ort, "preload_dlls", None):
        with redirect_stdout(StringIO()):  # it prints which of them it did not find
            preload()


def _provider(device: str) -> tuple[str, int]:
    """Parse ``cuda:1`` or ``CUDAExecutionProvider`` into a provider and a device index."""
    match = _DEVICE.fullmatch(device.strip())
    name = match["name"] if match else device
    exact = {provider.lower(): provider for provider in _PROVIDERS.values()}
    provider = _PROVIDERS.get(name.lower()) or exact.get(name.lower())
    if provider is None and name.endswith("ExecutionProvider"):
        provider = name
    if match is None or provider is None:
        raise UnknownName.among("device", device, _PROVIDERS)
    return provider, int(match["index"] or 0)


def _refuse_bfloat16(session: Any) -> None:
    for output in session.get_outputs():
        if output.type == "tensor(bfloat16)":
            raise RequestError(
                f"The output '{output.name}' is bfloat16, which ONNX Runtime cannot return to Python; "
                "export the model with a cast to float32 at its end."
            )


def _allowed_threads() -> int:
    """Return the number of cores that this process may use; 0, the runtime's default, if it may use all.

    The runtime's default pins each thread to a core, also to those excluded by this process's affinity.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return 0 if allowed == os.cpu_count() else allowed


def _has_spinning_threads(config: Mapping[str, KnobValue]) -> bool:
    """Check whether there are threads besides the caller's that spin, as they do by default."""
    single_threaded = config.get("threads") == 1 and not config.get("parallel")
    return bool(config.get("spinning", True)) and not single_threaded


def _session_options(ort: Any, config: Mapping[str, KnobValue]) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL
    options.intra_op_num_threads = int(config.get("threads", _allowed_threads()))
    options.inter_op_num_threads = int(config.get("inter_threads", 0))
    level = _LEVELS[str(config.get("graph_optimization", "all"))]
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    mode = "ORT_PARALLEL" if config.get("parallel") else "ORT_SEQUENTIAL"
    options.execution_mode = getattr(ort.ExecutionMode, mode)
    options.enable_cpu_mem_arena = bool(config.get("arena", True))
    if "spinning" in config:
        for pool in ("intra_op", "inter_op"):
            options.add_session_config_entry(f"session.{pool}.allow_spinning", str(int(config["spinning"])))
    return options


def _named_arrays(name: str, value: Any) -> Iterator[tuple[str, ndarray]]:
    import numpy as np  # slow to import

    if isinstance(value, dict):
        yield f"{name}.keys", np.asarray(list(value))
        yield f"{name}.values", np.asarray(list(value.values()))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _named_arrays(f"{name}.{index}", item)
    else:
        yield name, np.asarray(value)
