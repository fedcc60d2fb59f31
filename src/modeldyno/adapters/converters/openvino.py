"""``openvino``: OpenVINO's own format (.xml and .bin), from ONNX or PyTorch, with weights as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.converters import torch_program
from modeldyno.interfaces.converter import ConvertedFile, SourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.interfaces.converter import ConversionSource

sources = {
    SourceKind.ONNX: ("openvino",),
    SourceKind.TORCH: ("torch", "openvino"),
}
file = "model.xml"
loader = "openvino"
backend = "openvino"
lossy = False


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Convert; weights are not compressed to float16, which OpenVINO would do unless told not to."""
    del opset
    import openvino  # noqa: PLC0415 - optional, and heavy

    if source.kind == SourceKind.ONNX:
        made = openvino.convert_model(str(source.model.value))
    else:
        made = openvino.convert_model(torch_program.export_program(source))
        for ports, names in (
            (made.inputs, tuple(source.example)),
            (made.outputs, tuple(spec.name for spec in source.outputs)),
        ):
            for port, name in zip(ports, names, strict=True):
                port.get_tensor().set_names({name})
    openvino.save_model(made, str(path), compress_to_fp16=False)
    return ConvertedFile(converter=f"openvino {openvino.__version__.partition('-')[0]}")
