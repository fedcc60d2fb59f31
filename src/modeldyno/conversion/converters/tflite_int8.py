"""``tflite-int8``: a file of TensorFlow Lite with int8 weights (dynamic range); it loses precision."""

from __future__ import annotations

from functools import partial

from modeldyno.conversion.converters import tflite

sources, file, loader, backend = tflite.sources, tflite.file, tflite.loader, tflite.backend
lossy = True
convert = partial(tflite.convert, int8=True)
