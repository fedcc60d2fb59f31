"""Calls of one or a few operators, whose MACs are known in closed form.

MACs are those of contractions: sums of products over a shared index. Every one of them counts, also those
on padding, below a causal mask or cropped from a transposed convolution; a complex one is four real ones.
Products that are not summed (outer products, element-wise work, transforms, norms, pooling, look-ups) are
no MACs. All sizes differ, so that a wrong formula does not give the right number by accident.

Torch is imported when a case is built.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Built = tuple[Any, tuple[Any, ...]]
"""A torch.nn.Module in eval mode (but for cases named "training"), and its positional inputs."""
Input = tuple[int, ...] | Callable[[Any], Any]
"""A shape, for random numbers in the dtype of the case, or a function of torch that returns the tensor."""

UNCOUNTED: Final = None
"""Marks work whose cost cannot be known: it must be listed as uncounted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCase:
    """A module, its inputs, and its true cost."""

    name: str
    macs: int | None
    """MACs of one call, or UNCOUNTED."""
    build: Callable[[], Built]


def _layer(
    name: str,
    macs: int | None,
    make: Callable[[Any], Any],
    *inputs: Input,
    dtype: str = "float32",
    train: bool = False,
) -> OperatorCase:
    """Return a case of the module that ``make(torch)`` returns."""

    def build() -> Built:
        import torch

        torch.manual_seed(0)
        module = make(torch).to(getattr(torch, dtype)).train(train)
        return module, tuple(_tensor(torch, spec, dtype) for spec in inputs)

    return OperatorCase(name=name, macs=macs, build=build)


def _call(
    name: str,
    macs: int | None,
    call: Callable[..., Any],
    *inputs: Input,
    dtype: str = "float32",
) -> OperatorCase:
    """Return a case of ``call(torch, *inputs)``, a function outside of any module."""
    return _layer(name, macs, lambda torch: _module(torch, call), *inputs, dtype=dtype)


def _composed(
    name: str,
    macs: int | None,
    layers: Callable[[Any], list[Any]],
    call: Callable[..., Any],
    *inputs: Input,
    dtype: str = "float32",
) -> OperatorCase:
    """Return a case of ``call(torch, layers, *inputs)``."""
    return _layer(name, macs, lambda torch: _module(torch, call, layers(torch)), *inputs, dtype=dtype)


def _tensor(torch: Any, spec: Input, dtype: str) -> Any:
    return torch.randn(spec, dtype=getattr(torch, dtype)) if isinstance(spec, tuple) else spec(torch)


def _module(torch: Any, call: Callable[..., Any], layers: list[Any] | None = None) -> Any:
    class Call(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(layers or [])

        def forward(self, *inputs: Any) -> Any:
            return call(torch, *inputs) if layers is None else call(torch, self.layers, *inputs)

    return Call()


def _ids(*shape: int, below: int = 17) -> Input:
    return lambda torch: torch.randint(0, below, shape)


def _integers(*shape: int) -> Input:
    return lambda torch: torch.randint(-8, 8, shape, dtype=torch.int8)


def _linears() -> list[OperatorCase]:
    def linear(bias: bool = True) -> Callable[[Any], Any]:
        return lambda torch: torch.nn.Linear(16, 24, bias=bias)

    one = 16 * 24
    return [
        _layer("linear", 5 * one, linear(), (5, 16)),
        _layer("linear, no bias", 5 * one, linear(bias=False), (5, 16)),
        _layer("linear, 1-D", one, linear(), (16,)),
        _layer("linear, 3-D", 2 * 5 * one, linear(), (2, 5, 16)),
        _layer("linear, 4-D, no bias", 2 * 3 * 5 * one, linear(bias=False), (2, 3, 5, 16)),
        _layer("linear, empty batch", 0, linear(), (0, 16)),
        _layer("linear, bfloat16", 5 * one, linear(), (5, 16), dtype="bfloat16"),
        _layer("linear, float64", 5 * one, linear(), (5, 16), dtype="float64"),
        _layer("linear, training", 5 * one, linear(), (5, 16), train=True),
        _layer(
            "linear, on meta",
            5 * one,
            lambda torch: torch.nn.Linear(16, 24, device="meta"),
            lambda torch: torch.empty(5, 16, device="meta"),
        ),
        _layer(
            "linear, weight norm",
            5 * one,
            lambda torch: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(16, 24)),
            (5, 16),
        ),
        _call(
            "functional linear",
            5 * one,
            lambda torch, x, w, b: torch.nn.functional.linear(x, w, b),
            (5, 16),
            (24, 16),
            (24,),
        ),
        _composed(
            "one layer called twice",
            2 * 5 * 16 * 16,
            lambda torch: [torch.nn.Linear(16, 16)],
            lambda _torch, layers, x: layers[0](layers[0](x)),
            (5, 16),
        ),
        _composed(
            "tied weights",
            5 * 16 * 17,
            lambda torch: [torch.nn.Embedding(17, 16)],
            lambda torch, layers, ids: torch.nn.functional.linear(layers[0](ids), layers[0].weight),
            _ids(5),
        ),
        _composed(
            "low-rank adapter",
            5 * (16 * 24 + 16 * 2 + 2 * 24),
            lambda torch: [
                torch.nn.Linear(16, 24),
                torch.nn.Linear(16, 2, bias=False),
                torch.nn.Linear(2, 24, bias=False),
            ],
            lambda _torch, layers, x: layers[0](x) + 0.5 * layers[2](layers[1](x)),
            (5, 16),
        ),
        # Two contractions: of the weight with one operand, then of that with the other.
        _layer("bilinear", 3 * 5 * (7 * 7 + 7), lambda torch: torch.nn.Bilinear(7, 7, 5), (3, 7), (3, 7)),
    ]


def _products() -> list[OperatorCase]:
    def matmul(torch: Any, a: Any, b: Any) -> Any:
        return torch.matmul(a, b)

    def einsum(equation: str) -> Callable[..., Any]:
        return lambda torch, *operands: torch.einsum(equation, *operands)

    return [
        _call("mm", 5 * 6 * 7, lambda torch, a, b: torch.mm(a, b), (5, 6), (6, 7)),
        _call("mm, bfloat16", 5 * 6 * 7, lambda torch, a, b: torch.mm(a, b), (5, 6), (6, 7),
              dtype="bfloat16"),
        _call("mm of a transpose", 5 * 6 * 7, lambda _torch, a, b: a.t() @ b.t(), (6, 5), (7, 6)),
        _call("mm, complex", 4 * 5 * 6 * 7, lambda torch, a, b: torch.mm(a, b), (5, 6), (6, 7),
              dtype="complex64"),
        _call("addmm", 5 * 6 * 7, lambda torch, c, a, b: torch.addmm(c, a, b), (7,), (5, 6), (6, 7)),
        _call("addmm in place", 5 * 6 * 7, lambda _torch, c, a, b: c.clone().addmm_(a, b), (5, 7), (5, 6),
              (6, 7)),
        _call("bmm", 3 * 5 * 6 * 7, lambda torch, a, b: torch.bmm(a, b), (3, 5, 6), (3, 6, 7)),
        _call("bmm, complex", 4 * 3 * 5 * 6 * 7, lambda torch, a, b: torch.bmm(a, b), (3, 5, 6), (3, 6, 7),
              dtype="complex64"),
        _call("baddbmm", 3 * 5 * 6 * 7, lambda torch, c, a, b: torch.baddbmm(c, a, b),
              (3, 5, 7), (3, 5, 6), (3, 6, 7)),
        _call("addbmm", 3 * 5 * 6 * 7, lambda torch, c, a, b: torch.addbmm(c, a, b),
              (5, 7), (3, 5, 6), (3, 6, 7)),
        _call("mv", 5 * 6, lambda torch, a, b: torch.mv(a, b), (5, 6), (6,)),
        _call("addmv", 5 * 6, lambda torch, c, a, b: torch.addmv(c, a, b), (5,), (5, 6), (6,)),
        _call("dot", 6, lambda torch, a, b: torch.dot(a, b), (6,), (6,)),
        _call("inner", 5 * 2 * 6 * 3, lambda torch, a, b: torch.inner(a, b), (5, 2, 6), (3, 6)),
        _call("tensordot", 2 * 5 * (3 * 4), lambda torch, a, b: torch.tensordot(a, b, dims=2), (2, 3, 4),
              (3, 4, 5)),
        # (10 x 3) (3 x 8) (8 x 2): the last two first, for 3 * 8 * 2 + 10 * 3 * 2 is the least.
        _call("multi_dot", 3 * 8 * 2 + 10 * 3 * 2, lambda torch, a, b, c: torch.linalg.multi_dot([a, b, c]),
              (10, 3), (3, 8), (8, 2)),
        _call("vmap of mm", 3 * 5 * 6 * 7, lambda torch, a, b: torch.vmap(torch.mm)(a, b), (3, 5, 6),
              (3, 6, 7)),
        _call("matmul, vectors", 6, matmul, (6,), (6,)),
        _call("matmul, 1-D x 3-D", 3 * 6 * 7, matmul, (6,), (3, 6, 7)),
        _call("matmul, 3-D x 1-D", 3 * 5 * 6, matmul, (3, 5, 6), (6,)),
        _call("matmul, 3-D x 2-D", 3 * 5 * 6 * 7, matmul, (3, 5, 6), (6, 7)),
        _call("matmul, 2-D x 3-D", 3 * 5 * 6 * 7, matmul, (5, 6), (3, 6, 7)),
        _call("matmul, 4-D x 3-D", 2 * 3 * 5 * 6 * 7, matmul, (2, 3, 5, 6), (3, 6, 7)),
        _call("matmul, both broadcast", 2 * 4 * 5 * 6 * 7, matmul, (2, 1, 5, 6), (1, 4, 6, 7)),
        _call("einsum, matrix product", 5 * 6 * 7, einsum("ij,jk->ik"), (5, 6), (6, 7)),
        _call("einsum, batch", 3 * 5 * 6 * 7, einsum("bij,bjk->bik"), (3, 5, 6), (3, 6, 7)),
        _call("einsum, attention scores", 2 * 3 * 5 * 7 * 8, einsum("bqhd,bkhd->bhqk"), (2, 5, 3, 8),
              (2, 7, 3, 8)),
        _call("einsum, two summed indices", 2 * 5 * (3 * 4), einsum("bhd,hdo->bo"), (2, 3, 4), (3, 4, 5)),
        _call("einsum, row products", 5 * 6, einsum("bd,bd->b"), (5, 6), (5, 6)),
        _call("einsum, trace of a product", 5 * 6, einsum("ij,ji->"), (5, 6), (6, 5)),
        # From the left, as torch does: b (i j) k, then its row products with the third.
        _call("einsum, bilinear", 3 * 5 * 6 + 3 * 6, einsum("bi,ij,bj->b"), (3, 5), (5, 6), (3, 6)),
        _call("einsum, outer", 0, einsum("i,j->ij"), (5,), (6,)),
        _call("einsum, trace", 0, einsum("ii->"), (5, 5)),
        _call("outer", 0, lambda torch, a, b: torch.outer(a, b), (5,), (6,)),
    ]  # fmt: skip


def _low_precision() -> list[OperatorCase]:
    def quantised(torch: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net = torch.nn.Sequential(torch.nn.Linear(16, 24))
            return torch.ao.quantization.quantize_dynamic(net, {torch.nn.Linear}, dtype=torch.qint8)

    return [
        _call(
            "int8 mm",
            32 * 16 * 24,
            lambda torch, a, b: torch._int_mm(a, b),
            _integers(32, 16),
            _integers(16, 24),
        ),
        _call(
            "int8 weights, mm",
            8 * 32 * 16,
            lambda torch, a, b, s: torch._weight_int8pack_mm(a, b, s),
            (8, 32),
            _integers(16, 32),
            (16,),
            dtype="bfloat16",
        ),
        _call(
            "float8 mm",
            16 * 32 * 48,
            lambda torch, a, b, s: torch._scaled_mm(
                a.to(torch.float8_e4m3fn),
                b.to(torch.float8_e4m3fn).t(),
                scale_a=s,
                scale_b=s,
                out_dtype=torch.bfloat16,
            ),
            (16, 32),
            (48, 32),
            lambda torch: torch.ones(()),
        ),
        _layer("quantised linear, dynamic", 5 * 16 * 24, quantised, (5, 16)),
        _call(
            "grouped mm",
            32 * 16 * 24,
            lambda torch, a, b, ends: torch._grouped_mm(a, b, offs=ends),
            (32, 16),
            (2, 16, 24),
            lambda torch: torch.tensor([8, 32], dtype=torch.int32),
            dtype="bfloat16",
        ),
    ]


def _convolutions() -> list[OperatorCase]:
    """Return convolutions: outputs x kernel x channels of a group."""

    def conv(kind: str, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
        return lambda torch: getattr(torch.nn, kind)(*arguments, **options)

    def unfolded(torch: Any, x: Any, w: Any) -> Any:
        return w @ torch.nn.functional.unfold(x, 3)

    line, image, cube = (2, 4, 20), (2, 4, 10, 12), (2, 3, 6, 7, 8)
    return [
        _layer("conv1d", 2 * 6 * 16 * 4 * 5, conv("Conv1d", 4, 6, 5), line),
        _layer("conv1d, stride and dilation", 2 * 6 * 8 * 4 * 3, conv("Conv1d", 4, 6, 3, 2, dilation=2),
               line),
        _layer("conv1d, causal padding", 2 * 6 * 20 * 4 * 3, lambda torch: torch.nn.Sequential(
            torch.nn.ConstantPad1d((2, 0), 0.0), torch.nn.Conv1d(4, 6, 3)), line),
        _layer("conv2d", 2 * 6 * 8 * 10 * 4 * 9, conv("Conv2d", 4, 6, 3), image),
        _layer("conv2d, no bias", 2 * 6 * 8 * 10 * 4 * 9, conv("Conv2d", 4, 6, 3, bias=False), image),
        _layer("conv2d, stride and padding", 2 * 6 * 5 * 6 * 4 * 9, conv("Conv2d", 4, 6, 3, 2, 1), image),
        _layer("conv2d, 1 x 1", 2 * 6 * 120 * 4, conv("Conv2d", 4, 6, 1), image),
        _layer("conv2d, patches", 2 * 6 * 5 * 3 * 4 * (2 * 4), conv("Conv2d", 4, 6, (2, 4), (2, 4)), image),
        _layer("conv2d, groups", 2 * 6 * 8 * 10 * 2 * 9, conv("Conv2d", 4, 6, 3, groups=2), image),
        _layer("conv2d, depthwise", 2 * 4 * 120 * 9, conv("Conv2d", 4, 4, 3, 1, 1, groups=4), image),
        _layer("conv2d, depthwise twice", 2 * 8 * 80 * 9, conv("Conv2d", 4, 8, 3, groups=4), image),
        _layer("conv2d, dilation", 2 * 6 * 6 * 8 * 4 * 9, conv("Conv2d", 4, 6, 3, dilation=2), image),
        _layer("conv2d, padding same", 2 * 6 * 120 * 4 * 15, conv("Conv2d", 4, 6, (3, 5), padding="same"),
               image),
        _layer("conv2d, padding same, even kernel", 2 * 6 * 120 * 4 * 16,
               conv("Conv2d", 4, 6, 4, padding="same"),
               image),
        _layer("conv2d, circular", 2 * 6 * 120 * 4 * 9,
               conv("Conv2d", 4, 6, 3, padding=1, padding_mode="circular"), image),
        _layer("conv2d, reflect", 2 * 6 * 120 * 4 * 9,
               conv("Conv2d", 4, 6, 3, padding=1, padding_mode="reflect"), image),
        _layer("conv2d, one image", 6 * 80 * 4 * 9, conv("Conv2d", 4, 6, 3), (4, 10, 12)),
        _layer("conv2d, bfloat16", 2 * 6 * 80 * 4 * 9, conv("Conv2d", 4, 6, 3), image, dtype="bfloat16"),
        _layer("conv2d, channels last", 2 * 6 * 80 * 4 * 9, conv("Conv2d", 4, 6, 3),
               lambda torch: torch.randn(image).to(memory_format=torch.channels_last)),
        _layer("conv2d, on meta", 2 * 6 * 80 * 4 * 9, conv("Conv2d", 4, 6, 3, device="meta"),
               lambda torch: torch.empty(image, device="meta")),
        _call("functional conv2d", 2 * 6 * 80 * 4 * 9,
              lambda torch, x, w: torch.nn.functional.conv2d(x, w), image, (6, 4, 3, 3)),
        _call("unfold and mm", 2 * 6 * 80 * 4 * 9, unfolded, image, (6, 36)),
        _layer("conv3d", 2 * 5 * (4 * 5 * 6) * 3 * 27, conv("Conv3d", 3, 5, 3), cube),
        _layer("conv3d, stride and groups", 2 * 6 * (2 * 3 * 3) * 1 * 27,
               conv("Conv3d", 3, 6, 3, 2, groups=3), cube),
        # Transposed: every input element meets every weight of its group.
        _layer("transposed conv1d", 2 * 20 * 4 * 6 * 3, conv("ConvTranspose1d", 4, 6, 3, 2), line),
        _layer("transposed conv2d", 2 * 120 * 4 * 6 * 9,
               conv("ConvTranspose2d", 4, 6, 3, 2, 1, output_padding=1), image),
        _layer("transposed conv2d, groups", 2 * 120 * 4 * 3 * 9,
               conv("ConvTranspose2d", 4, 6, 3, 2, groups=2), image),
        _layer("transposed conv2d, dilation", 2 * 120 * 4 * 6 * 9,
               conv("ConvTranspose2d", 4, 6, 3, dilation=2), image),
        _layer("transposed conv3d", 2 * 336 * 3 * 5 * 8, conv("ConvTranspose3d", 3, 5, 2, 2), cube),
    ]  # fmt: skip


def _recurrent() -> list[OperatorCase]:
    """Return recurrent layers: gates x hidden x (input + hidden) for each step, layer and direction."""

    def net(kind: str, **options: Any) -> Callable[[Any], Any]:
        return lambda torch: getattr(torch.nn, kind)(8, 12, **options)

    def packed(torch: Any, layers: Any, x: Any) -> Any:
        return layers[0](torch.nn.utils.rnn.pack_padded_sequence(x, [7, 4, 2]))[0].data

    steps = 7 * 3  # steps x samples
    x = (7, 3, 8)
    return [
        _layer("lstm", steps * 4 * 12 * (8 + 12), net("LSTM"), x),
        _layer("lstm, batch first", steps * 4 * 12 * (8 + 12), net("LSTM", batch_first=True), (3, 7, 8)),
        _layer("lstm, one sample", 7 * 4 * 12 * (8 + 12), net("LSTM"), (7, 8)),
        _layer("lstm, no bias", steps * 4 * 12 * (8 + 12), net("LSTM", bias=False), x),
        _layer("lstm, two layers", steps * 4 * 12 * (20 + 24), net("LSTM", num_layers=2), x),
        _layer("lstm, bidirectional", steps * 2 * 4 * 12 * (8 + 12), net("LSTM", bidirectional=True), x),
        _layer("lstm, two layers, bidirectional", steps * 2 * 4 * 12 * (20 + 24 + 12),
               net("LSTM", num_layers=2, bidirectional=True), x),
        _layer("lstm, projection", steps * (4 * 12 * (8 + 5) + 12 * 5), net("LSTM", proj_size=5), x),
        _layer("lstm, bfloat16", steps * 4 * 12 * (8 + 12), net("LSTM"), x, dtype="bfloat16"),
        _layer("lstm, training", steps * 4 * 12 * (8 + 12), net("LSTM"), x, train=True),
        _composed("lstm, packed", (7 + 4 + 2) * 4 * 12 * (8 + 12), lambda torch: [torch.nn.LSTM(8, 12)],
                  packed, x),
        _layer("gru", steps * 3 * 12 * (8 + 12), net("GRU"), x),
        _layer("gru, two layers, bidirectional", steps * 2 * 3 * 12 * (20 + 24 + 12),
               net("GRU", num_layers=2, bidirectional=True), x),
        _layer("rnn", steps * 12 * (8 + 12), net("RNN"), x),
        _layer("rnn, relu, two layers", steps * 12 * (20 + 24),
               net("RNN", num_layers=2, nonlinearity="relu"), x),
        _layer("lstm cell", 3 * 4 * 12 * (8 + 12), net("LSTMCell"), (3, 8)),
        _layer("gru cell", 3 * 3 * 12 * (8 + 12), net("GRUCell"), (3, 8)),
        _layer("rnn cell", 3 * 12 * (8 + 12), net("RNNCell"), (3, 8)),
    ]  # fmt: skip


def _attention() -> list[OperatorCase]:
    """Return attention: projections, scores and weighted sums, regardless of the mask."""

    def sdpa(**options: Any) -> Callable[..., Any]:
        return lambda torch, q, k, v, *mask: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, *mask, **options
        )

    def kernel(name: str) -> Callable[..., Any]:
        def call(torch: Any, q: Any, k: Any, v: Any) -> Any:
            attention = torch.nn.attention
            with attention.sdpa_kernel(getattr(attention.SDPBackend, name)):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v)

        return call

    def own(torch: Any, q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v

    def flex(_torch: Any, q: Any, k: Any, v: Any) -> Any:
        from torch.nn.attention.flex_attention import flex_attention

        return flex_attention(q, k, v)

    def mha(torch: Any) -> list[Any]:
        return [torch.nn.MultiheadAttention(16, 4, batch_first=True)]

    def itself(weights: bool) -> Callable[..., Any]:
        return lambda _torch, layers, x: layers[0](x, x, x, need_weights=weights)[0]

    def encoder(**options: Any) -> Callable[[Any], Any]:
        return lambda torch: torch.nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, **options)

    q, k, v = (2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8)
    cross = 2 * 4 * 5 * 7 * (8 + 8)  # samples x heads x queries x keys x (width of keys + of values)
    heads = 4 * 5 * 16 * 16 + 2 * 5 * 5 * 16  # four projections, scores, sums
    block = heads + 2 * 5 * 16 * 24  # and two layers
    decoder = block + 2 * 5 * 16 * 16 + 2 * 7 * 16 * 16 + 2 * 5 * 7 * 16  # and attention to a memory of 7
    return [
        _call("attention by hand", cross, own, q, k, v),
        _call("sdpa", cross, sdpa(), q, k, v),
        _call("sdpa, math kernel", cross, kernel("MATH"), q, k, v),
        _call("sdpa, flash kernel", cross, kernel("FLASH_ATTENTION"), q, k, v),
        _call("sdpa, causal", 2 * 4 * 7 * 7 * 16, sdpa(is_causal=True), k, k, v),
        _call("sdpa, mask", cross, sdpa(), q, k, v, (5, 7)),
        _call("sdpa, boolean mask", cross, sdpa(), q, k, v, lambda torch: torch.ones(5, 7).tril().bool()),
        _call("sdpa, grouped queries", cross, sdpa(enable_gqa=True), q, (2, 2, 7, 8), (2, 2, 7, 8)),
        _call("sdpa, wider values", 2 * 4 * 5 * 7 * (8 + 12), sdpa(), q, k, (2, 4, 7, 12)),
        _call("sdpa, dropout", cross, sdpa(dropout_p=0.1), q, k, v),
        _call("sdpa, bfloat16", cross, sdpa(), q, k, v, dtype="bfloat16"),
        _call("sdpa, 3-D", cross // 2, sdpa(), q[1:], k[1:], v[1:]),
        _call("flex attention", cross, flex, q, k, v),
        _composed("multi-head attention, fast path", 2 * heads, mha, itself(weights=False), (2, 5, 16)),
        _composed("multi-head attention, weights", 2 * heads, mha, itself(weights=True), (2, 5, 16)),
        _composed(
            "multi-head attention, across",
            # q: 5 x 16 x 16, k: 7 x 6 x 16, v: 7 x 10 x 16, scores and sums: 2 x 5 x 7 x 16, out: 5 x 16 x 16
            2 * (5 * 256 + 7 * 6 * 16 + 7 * 10 * 16 + 2 * 5 * 7 * 16 + 5 * 256),
            lambda torch: [torch.nn.MultiheadAttention(16, 4, batch_first=True, kdim=6, vdim=10)],
            lambda _torch, layers, *arguments: layers[0](*arguments, need_weights=False)[0],
            (2, 5, 16), (2, 7, 6), (2, 7, 10),
        ),
        _layer("transformer encoder layer, fast path", 2 * block, encoder(), (2, 5, 16)),
        _layer("transformer encoder layer, training", 2 * block, encoder(), (2, 5, 16), train=True),
        _layer("transformer encoder layer, norm first", 2 * block,
               encoder(norm_first=True, activation="gelu"),
               (2, 5, 16)),
        _layer("transformer encoder layer, bfloat16", 2 * block, encoder(), (2, 5, 16), dtype="bfloat16"),
        _layer("transformer decoder layer", 2 * decoder,
               lambda torch: torch.nn.TransformerDecoderLayer(16, 4, 24, batch_first=True), (2, 5, 16),
               (2, 7, 16)),
    ]  # fmt: skip


def _without_contraction() -> list[OperatorCase]:
    """Return cases without contractions."""

    def layer(kind: str, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
        return lambda torch: getattr(torch.nn, kind)(*arguments, **options)

    def filtered(torch: Any, x: Any, w: Any) -> Any:
        return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(w))

    def bag(torch: Any, layers: Any, ids: Any, weights: Any) -> Any:
        return layers[0](ids, per_sample_weights=torch.abs(weights))

    def rotated(torch: Any, x: Any, angle: Any) -> Any:
        left, right = x.chunk(2, -1)
        return x * torch.cos(angle) + torch.cat((-right, left), -1) * torch.sin(angle)

    image = (2, 4, 10, 12)
    return [
        _layer("embedding", 0, layer("Embedding", 17, 16), _ids(3, 5)),
        _layer("embedding bag", 0, layer("EmbeddingBag", 17, 16), _ids(3, 5)),
        _composed("embedding bag, weights", 0, lambda torch: [torch.nn.EmbeddingBag(17, 16, mode="sum")], bag,
                  _ids(3, 5), (3, 5)),
        _layer("layer norm", 0, layer("LayerNorm", 16), (2, 5, 16)),
        _layer("rms norm", 0, layer("RMSNorm", 16), (2, 5, 16)),
        _layer("batch norm", 0, layer("BatchNorm2d", 4), image),
        _layer("batch norm, training", 0, layer("BatchNorm2d", 4), image, train=True),
        _layer("group norm", 0, layer("GroupNorm", 2, 4), image),
        _layer("gelu", 0, layer("GELU"), (2, 5, 16)),
        _layer("softmax", 0, layer("Softmax", -1), (2, 5, 16)),
        _layer("prelu", 0, layer("PReLU"), image),
        _layer("max pooling", 0, layer("MaxPool2d", 2), image),
        _layer("average pooling", 0, layer("AvgPool2d", 3), image),
        _layer("adaptive pooling", 0, layer("AdaptiveAvgPool2d", 1), image),
        _layer("upsampling, bilinear", 0, layer("Upsample", scale_factor=2, mode="bilinear"), image),
        _layer("pixel shuffle", 0, layer("PixelShuffle", 2), image),
        _call("fft convolution", 0, filtered, (2, 16), (16,)),
        _call("rotary embedding", 0, rotated, (2, 4, 5, 8), (5, 8)),
        _call("products and sum", 0, lambda _torch, a, b: (a * b).sum(-1), (5, 6), (5, 6)),
    ]  # fmt: skip


def _experts() -> list[OperatorCase]:
    """Return mixtures of experts: 10 tokens, 4 experts of two layers, and the routing layer."""

    def experts(torch: Any) -> list[Any]:
        body = [
            torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.SiLU(), torch.nn.Linear(12, 8))
            for _ in "abcd"
        ]
        return [torch.nn.Linear(8, 4, bias=False), *body]

    def all_of_them(torch: Any, layers: Any, x: Any) -> Any:
        share = torch.softmax(layers[0](x), -1)
        return sum(share[:, i : i + 1] * layer(x) for i, layer in enumerate(layers[1:]))

    def chosen_by_experts(torch: Any, layers: Any, x: Any) -> Any:
        """Let each expert take 3 tokens."""
        share, index = torch.softmax(layers[0](x), -1).topk(3, dim=0)
        result = torch.zeros_like(x)
        for i, layer in enumerate(layers[1:]):
            result = result.index_add(0, index[:, i], share[:, i : i + 1] * layer(x[index[:, i]]))
        return result

    def chosen_by_tokens(torch: Any, layers: Any, x: Any) -> Any:
        """Let each token take 2 experts: how many tokens an expert gets depends on the data."""
        share, index = torch.softmax(layers[0](x), -1).topk(2, dim=-1)
        result = torch.zeros_like(x)
        for i, layer in enumerate(layers[1:]):
            row, column = torch.where(index == i)
            result = result.index_add(0, row, share[row, column, None] * layer(x[row]))
        return result

    one = 2 * 8 * 12
    return [
        _composed("experts, all", 10 * (8 * 4 + 4 * one), experts, all_of_them, (10, 8)),
        _composed("experts, they choose", 10 * 8 * 4 + 4 * 3 * one, experts, chosen_by_experts, (10, 8)),
        _composed("experts, tokens choose", 10 * (8 * 4 + 2 * one), experts, chosen_by_tokens, (10, 8)),
    ]


def _hard_to_trace() -> list[OperatorCase]:
    """Return cases that are hard to trace: loops, sparse and foreign operators."""

    def sparse(torch: Any, x: Any) -> Any:
        return torch.sparse.mm(torch.eye(6).to_sparse(), x)

    def stored(torch: Any) -> Any:
        net = _module(
            torch, lambda torch, layers, x: torch.sparse.mm(layers[0].matrix, x), [torch.nn.Identity()]
        )
        net.layers[0].register_buffer("matrix", torch.eye(6).to_sparse())
        return net

    def scan(torch: Any, x: Any, decay: Any, b: Any, c: Any) -> Any:
        """Step h = decay h + x b, y = h c through 7 steps."""
        state = torch.zeros(3, 5, 4)
        outputs = []
        for step in range(x.shape[1]):
            state = state * decay + x[:, step, :, None] * b
            outputs.append(state @ c)
        return torch.stack(outputs, 1)

    def checkpointed(torch: Any, layers: Any, x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(layers[0], x, use_reentrant=False)

    return [
        # The density is known: 6 stored elements, each meets a row of 4.
        _call("sparse mm, built", 6 * 4, sparse, (6, 4)),
        _layer("sparse mm, stored", 6 * 4, stored, (6, 4)),
        _call("custom operator", UNCOUNTED, lambda _torch, a, b: _blend()(a, b), (5, 6), (6, 7)),
        _call("state-space scan", 7 * 3 * 5 * 4, scan, (3, 7, 5), (5, 4), (4,), (4,)),
        _composed("checkpointed layer", 5 * 16 * 24, lambda torch: [torch.nn.Linear(16, 24)], checkpointed,
                  (5, 16)),
    ]  # fmt: skip


@functools.cache
def _blend() -> Callable[..., Any]:
    """Register an operator without a known formula."""
    import torch

    def blend(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(a.numpy() @ b.numpy())

    operator: Any = torch.library.custom_op(
        "modeldyno_testing::blend", blend, mutates_args=(), schema="(Tensor a, Tensor b) -> Tensor"
    )
    operator.register_fake(lambda a, b: a.new_empty(a.shape[0], b.shape[1]))
    return operator  # type: ignore[no-any-return]


CASES: tuple[OperatorCase, ...] = (
    *_linears(),
    *_products(),
    *_low_precision(),
    *_convolutions(),
    *_recurrent(),
    *_attention(),
    *_without_contraction(),
    *_experts(),
    *_hard_to_trace(),
)
"""All cases."""
