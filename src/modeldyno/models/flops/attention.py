"""Costs of scaled dot-product attention: two products over all pairs of a query and a key.

MACs are dense: pairs hidden by a causal mask or a window count in `macs`, and also in `skippable`. Backward
takes five products: the scores again, and the gradients of weights, values, queries and keys (Dao et al.,
FlashAttention, 2022, algorithm 4). Sharing heads of keys and values (GQA) saves no MACs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from modeldyno.models.flops import Count
from modeldyno.models.flops.elementwise import tensor_arguments
from modeldyno.models.flops.indexing import broadcast_shape

if TYPE_CHECKING:
    from modeldyno.models.static.graph import Op

SOFTMAX = 6
"""Operations per score: scale, maximum, difference, exponential, sum and quotient."""
SOFTMAX_BACKWARD = 6
"""Operations per score: scale, difference, exponential again; difference, product, scale of the gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSize:
    """The sizes of an attention."""

    batch: int
    """Samples times heads of queries."""
    queries: int
    keys: int
    width: int
    """Elements of one query and one key."""
    value: int
    """Elements of one value."""

    @property
    def pairs(self) -> int:
        """Scores in all."""
        return self.batch * self.queries * self.keys


@lru_cache(maxsize=256)
def masked_pairs(queries: int, keys: int, left: int | None, right: int | None, shift: int = 0) -> int:
    """Return the number of masked pairs: query i sees the keys from i + shift - left to i + shift + right.

    None is no limit. Causal is ``right=0``, with `shift` 0 where the first query sees only the first key,
    and keys - queries where the last query sees the last key.
    """
    visible = 0
    for i in range(queries):
        first = 0 if left is None else max(0, i + shift - left)
        last = keys - 1 if right is None else min(keys - 1, i + shift + right)
        visible += max(0, last - first + 1)
    return queries * keys - visible


def count_attention(
    extent: AttentionSize, masked: int = 0, extra: int = 0, *, backward: bool = False
) -> Count:
    """Count attention with `masked` hidden pairs in each batch and `extra` operations per score."""
    width = 3 * extent.width + 2 * extent.value if backward else extent.width + extent.value
    softmax = SOFTMAX_BACKWARD if backward else SOFTMAX
    rows = 2 * extent.batch * extent.queries * extent.value if backward else 0
    return Count(
        macs=extent.pairs * width,
        elementwise=extent.pairs * (softmax + extra) + rows,
        skippable=extent.batch * masked * width,
    )


def count_heads_first(
    op: Op, *, backward: bool = False, names: tuple[str, str, str] = ("query", "key", "value")
) -> Count:
    """Count attention over (batch, heads, length, width), causal from the first query on."""
    query, key, value = (op.tensor(name).shape for name in names)
    batch = prod(_batch_and_heads(query[:-2], key[:-2]))
    extent = AttentionSize(batch=batch, queries=query[-2], keys=key[-2], width=query[-1], value=value[-1])
    masked = masked_pairs(extent.queries, extent.keys, None, 0) if op.arguments.get("is_causal") else 0
    return count_attention(extent, masked, _extra_operations(op), backward=backward)


def count_heads_last(op: Op, *, backward: bool = False) -> Count:
    """Count attention over (batch, length, heads, width), with windows; ragged batches must have one length.

    Raises:
        ValueError: sequences differ in length, so that the cost depends on their data.
    """
    query, key, value = (op.tensor(name).shape for name in ("query", "key", "value"))
    samples, queries, keys = _sequence_lengths(op, query, key)
    extent = AttentionSize(
        batch=samples * query[-2], queries=queries, keys=keys, width=query[-1], value=value[-1]
    )
    masked = masked_pairs(queries, keys, *_window(op, keys - queries))
    return count_attention(extent, masked, _extra_operations(op), backward=backward)


def _batch_and_heads(query: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Return batch and heads; keys may have fewer heads, which are shared."""
    if not query or not key:
        return query or key
    return (*broadcast_shape(query[:-1], key[:-1]), max(query[-1], key[-1]))


def _extra_operations(op: Op) -> int:
    """Return the operations per score beyond the softmax: a mask 1, dropout 2."""
    masks = any(tensor_arguments(op, name) for name in ("attn_mask", "attn_bias", "bias"))
    return masks + 2 * bool(op.arguments.get("dropout_p"))


def _sequence_lengths(op: Op, query: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the number of samples, and the queries and keys of each."""
    starts = [*tensor_arguments(op, "cum_seq_q"), *tensor_arguments(op, "cu_seqlens_q")]
    if not starts or not starts[0].size:
        return query[0], query[1], key[1]
    arguments, samples = op.arguments, starts[0].size - 1
    queries = arguments["max_q"] if "max_q" in arguments else arguments["max_seqlen_q"]
    keys = arguments["max_k"] if "max_k" in arguments else arguments["max_seqlen_k"]
    if (samples * queries, samples * keys) != (prod(query[:-2]), prod(key[:-2])):
        raise ValueError("the sequences have different lengths")
    return samples, queries, keys


def _window(op: Op, surplus: int) -> tuple[int | None, int | None, int]:
    """Return how far back and ahead a query sees, and the shift between queries and keys.

    `_flash_attention` aligns the last query with the last key; `custom_mask_type` is 1 to align the first
    ones, and 2 the last ones.
    """
    arguments = op.arguments
    kind = arguments.get("custom_mask_type")
    size = arguments.get("window_size")
    if kind is not None:
        left = size - 1 if size and kind else None
        return left, 0 if kind else None, surplus if kind == 2 else 0
    left, right = arguments.get("window_size_left"), arguments.get("window_size_right")
    right = 0 if arguments.get("is_causal") else right
    return (
        None if left is None or left < 0 else left,
        None if right is None or right < 0 else right,
        surplus,
    )


def count_flex_attention(op: Op, *, backward: bool = False) -> Count:
    """Count attention with every block of its mask; what `score_mod` computes is not counted."""
    return count_heads_first(op, backward=backward)


def count_multi_head(op: Op, *, data: str = "query", heads: str = "num_head") -> Count:
    """Count projections of query, key, value and output (biases are sums), and attention between them."""
    *leading, length, width = op.tensor(data).shape
    batch, head = prod(leading), op.arguments[heads]
    tokens = batch * length
    weights = op.tensor("qkv_weight").size + op.tensor("proj_weight").size
    extent = AttentionSize(
        batch=batch * head, queries=length, keys=length, width=width // head, value=width // head
    )
    inner = count_attention(extent, 0, len(tensor_arguments(op, "mask")))
    return Count(macs=tokens * weights + inner.macs, elementwise=tokens * 4 * width + inner.elementwise)


def count_encoder_layer(op: Op) -> Count:
    """Count multi-head attention, two linear layers with biases, two norms (7), two sums and an activation.

    The activation is a rectifier (1) or GELU (5).
    """
    inner = count_multi_head(op, data="src", heads="num_heads")
    *leading, width = op.tensor("src").shape
    tokens = prod(leading)
    first, second = op.tensor("ffn_weight_1"), op.tensor("ffn_weight_2")
    wide = first.shape[0]
    activation = 5 if op.arguments.get("use_gelu") else 1
    operations = wide * (1 + activation) + width * (1 + 2 * 7 + 2)
    return Count(
        macs=inner.macs + tokens * (first.size + second.size),
        elementwise=inner.elementwise + tokens * operations,
    )


def count_rescaled_qkv(op: Op) -> Count:
    """Count the sum with the bias for queries, keys and values, and the scale of queries."""
    size = op.tensor("qkv").size
    return Count(elementwise=size + size // 3)
