"""Writes the models beside it: ``python tests/golden/tflite/generate.py``, with TensorFlow installed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def convert(name: str, layers: list[Any], columns: int, *, small: bool = False) -> None:
    """Convert a network of `columns` numbers, with weights of eight bits if small."""
    import keras
    import tensorflow as tf

    model = keras.Sequential([keras.Input((columns,), name="x"), *layers])
    for variable in model.weights:
        variable.assign(variable * 0 + 0.5)
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        if small:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        (HERE / name).write_bytes(converter.convert())


def main() -> None:
    """Write both."""
    from keras import layers

    convert("dense.tflite", [layers.Dense(3, activation="relu"), layers.Dense(2)], 4)
    convert("dense_int8.tflite", [layers.Dense(64)], 64, small=True)


if __name__ == "__main__":
    main()
