"""``tflite-int8``: a file of TensorFlow Lite with int8 weights (dynamic range); it loses precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.converters import tflite

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.interfaces.converter import ConversionSource, ConvertedFile

sources = dict(tflite.sources)
file = "model.tflite"
loader = "tflite"
backend = "tflite"
lossy = True


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Convert the Keras model, quantising its weights."""
    del opset
    import tensorflow as tf  # noqa: PLC0415 - optional, and heavy

    return tflite.write_tflite(source, path, (tf.lite.Optimize.DEFAULT,))
