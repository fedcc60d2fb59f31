"""``tflite:m.tflite``: a model of TensorFlow Lite, read as data.

A parameter is a stored tensor of floats, or of integers with a scale; shapes, indices and single numbers
without a dimension, as of arithmetic, are buffers.
"""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.job.size_guesses import guess_sizes
from modeldyno.models.interface import Executes, Form, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest
from modeldyno.models.loaders.tflite_file import MARK, TFLiteFile, read_tflite
from modeldyno.models.loaders.tflite_tracing import trace_tflite
from modeldyno.models.static.graph import Tensor
from modeldyno.models.static.weights import Weight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.model_ref import ModelRef

requires: tuple[str, ...] = ("ai_edge_litert",)
executes = Executes.NOTHING
backend = "tflite"

_RANGES = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-(2**15), 2**15 - 1)}
"""Of integers that stand for real numbers: the converter chose their scale so that they use all of it."""
_ANY_INTEGER = (0, 9)
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, MemoryError, struct.error)
"""Errors of reading a damaged file."""


def claims(path: Path) -> bool:
    """Claim a file by the mark that follows its first four bytes."""
    return digest.read_head(path, 8)[4:] == MARK


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
        file = read_tflite(data)
        inputs, weights = tuple(_inputs(file)), tuple(_weights(file))
    except _DAMAGE as error:
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
        graph=lambda tracing: trace_tflite(file, path, tracing),
        guesses=partial(guess_sizes, inputs),
        file_bytes=len(data),
    )


look = load
"""The file is read once, whatever it is for."""


def _inputs(file: TFLiteFile) -> Iterator[InputSpec]:
    """Yield the inputs of the first subgraph, under the names of its signature if it has one."""
    graph = file.subgraphs[0]
    for index in graph.inputs:
        tensor = graph.tensors[index]
        name = file.input_names.get(index) or tensor.name
        shape = tuple(
            size if size > 0 else f"{name}_dim{axis}" if axis else BATCH
            for axis, size in enumerate(tensor.signature or tensor.shape)
        )
        low, high = _RANGES.get(tensor.dtype, _ANY_INTEGER) if "int" in tensor.dtype else (None, None)
        yield InputSpec(name=name, shape=shape, dtype=tensor.dtype, low=low, high=high)


def _weights(file: TFLiteFile) -> Iterator[Weight]:
    for number, graph in enumerate(file.subgraphs):
        scopes = graph.scopes_of_buffers()
        for index, tensor in enumerate(graph.tensors):
            if tensor.stored:
                name = tensor.name.replace(".", "_").replace("/", ".")
                yield Weight(
                    name=name or f"tensor_{number}_{index}",
                    shape=tensor.shape,
                    dtype=tensor.dtype,
                    size=Tensor(tensor.shape, tensor.dtype).size,
                    bytes=tensor.stored,
                    storage=f"buffer {tensor.buffer}",
                    parameter=("float" in tensor.dtype or tensor.scaled) and bool(tensor.shape),
                    scope=scopes.get(tensor.buffer, tensor.scope),
                )
