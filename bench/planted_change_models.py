"""Pairs of small networks, the second of which has one planted change: for bench/planted_changes.py.

Each pair is two factories of this file, ``NAME_before`` and ``NAME_after``, such as
``torch:bench/planted_change_models.py:wider_after``. Pairs of ONNX are written by `write`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper, save
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, SEED = (int(os.environ.get(f"CAUSE_{name}", usual)) for name, usual in (("WIDTH", 384), ("SEED", 0)))
"""Width of the layers, a multiple of 24, and the seed of weights and inputs."""
ROWS, HEADS, LENGTH, CHANNELS, SIDE = 64, 24, 192, 24, 48


@dataclass(frozen=True)
class Pair:
    """Two networks, what was changed in the second, and where that is."""

    name: str
    change: str
    where: tuple[str, ...]
    """Any of these paths is right: a wider layer is two matrices."""
    metric: str = "latency"


class Manual(nn.Module):
    """GELU, written out."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute it."""
        return 0.5 * x * (1 + torch.erf(x / 2**0.5))


class ManualNorm(nn.Module):
    """LayerNorm, written out, in float64."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute it."""
        wide = x.double()
        mean = wide.mean(-1, keepdim=True)
        spread = ((wide - mean) ** 2).mean(-1, keepdim=True)
        return ((wide - mean) / torch.sqrt(spread + 1e-5)).to(x.dtype)


class Block(nn.Module):
    """Two matrices and an activation, with what may go wrong between them."""

    def __init__(self, hidden: int = WIDTH, act: nn.Module | None = None, between: str = "") -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(WIDTH, hidden), act or nn.GELU(), nn.Linear(hidden, WIDTH)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        """Compute it."""
        y = self.up(x)
        if self.between == "copies":
            for _ in range(60):
                y = y.clone()
        elif self.between == "layout":
            for _ in range(24):
                y = y.t().contiguous().t().contiguous()
        elif self.between == "memory":
            y = torch.cat([y] * 16).view(16, *y.shape)[0]
        y = self.act(y)
        for _ in range(4 if self.between == "again" else 1):
            y = self.down(y)
        return y


class Attention(nn.Module):
    """Self-attention: fused, written out, or head by head."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.qkv, self.out, self.how = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), how

    def forward(self, x: Tensor) -> Tensor:
        """Compute it."""
        parts = self.qkv(x).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts
        if self.how == "fused":
            y = functional.scaled_dot_product_attention(q, k, v)
        elif self.how == "written out":
            y = torch.softmax((q.double() @ k.double().mT) / q.shape[-1] ** 0.5, -1).float() @ v
        else:
            attend = functional.scaled_dot_product_attention
            rows = [[attend(*(p[b, h][None] for p in parts)) for h in range(HEADS)] for b in range(len(x))]
            y = torch.stack([torch.cat(heads) for heads in rows])
        return self.out(y.transpose(1, 2).flatten(2))


class Cast(nn.Module):
    """A layer that computes in another precision than those around it."""

    def __init__(self, layer: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer, self.dtype = layer.to(dtype), dtype

    def forward(self, x: Tensor) -> Tensor:
        """Compute it."""
        return self.layer(x.to(self.dtype)).to(x.dtype)


class Head(nn.Module):
    """A classifier, which may sort all that it has."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.fc, self.how = nn.Linear(WIDTH, 10), how

    def forward(self, x: Tensor) -> Tensor:
        """Compute it."""
        if self.how == "sorted":
            x = x + torch.sort(x, dim=0).values * 1e-9
        return self.fc(x)


class Recurrent(nn.Module):
    """The outputs of an LSTM."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH // 4, WIDTH // 4, num_layers=layers, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Compute it."""
        return self.lstm(x)[0]


def _body(**changed: nn.Module) -> nn.Module:
    """Stack three blocks and a head, some of which are changed."""
    parts: dict[str, nn.Module] = {name: Block() for name in ("first", "second", "third")} | {"head": Head()}
    net = nn.Sequential()
    for name, module in (parts | changed).items():
        net.add_module(name, module)
    return net


def _convolutions(*middle: nn.Module) -> nn.Module:
    """Put layers between two convolutions."""
    ends = nn.Conv2d(3, CHANNELS, 3, padding=1), nn.Conv2d(CHANNELS, 8, 3, padding=1)
    return nn.Sequential(ends[0], nn.ReLU(), *middle, ends[1])


def _conv(size: int = 3) -> nn.Module:
    return nn.Conv2d(CHANNELS, CHANNELS, size, padding=size // 2)


def _transformer(how: str) -> nn.Module:
    net = nn.Sequential()
    for name, module in {"mix": Attention(how), "norm": nn.LayerNorm(WIDTH), "block": Block()}.items():
        net.add_module(name, module)
    return net


def _text(vocabulary: int) -> nn.Module:
    net = nn.Sequential()
    for name, module in {
        "embedding": nn.Embedding(vocabulary, WIDTH),
        "block": Block(),
        "head": Head(),
    }.items():
        net.add_module(name, module)
    return net


def _half(third: nn.Module) -> nn.Module:
    net = _body().to(torch.bfloat16)
    net.third = third  # type: ignore[assignment]
    return net


def _recurrent(layers: int) -> nn.Module:
    narrow = WIDTH // 4
    return nn.Sequential(nn.Linear(WIDTH, narrow), Recurrent(layers), nn.Linear(narrow, WIDTH))


def _rows() -> Tensor:
    return torch.randn(ROWS, WIDTH)


def _picture() -> Tensor:
    return torch.randn(2, 3, SIDE, SIDE)


def _sequence() -> Tensor:
    return torch.randn(4, LENGTH, WIDTH)


Made = tuple[Callable[[], nn.Module], Callable[[], nn.Module], Callable[[], Tensor]]

PAIRS: dict[Pair, Made] = {
    Pair("wider", "a hidden layer of 4x the width", ("second.up", "second.down")):
        (_body, lambda: _body(second=Block(4 * WIDTH)), _rows),
    Pair("inserted", "one more layer, 4x as wide", ("3", "4")): (
        lambda: nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))),
        lambda: nn.Sequential(*(nn.Linear(WIDTH, WIDTH * (4 if n == 3 else 1)) if n < 4 else
                                nn.Linear(WIDTH * (4 if n == 4 else 1), WIDTH) for n in range(5))), _rows),
    Pair("copies", "needless copies between two layers", ("third",)):
        (_body, lambda: _body(third=Block(between="copies")), _rows),
    Pair("layout", "transposed to and fro", ("first",)):
        (_body, lambda: _body(first=Block(between="layout")), _rows),
    Pair("again", "a layer called four times", ("second.down",)):
        (_body, lambda: _body(second=Block(between="again")), _rows),
    Pair("memory", "a tensor repeated 16 times", ("second",), "allocated_peak"):
        (_body, lambda: _body(second=Block(between="memory")), _rows),
    Pair("activation", "an activation written out", ("third.act",)):
        (lambda: _body(third=Block(4 * WIDTH)), lambda: _body(third=Block(4 * WIDTH, Manual())), _rows),
    Pair("double", "a layer in float64", ("second.layer", "second")): (
        lambda: _body(second=Cast(nn.Linear(WIDTH, WIDTH), torch.float32)),
        lambda: _body(second=Cast(nn.Linear(WIDTH, WIDTH), torch.float64)), _rows),
    Pair("fp32", "a layer left in fp32 in a bf16 model", ("third.layer", "third"), "weight_bytes"): (
        lambda: _half(Cast(nn.Linear(WIDTH, WIDTH), torch.bfloat16)),
        lambda: _half(Cast(nn.Linear(WIDTH, WIDTH), torch.float32)), lambda: _rows().to(torch.bfloat16)),
    Pair("sorted", "a sort in the head", ("head",)):
        (_body, lambda: _body(head=Head("sorted")), _rows),
    Pair("unfused", "attention written out", ("mix",)):
        (lambda: _transformer("fused"), lambda: _transformer("written out"), _sequence),
    Pair("looped", "attention head by head", ("mix",)):
        (lambda: _transformer("fused"), lambda: _transformer("looped"), _sequence),
    Pair("norm", "a LayerNorm written out in float64", ("1",)): (
        lambda: nn.Sequential(*[nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)]),
        lambda: nn.Sequential(*[nn.Linear(WIDTH, WIDTH), ManualNorm(), nn.Linear(WIDTH, WIDTH)]), _sequence),
    Pair("unfolded", "a BatchNorm that is not folded into its convolution", ("3",)): (
        lambda: _convolutions(_conv(1), nn.ReLU()),
        lambda: _convolutions(_conv(1), nn.BatchNorm2d(CHANNELS), nn.ReLU()), _picture),
    Pair("kernel", "a convolution of 7x7 instead of 3x3", ("2",)):
        (lambda: _convolutions(_conv(3)), lambda: _convolutions(_conv(7)), _picture),
    Pair("upsampled", "bicubic instead of nearest", ("2",)): (
        lambda: _convolutions(nn.Upsample(scale_factor=2, mode="nearest")),
        lambda: _convolutions(nn.Upsample(scale_factor=2, mode="bicubic")), _picture),
    Pair("recurrent", "a second layer in an LSTM", ("1.lstm", "1")): (
        lambda: _recurrent(1), lambda: _recurrent(2), _sequence),
    Pair("vocabulary", "a vocabulary of 4x the words", ("embedding",), "weight_bytes"):
        (lambda: _text(1000), lambda: _text(4000), lambda: torch.randint(0, 1000, (ROWS,))),
}  # fmt: skip
ONNX = (
    Pair("onnx-wider", "a hidden layer of 4x the width", ("second.up", "second.down")),
    Pair("onnx-unfused", "an activation written out", ("third.act",)),
)


def _factory(build: Callable[[], nn.Module], example: Callable[[], Tensor]) -> Callable[[], Any]:
    def factory() -> tuple[nn.Module, tuple[Tensor, ...]]:
        torch.manual_seed(SEED)
        model = build().eval()
        torch.manual_seed(SEED + 1)
        return model, (example(),)

    return factory


for _pair, (_before, _after, _example) in PAIRS.items():
    globals()[f"{_pair.name}_before"] = _factory(_before, _example)
    globals()[f"{_pair.name}_after"] = _factory(_after, _example)


# --- ONNX ------------------------------------------------------------------------------------------


def write(pair: Pair, folder: Path) -> tuple[Path, Path]:
    """Write both networks of a pair of ONNX."""
    after = {"second": 4 * WIDTH} if pair.name == "onnx-wider" else {}
    return (
        _onnx(folder / f"{pair.name}-before.onnx", {}, written_out=""),
        _onnx(folder / f"{pair.name}-after.onnx", after, written_out="third" if not after else ""),
    )


def _onnx(path: Path, hidden: dict[str, int], *, written_out: str) -> Path:
    """Write three blocks; the activation of one may consist of many operators."""
    random = np.random.default_rng(SEED)
    nodes, weights, x = [], [], "x"
    for name in ("first", "second", "third"):
        wide = hidden.get(name, WIDTH)
        for part, shape in (("up", (WIDTH, wide)), ("down", (wide, WIDTH))):
            values = random.standard_normal(shape).astype(np.float32) / WIDTH**0.5
            weights.append(numpy_helper.from_array(values, f"{name}.{part}.weight"))
        nodes.append(
            helper.make_node("MatMul", [x, f"{name}.up.weight"], [f"{name}.h"], name=f"/{name}/up/MatMul")
        )
        middle = f"{name}.h"
        for step in range(64 if name == written_out else 1):
            kind = ("Tanh", "Sigmoid")[step % 2]
            nodes.append(
                helper.make_node(kind, [middle], [f"{name}.a{step}"], name=f"/{name}/act/{kind}_{step}")
            )
            middle = f"{name}.a{step}"
        x = f"{name}.y"
        nodes.append(
            helper.make_node("MatMul", [middle, f"{name}.down.weight"], [x], name=f"/{name}/down/MatMul")
        )
    shape = [ROWS, WIDTH]
    graph = helper.make_graph(
        nodes,
        "body",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)],
        weights,
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path
