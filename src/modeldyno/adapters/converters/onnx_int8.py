"""``onnx-int8``: an ONNX file with int8 weights, quantised by ONNX Runtime; it loses precision."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.adapters.converters import onnx as to_onnx
from modeldyno.interfaces.converter import ConvertedFile, SourceKind

if TYPE_CHECKING:
    from modeldyno.interfaces.converter import ConversionSource

_NEEDED = ("onnx", "onnxruntime")
sources = {
    SourceKind.ONNX: _NEEDED,
    SourceKind.TORCH: (*to_onnx.sources[SourceKind.TORCH],),
    SourceKind.EXPORTED: (*to_onnx.sources[SourceKind.EXPORTED],),
    SourceKind.KERAS: (*to_onnx.sources[SourceKind.KERAS],),
}
file = "model.onnx"
loader = "onnx"
backend = "onnxruntime"
lossy = True


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Quantise the weights of matrix products and convolutions; activations are quantised at each call."""
    import onnxruntime  # noqa: PLC0415 - optional, and heavy
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - optional
    from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: PLC0415 - optional

    quantiser = f"onnxruntime {onnxruntime.__version__}"
    with tempfile.TemporaryDirectory(prefix="modeldyno-int8-") as folder:
        floats = Path(folder) / "floats.onnx"
        if source.kind == SourceKind.ONNX:
            floats, converter = Path(source.model.value), quantiser
        else:
            made = to_onnx.convert(source, floats, opset=opset)
            converter = f"{made.converter}, {quantiser}"
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(floats), str(prepared), skip_symbolic_shape=True)
        quantize_dynamic(str(prepared), str(path), weight_type=QuantType.QInt8)
    return ConvertedFile(converter=converter)
