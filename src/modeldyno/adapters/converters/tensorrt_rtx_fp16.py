"""``tensorrt-rtx-fp16``: an engine of TensorRT for RTX, in half precision.

It is built for every GPU that it supports, with or without one here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.converters import tensorrt_build

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.interfaces.converter import ConversionSource, ConvertedFile

sources = tensorrt_build.sources_of("tensorrt_rtx")
file = tensorrt_build.FILE
loader = "tensorrt"
backend = "tensorrt"
lossy = True


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Build the engine, from an ONNX file in half precision."""
    return tensorrt_build.build_engine(source, path, opset=opset, package="tensorrt_rtx", half=True)
