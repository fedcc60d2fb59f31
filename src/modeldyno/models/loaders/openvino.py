"""``openvino:model.xml``: a model in OpenVINO's own format, read as data; its operators are not counted.

The .xml file has the graph, the .bin file beside it the constants, of which only the sizes are read.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.job.size_guesses import guess_sizes
from modeldyno.models.interface import Executes, Form, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest
from modeldyno.models.static.weights import Weight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.model_ref import ModelRef

requires: tuple[str, ...] = ()
executes = Executes.NOTHING
backend = "openvino"

_DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "boolean": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "string": "string",
}  # fmt: skip
"""Element types of OpenVINO to dtypes."""
_HEAD = 512
"""Bytes at the start of a file in which the root of a model is looked for."""


def claims(path: Path) -> bool:
    """Claim an .xml file whose root is a network of OpenVINO."""
    return path.suffix.lower() == ".xml" and b"<net " in digest.read_head(path, _HEAD)


@describing()
def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Read the graph's inputs and constants.

    Raises:
        RequestError: a file is missing, or is no model of OpenVINO.
    """
    del seed, trust  # nothing in it is random, and nothing is executed
    path = Path(ref.locator)
    constants = path.with_suffix(".bin")
    for file in (path, constants):
        if not file.is_file():
            raise RequestError(
                f"There is no file '{file}'; give the .xml file, with its .bin file beside it."
            )
    try:
        layers = list(ET.parse(path).getroot().iterfind("layers/layer"))  # noqa: S314 - expat bounds what entities expand to
        inputs, weights = tuple(_inputs(layers)), tuple(_weights(layers))
    except (ET.ParseError, ValueError, LookupError, AttributeError) as error:
        raise RequestError(f"'{path}' is no model of OpenVINO, or is damaged; convert it again.") from error
    return Model(
        identity=ModelIdentity(
            name=path.stem, digest=digest.digest_files([path, constants]), framework="openvino"
        ),
        form=Form.OPENVINO,
        value=path,
        inputs=inputs,
        weights=lambda: weights,
        guesses=partial(guess_sizes, inputs),
        file_bytes=path.stat().st_size + constants.stat().st_size,
    )


look = load
"""The constants are digested only."""


def _inputs(layers: list[ET.Element]) -> Iterator[InputSpec]:
    """Declare the inputs; the first of the free dimensions is the batch, others are numbered."""
    for layer in layers:
        if layer.get("type") != "Parameter":
            continue
        data, port = layer.find("data"), layer.find("output/port")
        assert data is not None
        names = "" if port is None else port.get("names", "")
        sizes = [size.strip() for size in data.get("shape", "").split(",") if size.strip()]
        name = names.split(",")[0] or layer.get("name", "")
        yield InputSpec(
            name=name,
            shape=None
            if "..." in sizes
            else tuple(_size(size, axis, name) for axis, size in enumerate(sizes)),
            dtype=_DTYPES[data.get("element_type", "")],
        )


def _size(text: str, axis: int, name: str) -> int | str:
    if text.isdigit():
        return int(text)
    return BATCH if axis == 0 else f"{name}_dim{axis}"


def _weights(layers: list[ET.Element]) -> Iterator[Weight]:
    for layer in layers:
        data = layer.find("data")
        if layer.get("type") != "Const" or data is None:
            continue
        dtype = data.get("element_type", "")
        shape = tuple(int(size) for size in data.get("shape", "").split(",") if size.strip())
        yield Weight(
            name=layer.get("name", ""),
            shape=shape,
            dtype=_DTYPES.get(dtype, dtype),
            size=math.prod(shape),
            bytes=int(data.get("size", "0")),
            parameter=dtype in {"f16", "bf16", "f32", "f64", "i8", "u8", "i4", "u4"} and math.prod(shape) > 1,
        )
