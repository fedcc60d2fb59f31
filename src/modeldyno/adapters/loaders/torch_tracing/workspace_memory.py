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

    from modeldyno.core.static.graph import Tensor

_IMAGE = 4
"""Channels up to which oneDNN reads an image as it is."""
_SMALL = 8
"""Channels up to which its blocks of input have no more than these."""
_FEW = 20480
"""Elements up to which a single image goes another way than oneDNN (ConvParams::use_mkldnn)."""


def scratch(name: str, given: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Give the bytes that a call takes for itself; 0 for an operator that is not in the table."""
    rule = _RULES.get(name)
    return 0 if rule is None else rule(given, outputs)


def _convolution(given: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Copy input and weight into blocks of channels, and the output out of them."""
    source, weight, output = given["input"], given["weight"], outputs[0]
    if given.get("transposed", False):
        blocks: int = 2 * output.bytes
        return blocks if _is_blocked(source, weight, given) else _spread(source, weight)
    if not _is_blocked(source, weight, given):
        return _columns(source, weight, output)
    if prod(weight.shape[2:]) == 1:
        strided = prod(given.get("stride", (1,))) > 1
        return _blocked(source) + weight.bytes + _thinned(source, output) if strided else 0
    within, filters, out = _in_blocks(source, weight, output, given.get("groups", 1))
    return max(within + filters, output.bytes) + out - output.bytes


def _in_blocks(source: Tensor, weight: Tensor, output: Tensor, groups: int) -> tuple[int, int, int]:
    """Give the bytes of input, weight and output in blocks, the last of which may not be full."""
    depthwise = groups > 1 and weight.shape[1] == 1
    if groups > 1 and not depthwise:
        return source.bytes, weight.bytes, output.bytes
    read, made = source.shape[1], output.shape[1]
    if read <= _IMAGE and not depthwise:
        return 0, _padded(weight.bytes, made), _padded(output.bytes, made)
    small = read <= _SMALL and not depthwise
    within = _padded(source.bytes, read, _SMALL) if small else _padded(source.bytes, read)
    filters = _padded(weight.bytes, made)
    if not depthwise:
        filters = _padded(filters, read, _SMALL) if small else _padded(filters, read)
    return within, filters, _padded(output.bytes, made)


def _padded(size: int, channels: int, block: int = 0) -> int:
    """Fill up the last block of channels."""
    block = block or (16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8)
    return size * (-(-channels // block) * block) // channels


def _convolution_backward(given: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Copy input and gradient into blocks, and the gradient of the weight out of them."""
    del outputs
    gradient, source, weight = given["grad_output"], given["input"], given["weight"]
    if not _is_blocked(source, weight, given):
        return _columns(source, weight, gradient)
    if prod(weight.shape[2:]) == 1 and prod(given.get("stride", (1,))) == 1:
        return 0
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
    image = channels * prod(output.shape[2:]) * _width(source)
    return torch.get_num_threads() * image


def _columns(source: Tensor, weight: Tensor, output: Tensor) -> int:
    """Unfold the windows of each image; those of one element are the image itself."""
    window = prod(weight.shape[1:])
    if prod(weight.shape[2:]) == 1 or not source.shape:
        return 0
    return output.shape[0] * window * prod(output.shape[2:]) * _width(source)


def _spread(source: Tensor, weight: Tensor) -> int:
    """Spread each element of an image over its window, before the windows are added up."""
    return prod(weight.shape[1:]) * prod(source.shape[2:]) * _width(source)


def _recurrent(given: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Copy input and weights into blocks, and keep the gates of all steps; some of a workspace is unknown."""
    weights = (given[name] for name in ("weight0", "weight1", "weight2", "weight3"))
    gates = outputs[0].bytes // max(1, outputs[0].shape[-1]) * given["weight0"].shape[0]
    copied: int = given["input"].bytes + sum(w.bytes for w in weights)
    return copied + int(gates)


def _recurrent_backward(given: Mapping[str, Any], _outputs: tuple[Tensor, ...]) -> int:
    """Copy as in the forward course; of wide layers the gradients of the weights, too."""
    weights = sum(given[name].bytes for name in ("weight1", "weight2", "weight3", "weight4"))
    output = given["output"]
    gates = output.bytes // max(1, output.shape[-1]) * given["weight1"].shape[0]
    copies = 2 if output.shape[-1] > _WIDE else 1
    return int(given["input"].bytes + copies * weights + gates)


_WIDE = 128
"""Numbers in a state up to which gradients of weights are made where they are returned."""


def _encoder_layer(given: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Hold the attention of torch's fast path, or the inner layer of the network that follows it."""
    output = outputs[0]
    batch, length, _ = output.shape
    inner = given["ffn_weight_1"].shape[0] * batch * length * _width(output)
    scores = given["num_heads"] * batch * length**2 * _width(output)
    held: int = max(6 * output.bytes, scores + 3 * output.bytes, inner + 2 * output.bytes)
    return held - output.bytes


def _attention_layer(given: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Hold queries, keys and values twice, or with the scores of all heads."""
    output = outputs[0]
    batch, length, _ = output.shape
    scores = given["num_head"] * batch * length**2 * _width(output)
    weighed = output.bytes if given.get("need_weights", True) else 0
    held: int = max(6 * output.bytes, scores + 3 * output.bytes + weighed)
    return held - output.bytes


def _width(tensor: Tensor) -> int:
    """Give the bytes of one element."""
    return tensor.bytes // max(1, tensor.size)


_RULES: dict[str, Callable[[Mapping[str, Any], tuple[Tensor, ...]], int]] = {
    "aten.convolution": _convolution,
    "aten.convolution_backward": _convolution_backward,
    "aten._transformer_encoder_layer_fwd": _encoder_layer,
    "aten._native_multi_head_attention": _attention_layer,
    "aten.mkldnn_rnn_layer": _recurrent,
    "aten.mkldnn_rnn_layer_backward": _recurrent_backward,
    "aten.mm": _product("self", "mat2"),
    "aten.addmm": _product("mat1", "mat2"),
}
