"""``onnx``: an ONNX file, from PyTorch, Keras, scikit-learn, XGBoost or LightGBM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.conversion.converters import estimator_to_onnx, torch_program
from modeldyno.conversion.interface import ConvertedFile
from modeldyno.models.interface import Form, SourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.conversion.interface import ConversionSource

sources = {
    SourceKind.TORCH: ("torch", "onnx", "onnxscript", "onnxruntime"),
    SourceKind.EXPORTED: ("torch", "onnx", "onnxscript", "onnxruntime"),
    SourceKind.KERAS: ("keras", "onnx", "onnxruntime"),
    "sklearn": ("sklearn", "onnx", "skl2onnx", "onnxruntime"),
    "xgboost": ("xgboost", "onnx", "onnxmltools", "skl2onnx", "onnxruntime"),
    "lightgbm": ("lightgbm", "onnx", "onnxmltools", "skl2onnx", "onnxruntime"),
}
file = "model.onnx"
loader = "onnx"
backend = "onnxruntime"
lossy = False


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Convert with the exporter of the source's framework."""
    if source.kind == SourceKind.KERAS and source.model.form != Form.TORCH:
        return _of_keras(source, path, opset)
    if source.model.form == Form.TORCH:
        return _of_torch(source, path, opset)
    return estimator_to_onnx.write_onnx(source, path, opset)


def _of_torch(source: ConversionSource, path: Path, opset: int | None) -> ConvertedFile:
    """Export by torch.onnx's exporter of exported programs; weights beyond 2 GB go to a file beside it."""
    import torch  # heavy

    with torch_program.quiet():
        program: Any = torch.onnx.export(
            torch_program.flat_module(source),
            torch_program.example_tensors(source),
            dynamo=True,
            input_names=list(source.example),
            output_names=[spec.name for spec in source.outputs],
            dynamic_shapes=torch_program.dynamic_axes(source),
            opset_version=opset,
            verbose=False,
        )
        program.save(str(path), external_data=_is_large(source))
    return ConvertedFile(converter=f"torch.onnx {torch.__version__}")


_MOST_BYTES = 1_900_000_000
"""Bytes of weights that still fit into one file: protobuf's limit is 2 GiB."""


def _is_large(source: ConversionSource) -> bool:
    tensors = source.model.value.state_dict().values()
    return sum(int(part.numel() * part.element_size()) for part in tensors) > _MOST_BYTES


def _of_keras(source: ConversionSource, path: Path, opset: int | None) -> ConvertedFile:
    """Export by Keras itself, which uses tf2onnx for TensorFlow and JAX."""
    import keras  # optional, and heavy

    if keras.backend.backend() != "torch":
        plugins.require(("tf2onnx",), "export of Keras to ONNX")
    options = {} if opset is None else {"opset_version": opset}
    model = source.model.value.model
    if isinstance(model, keras.Sequential) and model.inputs:
        model(model.inputs[0])  # Keras exports none that was loaded and not called; this computes nothing
    elif isinstance(model, keras.Model) and hasattr(model, "input"):
        model(model.input)
    model.export(str(path), format="onnx", verbose=False, **options)
    return ConvertedFile(converter=f"keras {keras.__version__}")
