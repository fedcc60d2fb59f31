"""TensorRT backend: runs engines of TensorRT and of TensorRT for RTX on an NVIDIA GPU, in this process.

A call copies the inputs to the GPU, runs the engine, copies the outputs back, and waits for them: what a
caller with arrays in host memory has to do. Memory on the GPU is allocated by the first call of each size.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import CannotRunHere, MissingExtra, RequestError
from modeldyno.base.job.knob import BATCH_SIZE, Knob
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.models import tensorrt_engine
from modeldyno.models.interface import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.models.interface import Feed, Model
    from modeldyno.models.tensorrt_engine import Package

requires = ("cuda",)
accepts = frozenset({Form.TENSORRT})
knobs = (
    Knob(name="device", default="cuda", sentence="Which GPU to run on: cuda, or cuda:1."),
    BATCH_SIZE,
)
space = ("batch_size=1..32*2",)

_DEVICE = re.compile(r"(?:cuda|gpu)(?::(?P<index>\d+))?", re.IGNORECASE)
_ALIGNMENT = 256
"""Bytes that an empty tensor still gets: TensorRT takes no null address."""


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse a device that is no GPU."""
    device_index(config)


def device_of(config: Mapping[str, KnobValue]) -> str:
    """Return the device of a session, such as ``cuda:0``."""
    return f"cuda:{device_index(config)}"


def device_index(config: Mapping[str, KnobValue]) -> int:
    """Return the number of the GPU of a configuration."""
    device = str(config.get("device", "cuda"))
    match = _DEVICE.fullmatch(device.strip())
    if match is None:
        raise RequestError(f"The knob device takes a GPU, such as cuda or cuda:1, not '{device}'.")
    return int(match["index"] or 0)


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[TensorRtSession]:
    """Read the engine on the GPU.

    Raises:
        CannotRunHere: there is no such GPU, or the engine was built for another one or another version.
        MissingExtra: the package that built it is not installed.
    """
    name = tensorrt_engine.package_of(model.value)
    if name is None:
        raise RequestError(f"'{model.value}' is no engine of TensorRT, or is damaged; build it again.")
    plugins.require((name,), f"engine {model.value}")
    memory, index = _Memory(), device_index(config)
    if (count := memory.devices()) <= index:
        here = f"this machine has {count} of them, without cuda:{index}" if count else "there is none here"
        raise CannotRunHere(f"TensorRT runs an engine on an NVIDIA GPU, and {here}.")
    with ExitStack() as stack:
        memory.use(index)
        stack.callback(memory.free)
        package = tensorrt_engine.import_package(name)
        package.log.messages.clear()
        engine = package.api.Runtime(package.log).deserialize_cuda_engine(model.value.read_bytes())
        context = None if engine is None else engine.create_execution_context()
        if context is None:
            raise CannotRunHere(
                f"{package.name} cannot run {model.value} on this GPU: {package.last_error()}; an engine is "
                "for the GPU and the version that built it: build it again here."
            )
        yield TensorRtSession(package, engine, context, memory, device=device_of(config))


class TensorRtSession(LocalSession):
    """An engine with its memory on the GPU."""

    def __init__(self, package: Package, engine: Any, context: Any, memory: _Memory, *, device: str) -> None:
        self.device = device
        self._package, self._engine, self._context, self._memory = package, engine, context, memory
        names = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
        taken = package.api.TensorIOMode.INPUT
        self._inputs = [name for name in names if engine.get_tensor_mode(name) == taken]
        self._outputs = [name for name in names if engine.get_tensor_mode(name) != taken]
        self._dtypes = {name: self._dtype(name) for name in names}
        self._shapes: dict[str, tuple[int, ...]] | None = None
        self._results: Feed = {}

    def prepare(self, feed: Feed) -> Callable[[], Feed]:
        """Give the inputs the engine's dtypes; a call returns the outputs, which the next call overwrites."""
        import numpy as np  # slow to import

        if unknown := feed.keys() - set(self._inputs):
            raise RequestError(
                f"The engine has no input '{min(unknown)}'; it takes {', '.join(self._inputs)}."
            )
        arrays = {
            name: np.array(array, self._dtypes[name], order="C", copy=None) for name, array in feed.items()
        }
        if lacking := [name for name in self._inputs if name not in arrays]:
            raise RequestError(f"The engine takes an input '{lacking[0]}', which was not given.")
        return partial(self._run, arrays, {name: array.shape for name, array in arrays.items()})

    def arrays(self, output: Feed) -> Feed:
        """Return copies of the outputs by name."""
        return {name: array.copy() for name, array in output.items()}

    def _run(self, arrays: Feed, shapes: dict[str, tuple[int, ...]]) -> Feed:
        if shapes != self._shapes:
            self._plan(arrays, shapes)
        memory = self._memory
        for name, array in arrays.items():
            memory.copy_in(name, array)
        if not self._context.execute_async_v3(memory.stream):
            raise RuntimeError(f"{self._package.name} failed: {self._package.last_error()}")
        for name, array in self._results.items():
            memory.copy_out(name, array)
        memory.wait()
        return self._results

    def _plan(self, arrays: Feed, shapes: dict[str, tuple[int, ...]]) -> None:
        """Set the sizes of the inputs, and get memory for them and for the outputs.

        Raises:
            RequestError: the engine does not take these sizes.
        """
        import numpy as np  # slow to import

        self._shapes = None
        for name, shape in shapes.items():
            if not self._context.set_input_shape(name, shape):
                raise RequestError(
                    f"The engine was built for {self._accepted_sizes(name)} of '{name}', not for "
                    f"{_sizes(shape)}; build it again for that size."
                )
        results: Feed = {}
        for name in self._outputs:
            shape = tuple(self._context.get_tensor_shape(name))
            if min(shape, default=0) < 0:
                raise RequestError(
                    f"The size of the output '{name}' depends on the values of the inputs, which is not "
                    "supported."
                )
            results[name] = np.empty(shape, self._dtypes[name])
        for name, array in (*arrays.items(), *results.items()):
            self._context.set_tensor_address(name, self._memory.reserve(name, max(array.nbytes, _ALIGNMENT)))
        self._results, self._shapes = results, shapes

    def _accepted_sizes(self, name: str) -> str:
        smallest, _, largest = self._engine.get_tensor_profile_shape(name, 0)
        return f"sizes from {_sizes(smallest)} to {_sizes(largest)}"

    def _dtype(self, name: str) -> str:
        dtype = self._engine.get_tensor_dtype(name).name
        if dtype not in tensorrt_engine.DTYPES:
            raise RequestError(
                f"'{name}' is {dtype}, which NumPy lacks; build the engine with a cast to FLOAT at it."
            )
        return tensorrt_engine.DTYPES[dtype]


def _sizes(shape: Any) -> str:
    return "x".join(map(str, shape)) or "a single number"


class _Memory:
    """Memory of a GPU by name, and a stream, by the runtime library of CUDA."""

    def __init__(self) -> None:
        try:
            runtime = import_module("cuda.bindings.runtime")  # without types
        except ModuleNotFoundError as error:  # another package, or a folder, has the name cuda
            raise MissingExtra(plugins.missing_message(requires, "backend 'tensorrt'")) from error
        self._runtime = runtime
        self._to_gpu = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._to_host = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._places: dict[str, tuple[int, int]] = {}
        self.stream = 0

    def devices(self) -> int:
        """Count the GPUs; 0 without a driver."""
        error, count = self._runtime.cudaGetDeviceCount()
        return 0 if int(error) else int(count)

    def use(self, index: int) -> None:
        """Choose the GPU, and make the stream on it."""
        self._do("cudaSetDevice", index)
        self.stream = int(self._do("cudaStreamCreate"))

    def reserve(self, name: str, size: int) -> int:
        """Return an address with room for that many bytes."""
        address, room = self._places.get(name, (0, 0))
        if room < size:
            if address:
                self._do("cudaFree", address)
                del self._places[name]
            address = int(self._do("cudaMalloc", size))
            self._places[name] = address, size
        return address

    def copy_in(self, name: str, array: Any) -> None:
        """Copy an array to the place of that name."""
        address = self._places[name][0]
        self._do("cudaMemcpyAsync", address, array.ctypes.data, array.nbytes, self._to_gpu, self.stream)

    def copy_out(self, name: str, array: Any) -> None:
        """Copy from the place of that name into an array."""
        address = self._places[name][0]
        self._do("cudaMemcpyAsync", array.ctypes.data, address, array.nbytes, self._to_host, self.stream)

    def wait(self) -> None:
        """Wait for all that was ordered."""
        self._do("cudaStreamSynchronize", self.stream)

    def free(self) -> None:
        """Give everything back."""
        for address, _ in self._places.values():
            self._runtime.cudaFree(address)
        self._places.clear()
        self._runtime.cudaStreamDestroy(self.stream)

    def _do(self, function: str, *arguments: Any) -> Any:
        error, *values = getattr(self._runtime, function)(*arguments)
        if int(error):
            _, message = self._runtime.cudaGetErrorString(error)
            text = message.decode() if isinstance(message, bytes) else str(message)
            raise RuntimeError(f"{function}: {text}")
        return values[0] if values else None
