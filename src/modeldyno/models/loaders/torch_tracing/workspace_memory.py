"""Workspace memory of torch's CPU kernels: what they allocate for the duration of a call.

Measured by recording single calls with torch's profiler; valid for the layouts that oneDNN chooses where
channels fill its blocks (16 numbers with AVX-512, 8 with AVX2). Recurrent and transposed grouped kernels are
right to a few per cent; reductions per thread are not modelled.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from modeldyno.models.static.graph import Tensor

_UNBLOCKED_CHANNELS = 4
"""Channels up to which oneDNN reads an image unblocked."""
_SMALL_BLOCK = 8
"""Channels up to which its input blocks have this size."""
_MAX_NATIVE_ELEMENTS = 20480
"""Elements up to which a single image does not use oneDNN (ConvParams::use_mkldnn)."""


def workspace_bytes(name: str, arguments: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Return the workspace bytes of a call; 0 for an operator that is not in the table."""
    rule = _RULES.get(name)
    return 0 if rule is None else rule(arguments, outputs)


def _convolution(arguments: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Copy input and weight into channel blocks, and the output out of them."""
    source, weight, output = arguments["input"], arguments["weight"], outputs[0]
    if arguments.get("transposed", False):
        blocks: int = 2 * output.bytes
        return blocks if _is_blocked(source, weight, arguments) else _col2im_bytes(source, weight)
    if not _is_blocked(source, weight, arguments):
        return _im2col_bytes(source, weight, output)
    if prod(weight.shape[2:]) == 1:
        strided = prod(arguments.get("stride", (1,))) > 1
        return _blocked_bytes(source) + weight.bytes + _strided_copy_bytes(source, output) if strided else 0
    input_bytes, weight_bytes, output_bytes = _in_blocks(source, weight, output, arguments.get("groups", 1))
    return max(input_bytes + weight_bytes, output.bytes) + output_bytes - output.bytes


def _in_blocks(source: Tensor, weight: Tensor, output: Tensor, groups: int) -> tuple[int, int, int]:
    """Return the bytes of input, weight and output in blocks, the last of which may be padded."""
    depthwise = groups > 1 and weight.shape[1] == 1
    if groups > 1 and not depthwise:
        return source.bytes, weight.bytes, output.bytes
    in_channels, out_channels = source.shape[1], output.shape[1]
    if in_channels <= _UNBLOCKED_CHANNELS and not depthwise:
        return 0, _padded_bytes(weight.bytes, out_channels), _padded_bytes(output.bytes, out_channels)
    small = in_channels <= _SMALL_BLOCK and not depthwise
    input_bytes = (
        _padded_bytes(source.bytes, in_channels, _SMALL_BLOCK)
        if small
        else _padded_bytes(source.bytes, in_channels)
    )
    weight_bytes = _padded_bytes(weight.bytes, out_channels)
    if not depthwise:
        weight_bytes = (
            _padded_bytes(weight_bytes, in_channels, _SMALL_BLOCK)
            if small
            else _padded_bytes(weight_bytes, in_channels)
        )
    return input_bytes, weight_bytes, _padded_bytes(output.bytes, out_channels)


def _padded_bytes(size: int, channels: int, block: int = 0) -> int:
    """Pad the last channel block."""
    block = block or (16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8)
    return size * (-(-channels // block) * block) // channels


def _convolution_backward(arguments: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Copy input and gradient into blocks, and the weight gradient out of them."""
    del outputs
    gradient, source, weight = arguments["grad_output"], arguments["input"], arguments["weight"]
    if not _is_blocked(source, weight, arguments):
        return _im2col_bytes(source, weight, gradient)
    if prod(weight.shape[2:]) == 1 and prod(arguments.get("stride", (1,))) == 1:
        return 0
    peak: int = max(_blocked_bytes(source) + gradient.bytes, weight.bytes)
    return peak


def _product(*names: str) -> Callable[[Mapping[str, Any], tuple[Tensor, ...]], int]:
    """Copy expanded operands: BLAS needs them contiguous."""

    def rule(arguments: Mapping[str, Any], _outputs: tuple[Tensor, ...]) -> int:
        operands = (arguments[name] for name in names)
        return sum(prod(t.shape) * t.bytes // max(1, t.stored) for t in operands if t.stored is not None)

    return rule


def _is_blocked(source: Tensor, weight: Tensor, arguments: Mapping[str, Any]) -> bool:
    large = all(size > 3 for size in weight.shape[2:])
    return bool(
        arguments.get("groups", 1) > 1 or large or source.shape[0] > 1 or source.size > _MAX_NATIVE_ELEMENTS
    )


def _blocked_bytes(source: Tensor) -> int:
    return source.bytes if len(source.shape) > 1 and source.shape[1] > _UNBLOCKED_CHANNELS else 0


def _strided_copy_bytes(source: Tensor, output: Tensor) -> int:
    """Subsample the image for the stride once per thread (rtus_prepare_space_info of oneDNN)."""
    channels = source.shape[1] if len(source.shape) > 1 else 1
    image = channels * prod(output.shape[2:]) * _width(source)
    return torch.get_num_threads() * image


def _im2col_bytes(source: Tensor, weight: Tensor, output: Tensor) -> int:
    """Unfold the windows of each image (im2col); windows of one element are the image itself."""
    window = prod(weight.shape[1:])
    if prod(weight.shape[2:]) == 1 or not source.shape:
        return 0
    return output.shape[0] * window * prod(output.shape[2:]) * _width(source)


def _col2im_bytes(source: Tensor, weight: Tensor) -> int:
    """Expand each element of an image to its window, before the windows are added up (col2im)."""
    return prod(weight.shape[1:]) * prod(source.shape[2:]) * _width(source)


def _recurrent(arguments: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Copy input and weights into blocks, and keep the gates of all steps; a part is unknown."""
    weights = (arguments[name] for name in ("weight0", "weight1", "weight2", "weight3"))
    gates = outputs[0].bytes // max(1, outputs[0].shape[-1]) * arguments["weight0"].shape[0]
    copied_bytes: int = arguments["input"].bytes + sum(w.bytes for w in weights)
    return copied_bytes + int(gates)


def _recurrent_backward(arguments: Mapping[str, Any], _outputs: tuple[Tensor, ...]) -> int:
    """Copy as in the forward pass; for wide layers the weight gradients too."""
    weights = sum(arguments[name].bytes for name in ("weight1", "weight2", "weight3", "weight4"))
    output = arguments["output"]
    gates = output.bytes // max(1, output.shape[-1]) * arguments["weight1"].shape[0]
    copies = 2 if output.shape[-1] > _WIDE_STATE else 1
    return int(arguments["input"].bytes + copies * weights + gates)


_WIDE_STATE = 128
"""State size up to which weight gradients are computed in place."""


def _encoder_layer(arguments: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Hold the attention of torch's fast path, or the inner layer of the feed-forward network."""
    output = outputs[0]
    batch, length, _ = output.shape
    inner = arguments["ffn_weight_1"].shape[0] * batch * length * _width(output)
    scores = arguments["num_heads"] * batch * length**2 * _width(output)
    peak: int = max(6 * output.bytes, scores + 3 * output.bytes, inner + 2 * output.bytes)
    return peak - output.bytes


def _attention_layer(arguments: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> int:
    """Hold queries, keys and values twice, or with the scores of all heads."""
    output = outputs[0]
    batch, length, _ = output.shape
    scores = arguments["num_head"] * batch * length**2 * _width(output)
    weights_bytes = output.bytes if arguments.get("need_weights", True) else 0
    peak: int = max(6 * output.bytes, scores + 3 * output.bytes + weights_bytes)
    return peak - output.bytes


def _width(tensor: Tensor) -> int:
    """Return the bytes of one element."""
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
