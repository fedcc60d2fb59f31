"""``tflite:m.tflite``: a model of TensorFlow Lite, read as data; its operators are not counted.

The file is a flatbuffer (schema.fbs of TensorFlow Lite, version 3), of which only tensors and signatures are
read. A parameter is a stored tensor of floats, or of integers with a scale; shapes and indices are buffers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.adapters.loaders import digest
from modeldyno.core.spec.input_spec import BATCH, InputSpec
from modeldyno.core.spec.model_ref import ModelIdentity
from modeldyno.core.static.graph import Tensor
from modeldyno.core.static.weights import Weight
from modeldyno.errors import RequestError
from modeldyno.interfaces.load_stages import describing
from modeldyno.interfaces.loader import Executes, Form, Model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.spec.model_ref import ModelRef

requires: tuple[str, ...] = ()
tools: tuple[str, ...] = ()
executes = Executes.NOTHING
backend = "tflite"

_MARK = b"TFL3"
_DTYPES = (
    "float32", "float16", "int32", "uint8", "int64", "string", "bool", "int16", "complex64", "int8",
    "float64", "complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4", "bfloat16",
)  # fmt: skip
"""By the number of TensorType."""
_RANGES = {"uint8": (0, 255), "int8": (-128, 127)}
_ANY_INTEGER = (0, 9)

_SUBGRAPHS, _BUFFERS, _SIGNATURES = 2, 4, 7  # fields of Model
_TENSORS, _INPUTS = 0, 1  # of SubGraph
_SHAPE, _TYPE, _BUFFER, _NAME, _QUANTIZATION, _SIGNATURE_SHAPE = 0, 1, 2, 3, 4, 7  # of Tensor
_SCALE = 2  # of QuantizationParameters
_DATA, _OUTSIDE_SIZE = 0, 2  # of Buffer


def claims(path: Path) -> bool:
    """Claim a file by the mark that follows its first four bytes."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(8)[4:] == _MARK
    except OSError:
        return False


@describing()
def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Read the tensors of the file.

    Raises:
        RequestError: the file is missing, damaged, or has another format.
    """
    del seed, trust  # nothing in it is random, and nothing is executed
    path = Path(ref.locator)
    if not path.is_file():
        raise RequestError(f"There is no file '{path}'; give the path of a .tflite file.")
    data = path.read_bytes()
    try:
        root = _root(data)
        inputs, weights = tuple(_inputs(root)), tuple(_weights(root))
    except (ValueError, LookupError, struct.error) as error:
        raise RequestError(
            f"'{path}' is no model of TensorFlow Lite, or is damaged; convert it again."
        ) from error
    return Model(
        identity=ModelIdentity(
            name=path.stem, digest=digest.digest_parts([data]), framework="tensorflow-lite"
        ),
        form=Form.TFLITE,
        value=path,
        inputs=inputs,
        weights=lambda: weights,
        file_bytes=len(data),
    )


look = load
"""The file is read once, whatever it is for."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a flatbuffer: fields by number, each with a place in `data`."""

    data: bytes
    start: int

    def at(self, place: int) -> _Table:
        """Return the table to which the offset at a place leads."""
        return _Table(self.data, place + self._number("<I", place))

    def field(self, number: int) -> int | None:
        """Return the place of a field; None if it was left out."""
        layout = self.start - self._number("<i", self.start)
        if 4 + 2 * number >= self._number("<H", layout):
            return None
        offset = self._number("<H", layout + 4 + 2 * number)
        return self.start + offset if offset else None

    def scalar(self, number: int, form: str, default: int = 0) -> int:
        """Return a number that is a field, in a format of `struct`."""
        place = self.field(number)
        return default if place is None else self._number(form, place)

    def vector(self, number: int) -> tuple[int, int]:
        """Return the place of the first element of a vector, and its length.

        Raises:
            ValueError: it would be longer than the file.
        """
        place = self.field(number)
        if place is None:
            return 0, 0
        begin = place + self._number("<I", place)
        length = self._number("<I", begin)
        if length > len(self.data):
            raise ValueError(length)
        return begin + 4, length

    def integers(self, number: int) -> tuple[int, ...]:
        """Return a vector of 32-bit integers."""
        begin, length = self.vector(number)
        return struct.unpack_from(f"<{length}i", self.data, begin)

    def tables(self, number: int) -> list[_Table]:
        """Return a vector of tables."""
        begin, length = self.vector(number)
        return [self.at(begin + 4 * index) for index in range(length)]

    def text(self, number: int) -> str:
        """Return a string."""
        begin, length = self.vector(number)
        return self.data[begin : begin + length].decode()

    def _number(self, form: str, place: int) -> int:
        if place < 0:
            raise ValueError(place)
        return int(struct.unpack_from(form, self.data, place)[0])


def _root(data: bytes) -> _Table:
    """Return the table of the model; raise ValueError for a file of another format."""
    if data[4:8] != _MARK:
        raise ValueError(_MARK)
    return _Table(data, 0).at(0)


def _dtype(tensor: _Table) -> str:
    return _DTYPES[tensor.scalar(_TYPE, "<b")]


def _inputs(root: _Table) -> Iterator[InputSpec]:
    """Yield the inputs of the first subgraph, under the names of its signature if it has one."""
    graph, *_ = root.tables(_SUBGRAPHS)
    tensors = graph.tables(_TENSORS)
    signatures = [each for each in root.tables(_SIGNATURES) if each.scalar(4, "<I") == 0]
    named = {entry.scalar(1, "<I"): entry.text(0) for each in signatures[:1] for entry in each.tables(0)}
    for index in graph.integers(_INPUTS):
        tensor = tensors[index]
        name, dtype = named.get(index) or tensor.text(_NAME), _dtype(tensor)
        shape = tuple(
            size if size > 0 else f"{name}_dim{axis}" if axis else BATCH
            for axis, size in enumerate(tensor.integers(_SIGNATURE_SHAPE) or tensor.integers(_SHAPE))
        )
        low, high = _RANGES.get(dtype, _ANY_INTEGER) if "int" in dtype else (None, None)
        yield InputSpec(name=name, shape=shape, dtype=dtype, low=low, high=high)


def _weights(root: _Table) -> Iterator[Weight]:
    buffers = root.tables(_BUFFERS)
    for number, graph in enumerate(root.tables(_SUBGRAPHS)):
        for index, tensor in enumerate(graph.tables(_TENSORS)):
            place = tensor.scalar(_BUFFER, "<I")
            stored = buffers[place].vector(_DATA)[1] or buffers[place].scalar(_OUTSIDE_SIZE, "<Q")
            if not stored:
                continue
            quantization, dtype = tensor.field(_QUANTIZATION), _dtype(tensor)
            scaled = quantization is not None and tensor.at(quantization).vector(_SCALE)[1] > 0
            shape = tensor.integers(_SHAPE)
            name = tensor.text(_NAME).replace(".", "_").replace("/", ".")
            yield Weight(
                name=name or f"tensor_{number}_{index}",
                shape=shape,
                dtype=dtype,
                size=Tensor(shape, dtype).size,
                bytes=stored,
                storage=f"buffer {place}",
                parameter="float" in dtype or scaled,
            )
