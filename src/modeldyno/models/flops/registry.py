"""The registry of all formulas: PyTorch, ONNX, TensorFlow, TensorFlow Lite, and the user's own."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from modeldyno.models.flops.aten import ATEN
from modeldyno.models.flops.onnx import ONNX
from modeldyno.models.flops.tensorflow import TENSORFLOW
from modeldyno.models.flops.tflite import TFLITE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modeldyno.models.flops import Formula

_NONE: Mapping[str, Formula] = MappingProxyType({})


def formulas(extra: Mapping[str, Formula] = _NONE) -> Mapping[str, Formula]:
    """Return the formulas of all dialects; `extra` overrides them."""
    return MappingProxyType({**ATEN, **ONNX, **TENSORFLOW, **TFLITE, **extra})


def describe_formula(formula: Formula) -> str:
    """Describe in a sentence what a formula counts, with its parameters."""
    function: Callable[..., object] = getattr(formula, "func", formula)
    parameters: dict[str, object] = getattr(formula, "keywords", {})
    text = (function.__doc__ or "").partition("\n")[0]
    return text + "".join(f" {name} = {value}." for name, value in parameters.items() if value != "")
