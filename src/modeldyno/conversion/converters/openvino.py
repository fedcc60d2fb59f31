"""``openvino``: OpenVINO's own format (.xml and .bin), from ONNX or PyTorch, with weights as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.system.variables import without_telemetry
from modeldyno.conversion.converters import torch_program
from modeldyno.conversion.interface import ConvertedFile
from modeldyno.models.interface import SourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.conversion.interface import ConversionSource

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
    with without_telemetry():
        import openvino  # optional, and heavy

    onnx = source.kind == SourceKind.ONNX
    program = str(source.model.value) if onnx else torch_program.export_program(source)
    with without_telemetry():
        made = openvino.convert_model(program)
    if not onnx:
        for ports, names in (
            (made.inputs, tuple(source.example)),
            (made.outputs, tuple(spec.name for spec in source.outputs)),
        ):
            for port, name in zip(ports, names, strict=True):
                port.get_tensor().set_names({name})
    openvino.save_model(made, str(path), compress_to_fp16=False)
    return ConvertedFile(converter=f"openvino {openvino.__version__.partition('-')[0]}")
