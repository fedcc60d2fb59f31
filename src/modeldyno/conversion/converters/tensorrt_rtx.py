"""``tensorrt-rtx``: an engine of TensorRT for RTX, with weights as they are.

It is built for every GPU that it supports, with or without one here.
"""

from __future__ import annotations

from functools import partial

from modeldyno.conversion.converters import tensorrt_build

sources = tensorrt_build.sources_of("tensorrt_rtx")
file = tensorrt_build.FILE
loader = backend = "tensorrt"
lossy = False
convert = partial(tensorrt_build.build_engine, package="tensorrt_rtx", half=False)
