"""How many broken conversions are found, and how many right ones are refused.

100 broken ones, made of torch networks and ONNX files: weights swapped, transposed, scaled, zeroed, a bias dropped,
classes swapped, an epsilon, an activation or a normalisation changed, masks ignored, sizes
frozen, NaN, integers that overflow, operators in the meaning of another opset. And some 100 right ones: other
exporters and runtimes, every level of graph optimisation, other threads and memory layouts, folded batch
normalisation, outputs with a mask of minus infinity on purpose, models of `transformers` with random weights.

    python bench/broken_conversions.py [--only broken|right|places] [--every N]

Goals: 100 found, at most 1 refused. `places` exports the broken networks to ONNX and as programs, and counts for
how many the layer that is told first to differ is the one that was broken. It needs torch, onnx, onnxruntime, onnxscript, openvino and transformers.
"""

from __future__ import annotations

import argparse
import copy
import logging
import math
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional

from modeldyno.base import plugins
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.conversion.agreement.agreement import FirstDifference  # noqa: TC001 - as those beside it
from modeldyno.conversion.agreement.compare import conclude
from modeldyno.conversion.agreement.rule import AgreementRule, Equivalence
from modeldyno.conversion.locate import farthest_call, locate
from modeldyno.conversion.recipe import compare_model
from modeldyno.conversion.reference import Reference, conversion_source, run_reference
from modeldyno.models.interface import Model

# -- the networks ---------------------------------------------------------------------------------


class Mlp(nn.Module):
    """Three linear layers, with a softmax at will."""

    def __init__(self, *, soft: bool = False) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 10)
        self.act: Callable[..., Any] = functional.relu
        self.soft = soft

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores of ten classes."""
        y = self.c(self.act(self.b(self.act(self.a(x)))))
        return y.softmax(-1) if self.soft else y


class Cnn(nn.Module):
    """Convolutions with batch normalisation, as trained: its statistics are not those of a fresh layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.b, self.m = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 4 * 4, 10)
        self.act: Callable[..., Any] = functional.silu
        for norm in (self.n, self.m):
            nn.init.normal_(norm.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(norm.running_var, 0.5, 2.0)  # type: ignore[arg-type]
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
        self.pool: Callable[..., Any] = lambda x: functional.avg_pool2d(x, 3, 2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores of ten classes of an image of 8 x 8."""
        x = self.act(self.n(self.a(x)))
        x = x + self.act(self.m(self.b(x)))
        return self.head(self.pool(x).flatten(1))


class Transformer(nn.Module):
    """A layer of a transformer with a padding mask."""

    def __init__(self, width: int = 32, vocabulary: int = 300) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 64), nn.Linear(64, width)
        self.head = nn.Linear(width, 20)
        self.act: Callable[..., Any] = functional.gelu
        self.scale, self.shift, self.use_mask, self.causal = 1 / math.sqrt(width), 0, True, True

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return scores for every position."""
        length = input_ids.shape[1]
        x = self.words(input_ids) + self.places(torch.arange(length) + self.shift)
        y = self.first(x)
        scores = self.q(y) @ self.k(y).transpose(1, 2) * self.scale
        if self.causal:
            later = torch.ones(length, length, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, torch.finfo(torch.float32).min)
        if self.use_mask:
            scores = scores.masked_fill(attention_mask[:, None, :] == 0, torch.finfo(torch.float32).min)
        x = x + self.o(scores.softmax(-1) @ self.v(y))
        return self.head(x + self.down(self.act(self.up(self.second(x)))))


class Recurrent(nn.Module):
    """An LSTM and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores of the last step."""
        return self.head(self.lstm(x)[0][:, -1])


class Embedder(nn.Module):
    """A vector of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.b = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 24)
        self.normalise: Callable[..., Any] = lambda y: y / y.norm(dim=-1, keepdim=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the vector."""
        return self.normalise(self.b(functional.gelu(self.n(self.a(x)))))


class Detector(nn.Module):
    """Several outputs: boxes, scores with a mask of minus infinity, labels."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.boxes, self.scores = nn.Linear(16, 32), nn.Linear(32, 4), nn.Linear(32, 6)
        self.hidden, self.fill = 2, -math.inf

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return three outputs."""
        y = functional.relu(self.a(x))
        masked = self.scores(y).masked_fill(torch.arange(6) == self.hidden, self.fill)
        return {"boxes": self.boxes(y).sigmoid(), "scores": masked, "labels": masked.argmax(-1)}


class Upscaler(nn.Module):
    """Resizing, with free height and width in spirit."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 4, 3, padding=1)
        self.resize: Callable[..., Any] = lambda x: functional.interpolate(
            x, scale_factor=2.0, mode="bilinear", align_corners=False
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return an image of twice the size."""
        return self.resize(functional.relu(self.a(x)))


def example_of(network: nn.Module) -> Any:
    """Return inputs of two samples."""
    match network:
        case Transformer():
            return {
                "input_ids": torch.randint(0, 300, (2, 12)),
                "attention_mask": torch.ones(2, 12, dtype=torch.int64),
            }
        case Cnn() | Upscaler():
            return torch.randn(2, 3, 8, 8)
        case Recurrent():
            return torch.randn(2, 10, 8)
        case _:
            return torch.randn(2, 16)


def make_network(kind: Callable[[], nn.Module]) -> nn.Module:
    """Make a network with the weights of one seed."""
    torch.manual_seed(1)
    return kind().eval()


# -- what may break -------------------------------------------------------------------------------

Change = Callable[[Any], Any]
"""Breaks a copy of a network; returns another module, or None if it changed the copy itself."""


def edit(path: str, how: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Change a tensor."""

    def change(network: nn.Module) -> None:
        tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        with torch.no_grad():
            tensors[path].copy_(how(tensors[path].clone()))

    return change


def swap(one: str, other: str) -> Change:
    """Swap the weights of two layers of one shape."""

    def change(network: nn.Module) -> None:
        first, second = network.get_submodule(one), network.get_submodule(other)
        state = copy.deepcopy(first.state_dict())
        first.load_state_dict(second.state_dict())
        second.load_state_dict(state)

    return change


def put(path: str, value: Any) -> Change:
    """Set an attribute of a module."""

    def change(network: nn.Module) -> None:
        parent, _, name = path.rpartition(".")
        setattr(network.get_submodule(parent) if parent else network, name, value)

    return change


class Around(nn.Module):
    """A network with something before it and after it."""

    def __init__(self, network: nn.Module, before: Any = None, after: Any = None) -> None:
        super().__init__()
        self.network, self.before, self.after = network, before, after

    def forward(self, x: torch.Tensor) -> Any:
        """Return what comes after."""
        y = self.network(x if self.before is None else self.before(x))
        return y if self.after is None else self.after(y)


class AroundText(nn.Module):
    """The same for two inputs."""

    def __init__(self, network: nn.Module, before: Any) -> None:
        super().__init__()
        self.network, self.before = network, before

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        """Return the network's output for changed inputs."""
        return self.network(*self.before(input_ids, attention_mask))


def surround(before: Any = None, after: Any = None) -> Change:
    """Put something before or after a network."""
    return lambda network: Around(network, before, after)


def text(before: Any) -> Change:
    """Change the two inputs of a network of text."""
    return lambda network: AroundText(network, before)


def switch_to_training(path: str) -> Change:
    """Leave a layer in training mode, as with batch statistics."""

    class Training(nn.Module):
        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: torch.Tensor) -> Any:
            layer = copy.deepcopy(self.network)
            layer.get_submodule(path).train()
            return layer(x)

    return Training


def order(*rows: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Reorder the first rows."""
    return lambda t: torch.cat([t[list(rows)], t[len(rows) :]])


def gates(t: torch.Tensor) -> torch.Tensor:
    """Order the gates of an LSTM as ONNX does (i o f c), without telling the runtime."""
    i, f, c, o = t.chunk(4)
    return torch.cat([i, o, f, c])


def only(size: int) -> Change:
    """Freeze the batch: it takes, and gives, so many samples whatever it is called with."""
    return surround(lambda x: x.expand(size, *x.shape[1:]) if len(x) == 1 else x[:size], lambda y: y[:size])


def store_as(dtype: torch.dtype) -> Change:
    """Store the weights in a coarser dtype, undeclared."""
    return lambda network: network.to(dtype).to(torch.float32) and None


LAST = "c.weight"
TORCH: tuple[tuple[str, Callable[[], nn.Module], Change], ...] = (
    # weights
    ("two layers swapped", Transformer, swap("q", "k")),
    ("value and output projections swapped", Transformer, swap("v", "o")),
    ("two norms swapped", Cnn, swap("n", "m")),
    ("two convolutions' kernels reversed", Cnn, edit("b.weight", lambda t: t.flip(0))),
    ("kernel flipped: a true convolution", Cnn, edit("b.weight", lambda t: t.flip(2, 3))),
    ("kernel's height and width transposed", Cnn, edit("a.weight", lambda t: t.transpose(2, 3))),
    ("square weight transposed", Mlp, edit("b.weight", lambda t: t.T)),
    ("query transposed", Transformer, edit("q.weight", lambda t: t.T)),
    ("weights reversed", Mlp, edit(LAST, lambda t: t.flip(0, 1))),
    ("weights scaled by 1000", Mlp, edit(LAST, lambda t: t * 1000)),
    ("weights scaled by 1.01", Mlp, edit("b.weight", lambda t: t * 1.01)),
    ("weights scaled by 1.0001", Mlp, edit("a.weight", lambda t: t * 1.0001)),
    ("sign flipped", Embedder, edit("b.weight", lambda t: -t)),
    ("weights zeroed", Mlp, edit("b.weight", torch.zeros_like)),
    ("all outputs zero", Mlp, surround(after=torch.zeros_like)),
    ("one weight zeroed", Mlp, edit("b.weight", lambda t: t.index_put((torch.tensor(3), torch.tensor(5)), torch.tensor(0.0)))),
    ("one kernel zeroed", Cnn, edit("b.weight", lambda t: torch.cat([t[:1] * 0, t[1:]]))),
    ("one row of the embedding lost", Transformer, edit("places.weight", lambda t: torch.cat([t[:1], t[:1], t[2:]]))),
    ("stale weights: a step of training missing", Mlp, edit("b.weight", lambda t: t + 1e-3 * torch.sign(t))),
    ("weights rounded to float16, undeclared", Mlp, store_as(torch.float16)),
    ("weights rounded to bfloat16, undeclared", Cnn, store_as(torch.bfloat16)),
    ("weights rounded to float16 in a transformer", Transformer, store_as(torch.float16)),
    ("weights quantised to 8 bits, undeclared", Mlp, edit("b.weight", lambda t: (t / t.abs().max() * 127).round() * t.abs().max() / 127)),
    # biases and classes
    ("last bias dropped", Mlp, edit("c.bias", torch.zeros_like)),
    ("first bias dropped", Mlp, edit("a.bias", torch.zeros_like)),
    ("bias of a convolution dropped", Cnn, edit("a.bias", torch.zeros_like)),
    ("bias of the norm dropped", Cnn, edit("n.bias", torch.zeros_like)),
    ("bias of the query dropped", Transformer, edit("q.bias", torch.zeros_like)),
    ("one bias of the LSTM dropped", Recurrent, edit("lstm.bias_hh_l0", torch.zeros_like)),
    ("bias added twice", Mlp, edit("c.bias", lambda t: 2 * t)),
    ("two classes swapped", Mlp, surround(after=lambda y: y[:, [1, 0, *range(2, 10)]])),
    ("two classes swapped after a softmax", lambda: Mlp(soft=True), surround(after=lambda y: y[:, [0, 1, 3, 2, *range(4, 10)]])),
    ("classes rotated", Mlp, surround(after=lambda y: y.roll(1, -1))),
    ("rows of the last layer swapped, not of its bias", Mlp, edit(LAST, order(1, 0))),
    ("samples of a batch swapped", Mlp, surround(after=lambda y: y.flip(0))),
    # constants
    ("epsilon of a batch norm 1e-3 instead of 1e-5", Cnn, put("n.eps", 1e-3)),
    ("epsilon of a batch norm 1e-4 instead of 1e-5", Cnn, put("m.eps", 1e-4)),
    ("epsilon of a layer norm 1e-3 instead of 1e-5", Embedder, put("n.eps", 1e-3)),
    ("epsilon of a layer norm 1e-12 instead of 1e-5", Embedder, put("n.eps", 1e-12)),
    ("epsilon of a layer norm 1e-6 instead of 1e-5", Embedder, put("n.eps", 1e-6)),
    ("attention scaled by the width, not its root", Transformer, put("scale", 1 / 32)),
    ("attention not scaled", Transformer, put("scale", 1.0)),
    ("positions off by one", Transformer, put("shift", 1)),
    # activations
    ("relu instead of silu", Cnn, put("act", functional.relu)),
    ("hard swish instead of silu", Cnn, put("act", functional.hardswish)),
    ("leaky relu instead of relu", Mlp, put("act", lambda x: functional.leaky_relu(x, 0.01))),
    ("leaky relu with a slope of 0.001", Mlp, put("act", lambda x: functional.leaky_relu(x, 0.001))),
    ("relu6 instead of relu", Mlp, put("act", functional.relu6)),
    ("gelu by tanh instead of erf", Transformer, put("act", lambda x: functional.gelu(x, approximate="tanh"))),
    ("gelu by sigmoid instead of erf", Transformer, put("act", lambda x: x * torch.sigmoid(1.702 * x))),
    ("no activation", Mlp, put("act", lambda x: x)),
    ("softmax left out", lambda: Mlp(soft=True), put("soft", False)),
    ("log of the softmax", lambda: Mlp(soft=True), surround(after=torch.log)),
    ("softmax over the samples", Mlp, surround(after=lambda y: y.softmax(0))),
    # normalised differently
    ("batch statistics instead of running ones", Cnn, switch_to_training("n")),
    ("running mean lost", Cnn, edit("n.running_mean", torch.zeros_like)),
    ("running variance lost", Cnn, edit("m.running_var", torch.ones_like)),
    ("weight of a norm scaled by 0.99", Embedder, edit("n.weight", lambda t: t * 0.99)),
    ("length in L1", Embedder, put("normalise", lambda y: y / y.abs().sum(-1, keepdim=True))),
    ("not normalised", Embedder, put("normalise", lambda y: y)),
    ("normalised over the samples", Embedder, put("normalise", lambda y: y / y.norm(dim=0, keepdim=True))),
    ("channels in another order", Cnn, surround(before=lambda x: x.flip(1))),
    ("inputs shifted by 0.001", Cnn, surround(before=lambda x: x + 1e-3)),
    ("inputs divided by 255 again", Cnn, surround(before=lambda x: x / 255)),
    ("inputs clipped to -4..4", Mlp, surround(before=lambda x: x.clamp(-4, 4))),
    ("inputs in float16", Mlp, surround(before=lambda x: x.half().float())),
    # masks
    ("padding mask ignored", Transformer, put("use_mask", False)),
    ("causal mask ignored", Transformer, put("causal", False)),
    ("another class masked", Detector, put("hidden", 3)),
    ("mask of the least float instead of minus infinity", Detector, put("fill", -3.4e38)),
    ("mask of -10000 instead of minus infinity", Detector, put("fill", -1e4)),
    # sizes
    ("batch frozen at 2", Mlp, only(2)),
    ("batch frozen at 1", Cnn, only(1)),
    ("only the first sample is computed", Mlp, surround(before=lambda x: x[:1].expand(x.shape))),
    ("padding without the average's count", Cnn, put("pool", lambda x: functional.avg_pool2d(x, 3, 2, padding=1, count_include_pad=False))),
    ("largest instead of average pooling", Cnn, put("pool", lambda x: functional.max_pool2d(x, 3, 2, padding=1))),
    ("length frozen: only eight words are read", Transformer, text(lambda i, m: (i, m * (torch.arange(i.shape[1]) < 8)))),
    # values
    ("NaN for negative sums", Mlp, surround(after=lambda y: torch.where(y.sum(-1, keepdim=True) < 0, torch.nan, y))),
    ("infinity where it is large", Mlp, surround(after=lambda y: (y.double() ** 41).float() ** (1 / 41))),
    ("ids overflow in int8", Transformer, text(lambda i, m: (i.to(torch.int8).long() % 300, m))),
    ("ids clipped at 255", Transformer, text(lambda i, m: (i.clamp(max=255), m))),
    ("labels overflow", Detector, surround(after=lambda y: {**y, "labels": y["labels"] * 100 % 256 // 100})),
    ("labels in int32", Detector, surround(after=lambda y: {**y, "labels": y["labels"].int()})),
    ("scores in float64", Mlp, surround(after=lambda y: y.double())),
    ("an output is missing", Detector, surround(after=lambda y: {n: y[n] for n in ("boxes", "scores")})),
    ("two outputs swapped", Detector, surround(after=lambda y: (y["scores"], y["boxes"], y["labels"]))),
    ("an axis of one is kept", Recurrent, surround(after=lambda y: y[:, None])),
    ("gates of the LSTM in ONNX's order", Recurrent, lambda n: [edit(f"lstm.{p}_l0", gates)(n) for p in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")] and None),
    ("time runs backwards", Recurrent, surround(before=lambda x: x.flip(1))),
    ("corners aligned", Upscaler, put("resize", lambda x: functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True))),
    ("nearest instead of bilinear", Upscaler, put("resize", lambda x: functional.interpolate(x, scale_factor=2.0, mode="nearest"))),
)  # fmt: skip
"""What is broken, in which network, and how."""


CODE_AFTER_C = frozenset({
    "all outputs zero", "two classes swapped", "two classes swapped after a softmax", "classes rotated",
    "samples of a batch swapped", "softmax left out", "log of the softmax", "softmax over the samples",
    "NaN for negative sums", "infinity where it is large", "scores in float64",
})  # fmt: skip
PLACES = {
    **dict.fromkeys(CODE_AFTER_C, "after c"),
    "two layers swapped": "at q",
    "value and output projections swapped": "at v",
    "two norms swapped": "at n",
    "two convolutions' kernels reversed": "at b",
    "kernel flipped: a true convolution": "at b",
    "kernel's height and width transposed": "at a",
    "square weight transposed": "at b",
    "query transposed": "at q",
    "weights reversed": "at c",
    "weights scaled by 1000": "at c",
    "weights scaled by 1.01": "at b",
    "weights scaled by 1.0001": "at a",
    "sign flipped": "at b",
    "weights zeroed": "at b",
    "one weight zeroed": "at b",
    "one kernel zeroed": "at b",
    "one row of the embedding lost": "at places",
    "stale weights: a step of training missing": "at b",
    "weights rounded to float16, undeclared": "at a",
    "weights rounded to bfloat16, undeclared": "at a",
    "weights rounded to float16 in a transformer": "at words",
    "weights quantised to 8 bits, undeclared": "at b",
    "last bias dropped": "at c",
    "first bias dropped": "at a",
    "bias of a convolution dropped": "at a",
    "bias of the norm dropped": "at n",
    "bias of the query dropped": "at q",
    "one bias of the LSTM dropped": "at lstm",
    "bias added twice": "at c",
    "rows of the last layer swapped, not of its bias": "at c",
    "epsilon of a batch norm 1e-3 instead of 1e-5": "at n",
    "epsilon of a batch norm 1e-4 instead of 1e-5": "at m",
    "epsilon of a layer norm 1e-3 instead of 1e-5": "at n",
    "epsilon of a layer norm 1e-12 instead of 1e-5": "at n",
    "epsilon of a layer norm 1e-6 instead of 1e-5": "at n",
    "attention scaled by the width, not its root": "before o",
    "attention not scaled": "before o",
    "positions off by one": "before places",
    "relu instead of silu": "before b",
    "hard swish instead of silu": "before b",
    "leaky relu instead of relu": "before b",
    "leaky relu with a slope of 0.001": "before b",
    "relu6 instead of relu": "before b",
    "gelu by tanh instead of erf": "before down",
    "gelu by sigmoid instead of erf": "before down",
    "no activation": "before b",
    "batch statistics instead of running ones": "at n",
    "running mean lost": "at n",
    "running variance lost": "at m",
    "weight of a norm scaled by 0.99": "at n",
    "length in L1": "after b",
    "not normalised": "after b",
    "normalised over the samples": "after b",
    "channels in another order": "before a",
    "inputs shifted by 0.001": "before a",
    "inputs divided by 255 again": "before a",
    "inputs clipped to -4..4": "before a",
    "inputs in float16": "before a",
    "padding mask ignored": "before o",
    "causal mask ignored": "before o",
    "another class masked": "after boxes",
    "mask of the least float instead of minus infinity": "after boxes",
    "mask of -10000 instead of minus infinity": "after boxes",
    "only the first sample is computed": "before a",
    "padding without the average's count": "before head",
    "largest instead of average pooling": "before head",
    "length frozen: only eight words are read": "before o",
    "ids overflow in int8": "before words",
    "ids clipped at 255": "before words",
    "labels overflow": "after boxes",
    "labels in int32": "after boxes",
    "an output is missing": "after boxes",
    "two outputs swapped": "after boxes",
    "an axis of one is kept": "after head",
    "gates of the LSTM in ONNX's order": "at lstm",
    "time runs backwards": "before lstm",
    "corners aligned": "after a",
    "nearest instead of bilinear": "after a",
}
"""Where each broken network first differs: at a layer, or in the code before a layer or after the last one.

Those that refuse a batch differ nowhere."""
SPANS = {
    "at a": {"between the inputs and n"},
    "at n": {"between the inputs and n"},
    "at b": {"between n and m"},
    "at m": {"between n and m"},
    "before a": {"between the inputs and n"},
    "before b": {"between n and m"},
    "at places": {"between words and first"},
    "before places": {"between words and first"},
}
"""Spans that contain a place and can be no narrower: the exporter of ONNX merges a convolution with its norm, and
computes the constant embedding of the positions."""


# -- broken ONNX files ----------------------------------------------------------------------------


def onnx_file(
    folder: Path, name: str, nodes: list[Any], weights: dict[str, Any], opset: int = 17, **shapes: Any
) -> Path:
    """Write a graph from x to y."""
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shapes.get("x", ["batch", 4, 6]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shapes.get("y"))],
        [numpy_helper.from_array(np.asarray(array), key) for key, array in weights.items()],
    )
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def soft_file(folder: Path, name: str, opset: int, **attributes: Any) -> Path:
    """Write a softmax, whose axis means another thing before opset 13."""
    return onnx_file(folder, name, [helper.make_node("Softmax", ["x"], ["y"], **attributes)], {}, opset)


def round_file(folder: Path, name: str, nodes: list[Any], **weights: Any) -> Path:
    """Write what rounds or resizes."""
    return onnx_file(folder, name, nodes, {k: np.asarray(v) for k, v in weights.items()}, x=["batch", 4, 6])


def onnx_pairs(folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield what is broken, the source and the broken file."""
    node, f32 = helper.make_node, np.float32
    source = soft_file(folder, "softmax", 13, axis=1)
    yield "softmax of opset 13 read as of opset 12", source, soft_file(folder, "softmax12", 12, axis=1)
    yield "softmax over the last axis", source, soft_file(folder, "softmax-last", 13, axis=-1)
    halves = [node("Mul", ["x", "two"], ["m"]), node("Round", ["m"], ["r"]), node("Div", ["r", "two"], ["y"])]
    away = [
        node("Mul", ["x", "two"], ["m"]), node("Add", ["m", "half"], ["h"]), node("Floor", ["h"], ["r"]), node("Div", ["r", "two"], ["y"]),
    ]  # fmt: skip
    steps = [
        node("Mul", ["x", "four"], ["k"]),
        node("Floor", ["k"], ["l"]),
        node("Div", ["l", "four"], ["z"]),
    ]
    even = [*steps, node("Mul", ["z", "two"], ["m"]), *halves[1:]]
    up = [*steps, node("Mul", ["z", "two"], ["m"]), *away[1:]]
    numbers = {"two": f32(2), "half": f32(0.5), "four": f32(4)}
    yield (
        "halves rounded up, not to even",
        round_file(folder, "even", even, **numbers),
        round_file(folder, "up", up, **numbers),
    )
    division = [node("Mod", ["x", "d"], ["y"], fmod=1)]
    floored = [
        node("Div", ["x", "d"], ["q"]),
        node("Floor", ["q"], ["f"]),
        node("Mul", ["f", "d"], ["p"]),
        node("Sub", ["x", "p"], ["y"]),
    ]
    yield (
        "remainder with the sign of the divisor",
        round_file(folder, "fmod", division, d=f32(0.7)),
        round_file(folder, "mod", floored, d=f32(0.7)),
    )
    sizes = {"s": np.array([1, 1, 2], f32)}
    for coordinates in ("asymmetric", "align_corners"):
        pair = [
            onnx_file(folder, f"resize-{mode}-{coordinates}", [node("Resize", ["x", "", "s"], ["y"], mode="linear", coordinate_transformation_mode=mode)], sizes)
            for mode in ("half_pixel", coordinates)
        ]  # fmt: skip
        yield f"resized {coordinates}", pair[0], pair[1]
    mean = onnx_file(folder, "mean", [node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0)], {}, 13)
    yield (
        "keeps an axis",
        mean,
        onnx_file(folder, "mean-kept", [node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=1)], {}, 13),
    )
    fixed = onnx_file(
        folder,
        "mean-fixed",
        [node("Reshape", ["x", "s"], ["r"]), node("ReduceMean", ["r"], ["y"], axes=[1], keepdims=0)],
        {"s": np.array([2, 4, 6])},
        13,
    )
    yield "a reshape frozen at 2 samples", mean, fixed
    clip = onnx_file(
        folder,
        "clip",
        [
            node("Mul", ["x", "k"], ["m"]),
            node("Cast", ["m"], ["i"], to=TensorProto.INT32),
            node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
        ],
        {"k": f32(100)},
    )
    narrow = [
        node("Mul", ["x", "k"], ["m"]),
        node("Cast", ["m"], ["w"], to=TensorProto.INT32),
        node("Cast", ["w"], ["i"], to=TensorProto.INT8),
        node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    yield "an integer overflows in int8", clip, onnx_file(folder, "clip8", narrow, {"k": f32(100)})


# -- judging --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A network or file that was run, and what it returned."""

    model: Model
    reference: Reference
    folder: Path

    def verdict(self, model: Model, backend: str, **settings: Any) -> tuple[bool, str]:
        """Return whether a model is taken for the source, and the sentence."""
        rule = AgreementRule(computed=self.reference.computed)
        tallies, refused = compare_model(model, backend, self.reference, self.folder, rule, **settings)
        if refused:
            return False, f"refuses {', '.join(refused)}"
        agreement = conclude(tallies, rule, samples=self.reference.samples)
        return agreement.verdict is Equivalence.AGREES, agreement.sentence


@contextmanager
def model_of(network: nn.Module, example: Any) -> Iterator[Model]:
    """Offer a network as a live object."""
    objects = plugins.objects()
    ref = objects.offer(network, name="network", example=example)
    try:
        yield plugins.loader(ref.scheme).load(ref, seed=0, trust=False)
    finally:
        objects.withdraw(ref)


def load(path: Path, loader: str = "onnx") -> Model:
    """Load a file."""
    return plugins.loader(loader).load(ModelRef(scheme=loader, locator=str(path)), seed=0, trust=True)


def run(model: Model, backend: str) -> Source:
    """Run a source, into a folder that lives as long as this program."""
    folder = Path(tempfile.mkdtemp(prefix="reference-", dir=_SCRATCH.name))
    return Source(model, run_reference(model, backend, (), 0, folder), folder)


_SCRATCH = tempfile.TemporaryDirectory(prefix="broken-conversions-")


def break_conversions(every: int = 1) -> Iterator[tuple[str, bool, str]]:
    """Yield each broken conversion: what is broken, whether it was found, and the sentence."""
    sources: dict[Any, Source] = {}
    for name, kind, change in TORCH[::every]:
        network = make_network(kind)
        key = type(network), getattr(network, "soft", None)
        if key not in sources:
            with model_of(network, example_of(network)) as model:
                sources[key] = run(model, "torch")
        copied = copy.deepcopy(network)
        other = change(copied)
        with model_of((copied if other is None else other).eval(), example_of(network)) as candidate:
            taken, sentence = sources[key].verdict(candidate, "torch")
        yield name, not taken, sentence
    folder = Path(_SCRATCH.name)
    for name, source, candidate_file in list(onnx_pairs(folder))[::every]:
        taken, sentence = run(load(source), "onnxruntime").verdict(load(candidate_file), "onnxruntime")
        yield name, not taken, sentence


# -- where they differ ----------------------------------------------------------------------------

FOLLOWED = ("exported", "onnx")
"""Forms whose layers can be compared."""


def locate_in_form(source: Source, candidate: Model, recipe: str) -> FirstDifference | None:
    """Convert a model, and find where it first differs from the source; None if it refuses a call.

    Raises:
        Exception: the exporter refuses it.
    """
    converter = plugins.converter(recipe)
    path = Path(tempfile.mkdtemp(prefix="places-", dir=_SCRATCH.name)) / converter.file
    conversion = conversion_source(source.model, source.reference, source.folder)
    converter.convert(replace(conversion, model=candidate), path, opset=None)
    made, rule = load(path, converter.loader), AgreementRule(computed=source.reference.computed)
    tallies, refused = compare_model(made, converter.backend, source.reference, source.folder, rule)
    if refused:
        return None
    call = farthest_call(tallies, source.reference)
    return locate(lambda: (source.model, "torch"), made, converter.backend, call, source.folder, rule)


def places(every: int = 1, recipes: tuple[str, ...] = FOLLOWED) -> Iterator[tuple[str, str, str, str]]:
    """Yield for each broken export that was made: which, where it was broken, the place found, and the sentence.

    Right exports come last: nothing was broken in them.
    """
    for name, kind, change in TORCH[::every]:
        network = make_network(kind)
        copied = copy.deepcopy(network)
        other = change(copied)
        changed = (copied if other is None else other).eval()
        example = example_of(network)
        with model_of(network, example) as model, model_of(changed, example) as candidate:
            source = run(model, "torch")
            for recipe in recipes:
                with suppress(Exception):  # an exporter that cannot
                    if (difference := locate_in_form(source, candidate, recipe)) is not None:
                        yield f"{name} ({recipe})", PLACES[name], difference.place, difference.sentence
    for name, network, example in list(networks())[::every]:
        with model_of(network.eval(), example) as model:
            source = run(model, "torch")
            for recipe in recipes:
                with suppress(Exception):
                    if (difference := locate_in_form(source, model, recipe)) is not None:
                        yield (
                            f"{name} ({recipe})",
                            "",
                            "" if difference.end is None else difference.place,
                            difference.sentence,
                        )


def count_places(every: int, *, verbose: bool) -> int:
    """Print how many places are named; return the exit code."""
    code = 0
    for recipe in FOLLOWED:
        exact = spans = wrong = right = total = 0
        for name, expected, place, sentence in places(every, (recipe,)):
            within = place in SPANS.get(expected, ())
            good = place == expected or within
            if expected:
                total, exact, spans = total + 1, exact + (place == expected), spans + within
            else:
                right += 1
            wrong += not good
            if verbose or not good:
                print(f"  {'place' if good else f'wrong: not {expected}'}: {name}: {sentence}", flush=True)
        print(
            f"{recipe}: of {total} broken exports {exact} name the place, {spans} a span around it; "
            f"of these and {right} right ones {wrong} are wrong (goal: 0)",
            flush=True,
        )
        code |= wrong > 0
    return code


# -- right conversions ----------------------------------------------------------------------------


def transformers() -> Iterator[tuple[str, nn.Module, Any]]:
    """Yield small models of `transformers` with random weights."""
    import transformers as hf

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    tokens = {
        "input_ids": torch.randint(1, 100, (2, 12)),
        "attention_mask": torch.ones(2, 12, dtype=torch.int64),
    }
    text_models = {
        "bert": hf.BertModel(hf.BertConfig(vocab_size=100, **small)),
        "electra": hf.ElectraModel(hf.ElectraConfig(vocab_size=100, embedding_size=32, **small)),
        "distilbert": hf.DistilBertModel(
            hf.DistilBertConfig(vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
        ),
        "gpt2": hf.GPT2Model(hf.GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, use_cache=False)),
    }
    for name, model in text_models.items():
        yield name, model, tokens
    vit = hf.ViTModel(hf.ViTConfig(image_size=16, patch_size=4, **small))
    yield "vit", vit, torch.randn(2, 3, 16, 16)


def networks() -> Iterator[tuple[str, nn.Module, Any]]:
    """Yield every network with its example."""
    for kind in (Mlp, lambda: Mlp(soft=True), Cnn, Transformer, Recurrent, Embedder, Detector, Upscaler):
        network = make_network(kind)  # type: ignore[arg-type]
        yield (
            f"{type(network).__name__}{' softmax' if getattr(network, 'soft', False) else ''}",
            network,
            example_of(network),
        )
    torch.manual_seed(1)
    yield from transformers()


def right_conversions(every: int = 1) -> Iterator[tuple[str, bool, str]]:
    """Yield each right conversion: which, whether it was refused, and the sentence."""
    number = 0
    for name, network, example in networks():
        with model_of(network.eval(), example) as model:
            source = run(model, "torch")
            for way, candidate, backend, settings in ways(source):
                number += 1
                if (number - 1) % every:
                    continue
                try:
                    taken, sentence = source.verdict(candidate(), backend, **settings)
                except Exception as error:  # an exporter that cannot is no wrong verdict
                    yield f"{name} as {way}: not converted: {' '.join(str(error).split())[:90]}", False, ""
                    number -= 1
                    continue
                yield f"{name} as {way}", not taken, sentence


def ways(source: Source) -> Iterator[tuple[str, Callable[[], Model], str, dict[str, Any]]]:
    """Yield each form of a network: its name, what makes it, and what runs it."""
    folder, files = source.folder, dict[str, Path]()

    def convert(recipe: str) -> Path:
        if recipe not in files:
            converter = plugins.converter(recipe)
            conversion = conversion_source(source.model, source.reference, folder)
            files[recipe] = folder / recipe / converter.file
            files[recipe].parent.mkdir()
            converter.convert(conversion, files[recipe], opset=None)
        return files[recipe]

    def freeze() -> Model:
        path = folder / "frozen.pt"
        torch.jit.save(torch.jit.freeze(torch.jit.load(str(convert("torchscript"))).eval()), str(path))
        return load(path, "torchscript")

    yield "torchscript", lambda: load(convert("torchscript"), "torchscript"), "torch", {}
    yield "torchscript, frozen", freeze, "torch", {"threads": 1}
    yield "program", lambda: load(convert("exported"), "exported"), "torch", {}
    for level in ("disable", "basic", "extended", "all"):
        yield (
            f"onnx, optimised {level}",
            lambda: load(convert("onnx")),
            "onnxruntime",
            {"graph_optimization": level},
        )
    yield "openvino", lambda: load(convert("openvino"), "openvino"), "openvino", {}


def main() -> int:
    """Print what was missed and refused; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("broken", "right", "places"))
    parser.add_argument("--every", type=int, default=1, help="only each N-th")
    parser.add_argument("--verbose", action="store_true", help="print every verdict")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    code = 0
    if options.only in {None, "places"}:
        code |= count_places(options.every, verbose=options.verbose)
    for kind, cases, wrong, limit in (
        ("broken", break_conversions, "missed", 0),
        ("right", right_conversions, "refused", 1),
    ):
        if options.only not in {None, kind}:
            continue
        total, failures = 0, 0
        for name, judged, sentence in cases(options.every):
            total += "not converted" not in name
            bad = judged is (kind == "right")
            failures += bad
            if bad or options.verbose or "not converted" in name:
                print(f"  {wrong if bad else kind}: {name}: {sentence}", flush=True)
        print(f"{kind}: {total} conversions, {failures} {wrong} (goal: at most {limit})", flush=True)
        code |= failures > limit
    return code


if __name__ == "__main__":
    sys.exit(main())
