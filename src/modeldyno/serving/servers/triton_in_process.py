"""Triton Inference Server within this process, by its C API: no network between the requests and a model."""

from __future__ import annotations

import ctypes
import json
from contextlib import contextmanager, suppress
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.base.system.variables import variables_set
from modeldyno.models.interface import Feed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from modeldyno.serving.servers.triton import TritonProgram

_ALLOCATE = ctypes.CFUNCTYPE(
    c_void_p, c_void_p, c_char_p, c_size_t, c_int, c_int64, c_void_p,
    POINTER(c_void_p), POINTER(c_void_p), POINTER(c_int), POINTER(c_int64),
)  # fmt: skip
_FREE = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int64)
_NOTIFY = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_void_p)
_DTYPES = (
    "", "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64",
)  # fmt: skip
"""NumPy's names of TRITONSERVER_DataType, by number."""
_FINAL = 1
_EXPLICIT = 2
"""TRITONSERVER_ModelControlMode in which models are loaded one by one: a failure then has its reason."""
_EXIT_SECONDS = 5
_started: list[str] = []
"""The program whose library has run a server in this process; another one may never load its model."""


@dataclass(slots=True)
class _Pending:
    """A request whose response is awaited."""

    done: Any
    """A lock that is held until the response is complete."""
    outputs: Feed = field(default_factory=dict)
    error: str = ""


class InProcessTriton:
    """A server of one repository, whose models are called by threads of this process."""

    def __init__(self, library: ctypes.CDLL, repository: Path, backends: Path) -> None:
        """Start the server without a model.

        Raises:
            RuntimeError: it does not start.
        """
        self._library = library
        library.TRITONSERVER_ErrorMessage.restype = c_char_p
        self._pending: dict[int, _Pending] = {}
        self._buffers: dict[int, Any] = {}
        self._numbers = count(1)
        self._server, options, self._allocator = c_void_p(), c_void_p(), c_void_p()
        self._allocate, self._free = _ALLOCATE(self._give_buffer), _FREE(self._take_buffer)
        self._released, self._responded = _NOTIFY(self._delete_request), _NOTIFY(self._take_response)
        self._call("ServerOptionsNew", byref(options))
        self._call("ServerOptionsSetModelRepositoryPath", options, str(repository).encode())
        self._call("ServerOptionsSetBackendDirectory", options, str(backends).encode())
        prefix = (b"python", b"shm-region-prefix-name", repository.parent.name.encode())
        self._call("ServerOptionsSetBackendConfig", options, *prefix)
        self._call("ServerOptionsSetLogInfo", options, c_bool(False))
        self._call("ServerOptionsSetLogWarn", options, c_bool(False))
        self._call("ServerOptionsSetModelControlMode", options, c_int(_EXPLICIT))
        self._call("ServerOptionsSetExitTimeout", options, c_uint32(_EXIT_SECONDS))
        self._call("ServerNew", byref(self._server), options)
        self._call("ServerOptionsDelete", options)
        self._call("ResponseAllocatorNew", byref(self._allocator), self._allocate, self._free, None)

    def load(self, name: str) -> None:
        """Load a model of the repository, and those that an ensemble is made of.

        Raises:
            RuntimeError: it cannot be loaded; the message is Triton's.
        """
        self._call("ServerLoadModel", self._server, name.encode())

    def close(self) -> None:
        """Unload the models, and end the server."""
        with suppress(RuntimeError):  # it was slow to unload a model, which ends with this process
            self._call("ServerStop", self._server)
        self._call("ServerDelete", self._server)
        self._call("ResponseAllocatorDelete", self._allocator)

    def prepare(self, name: str, feed: Feed) -> Callable[[], Feed]:
        """Return a function that sends a request to a model and returns its outputs by name.

        It raises RuntimeError if the server refuses the request or the model fails.

        Raises:
            RequestError: an input has a dtype that cannot be sent.
        """
        import numpy as np  # slow to import

        inputs = []
        for key, array in feed.items():
            if array.dtype.name not in _DTYPES:
                raise RequestError(
                    f"launch=in-process sends numbers, and input '{key}' is {array.dtype.name}."
                )
            dense = np.ascontiguousarray(array).reshape(np.shape(array))
            shape = (c_int64 * dense.ndim)(*dense.shape)
            inputs.append((key.encode(), _DTYPES.index(dense.dtype.name), shape, dense))

        def send() -> Feed:
            request, number = c_void_p(), next(self._numbers)
            self._call("InferenceRequestNew", byref(request), self._server, name.encode(), c_int64(-1))
            for key, dtype, shape, dense in inputs:
                dimensions = c_uint64(dense.ndim)
                self._call("InferenceRequestAddInput", request, key, c_int(dtype), shape, dimensions)
                data, size = c_void_p(dense.ctypes.data), c_size_t(dense.nbytes)
                self._call("InferenceRequestAppendInputData", request, key, data, size, c_int(0), c_int64(0))
            self._call("InferenceRequestSetReleaseCallback", request, self._released, None)
            taker = (self._allocator, None, self._responded, c_void_p(number))
            self._call("InferenceRequestSetResponseCallback", request, *taker)
            pending = self._pending[number] = _Pending(Lock())
            pending.done.acquire()
            try:
                self._call("ServerInferAsync", self._server, request, None)
            except RuntimeError:  # it was not taken, so nobody else deletes it
                self._call("InferenceRequestDelete", request)
                del self._pending[number]
                raise
            pending.done.acquire()
            del self._pending[number]
            if pending.error:
                raise RuntimeError(pending.error)
            return pending.outputs

        return send

    def statistics(self, name: str) -> Mapping[str, Any]:
        """Return the statistics of a model, as the server's HTTP interface has them."""
        document: Mapping[str, Any] = self._read("ServerModelStatistics", name.encode(), c_int64(-1))
        return document

    def version(self) -> str:
        """Return the version of the server."""
        return str(self._read("ServerMetadata").get("version", ""))

    def _read(self, function: str, *arguments: Any) -> Any:
        message, text, size = c_void_p(), c_void_p(), c_size_t()
        self._call(function, self._server, *arguments, byref(message))
        try:
            self._call("MessageSerializeToJson", message, byref(text), byref(size))
            return json.loads(ctypes.string_at(text.value or 0, size.value))
        finally:
            self._call("MessageDelete", message)

    def _call(self, function: str, *arguments: Any) -> None:
        entry = getattr(self._library, f"TRITONSERVER_{function}")
        entry.restype = c_void_p
        if error := entry(*arguments):
            raise RuntimeError(self._message(error))

    def _message(self, error: int) -> str:
        text: bytes = self._library.TRITONSERVER_ErrorMessage(c_void_p(error))
        return text.decode(errors="replace")

    # What the server calls, in its own threads; an exception could not reach anyone.

    def _give_buffer(
        self, _allocator: Any, _name: Any, size: int, _kind: Any, _device: Any, _user: Any,
        buffer: Any, _buffer_user: Any, kind: Any, device: Any,
    ) -> None:  # fmt: skip
        memory = ctypes.create_string_buffer(max(1, size))
        self._buffers[ctypes.addressof(memory)] = memory
        buffer[0], kind[0], device[0] = ctypes.addressof(memory), 0, 0

    def _take_buffer(
        self, _allocator: Any, buffer: int, _user: Any, _size: Any, _kind: Any, _device: Any
    ) -> None:
        self._buffers.pop(buffer, None)

    def _delete_request(self, request: int, _flags: int, _user: Any) -> None:
        self._call("InferenceRequestDelete", c_void_p(request))

    def _take_response(self, response: int | None, flags: int, number: int) -> None:
        pending = self._pending[number]
        try:
            if response:
                self._read_response(c_void_p(response), pending)
        except Exception as error:  # noqa: BLE001 - the thread is the server's
            pending.error = str(error)
        finally:
            if flags & _FINAL:
                pending.done.release()

    def _read_response(self, response: c_void_p, pending: _Pending) -> None:
        import numpy as np  # slow to import

        try:
            self._call("InferenceResponseError", response)
            outputs = c_uint32()
            self._call("InferenceResponseOutputCount", response, byref(outputs))
            for index in range(outputs.value):
                name, dtype, shape, rank = c_char_p(), c_int(), POINTER(c_int64)(), c_uint64()
                base, size, kind, device, user = c_void_p(), c_size_t(), c_int(), c_int64(), c_void_p()
                self._call(
                    "InferenceResponseOutput", response, c_uint32(index), byref(name), byref(dtype),
                    byref(shape), byref(rank), byref(base), byref(size), byref(kind), byref(device),
                    byref(user),
                )  # fmt: skip
                if not 0 < dtype.value < len(_DTYPES):
                    continue  # text
                raw = ctypes.string_at(base.value or 0, size.value)
                array = np.frombuffer(raw, _DTYPES[dtype.value]).reshape(shape[: rank.value])
                pending.outputs[(name.value or b"").decode()] = array
        finally:
            self._call("InferenceResponseDelete", response)


@contextmanager
def run_in_process(program: TritonProgram, repository: Path) -> Iterator[InProcessTriton]:
    """Run the server of a program's installation in this process.

    Raises:
        MissingExtra: the installation has no library for it.
        RequestError: one has run in this process before.
        RuntimeError: the server does not start.
    """
    if _started:
        raise RequestError(
            "Triton has run in this process before, and hangs if it is started again; start it in another "
            "process, as without inline=True, or omit launch=in-process."
        )
    library = _load_library(program)
    _started.append(program.path)
    with variables_set(program.environment):  # for the processes of the Python backend
        server = InProcessTriton(library, repository, program.backends)
        try:
            yield server
        finally:
            server.close()


def _load_library(program: TritonProgram) -> ctypes.CDLL:
    folder = Path(program.path).resolve().parent.parent
    packaged = folder.parent.parent / "nvidia_pytriton.libs"
    libraries = [*(folder / "lib").glob("libtritonserver.so"), *packaged.glob("libtritonserver-*.so")]
    if not libraries:
        raise MissingExtra(
            f"There is no libtritonserver.so beside {program.path}; install one with it: modeldyno engine "
            "install triton, or omit launch."
        )
    if libraries[0].parent == packaged:
        _preload([path for path in packaged.glob("*.so*") if path != libraries[0]])
    try:
        return ctypes.CDLL(str(libraries[0]), mode=ctypes.RTLD_GLOBAL)  # its backends look for it
    except OSError as error:
        raise RequestError(f"{libraries[0].name} cannot be loaded into this process: {error}.") from error


def _preload(libraries: list[Path]) -> None:
    """Load libraries that need each other, which the dynamic linker would not look for in their folder."""
    while libraries:
        left = [path for path in libraries if not _is_loadable(path)]
        if len(left) == len(libraries):
            return
        libraries = left


def _is_loadable(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path))
    except OSError:
        return False
    return True
