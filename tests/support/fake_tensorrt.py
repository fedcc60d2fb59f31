"""A TensorRT and a CUDA of this process: engines add 1 to what they are given, in memory of the host."""

# ruff: noqa: D102, N815 - the names and the meaning are those of TensorRT and of CUDA

from __future__ import annotations

import ctypes
import json
import sys
from enum import IntEnum
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from modeldyno.models import tensorrt_engine

if TYPE_CHECKING:
    import pytest

Severity = IntEnum("Severity", ["INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"], start=0)
DataType = IntEnum(
    "DataType", ["FLOAT", "HALF", "INT8", "INT32", "BOOL", "UINT8", "FP8", "BF16", "INT64"], start=0
)
TensorIOMode = IntEnum("TensorIOMode", ["NONE", "INPUT", "OUTPUT"], start=0)
Flag = IntEnum("Flag", ["FP16", "INT8", "TF32"], start=0)
_NUMPY = {"FLOAT": "float32", "INT32": "int32", "BF16": "uint16"}


class Logger:
    """What users of the package write to."""

    Severity = Severity

    def __init__(self) -> None: ...


def engine_bytes(*, dtype: str = "FLOAT", largest: int = 32, output: tuple[int, ...] = (-1, 4)) -> bytes:
    """Return an engine of one input ``x`` of rows of four numbers, and one output ``y``."""
    return b"ftrt" + json.dumps({"dtype": dtype, "largest": largest, "output": output}).encode()


class Engine:
    """What the runtime reads."""

    num_io_tensors = 2

    def __init__(self, described: dict[str, Any], cuda: FakeCuda) -> None:
        self.described, self._cuda = described, cuda

    def get_tensor_name(self, number: int) -> str:
        return "xy"[number]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name == "x" else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[self.described["dtype"]]

    def get_tensor_profile_shape(self, name: str, profile: int) -> tuple[tuple[int, ...], ...]:
        return (1, 4), (8, 4), (self.described["largest"], 4)

    def create_execution_context(self) -> Context:
        return Context(self, self._cuda)


class Context:
    """What calls the engine."""

    def __init__(self, engine: Engine, cuda: FakeCuda) -> None:
        self._engine, self._cuda = engine, cuda
        self._shape: tuple[int, ...] = (0, 4)
        self._places: dict[str, int] = {}

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        accepted = len(shape) == 2 and shape[0] <= self._engine.described["largest"] and shape[1] == 4
        if accepted:
            self._shape = tuple(shape)
        return accepted

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        output = self._engine.described["output"]
        return (self._shape[0], *output[1:]) if output[0] == -1 else tuple(output)

    def set_tensor_address(self, name: str, address: int) -> None:
        self._places[name] = address

    def execute_async_v3(self, stream: int) -> bool:
        if self._cuda.broken:
            return False
        dtype = np.dtype(_NUMPY[self._engine.described["dtype"]])
        taken, given = (
            self._cuda.at(self._places[name], self._shape[0] * 4 * dtype.itemsize).view(dtype)
            for name in "xy"
        )
        given[:] = taken + dtype.type(1)
        return True


class FakeCuda(ModuleType):
    """The runtime library of CUDA, whose GPUs have the host's memory."""

    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)

    def __init__(self) -> None:
        super().__init__("cuda.bindings.runtime")
        self.count, self.broken, self.device = 1, False, -1
        self.room = 1 << 20
        self.places: dict[int, Any] = {}

    def at(self, address: int, size: int) -> Any:
        """Return the bytes at an address."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def cudaGetDeviceCount(self) -> tuple[int, int]:
        return (0, self.count) if self.count else (100, 0)

    def cudaGetErrorString(self, error: int) -> tuple[int, bytes]:
        return 0, b"out of memory"

    def cudaSetDevice(self, index: int) -> tuple[int]:
        self.device = index
        return (0,)

    def cudaStreamCreate(self) -> tuple[int, int]:
        return 0, 7

    def cudaStreamDestroy(self, stream: int) -> tuple[int]:
        return (0,)

    def cudaStreamSynchronize(self, stream: int) -> tuple[int]:
        return (0,)

    def cudaMalloc(self, size: int) -> tuple[int, int]:
        if size > self.room:
            return 2, 0
        place = ctypes.create_string_buffer(size)
        self.places[ctypes.addressof(place)] = place
        return 0, ctypes.addressof(place)

    def cudaFree(self, address: int) -> tuple[int]:
        del self.places[address]
        return (0,)

    def cudaMemcpyAsync(self, to: int, at: int, size: int, kind: int, stream: int) -> tuple[int]:
        ctypes.memmove(to, at, size)
        return (0,)


class FakeBuilder:
    """Remembers what the last of its kind was told: sizes and flags."""

    last: ClassVar[FakeBuilder]
    here: ClassVar[bool] = True
    """Whether there is a GPU."""
    fails: ClassVar[bool] = False
    shape: ClassVar[tuple[int, ...]] = (-1, 4)

    def __init__(self, logger: Any) -> None:
        if not type(self).here:
            logger.log(Severity.WARNING, "CUDA initialization failure")
            raise TypeError("factory function returned nullptr")
        type(self).last = self
        self.logger = logger
        self.sizes: dict[str, tuple[Any, ...]] = {}
        self.flags: set[Flag] = {Flag.TF32}

    def build_serialized_network(self, network: Any, settings: Any) -> bytes | None:
        if type(self).fails:
            self.logger.log(Severity.ERROR, "no implementation found")
            return None
        return engine_bytes()

    def create_network(self, flags: int) -> Any:
        tensor = SimpleNamespace(name="x", shape=type(self).shape)
        return SimpleNamespace(num_inputs=1, get_input=lambda _number: tensor)

    def create_builder_config(self) -> Any:
        return SimpleNamespace(
            set_flag=self.flags.add,
            clear_flag=self.flags.discard,
            add_optimization_profile=lambda _profile: 0,
        )

    def create_optimization_profile(self) -> Any:
        return SimpleNamespace(set_shape=lambda name, *sizes: self.sizes.update({name: sizes}))


class FakeParser:
    """Accepts every graph, unless it is given errors."""

    errors: ClassVar[list[Any]] = []

    def __init__(self, network: Any, logger: Any) -> None: ...

    @property
    def num_errors(self) -> int:
        return len(type(self).errors)

    def get_error(self, number: int) -> Any:
        return type(self).errors[number]

    def parse_from_file(self, path: str) -> bool:
        return Path(path).is_file() and not self.errors


def parser_error(node: int, code: str, text: str) -> Any:
    """Return an error of the parser."""
    return SimpleNamespace(node=lambda: node, code=lambda: code, desc=lambda: text)


def install(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """Make both importable, as if they were installed; return the CUDA."""
    cuda = FakeCuda()
    bindings, parent = ModuleType("cuda.bindings"), ModuleType("cuda")
    bindings.runtime = cuda  # type: ignore[attr-defined]
    parent.bindings = bindings  # type: ignore[attr-defined]
    package = ModuleType("tensorrt")
    package.__dict__.update(
        ILogger=Logger, TensorIOMode=TensorIOMode, BuilderFlag=Flag, __version__="10.0.1",
        NetworkDefinitionCreationFlag=SimpleNamespace(EXPLICIT_BATCH=0), Builder=FakeBuilder,
        OnnxParser=FakeParser,
    )  # fmt: skip

    class Runtime:
        def __init__(self, logger: Any) -> None:
            self._logger = logger

        def deserialize_cuda_engine(self, content: bytes) -> Engine | None:
            try:
                return Engine(json.loads(content[4:]), cuda)
            except ValueError:
                self._logger.log(Severity.WARNING, "Something is odd.")
                self._logger.log(Severity.ERROR, "The engine plan file is of\nanother version.")
                return None

    package.Runtime = Runtime  # type: ignore[attr-defined]
    for module in (parent, bindings, cuda, package):
        module.__spec__ = ModuleSpec(module.__name__, None)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    tensorrt_engine.import_package.cache_clear()
    return cuda


def write_engine(path: Path, **described: Any) -> Path:
    """Write an engine, and return its path."""
    path.write_bytes(engine_bytes(**described))
    return path
