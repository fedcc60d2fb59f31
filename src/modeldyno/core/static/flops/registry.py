"""The table of all formulas: those of each dialect, and a user's own."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from modeldyno.core.static.flops.aten import ATEN
from modeldyno.core.static.flops.onnx import ONNX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modeldyno.core.static.flops import Formula

_NONE: Mapping[str, Formula] = MappingProxyType({})


def formulas(extra: Mapping[str, Formula] = _NONE) -> Mapping[str, Formula]:
    """Merge the formulas of all dialects with `extra`, which wins."""
    return MappingProxyType({**ATEN, **ONNX, **extra})


def convention(formula: Formula) -> str:
    """Tell in a sentence what a formula counts, with the numbers that it was given."""
    function: Callable[..., object] = getattr(formula, "func", formula)
    given: dict[str, object] = getattr(formula, "keywords", {})
    text = (function.__doc__ or "").partition("\n")[0]
    return text + "".join(f" {name} = {value}." for name, value in given.items() if value != "")
