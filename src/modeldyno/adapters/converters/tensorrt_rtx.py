"""``tensorrt-rtx``: an engine of TensorRT for RTX, with weights as they are.

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
lossy = False


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Build the engine; it computes in float32, not in TF32."""
    return tensorrt_build.build_engine(source, path, opset=opset, package="tensorrt_rtx")
