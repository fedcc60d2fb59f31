from __future__ import annotations

from typing import Any

import pytest

from modeldyno.models.flops import CountedOp, count_op
from modeldyno.models.flops.onnx import ONNX
from modeldyno.models.flops.registry import describe_formula
from modeldyno.models.static.graph import Op, Tensor


def t(*shape: int, dtype: str = "float32", storage: int = -1) -> Tensor:
    return Tensor(shape, dtype, storage)


def cost(kind: str, outputs: Tensor | tuple[Tensor, ...], **arguments: Any) -> CountedOp:
    tensors = (outputs,) if isinstance(outputs, Tensor) else outputs
    return count_op(Op(kind if "." in kind else f"onnx.{kind}", arguments, tensors), ONNX)


def figures(kind: str, outputs: Tensor | tuple[Tensor, ...], **arguments: Any) -> tuple[int, int]:
    counted = cost(kind, outputs, **arguments)
    assert counted.known
    return counted.macs, counted.elementwise


MS = "com.microsoft."

PRODUCTS: list[tuple[str, Tensor, dict[str, Any], tuple[int, int]]] = [
    ("MatMul", t(2, 3, 5), {"A": t(2, 3, 7), "B": t(7, 5)}, (2 * 3 * 5 * 7, 0)),
    ("MatMul", t(3), {"A": t(7), "B": t(7, 3)}, (21, 0)),
    ("MatMulInteger", t(3, 5), {"A": t(3, 7), "B": t(7, 5)}, (105, 0)),
    ("QLinearMatMul", t(3, 5), {"a": t(3, 7), "b": t(7, 5)}, (105, 6 * 15)),
    ("Gemm", t(3, 5), {"A": t(3, 7), "B": t(7, 5)}, (105, 0)),
    ("Gemm", t(3, 5), {"A": t(3, 7), "B": t(7, 5), "C": t(5)}, (105, 15)),
    (
        "Gemm",
        t(3, 5),
        {"A": t(7, 3), "B": t(7, 5), "C": t(5), "transA": 1, "alpha": 0.5, "beta": 2.0},
        (105, 45),
    ),
    ("Einsum", t(3, 5), {"Inputs": [t(3, 7), t(7, 5)], "equation": "ij,jk->ik"}, (105, 0)),
    ("Einsum", t(3, 9), {"Inputs": [t(3, 7), t(7, 5), t(5, 9)], "equation": "ij,jk,kl->il"}, (105 + 135, 0)),
    (
        "Conv",
        t(2, 6, 4, 4),
        {"X": t(2, 3, 6, 6), "W": t(6, 3, 3, 3), "B": t(6)},
        (2 * 6 * 16 * 27, 2 * 6 * 16),
    ),
    ("Conv", t(1, 4, 8), {"X": t(1, 4, 8), "W": t(4, 1, 3), "group": 4}, (4 * 8 * 3, 0)),
    ("ConvInteger", t(1, 4, 8), {"x": t(1, 2, 8), "w": t(4, 2, 1)}, (4 * 8 * 2, 0)),
    ("QLinearConv", t(1, 4, 8), {"x": t(1, 2, 8), "w": t(4, 2, 1), "B": t(4)}, (64, 7 * 32)),
    ("ConvTranspose", t(1, 3, 9, 9), {"X": t(1, 2, 4, 4), "W": t(2, 3, 3, 3)}, (32 * 27, 0)),
    (
        "DeformConv",
        t(1, 4, 2, 2),
        {"X": t(1, 2, 4, 4), "W": t(4, 2, 3, 3), "offset": t(1, 18, 2, 2), "mask": t(1, 9, 2, 2)},
        (16 * 18, 9 * 4 * 2 * 8),
    ),
    (
        "CausalConvWithState",
        t(2, 6, 10),
        {"input": t(2, 6, 10), "weight": t(6, 1, 4), "bias": t(6), "activation": "silu"},
        (120 * 4, 120 * 6),
    ),
    ("CausalConvWithState", t(2, 6, 10), {"input": t(2, 6, 10), "weight": t(6, 1, 4)}, (480, 0)),
    ("LSTM", t(5, 1, 2, 4), {"X": t(5, 2, 3), "W": t(1, 16, 3), "R": t(1, 16, 4)}, (10 * 112, 10 * 4 * 22)),
    (
        "GRU",
        t(5, 2, 2, 4),
        {"X": t(5, 2, 3), "W": t(2, 12, 3), "R": t(2, 12, 4), "B": t(2, 24)},
        (10 * (72 + 96), 10 * (48 + 8 * 16)),
    ),
    ("RNN", t(5, 1, 2, 4), {"X": t(5, 2, 3), "W": t(1, 4, 3), "R": t(1, 4, 4), "P": t(1, 4)}, (280, 10 * 16)),
    ("Det", t(2), {"X": t(2, 3, 3)}, (2 * 5, 2 * 3 + 6)),
    ("AffineGrid", t(2, 4, 5, 2), {"theta": t(2, 2, 3)}, (80 * 3, 0)),
    (
        f"{MS}FusedMatMul",
        t(4, 3, 5),
        {"A": t(4, 7, 3), "B": t(4, 7, 5), "transA": 1, "alpha": 0.1},
        (420, 60),
    ),
    (
        f"{MS}FusedMatMul",
        t(4, 3, 5),
        {"A": t(7, 4, 3), "B": t(4, 7, 5), "transA": 1, "transBatchA": 1},
        (420, 0),
    ),
    (f"{MS}FusedMatMulActivation", t(3, 5), {"A": t(3, 7), "B": t(7, 5), "activation": "Relu"}, (105, 15)),
    (f"{MS}FusedGemm", t(3, 5), {"A": t(3, 7), "B": t(7, 5), "C": t(5), "activation": "Relu"}, (105, 30)),
    (f"{MS}MatMulIntegerToFloat", t(3, 5), {"A": t(3, 7), "B": t(7, 5), "bias": t(5)}, (105, 45)),
    (f"{MS}DynamicQuantizeMatMul", t(3, 5), {"A": t(3, 7), "B": t(7, 5)}, (105, 30)),
    (
        f"{MS}DynamicQuantizeLSTM",
        t(5, 1, 2, 4),
        {"X": t(5, 2, 3), "W": t(1, 3, 16), "R": t(1, 4, 16)},
        (10 * 112, 10 * (4 * 22 + 2 * 2 * 16)),
    ),
    (f"{MS}MatMulNBits", t(3, 5), {"A": t(3, 64), "B": t(5, 1, 32), "K": 64, "N": 5}, (960, 0)),
    (
        f"{MS}MatMulNBitsMlp",
        t(3, 5),
        {"A": t(3, 64), "norm_scale": t(64), "gate_bias": t(5), "up_bias": t(5), "K": 64, "N": 5},
        (2 * 960, 15 * 8 + 192 * 4),
    ),
    (
        f"{MS}MatMulNBitsQkv",
        t(3, 8),
        {"A": t(3, 64), "skip": t(3, 64), "norm_scale": t(64), "q_bias": t(8), "K": 64, "Nq": 8, "Nkv": 2},
        (3 * 64 * 12, 24 + 192 * 5),
    ),
    (
        f"{MS}MatMulNBitsQLoRA",
        t(3, 5),
        {"X": t(3, 64), "lora_A": t(4, 2, 16), "lora_B": t(5, 1, 16), "K": 64, "N": 5},
        (960 + 3 * 4 * 69, 15),
    ),
    (
        f"{MS}MatMulNBitsQLoRA",
        t(3, 5),
        {"X": t(3, 64), "lora_A": t(4, 2, 16), "lora_B": t(5, 0, 16), "K": 64, "N": 5},
        (960, 0),
    ),
    (f"{MS}MatMulPacked", t(3, 5), {"A": t(3, 64), "B": t(5, 40)}, (960, 0)),
    (f"{MS}QGemm", t(3, 5), {"A": t(3, 7), "B": t(7, 5), "C": t(5)}, (105, 105)),
    (f"{MS}GemmFastGelu", t(3, 5), {"X": t(3, 7), "W": t(7, 5), "bias": t(5)}, (105, 150)),
    (f"{MS}FusedConv", t(1, 4, 8), {"X": t(1, 2, 8), "W": t(4, 2, 1), "activation": "Relu"}, (64, 32)),
    (f"{MS}FusedConv", t(1, 4, 8), {"X": t(1, 2, 8), "W": t(4, 2, 1), "B": t(4), "Z": t(1, 4, 8)}, (64, 64)),
    (f"{MS}NhwcConv", t(1, 8, 4), {"X": t(1, 8, 2), "W": t(4, 2, 1)}, (64, 0)),
    (f"{MS}QLinearConvTranspose", t(1, 3, 9), {"x": t(1, 2, 4), "w": t(2, 3, 3)}, (72, 162)),
    (
        "ai.onnx.ml.SVMRegressor",
        t(5, 1),
        {"X": t(5, 3), "support_vectors": (0.5,) * 6, "coefficients": (1.0, -1.0)},
        (5 * 8, 0),
    ),
    ("ai.onnx.ml.LinearRegressor", t(5, 2), {"X": t(5, 3), "coefficients": (0.5,) * 6}, (30, 0)),
]


@pytest.mark.parametrize(("kind", "output", "arguments", "expected"), PRODUCTS, ids=lambda v: str(v)[:24])
def test_products(kind: str, output: Tensor, arguments: dict[str, Any], expected: tuple[int, int]) -> None:
    """What adds up products has the MACs of the closed form; biases, scales, activations are beside."""
    assert figures(kind, output, **arguments) == expected


X = t(2, 3, 4)
ELEMENTS: list[tuple[str, Tensor, dict[str, Any], int]] = [
    ("Relu", X, {"X": X}, 24),
    ("Add", X, {"A": X, "B": t(4)}, 24),
    ("Mul", X, {"A": X, "B": t()}, 24),
    ("Mul", t(5, dtype="complex64"), {"A": t(5, dtype="complex64"), "B": t(5, dtype="complex64")}, 30),
    ("Sigmoid", X, {"X": X}, 96),
    ("Gelu", X, {"X": X}, 120),
    ("Gelu", X, {"X": X, "approximate": "tanh"}, 216),
    ("Max", X, {"data_0": [X, X, X]}, 48),
    ("Mean", X, {"data_0": [X, X, X]}, 72),
    ("Clip", X, {"input": X, "min": t(), "max": t()}, 48),
    ("Clip", X, {"input": X, "max": 6.0}, 24),
    ("Dropout", t(2, 3, storage=4), {"data": t(2, 3, storage=4)}, 0),
    ("Dropout", t(2, 3, storage=5), {"data": t(2, 3, storage=4)}, 12),
    ("Softmax", X, {"input": X}, 120),
    ("ReduceMean", t(2), {"data": X}, 24),
    ("ReduceL2", t(2), {"data": X}, 48),
    ("ReduceSum", t(dtype="complex64"), {"data": t(5, dtype="complex64")}, 10),
    ("DynamicQuantizeLinear", X, {"x": X}, 168),
    ("TopK", t(3, 4), {"X": t(3, 100), "K": 4}, 600),
    ("Unique", t(100), {"X": t(100)}, 700),
    ("ScatterND", t(10), {"data": t(10), "indices": t(4, 1), "updates": t(4), "reduction": "add"}, 4),
    ("ScatterElements", t(10), {"data": t(10), "indices": t(4), "updates": t(4)}, 0),
    ("NonMaxSuppression", t(5, 3), {"boxes": t(1, 8, 4), "scores": t(1, 2, 8)}, 2 * (32 + 12 * 28)),
    ("BatchNormalization", X, {"X": X}, 48),
    ("BatchNormalization", X, {"X": X, "training_mode": 1}, 144),
    ("LayerNormalization", X, {"X": X, "Scale": t(4), "B": t(4)}, 168),
    ("LayerNormalization", X, {"X": X, "Scale": t(4)}, 144),
    ("GroupNormalization", X, {"X": X, "scale": t(3), "bias": t(3)}, 168),
    ("RMSNormalization", X, {"X": X, "scale": t(4)}, 96),
    ("LRN", X, {"X": X, "size": 5}, 24 * 14),
    ("MaxPool", t(1, 2, 4, 4), {"X": t(1, 2, 8, 8), "kernel_shape": (2, 3)}, 32 * 6),
    ("LpPool", t(1, 2, 4), {"X": t(1, 2, 8), "kernel_shape": (2,)}, 32),
    ("GlobalAveragePool", t(1, 2, 1, 1), {"X": t(1, 2, 8, 8)}, 128),
    ("Resize", t(1, 2, 8, 8), {"X": t(1, 2, 4, 4)}, 0),
    ("Resize", t(1, 2, 8, 8), {"X": t(1, 2, 4, 4), "mode": "linear"}, 128 * 7),
    ("Resize", t(1, 2, 8), {"X": t(1, 2, 4), "mode": "cubic"}, 16 * 7),
    ("GridSample", t(1, 2, 3, 3), {"X": t(1, 2, 4, 4), "grid": t(1, 3, 3, 2)}, 18 * 7),
    ("GridSample", t(1, 2, 3, 3), {"X": t(1, 2, 4, 4), "grid": t(1, 3, 3, 2), "mode": "nearest"}, 0),
    ("RoiAlign", t(5, 2, 7, 7), {"X": t(1, 2, 9, 9), "sampling_ratio": 2}, 490 * 32),
    ("MaxRoiPool", t(5, 2, 7, 7), {"X": t(1, 2, 9, 9), "rois": t(5, 5)}, 5 * 162),
    ("DFT", t(2, 8, 2), {"input": t(2, 8, 2)}, 2 * 5 * 8 * 3),
    ("DFT", t(2, 5, 2), {"input": t(2, 8, 1), "axis": 1, "onesided": 1}, 2 * 20 * 3),
    ("DFT", t(0, 2), {"input": t(0, 1)}, 0),
    ("STFT", t(1, 3, 5, 2), {"signal": t(1, 16, 1), "window": t(8)}, 24 + 180),
    ("STFT", t(1, 3, 8, 2), {"signal": t(1, 16, 2), "onesided": 0}, 360),
    ("STFT", t(1, 3, 8, 2), {"signal": t(1, 16, 2), "window": t(8), "onesided": 0}, 48 + 360),
    ("RotaryEmbedding", t(2, 4, 3, 8), {"X": t(2, 4, 3, 8)}, 3 * 192),
    ("RotaryEmbedding", t(2, 3, 32), {"X": t(2, 3, 32), "num_heads": 4, "rotary_embedding_dim": 4}, 288),
    (f"{MS}RotaryEmbedding", t(2, 3, 32), {"input": t(2, 3, 32)}, 576),
    (f"{MS}BiasGelu", X, {"A": X, "B": t(4)}, 144),
    (f"{MS}FastGelu", X, {"X": X, "bias": t(4)}, 240),
    (f"{MS}QuickGelu", X, {"X": X}, 144),
    (f"{MS}BiasAdd", X, {"X": X, "bias": t(4), "skip": X}, 48),
    (
        f"{MS}SkipLayerNormalization",
        X,
        {"input": X, "skip": X, "gamma": t(4), "beta": t(4), "bias": t(4)},
        216,
    ),
    (f"{MS}SkipSimplifiedLayerNormalization", X, {"input": X, "skip": X, "gamma": t(4)}, 120),
    (f"{MS}QLinearAdd", X, {"A": X, "B": X}, 240),
    (f"{MS}QLinearSigmoid", X, {"X": X}, 264),
    ("ai.onnx.preview.training.Adam", X, {"inputs": [X] * 4}, 13 * 24),
    ("Reshape", t(24), {"data": X}, 0),
    ("Transpose", t(4, 3, 2), {"data": X}, 0),
    ("Loop", t(7, 4), {"last": [t(4)]}, 0),
]


@pytest.mark.parametrize(("kind", "output", "arguments", "expected"), ELEMENTS, ids=lambda v: str(v)[:24])
def test_elements(kind: str, output: Tensor, arguments: dict[str, Any], expected: int) -> None:
    """What adds up no products has no MACs, and its convention's operations for each element."""
    assert figures(kind, output, **arguments) == (0, expected)


def test_attention() -> None:
    """Attention has both products of all pairs, whatever way heads lie; causal pairs may be skipped."""
    heads_first = {"Q": t(2, 8, 5, 16), "K": t(2, 2, 9, 16), "V": t(2, 2, 9, 32)}
    pairs = 2 * 8 * 5 * 9
    assert figures("Attention", t(2, 8, 5, 32), **heads_first) == (pairs * 48, pairs * 6)
    flat = {"Q": t(2, 5, 128), "K": t(2, 9, 32), "V": t(2, 9, 64), "q_num_heads": 8, "kv_num_heads": 2}
    masked = cost("Attention", t(2, 5, 256), **flat, attn_mask=t(5, 9), softcap=30.0, is_causal=1)
    assert (masked.macs, masked.elementwise) == (pairs * 48, pairs * 10)
    assert masked.skippable == 16 * (8 + 7 + 6 + 5 + 4) * 48
    cached = cost("Attention", t(2, 5, 256), **flat, past_key=t(2, 2, 4, 16), is_causal=1)
    assert cached.macs == 2 * 8 * 5 * 13 * 48


def test_attention_with_projections() -> None:
    """The attention of ONNX Runtime has the projections of query, key and value, and the past."""
    inputs = {"input": t(2, 5, 12), "weights": t(12, 36), "bias": t(36), "num_heads": 3}
    pairs = 2 * 3 * 5 * 5
    assert figures(f"{MS}Attention", t(2, 5, 12), **inputs) == (10 * 432 + pairs * 8, 360 + pairs * 6)
    past = cost(f"{MS}Attention", t(2, 5, 12), **inputs, past=t(2, 2, 3, 7, 4), unidirectional=1)
    assert past.macs == 10 * 432 + 2 * 3 * 5 * 12 * 8
    assert past.skippable == 2 * 3 * (4 + 3 + 2 + 1) * 8
    quantised = {"input": t(2, 5, 12), "weight": t(12, 36), "num_heads": 3, "mask_index": t(2)}
    assert figures(f"{MS}QAttention", t(2, 5, 12), **quantised) == (10 * 432 + pairs * 8, pairs * 7)


@pytest.mark.parametrize(
    ("inputs", "keys"),
    [
        ({"query": t(2, 5, 12), "key": t(2, 7, 12), "value": t(2, 7, 12)}, 7),
        ({"query": t(2, 5, 12), "key": t(2, 3, 7, 4), "value": t(2, 3, 7, 4)}, 7),
        ({"query": t(2, 5, 12), "key": t(2, 7, 3, 2, 4)}, 7),
        ({"query": t(2, 5, 3, 3, 4)}, 5),
        ({"query": t(2, 5, 12), "key": t(2, 7, 12), "value": t(2, 7, 12), "past_key": t(2, 3, 4, 4)}, 11),
    ],
)
def test_multi_head_attention(inputs: dict[str, Any], keys: int) -> None:
    """Keys may stand alone, with heads before, packed with values or with queries, or be in a cache."""
    pairs = 2 * 3 * 5 * keys
    assert figures(f"{MS}MultiHeadAttention", t(2, 5, 12), **inputs, num_heads=3) == (pairs * 8, pairs * 6)


def test_multi_head_attention_with_bias_and_masks() -> None:
    """A bias is added to queries, keys and values; masks are one operation for each score."""
    inputs: dict[str, Any] = {name: t(2, 5, 12) for name in ("query", "key", "value")}
    inputs |= {"bias": t(36), "key_padding_mask": t(2, 5), "attention_bias": t(1, 3, 5, 5)}
    counted = cost(f"{MS}MultiHeadAttention", t(2, 5, 12), **inputs, num_heads=3, unidirectional=1)
    assert (counted.macs, counted.elementwise) == (150 * 8, 150 * 8 + 360)
    assert counted.skippable == 6 * 10 * 8


def test_grouped_query_attention() -> None:
    """Grouped queries are causal over all keys of the cache; a window hides more; rotation is 3 each."""
    inputs = {"query": t(2, 1, 64), "key": t(2, 1, 16), "value": t(2, 1, 16), "past_key": t(2, 2, 9, 8)}
    heads = {"num_heads": 8, "kv_num_heads": 2}
    present = t(2, 2, 10, 8)
    kind = f"{MS}GroupQueryAttention"
    pairs = 2 * 8 * 10
    with_rotation = pairs * 6 + 3 * 2 * 8 * 10
    assert figures(kind, (t(2, 1, 64), present, present), **inputs, **heads, do_rotary=1) == (
        pairs * 16,
        with_rotation,
    )
    assert figures(kind, t(2, 1, 64), **inputs, **heads, softcap=50.0) == (pairs * 16, pairs * 9)
    windowed = cost(kind, (t(2, 1, 64), present, present), **inputs, **heads, local_window_size=4)
    assert windowed.skippable == 16 * 6 * 16


def test_linear_attention() -> None:
    """A linear attention updates a state of key by value for each token, and multiplies it with queries."""
    inputs = {
        "query": t(2, 5, 16),
        "key": t(2, 5, 8),
        "value": t(2, 5, 12),
        "q_num_heads": 4,
        "kv_num_heads": 2,
    }
    state = 2 * 5 * 4 * 6
    assert figures("LinearAttention", t(2, 5, 24), **inputs, update_rule="linear") == (state * 6, 0)
    assert figures("LinearAttention", t(2, 5, 24), **inputs, decay=t(2, 5, 2)) == (state * 8, state * 2)


def test_mixture_of_experts() -> None:
    """Each token takes the products of the experts chosen for it, and no more weights than those are read."""
    weights = {"fc1_experts_weights": t(8, 16, 32), "fc2_experts_weights": t(8, 32, 16)}
    inputs = {"input": t(3, 16), "router_probs": t(3, 8), **weights, "k": 2}
    counted = cost(f"{MS}MoE", t(3, 16), **inputs)
    assert counted.macs == 6 * 1024
    assert counted.elementwise == 5 * 24 + 6 * 16
    assert counted.read == 4 * (48 + 24) + 4 * 8 * 1024 * 6 // 8
    packed = {name: t(8, 16, 16, dtype="uint8") for name in weights}
    four = cost(f"{MS}QMoE", t(3, 16), **{**inputs, **packed}, expert_weight_bits=4)
    assert four.macs == 6 * 1024
    assert cost(f"{MS}QMoE", t(3, 16), **{**inputs, **packed}).macs == 6 * 1024  # 4 bits where none are said
    eight = {"fc1_experts_weights": t(8, 16, 32, dtype="uint8"), "fc1_expert_weight_bits": 8}
    mixed = {**inputs, **packed, **eight, "fc2_experts_weights": t(8, 32, 8, dtype="uint8")}
    assert cost(f"{MS}QMoE", t(3, 16), **mixed).macs == 6 * 1024
    half = {name: t(8, 16, 16, dtype="uint8") for name in weights}
    assert cost(f"{MS}QMoE", t(3, 16), **{**inputs, **half}, quant_type="nvfp4").macs == 6 * 1024
    whole = {name: t(8, 16, 32, dtype="float8_e4m3fn") for name in weights}
    assert cost(f"{MS}QMoE", t(3, 16), **{**inputs, **whole}, quant_type="fp8").macs == 6 * 1024


def test_packed_experts() -> None:
    """The sizes of experts in a packed format are those of their rows, whatever the bytes are."""
    sizes = {
        "gate_experts_weights": t(8, 32, 9),
        "up_experts_weights": t(8, 32, 9),
        "down_experts_weights": t(8, 16, 18),
    }
    counted = cost(f"{MS}MoEPacked", t(3, 16), input=t(3, 16), router_probs=t(3, 8), k=2, **sizes)
    assert (counted.macs, counted.elementwise) == (6 * 3 * 512, 5 * 24 + 6 * 32)


def test_a_weight_costs_nothing_to_dequantise() -> None:
    """In whatever form its weights are stored, a model costs the same; an activation is de-quantised."""
    stored = t(4, 8, dtype="uint8")
    assert figures("DequantizeLinear", t(4, 8), x=stored, of_weight=True) == (0, 0)
    assert figures("DequantizeLinear", t(4, 8), x=stored, of_weight=False) == (0, 64)
    table = {"data": t(100, 16, dtype="uint8"), "indices": t(2, 3, dtype="int64"), "bits": 4}
    assert figures(f"{MS}GatherBlockQuantized", t(2, 3, 32), **table) == (0, 0)


def test_traffic() -> None:
    """Views move nothing, look-ups read the rows found, cuts read what they give, and makers read nothing."""
    table, ids = t(1000, 8), t(2, 3, dtype="int64")
    rows = t(2, 3, 8)

    def moves(kind: str, output: Tensor, **arguments: Any) -> tuple[int, int]:
        counted = cost(kind, output, **arguments)
        return counted.read, counted.written

    assert moves("Reshape", t(8000), data=table, shape=(8000,)) == (0, 0)
    assert moves("Gather", rows, data=table, indices=ids) == (4 * 48 + 48, 192)
    assert moves("Slice", t(10, 8), data=table, starts=(0,)) == (320, 320)
    assert moves("Transpose", t(8, 1000), data=table) == (32000, 32000)
    assert moves("ConstantOfShape", t(10), input=t(1, dtype="int64")) == (0, 40)
    embedded = moves(
        f"{MS}EmbedLayerNormalization",
        rows,
        input_ids=t(2, 3, dtype="int32"),
        word_embedding=table,
        position_embedding=t(2, 8),
        gamma=t(8),
        beta=t(8),
    )
    assert embedded == (2 * 192 + 24 + 64, 192)
    blocks = {"data": t(100, 16, dtype="uint8"), "indices": ids, "scales": t(100, 1), "bits": 4}
    assert moves(f"{MS}GatherBlockQuantized", t(2, 3, 32), **blocks) == (96 + 48, 768)
    packed = {"data": t(100, 18, dtype="uint8"), "indices": ids, "K": 32}
    assert moves(f"{MS}GatherPacked", t(2, 3, 32), **packed) == (6 * 18 + 48, 768)
    quantised = moves(
        f"{MS}QEmbedLayerNormalization",
        rows,
        input_ids=t(2, 3, dtype="int32"),
        word_embedding_quant=table,
        position_embedding_quant=t(2, 8),
    )
    assert quantised == (2 * 192 + 24, 192)
    blocks["data"] = t(100, 32, dtype="int4")
    assert moves(f"{MS}GatherBlockQuantized", t(2, 3, 32), **blocks) == (96 + 48, 768)


def test_unknown_calls_are_not_counted() -> None:
    """A call without operands, or with an attribute of another kind, is listed as uncounted."""
    assert not cost("Softmax", X).known
    assert not cost("MatMul", (), A=X).known
    assert not cost("Resize", X, X=X, mode="magic").known
    assert not cost("NoSuchOperator", X, X=X).known


def test_every_formula_says_what_it_counts() -> None:
    """Every formula has a sentence on its convention."""
    assert all(describe_formula(formula).startswith("Count ") for formula in ONNX.values())


def test_every_operator_has_a_formula() -> None:
    """All operators of the default domain have a formula, except for those that are others' bodies."""
    defs = pytest.importorskip("onnx.defs")
    names = {schema.name for schema in defs.get_all_schemas() if not schema.domain}
    assert {name for name in names if f"onnx.{name}" not in ONNX} == {"If", "SequenceMap"}
