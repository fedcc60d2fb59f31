"""``onnx-int8``: an ONNX file with int8 weights, quantised by ONNX Runtime; it loses precision."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.conversion.converters.onnx_float_file import SOURCES, float_file, keep_scopes
from modeldyno.conversion.interface import ConvertedFile

if TYPE_CHECKING:
    from modeldyno.conversion.interface import ConversionSource

sources = SOURCES
file = "model.onnx"
loader = "onnx"
backend = "onnxruntime"
lossy = True


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Quantise the weights of matrix products and convolutions; activations are quantised at each call."""
    import onnxruntime  # optional, and heavy
    from onnxruntime.quantization import QuantType, quantize_dynamic  # optional
    from onnxruntime.quantization.shape_inference import quant_pre_process  # optional

    with tempfile.TemporaryDirectory(prefix="modeldyno-int8-") as folder:
        floats, converters = float_file(source, folder, opset)
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(floats), str(prepared), skip_symbolic_shape=True)
        # Weights of 7 bits: an x86 processor without VNNI adds products in 16 bits, which 8 bits overflow.
        quantize_dynamic(str(prepared), str(path), weight_type=QuantType.QInt8, reduce_range=True)
        keep_scopes(floats, path)
    return ConvertedFile(converter=", ".join((*converters, f"onnxruntime {onnxruntime.__version__}")))
