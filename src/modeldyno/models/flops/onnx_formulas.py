"""Costs of the operators of ONNX and ONNX Runtime that have no counterpart in PyTorch.

Formulas use only sizes and attributes: axes given as an input follow from the shape of the output. Scales of
a quantised operator are element-wise: 2 operations to dequantise, 5 to quantise. A weight costs nothing to
dequantise, so that a model costs the same in whatever form its weights are stored.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from modeldyno.models.flops import Count, convolution, matmul
from modeldyno.models.flops.elementwise import (
    count_nothing,
    is_complex,
    per_element,
    tensor_arguments,
    total_bytes,
    total_elements,
)
from modeldyno.models.flops.pooling_fft import count_transforms
from modeldyno.models.static.graph import Op, Tensor, bits_per_element

if TYPE_CHECKING:
    from collections.abc import Sequence

_SILU = 5


def _first_tensor(op: Op) -> Tensor:
    """Return the first tensor among the arguments.

    Raises:
        ValueError: there is none.
    """
    first, *_ = op.tensors()
    return first


def _ints(op: Op, name: str) -> tuple[int, ...]:
    """Return an attribute that is a list of integers; empty where it was left out."""
    return tuple(op.arguments.get(name, ()))


# -- elements -------------------------------------------------------------------------------------------


def per_input_element(op: Op, *, operations: int = 1) -> Count:
    """Count operations for each element of the first input."""
    parts = 1 + any(map(is_complex, (_first_tensor(op), *op.outputs)))
    return Count(elementwise=operations * parts * _first_tensor(op).size)


def count_variadic(op: Op, *, operations: int = 0) -> Count:
    """Count one operation for each output and operand after the first, and `operations` for each output."""
    operands = len([*op.tensors()])
    return Count(elementwise=(operands - 1 + operations) * op.outputs[0].size)


def count_onnx_product(op: Op, *, operations: int) -> Count:
    """Count one operation for each output; `operations` for each complex one."""
    return Count(elementwise=(operations if is_complex(op.outputs[0]) else 1) * op.outputs[0].size)


def count_biased(op: Op, *, operations: int, bias: Sequence[str]) -> Count:
    """Count operations for each output, and one more for each bias that is given."""
    return per_element(op, operations=operations + sum(len(tensor_arguments(op, name)) for name in bias))


def count_bias_gelu(op: Op) -> Count:
    """Count the sum with the bias (1) and GELU (5) for each output."""
    return per_element(op, operations=6)


def count_onnx_dropout(op: Op) -> Count:
    """Count a random comparison and a product for each output where it trains; nothing at inference."""
    return (
        count_nothing(op)
        if op.outputs[0].storage == _first_tensor(op).storage
        else per_element(op, operations=2)
    )


def count_quantized_binary(op: Op) -> Count:
    """Count one operation for each output, 2 for the scale of each operand and 5 for that of the result."""
    return per_element(op, operations=1 + 2 * 2 + 5)


def count_quantized_unary(op: Op, *, operations: int) -> Count:
    """Count operations for each output, 2 for the scale of the input and 5 for that of the result."""
    return per_element(op, operations=operations + 2 + 5)


def count_dynamic_quantize(op: Op) -> Count:
    """Count minimum and maximum (2), quotient, rounding, shift and two bounds (5) for each input."""
    return per_input_element(op, operations=7)


def count_onnx_sort(op: Op) -> Count:
    """Count n log2 k comparisons for each row of n of which k are kept, as merge sort does."""
    data, axis = _first_tensor(op), op.arguments.get("axis", -1)
    kept = op.outputs[0].shape[axis] if op.kind == "onnx.TopK" else data.size
    return Count(elementwise=data.size * (max(kept, 1) - 1).bit_length())


# -- memory ---------------------------------------------------------------------------------------------


def count_slice(op: Op) -> Count:
    """Count no operation; as much is read as is written."""
    return Count(read=total_bytes(op.outputs))


def count_gather_quantized(op: Op) -> Count:
    """Count no operation; only the rows looked up are read from the table."""
    data = op.tensor("data")
    bits = op.arguments.get("bits", 4) if data.dtype == "uint8" else bits_per_element(data.dtype)
    return Count(read=op.outputs[0].size * bits // 8 + op.tensor("indices").bytes)


def count_gather_packed(op: Op) -> Count:
    """Count no operation; only the rows looked up are read from the table."""
    data, indices = op.tensor("data"), op.tensor("indices")
    return Count(read=indices.size * prod(data.shape[1:]) + indices.bytes)


def count_dequantize(op: Op) -> Count:
    """Count 2 operations for each output; none for a weight, whose stored form is no part of the model."""
    return count_nothing(op) if op.arguments.get(OF_WEIGHT) else per_element(op, operations=2)


OF_WEIGHT = "of_weight"
"""Argument of a de-quantising operator: whether it reads a weight."""


def count_onnx_scatter(op: Op) -> Count:
    """Count one operation for each update where they are reduced; everything is copied."""
    reduced = op.arguments.get("reduction", "none") != "none"
    return Count(elementwise=reduced * op.tensor("updates").size)


def count_non_max_suppression(op: Op) -> Count:
    """Count the n log2 n comparisons of sorting boxes by score, and 12 operations for each pair of them.

    The pairs are all those of a class, each compared once (Girshick, CVPR 2015, greedy suppression).
    """
    boxes = op.tensor("boxes").shape[1]
    classes = prod(op.tensor("scores").shape[:2])
    return Count(elementwise=classes * (boxes * boxes.bit_length() + 6 * boxes * (boxes - 1)))


# -- norms ----------------------------------------------------------------------------------------------


def count_onnx_norm(op: Op, *, operations: int, affine: Sequence[str] = ()) -> Count:
    """Count operations for each input, and one for each of scale and bias that is given."""
    return per_input_element(
        op, operations=operations + sum(len(tensor_arguments(op, name)) for name in affine)
    )


def count_onnx_batch_norm(op: Op) -> Count:
    """Count 2 operations for each element, for scale and shift fold; while training 4 more for statistics."""
    return per_input_element(op, operations=6 if op.arguments.get("training_mode") else 2)


def count_skip_norm(op: Op, *, operations: int, affine: Sequence[str]) -> Count:
    """Count the sum with the skip connection (and a bias), a norm, and one for each of scale and bias."""
    sums = sum(len(tensor_arguments(op, name)) for name in ("skip", "bias"))
    return count_onnx_norm(op, operations=operations + sums, affine=affine)


def count_embed_layer_norm(op: Op) -> Count:
    """Count the sums of the embeddings and a layer norm; only the rows looked up are read from the tables."""
    output = op.outputs[0]
    tables = [
        name
        for name in ("word", "position", "segment")
        if tensor_arguments(op, f"{name}_embedding") or tensor_arguments(op, f"{name}_embedding_quant")
    ]
    ids = ("input_ids", "segment_ids", "position_ids", "mask", "gamma", "beta")
    read = len(tables) * output.bytes + total_bytes(
        tensor for name in ids for tensor in tensor_arguments(op, name)
    )
    return Count(elementwise=(len(tables) - 1 + 7) * output.size, read=read)


def count_local_response_norm(op: Op) -> Count:
    """Count a square and a sum for each neighbour, and scale, shift, power and quotient for each input."""
    return per_input_element(op, operations=2 * op.arguments["size"] + 4)


# -- products -------------------------------------------------------------------------------------------


def count_onnx_matmul(
    op: Op, *, left: str = "A", extras: Sequence[str] = ("bias",), operations: int = 0
) -> Count:
    """Count for each output the products along the last dimension of the left, and a sum with a bias.

    `operations` are further ones for each output.
    """
    output = op.outputs[0]
    first = op.tensor(left)
    axis = -1 if not op.arguments.get("transA") or len(first.shape) == 1 else -2
    if op.arguments.get("transBatchA") and axis == -2:
        axis = 0
    macs = matmul.contraction_macs(op, first.shape[axis])
    more = operations + sum(len(tensor_arguments(op, name)) for name in extras)
    return Count(macs=macs, elementwise=more * output.size)


def count_fused_matmul(op: Op) -> Count:
    """Count a matrix product; a scale other than 1 is one operation for each output, an activation one."""
    scaled = op.arguments.get("alpha", 1) != 1
    return count_onnx_matmul(op, operations=scaled + bool(op.arguments.get("activation")))


def count_gemm(op: Op) -> Count:
    """Count a matrix product, one sum for each output with C; scales other than 1 are one more each."""
    arguments = op.arguments
    third = bool(tensor_arguments(op, "C"))
    more = third + (arguments.get("alpha", 1) != 1) + (third and arguments.get("beta", 1) != 1)
    return count_onnx_matmul(op, extras=(), operations=more + bool(arguments.get("activation")))


def count_gated_products(op: Op) -> Count:
    """Count the two products of MatMulNBitsMlp, SiLU (5), the product with the gate, a norm before them."""
    rows = prod(op.tensor("A").shape[:-1])
    output = op.outputs[0]
    more = _SILU + 1 + sum(len(tensor_arguments(op, name)) for name in ("gate_bias", "up_bias"))
    normed = _count_norm_before(op)
    return Count(
        macs=2 * rows * op.arguments["K"] * op.arguments["N"], elementwise=more * output.size + normed
    )


def count_packed_projections(op: Op) -> Count:
    """Count the three products of MatMulNBitsQkv with their biases, and a norm before them."""
    rows = prod(op.tensor("A").shape[:-1])
    attributes = op.arguments
    columns = attributes["Nq"] + 2 * attributes["Nkv"]
    biases = rows * total_elements(t for part in "qkv" for t in tensor_arguments(op, f"{part}_bias"))
    return Count(macs=rows * attributes["K"] * columns, elementwise=biases + _count_norm_before(op))


def _count_norm_before(op: Op) -> int:
    """Return the operations of an RMS norm with a scale, and of a sum before it, where they are fused."""
    sums = len(tensor_arguments(op, "skip")) + 4 * len(tensor_arguments(op, "norm_scale"))
    return sums * op.tensor("A").size


def count_adapted_matmul(op: Op) -> Count:
    """Count a product, the two of its adapter, and their sum; an empty adapter costs nothing."""
    rows = prod(op.tensor("X").shape[:-1])
    wide, narrow = op.arguments["K"], op.arguments["N"]
    rank = op.tensor("lora_A").shape[0] if op.tensor("lora_B").size else 0
    summed = op.outputs[0].size if rank else 0
    return Count(macs=rows * (wide * narrow + rank * (wide + narrow)), elementwise=summed)


def count_onnx_einsum(op: Op) -> Count:
    """Count one MAC for each combination of all indices, where some are summed and others are not.

    Three and more operands are contracted pairwise, from left to right, as PyTorch does.
    """
    arguments = {"equation": op.arguments["equation"], "tensors": tensor_arguments(op, "Inputs")}
    return matmul.count_einsum(Op(op.kind, arguments, op.outputs))


def count_onnx_convolution(
    op: Op,
    *,
    data: str = "X",
    weight: str = "W",
    bias: Sequence[str] = ("B", "Z"),
    transposed: bool = False,
    operations: int = 0,
) -> Count:
    """Count for each output (transposed: each input) its filter, the sum with a bias, an activation.

    `operations` are further ones for each output.
    """
    output = op.outputs[0]
    macs = convolution.convolution_macs(op.tensor(data), op.tensor(weight), output, transposed=transposed)
    more = (
        operations
        + sum(len(tensor_arguments(op, name)) for name in bias)
        + bool(op.arguments.get("activation"))
    )
    return Count(macs=macs, elementwise=more * output.size)


def count_deform_convolution(op: Op) -> Count:
    """Count a convolution, whose taps are each sampled linearly from 4 neighbours (7), and masked (1)."""
    convolution_cost = count_onnx_convolution(op, bias=("B",))
    output, weight, data = op.outputs[0], op.tensor("W"), op.tensor("X")
    taps = prod(weight.shape[2:]) * prod(output.shape[2:]) * prod(data.shape[:2])
    return Count(
        macs=convolution_cost.macs,
        elementwise=convolution_cost.elementwise + taps * (7 + len(tensor_arguments(op, "mask"))),
    )


def count_causal_convolution(op: Op) -> Count:
    """Count for each output the taps of its channel, the sum with a bias, and SiLU (5) where it is fused."""
    output = op.outputs[0]
    fused = op.arguments.get("activation", "none") not in {"", "none"}
    more = len(tensor_arguments(op, "bias")) + _SILU * fused
    taps = prod(op.tensor("weight").shape[1:])
    return Count(macs=output.size * taps, elementwise=output.size * more)


def count_onnx_recurrent(op: Op, *, operations: int, rescaled: int = 0) -> Count:
    """Count both products of each token and direction, biases where given, and the units' operations.

    Where both products are of quantised numbers, `rescaled` are the operations of each sum of products.
    """
    data, weights = op.tensor("X"), op.tensor("W")
    recurrence = op.tensor("R")
    tokens = prod(data.shape[:2])
    directions = recurrence.shape[0]
    units = directions * (recurrence.shape[1] if rescaled else recurrence.shape[-1])
    sums = 2 * rescaled * directions * recurrence.shape[-1]
    biases = sum(tensor.size for tensor in tensor_arguments(op, "B"))
    peepholes = 2 * sum(tensor.size for tensor in tensor_arguments(op, "P"))
    return Count(
        macs=tokens * (weights.size + recurrence.size),
        elementwise=tokens * (biases + peepholes + sums + units * operations),
    )


def count_determinant(op: Op) -> Count:
    """Count an LU factorisation, and the n products of its diagonal."""
    lu_cost = matmul.count_lu(op, matrix="X")
    data = op.tensor("X")
    return Count(macs=lu_cost.macs, elementwise=lu_cost.elementwise + data.size // data.shape[-1])


# -- windows --------------------------------------------------------------------------------------------


def count_onnx_pooling(op: Op, *, operations: int = 1) -> Count:
    """Count operations for each element of the window of each output, padding included."""
    return per_element(op, operations=operations * prod(_ints(op, "kernel_shape")))


def count_resize(op: Op) -> Count:
    """Count a weighted sum of 1, 2 or 4 neighbours in each resized dimension for each output."""
    data, output = _first_tensor(op), op.outputs[0]
    dims = sum(a != b for a, b in zip(data.shape, output.shape, strict=True))
    base = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4}[op.arguments.get("mode", "nearest")]
    taps = base**dims
    return per_element(op, operations=2 * taps - 1 if taps > 1 else 0)


def count_onnx_grid_sample(op: Op) -> Count:
    """Count a weighted sum of 2 taps (cubic 4) in each dimension for each output; nearest has none."""
    dims = op.tensor("grid").shape[-1]
    mode = op.arguments.get("mode", "linear")
    taps = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}[mode] ** dims
    return per_element(op, operations=2 * taps - 1 if taps > 1 else 0)


def count_roi_align(op: Op) -> Count:
    """Count for each output a mean or a maximum over the samples of its bin, each of 4 neighbours (7).

    An adaptive number of samples counts as one for each dimension.
    """
    ratio = op.arguments.get("sampling_ratio", 0) or 1
    return per_element(op, operations=ratio * ratio * 8)


def count_max_roi_pool(op: Op) -> Count:
    """Count one comparison for each element of a region that may be the whole image, for each channel."""
    data = op.tensor("X")
    return Count(elementwise=op.tensor("rois").shape[0] * prod(data.shape[1:]))


def count_dft(op: Op) -> Count:
    """Count 5 N log2 N for each complex transform of N points, half for a real one, as benchFFT does."""
    data, output = op.tensor("input"), op.outputs[0]
    axis = op.arguments.get("axis", -2)
    points = max(data.shape[axis], output.shape[axis])
    half = data.shape[-1] == 1 or output.shape[-1] == 1
    elements = prod(output.shape[:-1]) // max(1, output.shape[axis]) * points
    return count_transforms(points, elements, real=half)


def count_onnx_stft(op: Op) -> Count:
    """Count a product with the window for each point, and 2.5 or 5 N log2 N, for each frame of N points."""
    output = op.outputs[0]
    window = tensor_arguments(op, "window")
    onesided = op.arguments.get("onesided", 1)
    points = window[0].size if window else 2 * (output.shape[-2] - 1) if onesided else output.shape[-2]
    elements = prod(output.shape[:-2]) * points
    data = op.tensor("signal")
    real = len(data.shape) < 3 or data.shape[-1] == 1
    windowed = elements * bool(window) * (1 if real else 2)
    return Count(elementwise=count_transforms(points, elements, real=real).elementwise + windowed)


# -- tables ---------------------------------------------------------------------------------------------


def count_linear_model(op: Op) -> Count:
    """Count one MAC for each coefficient and row of the input."""
    rows = prod(_first_tensor(op).shape[:-1])
    return Count(macs=rows * len(_ints(op, "coefficients")))


def count_support_vectors(op: Op) -> Count:
    """Count one MAC for each number of a support vector and each coefficient, for each row of the input.

    What the kernel does with each of the products is left out.
    """
    rows = prod(_first_tensor(op).shape[:-1])
    return Count(macs=rows * (len(_ints(op, "support_vectors")) + len(_ints(op, "coefficients"))))


def count_optimizer_step(op: Op, *, operations: int, state: int) -> Count:
    """Count operations for each weight of an optimiser's step.

    `per_input_element` are weights, gradients and `state` tensors for each of them.
    """
    arguments = tensor_arguments(op, "inputs")
    weights = arguments[: len(arguments) // (2 + state)]
    return Count(elementwise=operations * total_elements(weights))
