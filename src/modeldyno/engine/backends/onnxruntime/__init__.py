"""ONNX Runtime: sessions, times of nodes, operators."""

from __future__ import annotations
