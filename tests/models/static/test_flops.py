from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.models.flops import Count, CountedOp, attention, count_op, macs_upper_bound
from modeldyno.models.flops.aten import ATEN
from modeldyno.models.static.graph import Op, Tensor


def t(*shape: int, dtype: str = "float32", storage: int = -1) -> Tensor:
    """Make a tensor of a shape."""
    return Tensor(shape, dtype, storage)


def op(name: str, *outputs: Tensor, **arguments: Any) -> Op:
    """Make a call of an operator of PyTorch; ``input`` and other names stand for themselves."""
    kind = name if "." in name else f"aten.{name}"
    return Op(kind, arguments, outputs)


def cost(name: str, *outputs: Tensor, **arguments: Any) -> Count:
    """Count a call by its formula."""
    call = op(name, *outputs, **arguments)
    return ATEN[call.kind](call)


def parts(count: Count) -> tuple[int, int]:
    """Give MACs and element-wise operations."""
    return count.macs, count.elementwise


B, M, K, N = 3, 5, 7, 11
MM = M * K * N
SPARSE = Tensor((M, K), "float32", stored=7)


@pytest.mark.parametrize(
    ("call", "macs", "elementwise"),
    [
        (op("mm", t(M, N), self=t(M, K), mat2=t(K, N)), MM, 0),
        (op("bmm", t(B, M, N), self=t(B, M, K), mat2=t(B, K, N)), B * MM, 0),
        (op("addmm", t(M, N), self=t(N), mat1=t(M, K), mat2=t(K, N)), MM, M * N),
        (op("addmm", t(M, N), self=t(N), mat1=t(M, K), mat2=t(K, N), beta=0), MM, 0),
        (op("addmm", t(M, N), self=t(N), mat1=t(M, K), mat2=t(K, N), beta=2, alpha=3), MM, 3 * M * N),
        (op("baddbmm", t(B, M, N), self=t(N), batch1=t(B, M, K), batch2=t(B, K, N)), B * MM, B * M * N),
        (op("addbmm", t(M, N), self=t(M, N), batch1=t(B, M, K), batch2=t(B, K, N)), B * MM, M * N),
        (op("matmul", t(B, M, N), self=t(B, M, K), other=t(K, N)), B * MM, 0),
        (op("matmul", t(), self=t(K), other=t(K)), K, 0),
        (op("linear", t(B, M, N), input=t(B, M, K), weight=t(N, K), bias=t(N)), B * MM, B * M * N),
        (op("linear", t(B, M, N), input=t(B, M, K), weight=t(N, K)), B * MM, 0),
        (op("mv", t(M), self=t(M, K), vec=t(K)), M * K, 0),
        (op("addmv", t(M), self=t(M), mat=t(M, K), vec=t(K)), M * K, M),
        (op("dot", t(), self=t(K), tensor=t(K)), K, 0),
        (op("inner", t(M, N), self=t(M, K), other=t(N, K)), MM, 0),
        (op("inner", t(M, K), self=t(M, K), other=t()), 0, M * K),
        (op("outer", t(M, N), self=t(M), vec2=t(N)), 0, M * N),
        (op("addr", t(M, N), self=t(M, N), vec1=t(M), vec2=t(N)), 0, 2 * M * N),
        (op("tensordot", t(M, N), self=t(M, B, K), other=t(B, K, N), dims_self=[1, 2]), B * MM, 0),
        (op("_int_mm", t(M, N), self=t(M, K, dtype="int8"), mat2=t(K, N, dtype="int8")), MM, 0),
        (op("_weight_int8pack_mm", t(M, N), self=t(M, K), mat2=t(N, K), scales=t(N)), MM, 0),
        (op("_weight_int4pack_mm", t(M, N), self=t(M, K), mat2=t(1, 1, 32, 4), qGroupSize=32), MM, 0),
        (op("_scaled_mm", t(M, N), self=t(M, K), mat2=t(K, N), bias=t(N)), MM, M * N),
        (op("_scaled_mm", t(M, N), self=t(M, K, dtype="float4_e2m1fn_x2"), mat2=t(K, N)), 2 * MM, 0),
        (op("_addmm_activation", t(M, N), self=t(N), mat1=t(M, K), mat2=t(K, N)), MM, 2 * M * N),
        (
            op("_addmm_activation", t(M, N), self=t(N), mat1=t(M, K), mat2=t(K, N), use_gelu=True),
            MM,
            6 * M * N,
        ),
        (op("_grouped_mm", t(M, N), self=t(M, K), mat2=t(B, K, N), offs=t(B)), MM, 0),
        (op("_grouped_mm", t(M, N), self=t(B, M, K), mat2=t(K, N), offs=t(B)), MM, 0),
        (op("_grouped_mm", t(B, M, N), self=t(M, K), mat2=t(K, N), offs=t(B)), MM, 0),
        (op("_grouped_mm", t(B, M, N), self=t(B, M, K), mat2=t(B, K, N)), B * MM, 0),
        (op("_sparse_mm", t(M, N), sparse=t(M, K), dense=t(K, N)), MM, 0),
        (op("mm:sparse", t(M, N), self=SPARSE, mat2=t(K, N)), 7 * N, 0),
        (op("addmm:sparse", t(M, K), self=t(K), mat1=t(M, M), mat2=SPARSE), M * 7, M * K),
        (op("_sparse_semi_structured_mm", t(M, N), mat1=t(M, 4), mat2=t(K, N)), MM, 0),
        (op("linalg_vecdot", t(B), x=t(B, K), y=t(K)), B * K, 0),
        (op("bilinear", t(B, M), input1=t(B, K), input2=t(B, N), weight=t(M, K, N)), B * MM + B * M * N, 0),
        (
            op(
                "_trilinear",
                t(B, M),
                i1=t(B, K),
                i2=t(M, K, N),
                i3=t(B, N),
                expand1=[1, 3],
                expand2=[0],
                expand3=[1, 2],
                sumdim=[2, 3],
            ),
            B * MM + B * M * N,
            0,
        ),
        (op("linalg_multi_dot", t(2, 2), tensors=[t(2, 9), t(9, 9), t(9, 2)]), 2 * 9 * 9 + 2 * 9 * 2, 0),
        (op("linalg_multi_dot", t(), tensors=[t(9), t(9, 9), t(9)]), 9 * 9 + 9, 0),
        (op("chain_matmul", t(2, 3), matrices=[t(2, 3)]), 0, 0),
        (op("linalg_matrix_power", t(4, 4), self=t(4, 4), n=0), 0, 0),
        (op("linalg_matrix_power", t(4, 4), self=t(4, 4), n=5), 3 * 64, 0),
        (op("cdist", t(M, N), x1=t(M, K), x2=t(N, K)), 0, 3 * MM),
        (op("_cdist_backward", t(M, K), grad=t(M, N), x1=t(M, K), x2=t(N, K)), 0, 4 * MM),
        (
            op("_euclidean_dist", t(M, N), x1=t(M, K), x2=t(N, K)),
            M * N * (K + 2),
            3 * K * (M + N) + 2 * M * N,
        ),
        (
            op("linear_backward", self=t(M, K), grad_output=t(M, N), weight=t(N, K), output_mask=[1, 1, 1]),
            2 * MM,
            M * N,
        ),
        (op("matmul_backward", self=t(M, K), grad=t(M, N), other=t(K, N), mask=[True, False]), MM, 0),
        (op("mkldnn_linear_backward_input", grad_output=t(M, N), weight=t(N, K)), MM, 0),
        (op("affine_grid_generator", t(B, M, N, 2), theta=t(B, 2, 3)), B * M * N * 2 * 3, 0),
        (op("_foreach_mm", self=[t(M, K)] * 2, mat2=[t(K, N)] * 2), 2 * MM, 0),
        (op("quantized.linear", t(M, N), X=t(M, K)), MM, 0),
        (op("quantized.linear_relu", t(M, N), X=t(M, K)), MM, M * N),
        (op("mkldnn._linear_pointwise", t(M, N), X=t(M, K), W=t(9), B=t(N), attr="relu"), MM, 2 * M * N),
    ],
    ids=lambda value: value.kind if isinstance(value, Op) else None,
)
def test_products(call: Op, macs: int, elementwise: int) -> None:
    """A matrix product takes rows by columns by their length in MACs, and a bias is element-wise."""
    assert parts(ATEN[call.kind](call)) == (macs, elementwise)


def test_complex_products() -> None:
    """A complex product takes 4 real MACs, and a complex multiplication 6 operations."""
    a = t(M, M, dtype="complex64")

    assert cost("mm", a, self=a, mat2=a).macs == 4 * M**3
    assert cost("mul", a, self=a, other=a).elementwise == 6 * M * M
    assert cost("mul", a, self=a, other=t(M, M)).elementwise == 2 * M * M
    assert cost("div", a, self=a, other=a).elementwise == 11 * M * M
    assert cost("add", a, self=a, other=a).elementwise == 2 * M * M
    assert cost("abs", t(M), self=t(M, dtype="complex64")).elementwise == 4 * M


def test_negative_powers_are_not_counted() -> None:
    """The power of an inverse has no formula, so it gets a bound."""
    assert not count_op(op("matrix_power", t(4, 4), self=t(4, 4), n=-2), ATEN).known


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_factorisations(n: int) -> None:
    """Elimination, Cholesky's and substitution take as many MACs as their textbook loops."""
    lu = sum(1 for k in range(n) for _ in itertools.product(range(k + 1, n), range(k + 1, n)))
    cholesky = sum(1 for j in range(n) for i in range(j, n) for _ in range(j))
    triangle = sum(i for i in range(n))
    a, b = t(2, n, n), t(2, n, 3)

    assert cost("linalg_lu_factor", a, A=a).macs == 2 * lu
    assert cost("linalg_cholesky", a, self=a).macs == 2 * cholesky
    assert cost("linalg_solve_triangular", b, self=a, B=b).macs == 6 * triangle
    assert cost("linalg_solve", b, A=a, B=b).macs == 2 * lu + 12 * triangle
    assert cost("linalg_inv", a, A=a).macs == 2 * lu + 4 * n * triangle
    assert cost("cholesky_solve", b, self=b, input2=a).elementwise == 12 * n
    assert cost("linalg_inv", t(0, 0), A=t(0, 0)).macs == 0


@pytest.mark.parametrize(
    ("equation", "shapes", "out", "macs", "elementwise"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], (2, 4), 24, 0),
        ("ij,jk", [(2, 3), (3, 4)], (2, 4), 24, 0),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)], (2, 3, 4, 6), 2 * 3 * 4 * 6 * 5, 0),
        ("...ij,...jk->...ik", [(7, 2, 3), (3, 4)], (7, 2, 4), 7 * 24, 0),
        ("i,j->ij", [(2,), (3,)], (2, 3), 0, 6),
        ("ij,j->i", [(2, 3), (3,)], (2,), 6, 0),
        ("ij->ji", [(2, 3)], (3, 2), 0, 0),
        ("ij->i", [(2, 3)], (2,), 0, 6),
        ("ijl,jk->ik", [(2, 3, 5), (3, 4)], (2, 4), 24, 30),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], (2, 5), 24 + 40, 0),
        ("ab,bc,cd,de->ae", [(2, 3), (3, 4), (4, 5), (5, 6)], (2, 6), 24 + 40 + 60, 0),
    ],
)
def test_einsum(
    equation: str, shapes: list[tuple[int, ...]], out: tuple[int, ...], macs: int, elementwise: int
) -> None:
    """An einsum is contracted in pairs, from left to right; sums without a product are element-wise."""
    counted = cost("einsum", t(*out), equation=equation, tensors=[t(*shape) for shape in shapes])

    assert parts(counted) == (macs, elementwise)


def test_einsum_follows_a_path() -> None:
    """Where an order is given, it is the one that is counted."""
    tensors = [t(2, 3), t(3, 4), t(4, 5)]
    counted = cost("einsum", t(2, 5), equation="ij,jk,kl->il", tensors=tensors, path=[1, 2, 0, 1])

    assert counted.macs == 3 * 4 * 5 + 2 * 3 * 5


IMAGE, KERNEL, PLANE = t(2, 6, 9, 9), t(8, 3, 3, 3), t(2, 8, 7, 7)
"""Two groups of 3 channels to 4 each."""
CONVOLUTION = 2 * 8 * 7 * 7 * 3 * 9


def test_convolutions() -> None:
    """A convolution takes, for each output, the kernel times the channels of its group."""
    counted = cost("conv2d", PLANE, input=IMAGE, weight=KERNEL, bias=t(8), groups=2, padding="valid")

    assert parts(counted) == (CONVOLUTION, PLANE.size)
    assert cost("cudnn_convolution", PLANE, self=IMAGE, weight=KERNEL).macs == CONVOLUTION
    assert cost("cudnn_convolution_relu", PLANE, self=IMAGE, weight=KERNEL).elementwise == PLANE.size
    assert cost("mkldnn._convolution_pointwise", PLANE, X=IMAGE, W=KERNEL).macs == CONVOLUTION


def test_transposed_convolutions() -> None:
    """A transposed convolution takes, for each input, the kernel times the channels that it goes to."""
    data, filters, result = t(2, 8, 7, 7), t(8, 3, 3, 3), t(2, 6, 9, 9)
    counted = cost("convolution", result, input=data, weight=filters, transposed=True, groups=2)

    assert counted.macs == data.size * 3 * 9
    assert cost("conv_transpose2d", result, input=data, weight=filters).macs == counted.macs


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("mask", list(itertools.product([False, True], repeat=3)))
def test_gradients_of_convolutions(mask: tuple[bool, ...], transposed: bool) -> None:
    """Each of the gradients of input and weight that is asked for takes the MACs of the forward."""
    data, result = (PLANE, IMAGE) if transposed else (IMAGE, PLANE)
    counted = cost(
        "convolution_backward",
        grad_output=result,
        input=data,
        weight=KERNEL,
        transposed=transposed,
        output_mask=mask,
    )

    assert parts(counted) == (CONVOLUTION * (mask[0] + mask[1]), result.size * mask[2])


@pytest.mark.parametrize("name", ["packed_weight", "weight"])
def test_convolutions_with_packed_filters(name: str) -> None:
    """Filters that are packed are told by their shape, under the name that the overload has for them."""
    plain = ATEN["quantized.conv2d"](op("quantized.conv2d", PLANE, qx=IMAGE, **{name: KERNEL.shape}))
    rectified = ATEN["quantized.conv2d_relu"](
        op("quantized.conv2d_relu", PLANE, qx=IMAGE, **{name: KERNEL.shape})
    )

    assert parts(plain) == (CONVOLUTION, 0)
    assert parts(rectified) == (CONVOLUTION, PLANE.size)


def test_convolutions_of_time_first() -> None:
    """conv_tbc takes taps by input channels for each output, and twice that backward."""
    out = t(8, 2, 5)
    forward = cost("conv_tbc", out, self=t(10, 2, 4), weight=t(3, 4, 5), bias=t(5))
    back = cost("conv_tbc_backward", self=out, input=t(10, 2, 4), weight=t(3, 4, 5), bias=t(5))

    assert parts(forward) == (out.size * 12, out.size)
    assert parts(back) == (2 * out.size * 12, out.size)


@given(
    st.integers(0, 6),
    st.integers(0, 6),
    st.none() | st.integers(0, 7),
    st.none() | st.integers(0, 7),
    st.integers(-3, 3),
)
def test_hidden_pairs(queries: int, keys: int, left: int | None, right: int | None, shift: int) -> None:
    """Pairs are hidden where the key is too far behind the query or ahead of it."""
    pairs = itertools.product(range(queries), range(keys))
    visible = sum(
        (left is None or j >= i + shift - left) and (right is None or j <= i + shift + right)
        for i, j in pairs
    )

    assert attention.masked_pairs(queries, keys, left, right, shift) == queries * keys - visible


Q, KEYS, VALUES, OUT = t(2, 8, 4, 16), t(2, 2, 6, 16), t(2, 2, 6, 10), t(2, 8, 4, 10)
PAIRS = 2 * 8 * 4 * 6


def test_attention() -> None:
    """Attention takes both products over all pairs, be heads of keys fewer or values narrower."""
    counted = cost("scaled_dot_product_attention", OUT, query=Q, key=KEYS, value=VALUES)

    assert parts(counted) == (PAIRS * 26, PAIRS * 6)
    assert counted.skippable == 0


def test_causal_attention() -> None:
    """A causal mask hides the keys after each query, counted from the first query and key."""
    counted = cost(
        "_scaled_dot_product_flash_attention", OUT, query=Q, key=KEYS, value=VALUES, is_causal=True
    )

    assert counted.macs == PAIRS * 26
    assert counted.skippable == 2 * 8 * (24 - (1 + 2 + 3 + 4)) * 26


def test_masks_and_dropout_are_operations() -> None:
    """A mask is one operation more for each score, and dropout two."""
    counted = cost(
        "scaled_dot_product_attention",
        OUT,
        query=Q,
        key=KEYS,
        value=VALUES,
        attn_mask=t(4, 6),
        dropout_p=0.1,
    )

    assert counted.elementwise == PAIRS * 9


def test_attention_backward() -> None:
    """The gradients of attention take five products, three of them over the width of queries."""
    counted = cost(
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        Q,
        grad_out=OUT,
        query=Q,
        key=KEYS,
        value=VALUES,
        out=OUT,
        dropout_p=0.0,
        is_causal=False,
    )

    assert parts(counted) == (PAIRS * (3 * 16 + 2 * 10), PAIRS * 6 + 2 * OUT.size)


@pytest.mark.parametrize(
    ("query", "key", "samples"), [((4, 16), (6, 16), 1), ((3, 4, 16), (1, 6, 16), 3)], ids=("one", "shared")
)
def test_attention_without_heads(query: tuple[int, ...], key: tuple[int, ...], samples: int) -> None:
    """Attention over fewer dimensions, and with keys that are shared, is counted over all pairs too."""
    counted = cost("scaled_dot_product_attention", t(*query), query=t(*query), key=t(*key), value=t(*key))

    assert counted.macs == samples * 24 * 32


@pytest.mark.parametrize(
    ("name", "arguments", "hidden"),
    [
        ("_flash_attention_forward", {"is_causal": True}, 24 - (3 + 4 + 5 + 6)),
        ("_flash_attention_forward", {"is_causal": False, "window_size_left": -1}, 0),
        ("_flash_attention_forward", {"window_size_left": 1, "window_size_right": 0}, 24 - 4 * 2),
        ("_efficient_attention_forward", {"custom_mask_type": 0}, 0),
        ("_efficient_attention_forward", {"custom_mask_type": 1}, 24 - (1 + 2 + 3 + 4)),
        ("_efficient_attention_forward", {"custom_mask_type": 2}, 24 - (3 + 4 + 5 + 6)),
        ("_efficient_attention_forward", {"custom_mask_type": 2, "window_size": 2}, 24 - 4 * 2),
    ],
)
def test_attention_with_heads_last(name: str, arguments: dict[str, Any], hidden: int) -> None:
    """Kernels with heads after length align the last query with the last key, and know windows."""
    query, key = t(2, 4, 8, 16), t(2, 6, 8, 16)
    counted = cost(name, query, query=query, key=key, value=key, **arguments)

    assert counted.macs == 2 * 8 * 24 * 32
    assert counted.skippable == 2 * 8 * hidden * 32


@pytest.mark.parametrize("names", [("cum_seq", "max_"), ("cu_seqlens", "max_seqlen_")])
def test_ragged_attention(names: tuple[str, str]) -> None:
    """Packed sequences are counted where they are of one length; else their lengths are in the data."""
    start, length = names
    starts = t(3, dtype="int32")
    options = {f"{start}_q": starts, f"{start}_k": starts, f"{length}q": 4, f"{length}k": 6}
    whole = op("_flash_attention_forward", query=t(8, 8, 16), key=t(12, 8, 16), value=t(12, 8, 16), **options)
    ragged = op(
        "_flash_attention_forward", query=t(7, 8, 16), key=t(12, 8, 16), value=t(12, 8, 16), **options
    )

    assert count_op(whole, ATEN).macs == 2 * 8 * 24 * 32
    assert not count_op(ragged, ATEN).known


def test_flexible_attention() -> None:
    """FlexAttention counts as dense, and backward as five products."""
    counted = cost("higher_order.flex_attention", OUT, query=Q, key=KEYS, value=VALUES)
    back = cost("higher_order.flex_attention_backward", OUT, query=Q, key=KEYS, value=VALUES)

    assert counted.macs == PAIRS * 26
    assert back.macs == PAIRS * 68


def test_the_fast_path_of_transformers() -> None:
    """A fused encoder layer takes four projections, attention and two linear layers."""
    width, wide, tokens, scores = 16, 64, 2 * 5, 2 * 4 * 25
    weights = {"qkv_weight": t(48, 16), "qkv_bias": t(48), "proj_weight": t(16, 16), "proj_bias": t(16)}
    heads = cost("_native_multi_head_attention", t(2, 5, 16), query=t(2, 5, 16), num_head=4, **weights)
    layer = cost(
        "_transformer_encoder_layer_fwd",
        t(2, 5, 16),
        src=t(2, 5, 16),
        num_heads=4,
        use_gelu=True,
        ffn_weight_1=t(64, 16),
        ffn_weight_2=t(16, 64),
        **weights,
    )

    assert heads.macs == tokens * 4 * width * width + scores * 2 * 4
    assert heads.elementwise == tokens * 4 * width + scores * 6
    assert layer.macs == heads.macs + 2 * tokens * width * wide
    assert layer.elementwise == heads.elementwise + tokens * (6 * wide + 17 * width)
    assert cost("_transform_bias_rescale_qkv", qkv=t(2, 5, 48), qkv_bias=t(48)).elementwise == 10 * 64


def lstm_weights(inputs: int, hidden: int, gates: int) -> list[Tensor]:
    """Make the weights and biases of one layer in one direction."""
    return [t(gates * hidden, inputs), t(gates * hidden, hidden), t(gates * hidden), t(gates * hidden)]


@pytest.mark.parametrize(
    ("name", "gates", "operations"), [("lstm", 4, 22), ("gru", 3, 16), ("rnn_tanh", 1, 2), ("rnn_relu", 1, 2)]
)
def test_recurrent_layers(name: str, gates: int, operations: int) -> None:
    """Each token meets each matrix once, whether the sequences are packed or not."""
    params = lstm_weights(6, 5, gates) + lstm_weights(5, 5, gates)
    state = t(2, 3, 5)
    hx = [state, state] if name == "lstm" else state
    matrices = gates * 5 * (6 + 5 + 5 + 5)
    each = 4 * gates * 5 + 2 * 5 * operations

    whole = cost(name, t(3, 7, 5), input=t(3, 7, 6), hx=hx, params=params)
    packed = cost(name, t(21, 5), data=t(21, 6), batch_sizes=t(7), hx=hx, params=params)

    assert parts(whole) == (21 * matrices, 21 * each)
    assert whole == packed


@pytest.mark.parametrize(("mode", "gates", "operations"), [(0, 1, 2), (1, 1, 2), (2, 4, 22), (3, 3, 16)])
def test_recurrent_kernels(mode: int, gates: int, operations: int) -> None:
    """The kernel of a library counts as the layer that its mode names, and backward twice that."""
    weights = lstm_weights(6, 5, gates)
    settings = {"hidden_size": 5, "num_layers": 1, "bidirectional": False, "mode": mode}
    expected = (21 * gates * 5 * 11, 21 * (2 * gates * 5 + 5 * operations))
    each = {f"weight{n}": weight for n, weight in enumerate(weights)}
    later = {f"weight{n}": weight for n, weight in enumerate(weights, 1)}
    data = t(7, 3, 6)

    assert parts(cost("_cudnn_rnn", input=data, weight=weights, **settings)) == expected
    assert parts(cost("_cudnn_rnn_backward", input=data, weight=weights, **settings)) == tuple(
        2 * n for n in expected
    )
    assert parts(cost("mkldnn_rnn_layer", input=data, **each, **settings)) == expected
    assert parts(cost("mkldnn_rnn_layer_backward", input=data, **later, **settings)) == tuple(
        2 * n for n in expected
    )
    bare = cost("mkldnn_rnn_layer", input=data, has_biases=False, **each, **settings)
    assert parts(bare) == (expected[0], 21 * 5 * operations)


def test_recurrent_cells() -> None:
    """A cell is one step; its element-wise kernel is what is left without the products."""
    w_ih, w_hh, b_ih, b_hh = lstm_weights(6, 5, 4)
    state = t(3, 5)
    whole = cost(
        "lstm_cell", state, input=t(3, 6), hx=[state, state], w_ih=w_ih, w_hh=w_hh, b_ih=b_ih, b_hh=b_hh
    )
    gates = cost(
        "_thnn_fused_lstm_cell",
        state,
        input_gates=t(3, 20),
        hidden_gates=t(3, 20),
        cx=state,
        input_bias=b_ih,
        hidden_bias=b_hh,
    )

    assert parts(whole) == (3 * 20 * 11, 3 * (40 + 5 * 22))
    assert parts(gates) == (0, whole.elementwise)


def test_a_bound_where_there_is_no_formula() -> None:
    """What has no formula is not known, and its bound is the least product of two of three sizes."""
    call = op("mm", t(M, N), self=t(M, K), mat2=t(K, N))
    counted = count_op(call, {})

    assert counted == CountedOp(
        0, 0, 0, 4 * (M * K + K * N), 4 * M * N, known=False, most=macs_upper_bound(call)
    )
    assert macs_upper_bound(call) == min(M * K * K * N, M * K * M * N, K * N * M * N)
    assert macs_upper_bound(op("gram", t(M, M), self=t(M, K))) == M * K * M * M
    assert macs_upper_bound(op("add_into", self=t(M, K), mat2=t(K))) == M * K * K
    assert macs_upper_bound(op("arange", t(5))) == 0


SIZES = st.integers(1, 6)


@given(batch=SIZES, rows=SIZES, columns=SIZES, inner=SIZES)
def test_the_bound_holds_for_products(batch: int, rows: int, columns: int, inner: int) -> None:
    """No matrix product, of matrices or of vectors, takes more, whatever bias it has."""
    for call in (
        op("bmm", t(batch, rows, columns), self=t(batch, rows, inner), mat2=t(batch, inner, columns)),
        op("linear", t(rows, columns), input=t(rows, inner), weight=t(columns, inner), bias=t(columns)),
        op("mv", t(rows), self=t(rows, inner), vec=t(inner)),
        op("dot", t(), self=t(inner), tensor=t(inner)),
    ):
        assert ATEN[call.kind](call).macs <= (macs_upper_bound(call) or 0)


@given(channels=SIZES, made=SIZES, groups=SIZES, kernel=SIZES, size=SIZES, stride=SIZES)
def test_the_bound_holds_for_convolutions(
    channels: int, made: int, groups: int, kernel: int, size: int, stride: int
) -> None:
    """No convolution takes more, with groups or without, where no tap falls on padding."""
    length = kernel + stride * (size - 1)
    call = op(
        "convolution",
        t(2, made * groups, size, size),
        input=t(2, channels * groups, length, length),
        weight=t(made * groups, channels, kernel, kernel),
        bias=None,
        transposed=False,
    )
    assert ATEN[call.kind](call).macs <= (macs_upper_bound(call) or 0)


@given(heads=SIZES, shared=SIZES, queries=SIZES, keys=st.integers(1, 60), width=st.integers(2, 8))
def test_the_bound_holds_for_attention(heads: int, shared: int, queries: int, keys: int, width: int) -> None:
    """No attention takes more, though it is two products: long ones, those of one query, shared keys."""
    query, key = t(1, heads * shared, queries, width), t(1, heads, keys, width)
    call = op("scaled_dot_product_attention", query, query=query, key=key, value=key)
    assert ATEN[call.kind](call).macs <= (macs_upper_bound(call) or 0)


def test_the_bounds_of_a_long_attention_and_of_a_wide_kernel() -> None:
    """The square of 4096 tokens by 64 dimensions, twice, and 49 taps for each pixel are within them."""
    q = t(1, 1, 4096, 64)
    assert (macs_upper_bound(op("sdpa", q, query=q, key=q, value=q)) or 0) >= 2 * 4096 * 4096 * 64
    image = t(1, 1, 70, 70)
    assert (
        macs_upper_bound(op("conv", t(1, 1, 64, 64), input=image, weight=t(1, 1, 7, 7))) or 0
    ) >= 64 * 64 * 49


def test_without_all_shapes_there_is_no_bound() -> None:
    """A formula is not asked about a call whose shapes are not all known, and nothing bounds it."""
    call = Op("aten.mm", {"self": t(M, K), "mat2": t(K, N)}, (t(M, N),), sized=False)

    assert macs_upper_bound(call) is None
    assert count_op(call, ATEN) == CountedOp(0, 0, 0, 4 * (M * K + K * N), 4 * M * N, known=False, most=None)


def test_flops() -> None:
    """One MAC is two operations, added to the element-wise ones."""
    assert Count(macs=3, elementwise=4).flops == 10
