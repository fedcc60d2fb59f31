"""The operators of an ONNX file with every shape, without running it."""

from __future__ import annotations
