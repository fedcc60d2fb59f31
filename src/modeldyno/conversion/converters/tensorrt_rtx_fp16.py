"""``tensorrt-rtx-fp16``: an engine of TensorRT for RTX, in half precision.

It is built for every GPU that it supports, with or without one here.
"""

from __future__ import annotations

from functools import partial

from modeldyno.conversion.converters import tensorrt_build

sources = tensorrt_build.sources_of("tensorrt_rtx")
file = tensorrt_build.FILE
loader = backend = "tensorrt"
lossy = True
convert = partial(tensorrt_build.build_engine, package="tensorrt_rtx", half=True)
