"""Small modules, each awkward in one way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


def mlp(width: int = 8) -> nn.Sequential:
    """Three layers: 4 features in, 2 out."""
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))


def mlp_with_example() -> tuple[nn.Module, Tensor]:
    """A module and one tensor."""
    return mlp(), torch.randn(3, 4)


def two_inputs_with_example() -> tuple[nn.Module, dict[str, Tensor]]:
    """A module and inputs by name."""
    return TwoInputs(), {"left": torch.randn(3, 4), "right": torch.randn(3, 4)}


def needy(width: int) -> nn.Module:
    """A factory that needs an argument."""
    return mlp(width)


def number() -> int:
    """A function that gives no module."""
    return 7


class TwoInputs(nn.Module):
    """Two inputs, an optional one, and a dict of outputs with a list and nothing in it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, left: Tensor, right: Tensor, scale: Tensor | None = None) -> dict[str, object]:
        """Compute."""
        total = self.linear(left) - self.linear(right)
        return {"total": total if scale is None else total * scale, "parts": [left, right], "none": None}


class Tied(nn.Module):
    """An embedding whose weights are its decoder's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.decode = nn.Linear(4, 10, bias=False)
        self.decode.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Compute."""
        logits: Tensor = self.decode(self.embed(ids))
        return logits


class Shared(nn.Module):
    """One layer under two names, and a batch norm with its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = self.first
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.norm(self.second(self.first(x)))
        return y


class Images(nn.Module):
    """A convolution over images, with a dropout that only training has."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.drop(self.conv(pixels))
        return y


@dataclass
class Scores:
    """An output of one's own."""

    values: Tensor
    best: tuple[Tensor, Tensor]


class Structured(nn.Module):
    """Gives a dataclass with a tuple in it."""

    def forward(self, x: Tensor) -> Scores:
        """Compute."""
        return Scores(values=x, best=(x.max(), x.min()))


instance = mlp()


def flavoured() -> nn.Module:
    """A module that differs from `unflavoured` in code only."""
    return _Plus()


class _Plus(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        return x + 1


class Minus(nn.Module):
    """The same state as `_Plus`: none."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        return x - 1
