"""Costs of attention in ONNX and ONNX Runtime, and of mixtures of experts.

As in `models.flops.attention`, MACs are dense, and those that a mask hides are also `skippable`.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

from modeldyno.models.flops import Count, attention
from modeldyno.models.flops.elementwise import tensor_arguments, total_bytes, total_elements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.models.static.graph import Op, Tensor


def _split_heads(shape: tuple[int, ...], heads: int) -> tuple[int, int, int, int]:
    """Return batch, heads, length and width of that shape, or of (batch, length, heads x width)."""
    if len(shape) == 4:
        return shape
    batch, length, width = shape
    return batch, heads, length, width // heads


def count_onnx_attention(op: Op) -> Count:
    """Count attention over all pairs, 6 operations for each score; a mask is 1 more, a cap 3."""
    arguments = op.arguments
    heads = arguments.get("q_num_heads", 1)
    batch, heads, queries, width = _split_heads(op.tensor("Q").shape, heads)
    shared = arguments.get("kv_num_heads", 1)
    _, _, keys, value = _split_heads(op.tensor("V").shape, shared)
    past = sum(tensor.shape[2] for tensor in tensor_arguments(op, "past_key"))
    keys += past
    extent = attention.AttentionSize(
        batch=batch * heads, queries=queries, keys=keys, width=width, value=value
    )
    masked = attention.masked_pairs(queries, keys, None, 0, past) if arguments.get("is_causal") else 0
    extra = len(tensor_arguments(op, "attn_mask")) + 3 * bool(arguments.get("softcap"))
    return attention.count_attention(extent, masked, extra)


def count_projected_attention(op: Op, *, data: str = "input", weight: str = "weights") -> Count:
    """Count the projections of query, key and value with their biases, and attention over all pairs."""
    batch, length, _ = op.tensor(data).shape
    filters = op.tensor(weight)
    heads, hidden = op.arguments["num_heads"], op.outputs[0].shape[-1]
    width = (filters.shape[-1] - hidden) // 2
    past = sum(tensor.shape[3] for tensor in tensor_arguments(op, "past"))
    extent = attention.AttentionSize(
        batch=batch * heads, queries=length, keys=length + past, width=width // heads, value=hidden // heads
    )
    one_way = bool(op.arguments.get("unidirectional"))
    masked = attention.masked_pairs(length, length + past, None, 0, past) if one_way else 0
    extra = len(tensor_arguments(op, "mask_index")) + len(tensor_arguments(op, "attention_bias"))
    inner = attention.count_attention(extent, masked, extra)
    biases = batch * length * filters.shape[-1] * bool(tensor_arguments(op, "bias"))
    macs = batch * length * filters.size
    return Count(macs=macs + inner.macs, elementwise=biases + inner.elementwise, skippable=inner.skippable)


def count_onnx_multi_head(op: Op) -> Count:
    """Count the sums with a bias, and attention over all pairs; a mask and a bias of scores are 1 each."""
    heads = op.arguments["num_heads"]
    output = op.outputs[0]
    batch, queries, hidden = output.shape
    value = hidden // heads
    width, keys = _key_sizes(op, heads, queries, value)
    keys += sum(tensor.shape[2] for tensor in tensor_arguments(op, "past_key"))
    extent = attention.AttentionSize(
        batch=batch * heads, queries=queries, keys=keys, width=width, value=value
    )
    one_way = bool(op.arguments.get("unidirectional"))
    masked = attention.masked_pairs(queries, keys, None, 0, keys - queries) if one_way else 0
    extra = len(tensor_arguments(op, "key_padding_mask")) + len(tensor_arguments(op, "attention_bias"))
    inner = attention.count_attention(extent, masked, extra)
    elements = total_elements(t for name in ("query", "key", "value") for t in tensor_arguments(op, name))
    sums = elements * bool(tensor_arguments(op, "bias"))
    return Count(macs=inner.macs, elementwise=inner.elementwise + sums, skippable=inner.skippable)


def _key_sizes(op: Op, heads: int, queries: int, value: int) -> tuple[int, int]:
    """Return the width and number of keys, which may be packed with values, or also with queries."""
    key = tensor_arguments(op, "key")
    if not key:
        return value, queries
    shape = key[0].shape
    if len(shape) == 3:
        return shape[-1] // heads, shape[1]
    return shape[-1], shape[2] if len(shape) == 4 else shape[1]


def count_grouped_query(op: Op) -> Count:
    """Count attention over all pairs, which is causal; rotation is 3 operations for each query and key.

    Keys are those of the cache, or as many as there are where it is empty.
    """
    heads, shared = op.arguments["num_heads"], op.arguments["kv_num_heads"]
    batch, queries, hidden = op.outputs[0].shape
    width = hidden // heads
    keys = op.outputs[1].shape[2] if len(op.outputs) > 1 else queries
    keys += 0 if len(op.outputs) > 1 else sum(t.shape[2] for t in tensor_arguments(op, "past_key"))
    extent = attention.AttentionSize(
        batch=batch * heads, queries=queries, keys=keys, width=width, value=width
    )
    window = op.arguments.get("local_window_size", -1)
    left = window - 1 if window > 0 else None
    masked = attention.masked_pairs(queries, keys, left, 0, keys - queries)
    inner = attention.count_attention(extent, masked, 3 * bool(op.arguments.get("softcap")))
    rotated = 3 * batch * queries * width * (heads + shared) * bool(op.arguments.get("do_rotary"))
    return Count(macs=inner.macs, elementwise=inner.elementwise + rotated, skippable=inner.skippable)


def count_linear_attention(op: Op) -> Count:
    """Count for each token and head the update of its state (key by value) and the product with a query.

    The delta rule retrieves what the state holds for the key first, which is one more product; a decay is
    an element-wise product with the state. Yang et al., Gated Delta Networks, ICLR 2025, equation 10.
    """
    heads, shared = op.arguments["q_num_heads"], op.arguments["kv_num_heads"]
    batch, _, length, width = _split_heads(op.tensor("query").shape, heads)
    value = _split_heads(op.tensor("value").shape, shared)[3]
    state = batch * length * width * value
    rule = op.arguments.get("update_rule", "gated_delta")
    macs = state * (heads + shared * (1 + ("delta" in rule)))
    return Count(macs=macs, elementwise=state * shared * bool(tensor_arguments(op, "decay")))


def count_rotary_embedding(op: Op) -> Count:
    """Count 3 operations for each element that is rotated: two products and a sum."""
    data = op.tensor("X" if "X" in op.arguments else "input")
    part = op.arguments.get("rotary_embedding_dim", 0)
    heads = op.arguments.get("num_heads", 0)
    width = data.shape[-1] if len(data.shape) == 4 or not heads else data.shape[-1] // heads
    return Count(elementwise=3 * (data.size * part // width if part else data.size))


def count_mixture_of_experts(op: Op) -> Count:
    """Count for each token the two or three products of the experts chosen, and the choice (softmax, 5).

    Their weights are read as far as tokens can choose them: no more experts than choices.
    """
    quantised = op.kind.endswith("QMoE")
    names = [name for n in (1, 2, 3) if tensor_arguments(op, name := f"fc{n}_experts_weights")]
    weights = {name: op.tensor(name) for name in names}
    per_byte = {
        name: expert_weights_per_byte(op.arguments, name) if quantised else Fraction(1) for name in names
    }
    weights_per_expert = sum(
        int(tensor.size // tensor.shape[0] * per_byte[name]) for name, tensor in weights.items()
    )
    hidden = op.tensor("fc2_experts_weights").shape[-1] * per_byte["fc2_experts_weights"]
    return _count_experts(op, list(weights.values()), weights_per_expert, int(hidden))


def count_packed_experts(op: Op) -> Count:
    """Count the same for experts in a packed format, whose sizes are those of the rows of the others."""
    names = [
        name for part in ("gate", "up", "down") if tensor_arguments(op, name := f"{part}_experts_weights")
    ]
    inner, hidden = op.tensor("gate_experts_weights").shape[1], op.tensor("down_experts_weights").shape[1]
    return _count_experts(op, [op.tensor(name) for name in names], len(names) * inner * hidden, inner)


def _count_experts(op: Op, weights: Sequence[Tensor], weights_per_expert: int, hidden: int) -> Count:
    chosen = prod(op.tensor("input").shape[:-1]) * op.arguments.get("k", 1)
    share = min(1.0, chosen / weights[0].shape[0])
    others = total_bytes(tensor for tensor in op.tensors() if tensor not in weights)
    return Count(
        macs=chosen * weights_per_expert,
        elementwise=5 * op.tensor("router_probs").size + chosen * hidden,
        read=others + round(share * total_bytes(weights)),
    )


def expert_weights_per_byte(attributes: Mapping[str, Any], name: str) -> Fraction:
    """Return the weights in a byte of an operand of QMoE, such as ``fc1_experts_weights``."""
    quant_type = attributes.get("quant_type", "int")
    if quant_type == "fp8":
        return Fraction(1)
    if quant_type in _HALF_BYTES:
        return Fraction(2)
    own = f"{name.partition('_')[0]}_expert_weight_bits"
    return Fraction(8, max(1, attributes.get(own, attributes.get("expert_weight_bits", _USUAL_BITS))))


_HALF_BYTES = frozenset({"fp4", "nvfp4", "wfp4afp8"})
"""Values of ``quant_type`` of QMoE with 4 bits for each weight, whatever its other attributes say."""
_USUAL_BITS = 4
"""Of QMoE, by ContribOperators.md."""
