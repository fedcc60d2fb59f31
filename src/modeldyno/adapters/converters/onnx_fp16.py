"""``onnx-fp16``: an ONNX file in half precision, converted by ONNX Runtime; it loses precision."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from modeldyno.adapters.converters.onnx_float_file import SOURCES, float_file, keep_scopes
from modeldyno.interfaces.converter import ConvertedFile

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.interfaces.converter import ConversionSource

sources = SOURCES
file = "model.onnx"
loader = "onnx"
backend = "onnxruntime"
lossy = True


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Make weights and operators float16 where they can be; inputs and outputs keep their types."""
    import onnx  # noqa: PLC0415 - optional, and heavy
    import onnxruntime  # noqa: PLC0415 - as above
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory(prefix="modeldyno-fp16-") as folder:
        floats, converters = float_file(source, folder, opset)
        onnx.save(convert_float_to_float16(onnx.load(str(floats)), keep_io_types=True), str(path))
        keep_scopes(floats, path)
    return ConvertedFile(converter=", ".join((*converters, f"onnxruntime {onnxruntime.__version__}")))
