"""Small models, each with one planted needless copy, transfer or wait, and the module that it is in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from modeldyno.base.result.trace_data import RedundancyKind

WIDTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """What was planted, and where."""

    kind: RedundancyKind
    scope: str
    build: Callable[[], tuple[nn.Module, tuple[Any, ...]]]


class Part(nn.Module):
    """A part of a model that does something to its input, by a function of itself and the input."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        return self.function(self, x)


class Net(nn.Module):
    """A stem, a body that may waste, and a head."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.body = body
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.head(self.body(self.stem(x)))
        return y


def linear() -> nn.Linear:
    """A layer that keeps the width."""
    return nn.Linear(WIDTH, WIDTH)


def rows(body: nn.Module) -> tuple[nn.Module, tuple[Tensor]]:
    """A net around a body, and a batch of sequences."""
    return Net(body), (torch.randn(2, 8, WIDTH),)


# --- copies --------------------------------------------------------------------------------------


def cloned_residual() -> tuple[nn.Module, tuple[Tensor]]:
    """A block keeps a clone of its input for the residual, which nothing would have changed."""

    def function(self: Any, x: Tensor) -> Tensor:
        kept = x.clone()
        return self.fc(x).relu() + kept  # type: ignore[no-any-return]

    return rows(nn.Sequential(linear(), Part(function, fc=linear()), linear()))


def filled_buffer() -> tuple[nn.Module, tuple[Tensor]]:
    """A part fills a fresh buffer with its input, and reads nothing else of it."""

    def function(self: Any, x: Tensor) -> Tensor:
        buffer = torch.empty_like(x)
        buffer.copy_(x)
        return self.fc(buffer)  # type: ignore[no-any-return]

    return rows(nn.ModuleDict({"mix": Part(function, fc=linear())})["mix"])


class CloningRoot(nn.Module):
    """The model's own forward clones the input."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = linear()

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.fc(torch.clone(x))
        return y


# --- casts ---------------------------------------------------------------------------------------


def cast_through(dtype: torch.dtype, *, viewed: bool = False) -> tuple[nn.Module, tuple[Tensor]]:
    """Fractions go through another dtype and straight back."""

    def function(self: Any, x: Tensor) -> Tensor:
        there = x.to(dtype)
        back = there.transpose(1, 2).float().transpose(1, 2) if viewed else there.float()
        return self.fc(back)  # type: ignore[no-any-return]

    return rows(nn.Sequential(linear(), Part(function, fc=linear())))


class CastIds(nn.Module):
    """Ids become int32 and int64 again before they are looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = Part(lambda self, ids: self.table(ids.int().long()), table=nn.Embedding(50, WIDTH))
        self.head = linear()

    def forward(self, ids: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.head(self.embed(ids))
        return y


# --- layouts -------------------------------------------------------------------------------------


def transposed_there_and_back() -> tuple[nn.Module, tuple[Tensor]]:
    """A part brings its input into another order, and back, and does nothing in between."""

    def function(self: Any, x: Tensor) -> Tensor:
        turned = x.transpose(1, 2).contiguous()
        return self.fc(turned.transpose(1, 2).contiguous())  # type: ignore[no-any-return]

    return rows(nn.Sequential(linear(), nn.ReLU(), Part(function, fc=linear())))


class Images(nn.Module):
    """Convolutions, with a part that brings images to channels-last and back by hand."""

    def __init__(self) -> None:
        super().__init__()

        def function(self: Any, x: Tensor) -> Tensor:
            last = x.permute(0, 2, 3, 1).contiguous()
            return self.conv(last.permute(0, 3, 1, 2).contiguous())  # type: ignore[no-any-return]

        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), Part(function, conv=nn.Conv2d(8, 4, 3)))

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.features(x)
        return y.mean((2, 3))


def transposed_twice() -> tuple[nn.Module, tuple[Tensor]]:
    """Keys and values are made of the same transposed input, which each materialises for itself."""

    def function(self: Any, x: Tensor) -> Tensor:
        keys = self.key(x.transpose(1, 2).contiguous())
        values = self.value(x.transpose(1, 2).contiguous())
        return (keys * values).transpose(1, 2) + x  # type: ignore[no-any-return]

    return rows(nn.Sequential(linear(), Part(function, key=nn.Linear(8, 8), value=nn.Linear(8, 8))))


def transposed_weight() -> tuple[nn.Module, tuple[Tensor]]:
    """A weight is brought into another order in each call."""

    def function(self: Any, x: Tensor) -> Tensor:
        return x @ self.fc.weight.t().contiguous()  # type: ignore[no-any-return]

    return rows(Part(function, fc=linear()))


# --- transfers -----------------------------------------------------------------------------------


def to_host(move: Callable[[Tensor], Tensor]) -> tuple[nn.Module, tuple[Tensor]]:
    """A part goes on with the host."""
    return rows(nn.Sequential(linear(), Part(lambda self, x: self.fc(move(x)), fc=linear())))


def moved_constant(make: Callable[[], Tensor]) -> tuple[nn.Module, tuple[Tensor]]:
    """A constant is made with the host in each call, and moved."""

    def function(self: Any, x: Tensor) -> Tensor:
        return self.fc(x) * make().to(x.device)  # type: ignore[no-any-return]

    return rows(nn.Sequential(linear(), Part(function, fc=linear())))


# --- waits ---------------------------------------------------------------------------------------


def waiting(function: Callable[[Any, Tensor], Tensor]) -> tuple[nn.Module, tuple[Tensor]]:
    """A part hands numbers to the host."""
    return rows(nn.Sequential(nn.ReLU(), Part(function, fc=linear())))


def _branching(self: Any, x: Tensor) -> Tensor:
    return self.fc(x) if (x > 0).any() else x


def _scaled_by_list(self: Any, x: Tensor) -> Tensor:
    return self.fc(x) * max(x[0, 0].tolist())  # type: ignore[no-any-return]


def _masked(self: Any, x: Tensor) -> Tensor:
    return self.fc(x) + x[x > 1].sum()  # type: ignore[no-any-return]


def _chosen(self: Any, x: Tensor) -> Tensor:
    chosen = torch.nonzero(x[0, :, 0] >= 0)
    return self.fc(x[:, chosen[:, 0]])  # type: ignore[no-any-return]


COPY, CAST, LAYOUT = RedundancyKind.COPY, RedundancyKind.CAST, RedundancyKind.LAYOUT
TRANSFER, WAIT = RedundancyKind.TRANSFER, RedundancyKind.SYNCHRONISATION

PLANTED: dict[str, Planted] = {
    "clone of a residual": Planted(kind=COPY, scope="body.1", build=cloned_residual),
    "fresh buffer filled": Planted(kind=COPY, scope="body", build=filled_buffer),
    "clone of the input": Planted(
        kind=COPY, scope="", build=lambda: (CloningRoot(), (torch.randn(4, WIDTH),))
    ),
    "through fp16": Planted(kind=CAST, scope="body.1", build=lambda: cast_through(torch.float16)),
    "through bf16, viewed": Planted(
        kind=CAST, scope="body.1", build=lambda: cast_through(torch.bfloat16, viewed=True)
    ),
    "through fp64": Planted(kind=CAST, scope="body.1", build=lambda: cast_through(torch.float64)),
    "ids through int32": Planted(
        kind=CAST, scope="embed", build=lambda: (CastIds(), (torch.randint(0, 50, (2, 8)),))
    ),
    "transposed and back": Planted(kind=LAYOUT, scope="body.2", build=transposed_there_and_back),
    "channels last and back": Planted(
        kind=LAYOUT, scope="features.1", build=lambda: (Images(), (torch.randn(2, 3, 12, 12),))
    ),
    "transposed twice": Planted(kind=LAYOUT, scope="body.1", build=transposed_twice),
    "transposed weight": Planted(kind=LAYOUT, scope="body", build=transposed_weight),
    "cpu()": Planted(kind=TRANSFER, scope="body.1", build=lambda: to_host(lambda x: x.cpu())),
    "to('cpu')": Planted(kind=TRANSFER, scope="body.1", build=lambda: to_host(lambda x: x.to("cpu"))),
    "constant moved": Planted(
        kind=TRANSFER, scope="body.1", build=lambda: moved_constant(lambda: torch.tensor([0.5] * WIDTH))
    ),
    "range moved": Planted(
        kind=TRANSFER, scope="body.1", build=lambda: moved_constant(lambda: torch.arange(WIDTH))
    ),
    "item()": Planted(
        kind=WAIT, scope="body.1", build=lambda: waiting(lambda self, x: self.fc(x) / x.sum().item())
    ),
    "tolist()": Planted(kind=WAIT, scope="body.1", build=lambda: waiting(_scaled_by_list)),
    "numpy()": Planted(
        kind=WAIT, scope="body.1", build=lambda: waiting(lambda self, x: self.fc(x) * float(x.numpy().max()))
    ),
    "branch": Planted(kind=WAIT, scope="body.1", build=lambda: waiting(_branching)),
    "nonzero": Planted(kind=WAIT, scope="body.1", build=lambda: waiting(_chosen)),
    "boolean mask": Planted(kind=WAIT, scope="body.1", build=lambda: waiting(_masked)),
}
