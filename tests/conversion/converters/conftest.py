"""Models for the converters."""

from __future__ import annotations

from pathlib import Path

import pytest

from modeldyno.base.job.model_ref import ModelRef

ROOT = Path(__file__).parents[3]
NETWORK = """
import torch
from torch import nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, image, weight):
        hidden = torch.nn.functional.gelu(self.norm(self.first(image))) * weight
        return {"scores": self.last(hidden), "label": self.last(hidden).argmax(-1)}


def make():
    return Network(), {"image": torch.randn(2, 8), "weight": torch.randn(2, 1)}
"""


@pytest.fixture
def network(tmp_path: Path) -> ModelRef:
    """A torch module with two named inputs and two outputs."""
    pytest.importorskip("torch")
    path = tmp_path / "network.py"
    path.write_text(NETWORK)
    return ModelRef(scheme="torch", locator=f"{path}:make")


@pytest.fixture
def digits() -> ModelRef:
    """The trained network of the examples."""
    pytest.importorskip("onnxruntime")
    return ModelRef(scheme="onnx", locator=str(ROOT / "examples" / "digits" / "digits.onnx"))
