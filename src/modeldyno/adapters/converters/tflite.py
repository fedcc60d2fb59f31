"""``tflite``: a file of TensorFlow Lite (LiteRT), from Keras, with weights as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.interfaces.converter import ConvertedFile, SourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.interfaces.converter import ConversionSource

sources = {SourceKind.KERAS: ("keras", "tensorflow", "ai_edge_litert")}
file = "model.tflite"
loader = "tflite"
backend = "tflite"
lossy = False


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Convert the Keras model."""
    del opset
    return write_tflite(source, path, ())


def write_tflite(source: ConversionSource, path: Path, optimizations: tuple[Any, ...]) -> ConvertedFile:
    """Convert the Keras model with optimizations of TensorFlow Lite."""
    import tensorflow as tf  # noqa: PLC0415 - optional, and heavy

    converter = tf.lite.TFLiteConverter.from_keras_model(source.model.value.model)
    converter.optimizations = list(optimizations)
    path.write_bytes(converter.convert())
    return ConvertedFile(converter=f"tensorflow {tf.__version__}")
