"""Memory that torch's kernels on the CPU take for the length of a call, beyond what they return.

Found by recording single calls with torch's profiler, and true of the layouts that oneDNN chooses where
channels fill its blocks (16 numbers with AVX-512, 8 with AVX2). That of recurrent and of transposed grouped
kernels is right to a few per cent; reductions per thread are not foreseen.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from modeldyno.core.graph import Tensor

_IMAGE = 4
"""Channels up to which oneDNN reads an image as it is."""
_FEW = 20480
"""Elements up to which a single image goes another way than oneDNN (ConvParams::use_mkldnn)."""


def scratch(name: str, given: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Give the bytes that a call takes for itself; 0 for an operator that is not in the table."""
    rule = _RULES.get(name)
    return 0 if rule is None else rule(given, outputs)


def _convolution(given: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Copy input and weight into blocks, and the output out of them."""
    source, weight, output = given["input"], given["weight"], outputs[0]
    if given.get("transposed", False):
        blocks: int = 2 * output.bytes
        return blocks if _is_blocked(source, weight, given) else _spread(source, weight)
    if not _is_blocked(source, weight, given):
        return _columns(source, weight, output)
    if prod(weight.shape[2:]) == 1 and prod(given.get("stride", (1,))) > 1:
        strided: int = _blocked(source) + weight.bytes + _thinned(source, output)
        return strided
    held: int = max(_blocked(source) + weight.bytes, output.bytes)
    return held


def _convolution_backward(given: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Copy input and gradient into blocks, and the gradient of the weight out of them."""
    del outputs
    gradient, source, weight = given["grad_output"], given["input"], given["weight"]
    if not _is_blocked(source, weight, given):
        return _columns(source, weight, gradient)
    held: int = max(_blocked(source) + gradient.bytes, weight.bytes)
    return held


def _product(*names: str) -> Callable[[Mapping[str, Any], tuple[Tensor, ...]], int]:
    """Copy operands that are repeated in place of being stored: BLAS wants them whole."""

    def rule(given: Mapping[str, Any], _outputs: tuple[Tensor, ...]) -> int:
        operands = (given[name] for name in names)
        return sum(prod(t.shape) * t.bytes // max(1, t.stored) for t in operands if t.stored is not None)

    return rule


def _is_blocked(source: Tensor, weight: Tensor, given: Mapping[str, Any]) -> bool:
    large = all(size > 3 for size in weight.shape[2:])  # noqa: PLR2004 - of ConvParams::use_mkldnn
    return bool(given.get("groups", 1) > 1 or large or source.shape[0] > 1 or source.size > _FEW)


def _blocked(source: Tensor) -> int:
    return source.bytes if len(source.shape) > 1 and source.shape[1] > _IMAGE else 0


def _thinned(source: Tensor, output: Tensor) -> int:
    """Each thread thins an image out to the steps of the stride first (rtus_prepare_space_info of oneDNN)."""
    channels = source.shape[1] if len(source.shape) > 1 else 1
    image = channels * prod(output.shape[2:]) * (source.bytes // max(1, source.size))
    return torch.get_num_threads() * image


def _columns(source: Tensor, weight: Tensor, output: Tensor) -> int:
    """Unfold the windows of each image; those of one element are the image itself."""
    window = prod(weight.shape[1:])
    if prod(weight.shape[2:]) == 1 or not source.shape:
        return 0
    return output.shape[0] * window * prod(output.shape[2:]) * (source.bytes // max(1, source.size))


def _spread(source: Tensor, weight: Tensor) -> int:
    """Spread each element of an image over its window, before the windows are added up."""
    return prod(weight.shape[1:]) * prod(source.shape[2:]) * (source.bytes // max(1, source.size))


def _recurrent(given: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Copy input and weights into blocks, and keep the gates of all steps; some of a workspace is unknown."""
    weights = (given[name] for name in ("weight0", "weight1", "weight2", "weight3"))
    gates = outputs[0].bytes // max(1, outputs[0].shape[-1]) * given["weight0"].shape[0]
    copied: int = given["input"].bytes + sum(w.bytes for w in weights)
    return copied + int(gates)


_RULES: dict[str, Callable[[Mapping[str, Any], tuple[Tensor, ...]], int]] = {
    "aten.convolution": _convolution,
    "aten.convolution_backward": _convolution_backward,
    "aten.mkldnn_rnn_layer": _recurrent,
    "aten.mm": _product("self", "mat2"),
    "aten.addmm": _product("mat1", "mat2"),
}
