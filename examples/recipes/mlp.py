"""A PyTorch factory: ``modeldyno profile examples/recipes/mlp.py:make``."""

from __future__ import annotations

import torch
from torch import nn


def make() -> tuple[nn.Module, torch.Tensor]:
    """Give the module and an example of its input; the batch can be changed with --set batch_size=N."""
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return net, torch.randn(1, 64)
