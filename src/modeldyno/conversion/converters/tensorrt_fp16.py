"""``tensorrt-fp16``: an engine of TensorRT for the GPU of this machine, in half precision."""

from __future__ import annotations

from functools import partial

from modeldyno.conversion.converters import tensorrt_build

sources = tensorrt_build.sources_of("tensorrt")
file = tensorrt_build.FILE
loader = backend = "tensorrt"
lossy = True
convert = partial(tensorrt_build.build_engine, package="tensorrt", half=True)
