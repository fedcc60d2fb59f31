"""Inputs that a module of torch takes but does not need, as a user names them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")

import torch

import modeldyno
from modeldyno.base.errors import ModelDynoError
from modeldyno.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.result.result import Result


class _Scaled(torch.nn.Module):
    """A layer of 8 to 4, and what else `forward` may take."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(width, 4)


class Optional(_Scaled):
    """Everything has a default."""

    def forward(self, x: Any = None, scale: Any = None) -> Any:
        """Compute."""
        y = self.layer(x)
        return y if scale is None else y @ scale


class Keywords(_Scaled):
    """Nothing is taken by position."""

    def forward(self, *, x: Any, scale: Any = None) -> Any:
        """Compute."""
        y = self.layer(x)
        return y if scale is None else y @ scale


class Any2(_Scaled):
    """Tensors in any number."""

    def __init__(self) -> None:
        super().__init__(16)

    def forward(self, *parts: Any) -> Any:
        """Compute."""
        return self.layer(torch.cat(parts, -1))


class Named2(_Scaled):
    """Tensors of any name."""

    def __init__(self) -> None:
        super().__init__(16)

    def forward(self, **parts: Any) -> Any:
        """Compute."""
        return self.layer(torch.cat([parts["a"], parts["b"]], -1))


class Dict(_Scaled):
    """A dict of tensors."""

    def forward(self, batch: Any) -> Any:
        """Compute."""
        return self.layer(batch["x"])


def macs_and_inputs(result: Result) -> tuple[float | None, dict[str, Any]]:
    """Return the multiplications of a call, and the shape of each input."""
    return result["macs"], {spec.name: spec.shape for spec in result.inputs}


@pytest.mark.parametrize(
    ("module", "inputs", "macs", "shapes"),
    [
        (Optional(), "3x8", 96, {"x": (3, 8)}),
        (Optional(), "x=3x8", 96, {"x": (3, 8)}),
        (Optional(), ["x=3x8", "scale=4x5"], 96 + 60, {"x": (3, 8), "scale": (4, 5)}),
        (Keywords(), ["x=3x8", "scale=4x5"], 96 + 60, {"x": (3, 8), "scale": (4, 5)}),
        (Any2(), ["first=3x8", "second=3x8"], 192, {"first": (3, 8), "second": (3, 8)}),
        (Named2(), ["a=3x8", "b=3x8"], 192, {"a": (3, 8), "b": (3, 8)}),
        (Dict(), "batch.x=3x8", 96, {"batch.x": (3, 8)}),
    ],
)
def test_an_input_may_be_any_parameter(module: Any, inputs: Any, macs: int, shapes: dict[str, Any]) -> None:
    """A named input is given to the parameter of its name: optional, by keyword, of any name, of a dict."""
    assert macs_and_inputs(modeldyno.inspect(module, inputs=inputs)) == (macs, shapes)


@pytest.mark.parametrize("module", [Optional(), Keywords(), Dict(), torch.nn.Linear(8, 4)])
def test_a_module_without_shapes_gets_one_that_it_accepts(module: Any) -> None:
    """The analysis proves the shape; a doubt names it, and the option that gives another."""
    result = modeldyno.inspect(module)
    doubt = next(doubt for doubt in result.doubts if doubt.code == "assumed-sizes")

    assert result["macs"] == 32
    assert "[batch, 8] was assumed, which the model accepts" in doubt.seen
    (named,) = re.findall(r"inputs=(\S+=batchx8)`?", doubt.advice)
    assert modeldyno.inspect(module, inputs=named)["macs"] == 32


def test_what_works_without_inputs_gets_none() -> None:
    """An optional input that a module does without is left out."""

    class Constant(_Scaled):
        def forward(self, noise: Any = None) -> Any:
            y = self.layer(torch.ones(2, 8))
            return y if noise is None else y + noise

    assert macs_and_inputs(modeldyno.inspect(Constant())) == (64, {})


@pytest.mark.parametrize(
    ("module", "inputs", "words"),
    [
        (Optional(), "y=3x8", "There is no input 'y'; known: scale, x."),
        (Dict(), "x=3x8", "known: batch. The entry of a dict is written batch.x."),
        (Any2(), ["3x8", "3x8"], "2 shapes are given without a name"),
    ],
)
def test_a_wrong_name_is_told_the_right_ones(module: Any, inputs: Any, words: str) -> None:
    """The message says what can be written instead, which works."""
    with pytest.raises(ModelDynoError) as caught:
        modeldyno.inspect(module, inputs=inputs)
    assert words in str(caught.value)


def test_a_call_that_fails_without_inputs_says_which_there_are() -> None:
    """The first call shows that something is missing."""
    with pytest.raises(ModelDynoError, match=r"fails without inputs .* of which it takes any; give"):
        modeldyno.profile(Any2(), max_time=0.2)


def test_the_command_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A factory in a file, a named optional input."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(8, 4)\n\n"
        "    def forward(self, x=None, mask=None):\n"
        "        y = self.fc(x)\n        return y if mask is None else y * mask\n"
    )
    with pytest.raises(SystemExit) as left:
        main(["inspect", "net.py:Net", "--input", "x=3x8"])

    assert left.value.code == 0
    assert "costs 96 MACs" in capfd.readouterr().out


@pytest.mark.filterwarnings("ignore")  # of what transformers imports
@pytest.mark.parametrize(
    ("inputs", "names", "length"),
    [
        ((), {"input_ids", "attention_mask"}, 64),
        ("input_ids=1x16", {"input_ids", "attention_mask"}, 16),
        ("inputs_embeds=1x16x8", {"attention_mask", "inputs_embeds"}, 16),
        ("token_type_ids=1x9", {"input_ids", "attention_mask", "token_type_ids"}, 9),
    ],
)
def test_a_model_of_transformers_knows_its_inputs(inputs: Any, names: set[str], length: int) -> None:
    """One that Python code made has the inputs of its configuration, as one of a folder has."""
    transformers = pytest.importorskip("transformers")
    bert = transformers.BertModel(
        transformers.BertConfig(
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            vocab_size=50,
            max_position_embeddings=64,
        )
    )
    result = modeldyno.inspect(bert.eval(), inputs=inputs)

    assert {spec.name for spec in result.inputs} == names
    assert result["macs"] == length * (4 * 8 * 8 + 2 * 8 * 16 + 2 * 8 * length) + 8 * 8
