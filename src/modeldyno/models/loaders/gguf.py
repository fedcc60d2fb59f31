"""``gguf:model.gguf``: a language model of llama.cpp; its header lists the tensors and their types.

Of a model in several files (``model-00001-of-00003.gguf``) the first is named, as for llama.cpp. Nothing in
them is executed. The layout is that of ggml's specification of GGUF, versions 2 and 3.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.models.interface import Executes, Form, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest
from modeldyno.models.static.weights import Weight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.job.model_ref import ModelRef

requires: tuple[str, ...] = ()
executes = Executes.NOTHING
backend = "llamacpp"

MARK = b"GGUF"
TOKENIZER = "tokenizer.json"
"""Beside the model it counts the tokens of prompts: that in the header has no form which a library reads."""
_VERSIONS = (2, 3)
_PART = re.compile(r"(?P<stem>.*)-00001-of-(?P<count>\d{5})\.gguf")
_NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
"""Type of a value in the header to its format for `struct`."""
_STRING, _ARRAY = 8, 9
_TYPES = {
    0: ("float32", 1, 4), 1: ("float16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22), 7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 9: ("q8_1", 32, 40),
    10: ("q2_k", 256, 84), 11: ("q3_k", 256, 110), 12: ("q4_k", 256, 144), 13: ("q5_k", 256, 176),
    14: ("q6_k", 256, 210), 15: ("q8_k", 256, 292), 16: ("iq2_xxs", 256, 66), 17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98), 19: ("iq1_s", 256, 50), 20: ("iq4_nl", 32, 18), 21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82), 23: ("iq4_xs", 256, 136), 24: ("int8", 1, 1), 25: ("int16", 1, 2),
    26: ("int32", 1, 4), 27: ("int64", 1, 8), 28: ("float64", 1, 8), 29: ("iq1_m", 256, 56),
    30: ("bfloat16", 1, 2), 34: ("tq1_0", 256, 54), 35: ("tq2_0", 256, 66), 39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36), 41: ("q1_0", 128, 18),
}  # fmt: skip
"""Type of a tensor to its name, the elements of a block, and the bytes of one."""
_MOST_AXES = 4
_BUFFERS = "rope_"
"""What the names of tensors begin with that are tables, not parameters."""
_DAMAGE = (struct.error, ValueError, OverflowError, RecursionError)
"""Errors of reading a damaged header; a text that is not UTF-8 is a ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the header of a file says."""

    fields: dict[str, Any]
    """Its values by name; of arrays None."""
    weights: tuple[Weight, ...]


def claims(path: Path) -> bool:
    """Claim a file by its first bytes."""
    return digest.read_head(path, len(MARK)) == MARK


@describing()
def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Read the headers, and digest the files.

    Raises:
        RequestError: a file is missing, or its header is damaged.
    """
    del seed, trust  # nothing in it is random, and nothing is executed
    paths = _parts(ref)
    return _model(paths, digest.digest_files(paths))


def look(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Read the headers alone.

    Raises:
        RequestError: a file is missing, or its header is damaged.
    """
    del seed, trust
    return _model(_parts(ref))


def files(ref: ModelRef) -> Iterable[Path]:
    """Return the file, or all files of a model in several, and the tokenizer beside it.

    Raises:
        RequestError: one is missing.
    """
    parts = _parts(ref)
    tokenizer = parts[0].with_name(TOKENIZER)
    return [*parts, tokenizer] if tokenizer.is_file() else parts


def _parts(ref: ModelRef) -> list[Path]:
    """Return the files that have the weights; raise RequestError if one is missing."""
    path = Path(ref.locator).expanduser()
    part = _PART.fullmatch(path.name)
    count = int(part["count"]) if part else 1
    names = [f"{part['stem']}-{number + 1:05}-of-{count:05}.gguf" for number in range(count)] if part else []
    paths = [path.with_name(name) for name in names] or [path]
    for file in paths:
        if not file.is_file():
            raise RequestError(f"There is no file '{file}'; check the path of the .gguf file.")
    return paths


def read_header(path: Path) -> Header:
    """Read the header of a file, and nothing else of it.

    Raises:
        RequestError: it cannot be read, or the header is damaged or of another version.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).header()
    except OSError as error:
        raise RequestError(f"'{path}' cannot be read: {error.strerror}.") from error
    except _DAMAGE as error:
        why = "it ends within its header" if isinstance(error, struct.error) else str(error)
        raise RequestError(
            f"'{path}' is no GGUF file, or is damaged ({why}); download or write it again."
        ) from error


def _model(paths: list[Path], whole: str = "") -> Model:
    headers = [read_header(path) for path in paths]
    weights = tuple(weight for header in headers for weight in header.weights)
    tokenizer = paths[0].with_name(TOKENIZER)
    return Model(
        identity=ModelIdentity(
            name=paths[0].stem,
            digest=whole or digest.digest_structure(f"{w.name}:{w.dtype}:{w.shape}" for w in weights),
            framework="gguf",
        ),
        form=Form.GGUF,
        value=paths[0],
        inputs=(),
        weights=lambda: weights,
        tokenizer=str(tokenizer) if tokenizer.is_file() else "",
        file_bytes=sum(path.stat().st_size for path in paths),
    )


@dataclass(slots=True)
class _Reader:
    """Reads a header from its begin to its end; raises struct.error beyond the end of the file."""

    data: mmap.mmap
    offset: int = 0

    def header(self) -> Header:
        mark, version = self.take("4sI")
        if mark != MARK or version not in _VERSIONS:
            raise ValueError(f"its version is {version}, and 2 and 3 are read")
        tensors, fields = self.take("QQ")
        values = {self.text(): self.value(*self.take("I")) for _ in range(fields)}
        return Header(fields=values, weights=tuple(self.weight() for _ in range(tensors)))

    def take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self.data, self.offset)
        self.offset += struct.calcsize(f"<{form}")
        return values

    def text(self) -> str:
        (length,) = self.take("Q")
        return str(self.take(f"{length}s")[0], "utf-8")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.skip_array()
        if kind not in _NUMBERS:
            raise ValueError(f"a value is of the unknown type {kind}")
        return self.take(_NUMBERS[kind])[0]

    def skip_array(self) -> None:
        kind, count = self.take("IQ")
        if kind in _NUMBERS:
            self.offset += count * struct.calcsize(_NUMBERS[kind])
            return
        for _ in range(count):
            self.value(kind)

    def weight(self) -> Weight:
        name = self.text()
        (axes,) = self.take("I")
        if axes > _MOST_AXES:
            raise ValueError(f"a tensor has {axes:,} axes")
        shape = self.take(f"{axes}Q")[::-1]  # the innermost is first in the file
        kind, _ = self.take("IQ")
        dtype, block, size = _TYPES.get(kind, (f"type {kind}", 1, 0))
        count = math.prod(shape)
        if count // block * size > len(self.data):
            raise ValueError("a tensor does not fit the file")
        return Weight(
            name=name,
            shape=shape,
            dtype=dtype,
            size=count,
            bytes=count // block * size,
            parameter=not name.startswith(_BUFFERS),
        )
