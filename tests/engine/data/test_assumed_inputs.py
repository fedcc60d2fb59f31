"""Shapes and kinds of inputs that nobody declared, of modules and of TorchScript."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from modeldyno.base.job.input_spec import parse_input
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.data.assumed_sizes import assume_sizes
from modeldyno.models.interface import Form, Model
from modeldyno.models.loaders import torch_inputs, torch_module, torchscript

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor
    from torch.nn import Module


class Words(nn.Module):
    """Lists its table of embeddings behind other layers."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(16, 4)
        self.table, self.places = nn.Embedding(50, 8), nn.Embedding(200, 8)

    def forward(self, words: Tensor, scale: Tensor | None = None) -> Tensor:
        """Look words up."""
        values = self.table(words) + self.places(torch.arange(words.shape[-1]))
        result: Tensor = self.narrow(self.wide(values if scale is None else values * scale))
        return result


class Pairs(nn.Module):
    """Takes ids of two kinds, and neither has a name for them."""

    def __init__(self) -> None:
        """Make the tables."""
        super().__init__()
        self.users, self.films = nn.Embedding(30, 4), nn.Embedding(20, 4)

    def forward(self, user: Tensor, film: Tensor) -> Tensor:
        """Return how well they fit."""
        result: Tensor = (self.users(user) * self.films(film)).sum(-1)
        return result


def assumed(module: Module, *requests: str) -> dict[str, tuple[object, str | None, float | None]]:
    """Return shape, dtype and largest value of each input, as far as they are known."""
    taken = torch_inputs.of_forward(module)
    described = taken.of_model(torch_module.describe_module(module.eval(), "m", "d"))
    return known(replace(described, candidates=lambda: torch_inputs.candidate_inputs(module)), *requests)


def known(model: Model, *requests: str) -> dict[str, tuple[object, str | None, float | None]]:
    """Return what is known of each input of a model."""
    model = assume_sizes(model, tuple(map(parse_input, requests)), batch_size=None, sizes={})
    return {spec.name: (spec.shape, spec.dtype, spec.high) for spec in model.inputs}


def test_a_table_of_embeddings_behind_other_layers_tells_the_input() -> None:
    """A module may list its layers in any order."""
    assert assumed(Words()) == {"words": (("batch", 128), "int64", 49.0)}


def test_an_input_of_which_only_a_shape_is_given_is_of_ids_where_numbers_are_refused() -> None:
    """Their range is that of the smallest table; a kind that was given, or that is accepted, is kept."""
    assert assumed(Words(), "words=2x7", "scale=2x7x1") == {
        "words": (None, "int64", 49.0),
        "scale": (None, None, None),
    }
    assert assumed(Words(), "words=2x7:int32:0..5") == {"words": (None, None, None)}
    assert assumed(nn.Sequential(nn.Linear(3, 2)), "input=2x3") == {"input": (None, None, None)}
    assert assumed(Pairs(), "user=4", "film=4") == {
        "user": (None, "int64", 19.0),
        "film": (None, "int64", 19.0),
    }


def test_what_no_kind_of_input_makes_valid_stays_as_it_was_given() -> None:
    """The refusal is then that of the module."""
    assert assumed(Pairs(), "user=4", "film=3") == {"user": (None, None, None), "film": (None, None, None)}


class Scaled(nn.Module):
    """Takes numbers beside a tensor."""

    def __init__(self) -> None:
        """Make the layer."""
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, times: int, factor: float, bias: bool) -> torch.Tensor:
        """Apply the layer."""
        result: torch.Tensor = self.layer(x) * times * factor
        return result + 1 if bias else result


def test_numbers_that_torchscript_declares_need_no_shape(tmp_path: Path) -> None:
    """Each is a scalar of its type, and the tensor beside them gets the shape that its layer takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(Scaled().eval()).save(str(tmp_path / "m.pt"))  # type: ignore[no-untyped-call]
    model = torchscript.load(
        ModelRef(scheme="torchscript", locator=str(tmp_path / "m.pt")), seed=0, trust=True
    )

    assert {name: spec[:2] for name, spec in known(model).items()} == {
        "x": (("batch", 4), "float32"),
        "times": ((), "int64"),
        "factor": ((), "float32"),
        "bias": ((), "bool"),
    }


@pytest.mark.parametrize(
    ("module", "shape", "example"),
    [
        (nn.Sequential(nn.Linear(8, 2)), ("batch", 8), torch.ones(1, 8)),
        (nn.Sequential(nn.Conv2d(4, 6, 3, groups=2)), ("batch", 4, 224, 224), None),
        (nn.Sequential(nn.LSTM(6, 5, batch_first=True)), ("batch", 128, 6), torch.ones(1, 3, 6)),
        (nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 2, 3)), ("batch", 64), None),
        (nn.Sequential(nn.Embedding(9, 3)), ("batch", 128), torch.ones(1, 4, dtype=torch.int64)),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
def test_the_first_layer_of_torchscript_tells_its_input(
    tmp_path: Path, module: Module, shape: tuple[object, ...], example: Tensor | None, *, traced: bool
) -> None:
    """Its classes have other names, and one that was traced has only the weights of a layer."""
    if traced and example is None:
        pytest.skip("what was traced has lost the groups of a convolution, and the sizes of a reshape")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.jit.trace(module.eval(), example) if traced else torch.jit.script(module.eval())  # type: ignore[no-untyped-call]
        compiled.save(str(tmp_path / "m.pt"))
    model = torchscript.load(
        ModelRef(scheme="torchscript", locator=str(tmp_path / "m.pt")), seed=0, trust=True
    )

    assert model.form == Form.TORCH
    assert [shape for shape, _, _ in known(model).values()] == [shape]
