"""Reads requests and expected answers from perf_analyzer's ``{"data": [...], "validation_data": [...]}``.

A step of ``data`` is one request: the values of each input by name, in row-major order, as a list, as
``{"b64": ...}``, or as ``{"content": ..., "shape": [...]}``. A list of lists of steps is several streams.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, InputSpec, format_shape
from modeldyno.models import random_arrays
from modeldyno.models.interface import Feed, RequestStreams

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy import ndarray

SUFFIX = ".json"
MOST_BYTES = 1 << 29
"""Bytes of a file that is read."""
_LENGTH = 4
"""Bytes of the length before each text of binary data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestData:
    """The steps of a file, all streams one after the other."""

    path: Path
    steps: tuple[Mapping[str, Any], ...]
    streams: tuple[int, ...]
    """Number of steps of each stream."""
    expected: tuple[Mapping[str, Any], ...] = ()
    """Of each step the values of outputs by name; empty if the file has none."""

    def feeds(self, specs: Sequence[InputSpec], batch: int) -> tuple[tuple[Feed, ...], RequestStreams]:
        """Make a payload of every `batch` steps of a stream; the shapes of `specs` are those of payloads.

        Raises:
            RequestError: values are missing or do not fit an input.
        """
        batch = batch if any(_has_batch(spec) for spec in specs) else 1
        feeds: list[Feed] = []
        expected: list[dict[str, tuple[Any, ...]]] = []
        lengths: list[int] = []
        for steps in self._batches(batch):
            lengths.append(len(steps))
            for numbers in steps:
                rows = [self._arrays(specs, number) for number in numbers]
                if any(_shapes(row) != _shapes(rows[0]) for row in rows):
                    raise RequestError(
                        f"{self.path}: steps {numbers[0] + 1} to {numbers[-1] + 1} have unlike shapes and "
                        "cannot be one batch; use batch_size=1."
                    )
                feeds.append({spec.name: _joined(spec, [row[spec.name] for row in rows]) for spec in specs})
                expected.append(self._expected(numbers))
        return tuple(feeds), RequestStreams(lengths=tuple(lengths), expected=tuple(filter(None, expected)))

    def rows(self, specs: Sequence[InputSpec], limit: int) -> Feed:
        """Return the values of each input in the first steps that have the shape of the first, as rows.

        Raises:
            RequestError: values are missing or do not fit an input.
        """
        rows: list[Feed] = []
        for number in range(min(limit, len(self.steps))):
            row = self._arrays(specs, number)
            if rows and _shapes(row) != _shapes(rows[0]):
                break
            rows.append(row)
        return {spec.name: _joined(spec, [row[spec.name] for row in rows]) for spec in specs}

    def _expected(self, numbers: Sequence[int]) -> dict[str, tuple[Any, ...]]:
        """Return the values of each output in the answer to a batch of steps."""
        steps = [self.expected[number] for number in numbers] if self.expected else [{}]
        try:
            return {name: tuple(_content(step[name]) for step in steps) for name in steps[0]}
        except (KeyError, ValueError, binascii.Error):
            raise RequestError(
                f'{self.path}: an output in "validation_data" of step {numbers[0] + 1} has no values.'
            ) from None

    def _batches(self, batch: int) -> Iterable[list[list[int]]]:
        """Yield for each stream the numbers of the steps of each payload."""
        begin = 0
        for length in self.streams:
            yield [
                [*range(first, first + batch)] for first in range(begin, begin + length - batch + 1, batch)
            ] or self._too_short(length, batch)
            begin += length

    def _too_short(self, length: int, batch: int) -> list[list[int]]:
        raise RequestError(
            f"{self.path}: a stream has {length} steps, too few for a batch of {batch}; use a smaller "
            "batch_size."
        )

    def _arrays(self, specs: Sequence[InputSpec], number: int) -> Feed:
        """Return one step as arrays of one sample, without the axis of the batch."""
        step = self.steps[number]
        where = f"{self.path}, step {number + 1}"
        arrays = {}
        for spec in specs:
            if spec.name not in step:
                has = ", ".join(step) or "nothing"
                raise RequestError(f"{where} lacks the input '{spec.name}'; it has: {has}.")
            arrays[spec.name] = _array(spec, step[spec.name], f"{where}: '{spec.name}'")
        return arrays


def read_request_data(path: Path) -> RequestData:
    """Read a file.

    Raises:
        RequestError: it cannot be read, or is none of these.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise RequestError(f"{path} has more than {MOST_BYTES >> 20} MiB; give a part of it.")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path} is not JSON: {error}.") from error
    if not isinstance(document, dict) or not isinstance(document.get("data"), list) or not document["data"]:
        raise RequestError(
            f'{path} has no list "data" of requests, as perf_analyzer reads them; write other samples one a '
            "line, and name the file .jsonl."
        )
    steps, streams = _steps(path, "data", document["data"])
    expected, other = _steps(path, "validation_data", document.get("validation_data") or [])
    if expected and other != streams:
        raise RequestError(f'{path}: "validation_data" does not have a step for each step of "data".')
    return RequestData(path=path, steps=steps, streams=streams, expected=expected)


def _steps(path: Path, name: str, value: Any) -> tuple[tuple[Mapping[str, Any], ...], tuple[int, ...]]:
    """Return all steps, and the length of each stream."""
    several = isinstance(value, list) and bool(value) and all(isinstance(stream, list) for stream in value)
    streams = value if several else [value]
    if not all(isinstance(stream, list) and all(isinstance(s, dict) for s in stream) for stream in streams):
        raise RequestError(f'{path}: "{name}" is neither a list of objects by name, nor one of such lists.')
    if value and not all(streams):
        raise RequestError(f'{path}: a stream of "{name}" is empty.')
    return tuple(step for stream in streams for step in stream), tuple(len(stream) for stream in streams)


def _content(value: Any) -> list[Any] | bytes:
    """Return the values of a tensor, flat, or its raw bytes; raise ValueError if they are neither."""
    content = value.get("content", value) if isinstance(value, dict) else value
    if isinstance(content, dict) and isinstance(content.get("b64"), str):
        return base64.b64decode(content["b64"], validate=True)
    if isinstance(content, list):
        return _flat(content)
    if isinstance(content, str | int | float):
        return [content]
    raise ValueError


def _flat(values: list[Any]) -> list[Any]:
    return [item for value in values for item in (_flat(value) if isinstance(value, list) else (value,))]


def _array(spec: InputSpec, value: Any, where: str) -> ndarray:
    """Return a tensor without the axis of the batch."""
    import numpy as np  # slow to import

    try:
        content = _content(value)
    except (ValueError, binascii.Error):
        raise RequestError(
            f'{where} is no list of values, no {{"b64": ...}} and no {{"content": ..., "shape": ...}}.'
        ) from None
    if isinstance(content, bytes):
        flat = decode_values(content, spec.dtype or "float32", where)
    else:
        flat = np.array(content, dtype=object if any(isinstance(item, str) for item in content) else None)
        flat = flat if spec.dtype is None else random_arrays.convert_dtype(flat, spec.dtype, where)
    declared = spec.shape[1:] if spec.shape and _has_batch(spec) else spec.shape
    shape_in_file = value.get("shape") if isinstance(value, dict) else None
    shape: tuple[Any, ...] = (
        tuple(shape_in_file) if isinstance(shape_in_file, list) else _fill_free_size(declared, flat.size)
    )
    if not all(isinstance(size, int) and size >= 0 for size in shape) or math.prod(shape) != flat.size:
        raise RequestError(
            f"{where} has {flat.size:,} values, which do not fill the shape {format_shape(shape)}"
            f"{'' if shape_in_file else '; give its shape'}."
        )
    return flat.reshape(shape)


def _fill_free_size(shape: tuple[int | str, ...] | None, size: int) -> tuple[int | str, ...]:
    """Return a shape with its only free dimension, if there is one, as the number of values says."""
    if shape is None:
        return (size,)
    fixed = math.prod(item for item in shape if isinstance(item, int))
    free = sum(isinstance(item, str) for item in shape)
    if free > 1 or not fixed:
        return shape
    return tuple(item if isinstance(item, int) else size // fixed for item in shape)


def decode_values(data: bytes, dtype: str, where: str) -> ndarray:
    """Decode raw values, little end first; each text has its length in four bytes before it.

    Raises:
        RequestError: they end within a value.
    """
    import numpy as np  # slow to import

    if dtype != "string":
        kind = random_arrays.numpy_dtype(dtype).newbyteorder("<")
        if len(data) % kind.itemsize:
            raise RequestError(f"{where} has {len(data):,} bytes, which end within a {dtype}.")
        return np.frombuffer(data, kind).astype(kind.newbyteorder("="))
    texts, position = [], 0
    while position < len(data):
        length = int.from_bytes(data[position : position + _LENGTH], "little")
        position += _LENGTH + length
        if position > len(data):
            raise RequestError(f"{where} ends within a text; each has its length in four bytes before it.")
        texts.append(data[position - length : position].decode(errors="replace"))
    return np.array(texts, dtype=object)


def _shapes(row: Feed) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in row.items()}


def _joined(spec: InputSpec, arrays: Sequence[ndarray]) -> ndarray:
    """Return the rows of a batch; an input without that axis is that of the first."""
    import numpy as np  # slow to import

    return np.stack(arrays) if _has_batch(spec) else arrays[0]


def _has_batch(spec: InputSpec) -> bool:
    return spec.shape is not None and spec.shape[:1] == (BATCH,)
