"""``tflite``: a file of TensorFlow Lite (LiteRT), from Keras, with weights as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.conversion.interface import ConvertedFile
from modeldyno.models.interface import SourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.conversion.interface import ConversionSource

sources = {SourceKind.KERAS: ("keras", "tensorflow", "ai_edge_litert")}
file = "model.tflite"
loader = "tflite"
backend = "tflite"
lossy = False


def convert(source: ConversionSource, path: Path, *, opset: int | None, int8: bool = False) -> ConvertedFile:
    """Convert the Keras model, and quantise its weights if they are to be int8."""
    del opset
    import tensorflow as tf  # optional, and heavy

    converter = tf.lite.TFLiteConverter.from_keras_model(source.model.value.model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT] if int8 else []
    path.write_bytes(converter.convert())
    return ConvertedFile(converter=f"tensorflow {tf.__version__}")
