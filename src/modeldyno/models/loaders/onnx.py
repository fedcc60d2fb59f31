"""`onnx:m.onnx`: an ONNX graph, read as data; nothing in it is executed.

The graph is parsed without its external data, which is only hashed, a chunk at a time; `look` does not even
open it.
"""

from __future__ import annotations

import hashlib
import math
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job import dimension_expression
from modeldyno.base.job.input_spec import BATCH, InputSpec, is_sequence
from modeldyno.base.job.model_ref import EVERY_MODEL, ModelIdentity
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.models.interface import Executes, Form, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest
from modeldyno.models.loaders.onnx_tracing.free_sizes import compared_constants, size_guesses
from modeldyno.models.loaders.onnx_tracing.tensors import (
    KNOWN_WHOLE,
    all_tensors,
    check_text,
    element_type,
    external_files,
    is_placeholder_name,
    quote_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from modeldyno.base.job.input_spec import Dimension
    from modeldyno.base.job.model_ref import ModelRef
    from modeldyno.models.interface import Feed, Tracing
    from modeldyno.models.loaders.onnx_tracing.tensors import Proto
    from modeldyno.models.static.graph import Graph

requires = ("onnx",)
tools: tuple[str, ...] = ("onnx",)
executes = Executes.NOTHING
backend = "onnxruntime"

_MAX_BYTES = 2**31 - 1
"""Bytes; protobuf allows no larger message."""

_NOTABLE_SHARE = 0.01
"""Of the bytes of the weights, those of unread initialisers that are mentioned."""

_VALUES = ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data", "string_data")
_ANALYSIS_ERRORS = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError,
    AssertionError,
)  # fmt: skip
"""Errors of analysing a damaged graph, or one at impossible sizes."""
_MAX_REASON = 160
"""Characters of a reason shown in an error."""

_HEADER = re.compile(rb"\x08[\x01-\x1f][\x12\x1a\x22\x28\x32\x3a\x42]")
"""First bytes of a serialised ModelProto: ir_version, then any later field."""

_BATCH_FIRST = re.compile(
    r".*batch.*|n|b|bs|s\d+|unk_.*|.*dynamic_axes_\d+|.*dynamicdimension\.\d+", re.IGNORECASE
)
"""Names that exporters give a dynamic first dimension that is the batch."""
_BATCH_ANYWHERE = re.compile(r"batch(_?size)?", re.IGNORECASE)

_DECODER_INPUTS = {
    "mask": re.compile(r"attention_mask"),
    "cache": re.compile(r"past|cache"),
    "tokens": re.compile(r"input_ids|inputs_embeds"),
}
"""Inputs of a decoder by their names."""

_LOOKUPS: dict[str, tuple[tuple[int, int], ...]] = {
    "Gather": ((1, 0),),
    "GatherBlockQuantized": ((1, 0),),
    "EmbedLayerNormalization": ((0, 2), (1, 4)),
    "QEmbedLayerNormalization": ((0, 2), (1, 4)),
}
"""Operators that look up rows in a table: positions of (index, table) among their inputs."""
_SAME_VALUES = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"})
_SAME_ROWS = frozenset({"Cast", "Identity", "DequantizeLinear"})
_RANGES = {"uint8": (0, 255), "int8": (-128, 127)}
_TYPE_KINDS = {"sequence_type": "a sequence", "map_type": "a map", "optional_type": "an optional value"}
_FIELDS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""Input of a text model to the field of an encoding that it takes."""


def claims(path: Path) -> bool:
    """Whether a path is an ONNX file, by its suffix or its first bytes, which TensorFlow's graphs share."""
    if not path.is_file() or path.name == "saved_model.pb":
        return False
    if path.suffix.lower() == ".onnx":
        return True
    return _HEADER.match(digest.read_head(path, 3)) is not None


@describing()
def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Read the graph.

    Raises:
        RequestError: the file is missing, damaged or too large, or its external data is not there.
    """
    del seed, trust  # nothing in it is random, and nothing is executed
    return _describe_model(Path(ref.locator), with_weights=True)


def look(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Read the same without external data, which may be missing; the digest is of the graph alone.

    Raises:
        RequestError: the file is missing, damaged or too large.
    """
    del seed, trust
    return _describe_model(Path(ref.locator), with_weights=False)


def files(ref: ModelRef) -> Iterator[Path]:
    """Yield the file, those of its external data, and the tokenizer beside it."""
    path = Path(ref.locator)
    yield path
    yield from dict.fromkeys(external_files(_parse(_read(path), path), path).values())
    if (tokenizer := path.with_name("tokenizer.json")).is_file():
        yield tokenizer


def _name(path: Path) -> str:
    """Return the stem of the file; of a ``model.onnx`` of Hugging Face or Triton its directory's name."""
    folder = path.resolve().parent
    if path.stem != EVERY_MODEL:
        return path.stem
    if (folder / "config.json").is_file():
        return folder.name
    return folder.parent.name if folder.name.isdigit() else path.stem


def _describe_model(path: Path, *, with_weights: bool) -> Model:
    from modeldyno.models.loaders.onnx_tracing import weights as onnx_weights  # it imports numpy

    data = _read(path)
    graph_digest = hashlib.sha256(data).digest()
    model = _parse(data, path)
    del data
    try:
        files = external_files(model, path) if with_weights else _external_files_or_none(model, path)
        roles = onnx_weights.read_roles(model)
        weights = tuple(onnx_weights.list_weights(model, path, roles))
        unread = onnx_weights.unread_bytes(model, path, roles)
        inputs = tuple(_inputs(model.graph, path))
        skeleton = _without_weights(model)
        guesses = size_guesses(model, inputs)
    except UnicodeError as error:
        raise RequestError(f"{path} is damaged: a name in it is not text; export it again.") from error
    content_digest = (
        _digest(graph_digest, files or {}) if with_weights else digest.digest_structure([graph_digest])
    )
    return Model(
        identity=ModelIdentity(name=_name(path), digest=content_digest, framework="onnx"),
        form=Form.ONNX,
        value=path,
        inputs=inputs,
        weights=lambda: weights,
        graph=lambda tracing: _graph(skeleton, tracing, path),
        file_bytes=None
        if files is None
        else path.stat().st_size + sum(file.stat().st_size for file in files.values()),
        encode=adjacent_encoder(path, inputs),
        guesses=guesses,
        doubts=tuple(_unread_doubt(unread, sum(weight.bytes for weight in weights))),
    )


def _unread_doubt(unread: int, read: int) -> Iterator[Doubt]:
    """Yield a doubt if the file holds much that is no part of the model."""
    if unread > _NOTABLE_SHARE * read:
        yield Doubt(
            code="unread-weights",
            seen=f"the file holds {format_quantity(unread, BYTES)} of initialisers that no operator reads; "
            "they are not counted",
            advice="remove them, as onnx-simplifier does, unless a later version of the model reads them",
        )


def _external_files_or_none(model: Proto, path: Path) -> dict[str, Path] | None:
    """Return the files of external data if all are there, else None."""
    try:
        return external_files(model, path)
    except RequestError:
        return None


def _read(path: Path) -> bytes:
    if path.is_dir():
        candidates = sorted((*path.glob("*.onnx"), *path.glob("*/*.onnx")))
        hint = f"name the file, such as {candidates[0]}" if candidates else "there is no .onnx file in it"
        raise RequestError(f"{path} is a directory; {hint}.")
    if not path.is_file():
        raise RequestError(f"There is no file {path}; check the path of the ONNX model.")
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise RequestError(
                f"{path} has {size:,} bytes, but an ONNX graph holds less than 2 GiB; "
                "save it with its weights as external data."
            )
        return path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error


def _parse(data: bytes, path: Path) -> Proto:
    import onnx  # optional, and heavy
    from google.protobuf.message import DecodeError

    try:
        model = onnx.ModelProto.FromString(data)
    except (DecodeError, RecursionError) as error:
        raise RequestError(f"{path} is not an ONNX model, or is truncated or damaged.") from error
    if not (model.ir_version > 0 and model.graph.node and model.graph.output):
        raise RequestError(f"{path} holds no ONNX graph; it has another format, or is truncated or damaged.")
    return model


# -- graph -----------------------------------------------------------------------------------------


def _without_weights(model: Proto) -> bytes:
    """Return the file without the values of its weights; small tensors, which may be shapes, stay."""
    for tensor in all_tensors(model):
        if math.prod(tensor.dims) > KNOWN_WHOLE:
            for values in _VALUES:
                tensor.ClearField(values)
    return bytes(model.SerializeToString())


def _graph(skeleton: bytes, tracing: Tracing, path: Path) -> Graph:
    import onnx  # optional, and heavy

    from modeldyno.models.loaders.onnx_tracing import graph as onnx_tracing_graph  # it imports numpy

    try:
        return onnx_tracing_graph.trace_onnx_model(onnx.ModelProto.FromString(skeleton), tracing)
    except _ANALYSIS_ERRORS as error:
        why = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
        raise RequestError(
            f"{path} cannot be analysed ({why}); check that it passes onnx.checker."
        ) from error


# -- inputs --------------------------------------------------------------------------------------


def _inputs(graph: Proto, path: Path) -> Iterator[InputSpec]:
    initialised = {tensor.name for tensor in graph.initializer}
    initialised |= {tensor.values.name for tensor in graph.sparse_initializer}
    values = [value for value in graph.input if value.name not in initialised]
    for value in values:
        check_text(path, value.name, *(dim.dim_param for dim in value.type.tensor_type.shape.dim))
    renamed = _batch_names(values)
    lengths = _lengths(values)
    rows = _table_rows(graph, {value.name for value in values})
    compared = compared_constants(graph)
    for value in values:
        value_type = value.type.WhichOneof("value")
        if value_type != "tensor_type":
            type_name = _TYPE_KINDS.get(value_type, "not a dense tensor")
            raise RequestError(
                f"{path}: input {quote_name(value.name)} is {type_name}; only tensors can be fed."
            )
        dtype, _ = element_type(value.type.tensor_type.elem_type, f"input {quote_name(value.name)}", path)
        shape = _input_shape(value, renamed)
        shape = shape and tuple(lengths.get(d, d) if isinstance(d, str) else d for d in shape)
        expected = compared.get(value.name) if shape in {(), (1,)} else None
        low, high = (
            _value_range(value.name, dtype, rows.get(value.name))
            if expected is None
            else (expected, expected)
        )
        yield InputSpec(name=value.name, shape=shape, dtype=dtype, low=low, high=high)


def _batch_names(values: Iterable[Proto]) -> set[str]:
    """Find the symbols of the batch dimension: the same symbol means the batch everywhere."""
    names: set[str] = set()
    for value in values:
        symbols = [dim.dim_param for dim in value.type.tensor_type.shape.dim]
        names |= {symbol for symbol in symbols[:1] if _BATCH_FIRST.fullmatch(symbol)}
        names |= {symbol for symbol in symbols if _BATCH_ANYWHERE.fullmatch(symbol)}
    return {name for name in names if not is_placeholder_name(name)}


def _lengths(values: Iterable[Proto]) -> dict[str, str]:
    """Return what the length of a decoder's mask follows from: the tokens in its cache, and the new ones.

    Exporters give it a name of its own, such as ``total_sequence_length``, though only their sum fits.
    """
    names: dict[str, set[str]] = {}
    for value in values:
        kind = next((kind for kind, pattern in _DECODER_INPUTS.items() if pattern.search(value.name)), "")
        symbols = {dim.dim_param for dim in value.type.tensor_type.shape.dim if dim.dim_param}
        names.setdefault(kind, set()).update(filter(is_sequence, symbols))
    mask, cache, tokens = (names.get(kind, set()) for kind in _DECODER_INPUTS)
    if not (len(mask - tokens - cache) == len(cache - tokens) == len(tokens) == 1):
        return {}
    (total,), (past,), (new,) = mask - tokens - cache, cache - tokens, tokens
    return {} if dimension_expression.is_expression(total) else {total: f"{past} + {new}"}


def _input_shape(value: Proto, batch_names: set[str]) -> tuple[Dimension, ...] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None

    def dimension(axis: int, dim: Proto) -> Dimension:
        if dim.dim_value > 0 or (dim.HasField("dim_value") and not dim.dim_value):
            return int(dim.dim_value)
        nameless = is_placeholder_name(dim.dim_param)
        if dim.dim_param in batch_names or (axis == 0 and nameless):
            return BATCH
        if nameless:
            return f"{value.name}_dim{axis}"
        return dimension_expression.rename(dim.dim_param, dict.fromkeys(batch_names, BATCH))

    return tuple(dimension(axis, dim) for axis, dim in enumerate(value.type.tensor_type.shape.dim))


def _table_rows(graph: Proto, inputs: set[str]) -> dict[str, int]:
    """Follow inputs to the tables that they index: the smallest one bounds the vocabulary."""
    origin = {name: name for name in inputs}
    tables = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    smallest: dict[str, int] = {}
    for node in graph.node:
        source = node.input[0] if node.input else ""
        for output in node.output[:1]:
            if node.op_type in _SAME_VALUES and source in origin:
                origin[output] = origin[source]
            if node.op_type in _SAME_ROWS and source in tables:
                tables[output] = tables[source]
        if _axis_of(node) != 0:
            continue
        for index, table in _LOOKUPS.get(node.op_type, ()):
            if max(index, table) < len(node.input) and node.input[index] in origin:
                name, rows = origin[node.input[index]], tables.get(node.input[table], 0)
                if rows > 0:
                    smallest[name] = min(rows, smallest.get(name, rows))
    return smallest


def _axis_of(node: Proto) -> int:
    names = {"axis", "gather_axis"}
    return next((int(attribute.i) for attribute in node.attribute if attribute.name in names), 0)


def _value_range(name: str, dtype: str, rows: int | None) -> tuple[float | None, float | None]:
    is_integer = dtype.startswith(("int", "uint"))
    if "mask" in name.lower() and (is_integer or dtype == "bool"):
        return 1, 1
    if not is_integer:
        return None, None
    if rows is not None:
        return 0, rows - 1
    return (0, 1) if "token_type" in name.lower() else _RANGES.get(dtype, (0, 9))


def _digest(graph: bytes, files: dict[str, Path]) -> str:
    parts: list[str | bytes] = [graph]
    for location, file in sorted(files.items()):
        with file.open("rb") as stream:
            parts += [location, hashlib.file_digest(stream, "sha256").digest()]
    return digest.digest_parts(parts)


def adjacent_encoder(
    path: Path, inputs: Sequence[InputSpec]
) -> Callable[[Sequence[str], int | None], Feed] | None:
    """Return the encoder of a text model with a `tokenizer.json` next to it or one directory up."""
    names = tuple(spec.name for spec in inputs if spec.name in _FIELDS)
    if "input_ids" not in names or find_spec("tokenizers") is None:
        return None
    files = (folder / "tokenizer.json" for folder in (path.parent, path.parent.parent))
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return None
    return lambda texts, length: _encode(file, names, texts, length)


def _encode(file: Path, names: Sequence[str], texts: Sequence[str], length: int | None) -> Feed:
    import numpy as np  # slow to import

    tokenizer = _read_tokens(file)
    limit = (tokenizer.truncation or {}).get("max_length")
    if length is not None:
        tokenizer.enable_truncation(min(length, limit or length))
    pad = tokenizer.padding or {}
    padding = {key: pad[key] for key in ("pad_id", "pad_type_id", "pad_token", "direction") if key in pad}
    tokenizer.enable_padding(**padding, length=length)
    encodings = tokenizer.encode_batch(list(texts))
    return {
        name: np.array([getattr(encoding, _FIELDS[name]) for encoding in encodings], np.int64)
        for name in names
    }


def _read_tokens(file: Path) -> Any:
    import tokenizers  # optional

    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # it raises the bare class
        raise RequestError(f"{file} is not a readable tokenizer: {error}.") from error
