"""``tensorrt-fp16``: an engine of TensorRT for the GPU of this machine, in half precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.converters import tensorrt_build

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.interfaces.converter import ConversionSource, ConvertedFile

sources = tensorrt_build.sources_of("tensorrt")
file = tensorrt_build.FILE
loader = "tensorrt"
backend = "tensorrt"
lossy = True


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Build the engine, from an ONNX file in half precision."""
    return tensorrt_build.build_engine(source, path, opset=opset, package="tensorrt", half=True)
