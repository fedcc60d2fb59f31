"""Factories whose tensors are on torch's meta device, where they have shapes and no values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch")

import modeldyno
from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("brief_measurements")

FACTORIES = """
import torch
from torch import nn

def floats(): return nn.Linear(8, 4), torch.zeros(1, 8, device="meta")
def ids():
    example = torch.zeros(1, dtype=torch.int64, device="meta")
    return nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 4)), example
def moved(): return nn.Linear(8, 4), torch.zeros(1, 8).to("meta")
def attribute():
    net = nn.Linear(8, 4)
    net.example_input_array = torch.zeros(1, 8, device="meta")
    return net
def all_of_it():
    with torch.device("meta"):
        return nn.Linear(8, 4), torch.zeros(1, 8)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The code."""
    path = tmp_path / "net.py"
    path.write_text(FACTORIES)
    return path


@pytest.mark.parametrize("name", ["floats", "ids", "moved", "attribute", "all_of_it"])
def test_an_example_on_the_meta_device_gives_the_shapes(file: Path, name: str) -> None:
    """A call costs 8 x 4 multiplications, whatever the values."""
    from modeldyno.base.job.job import Job
    from modeldyno.base.job.model_ref import ModelRef
    from modeldyno.engine.runtime.engine import run

    job = Job(model=ModelRef(scheme="torch", locator=f"{file}:{name}"), backend="torch", probes=("static",))
    assert run(job)["macs"] == 32


def test_weights_without_values_are_refused_before_a_call() -> None:
    """The sentence says what to do, in place of torch's own words."""
    import torch

    with torch.device("meta"):
        module = torch.nn.Linear(8, 4)
    with pytest.raises(
        RequestError, match="weights without values, on torch's meta device, such as weight; build"
    ):
        modeldyno.profile(module, torch.zeros(1, 8), max_time=0.1)
