"""A converted model is measured with the inputs of its source: sizes, ranges, samples, by its own names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.conversion.check_inputs import example_samples, measured_inputs, with_names_of
from modeldyno.conversion.request import ConversionRequest
from modeldyno.conversion.run import convert
from modeldyno.engine.data.batches import build_payloads
from modeldyno.testing.fakes import a_model

if TYPE_CHECKING:
    from pathlib import Path

IDS = InputSpec(name="ids", shape=("batch", "seq"), dtype="int64", low=0, high=999)
MASK = InputSpec(name="mask", shape=("batch", "seq"), dtype="int64", low=1, high=1)
SIZED = tuple(InputSpec(name=s.name, shape=("batch", 40), dtype="int64", low=s.low, high=s.high)
              for s in (IDS, MASK))  # fmt: skip


def test_sizes_and_ranges_are_those_of_a_measurement_and_the_batch_stays_free() -> None:
    model = a_model(inputs=(IDS, MASK), limits={"seq": 40})

    assert measured_inputs(model, ()) == SIZED


def test_a_model_that_declares_nothing_is_called_with_the_very_same_arrays() -> None:
    source = a_model(inputs=(IDS, MASK), limits={"seq": 40})
    bare = a_model(inputs=(InputSpec(name="a"), InputSpec(name="b")))
    own = with_names_of(measured_inputs(source, ()), bare.inputs)

    used = build_payloads(source, (), batch_size=8, seed=0).used
    again = build_payloads(bare, own, batch_size=8, seed=0).used
    assert [spec.digest for spec in again] == [spec.digest for spec in used]
    assert [spec.name for spec in again] == ["a", "b"]


def test_an_example_is_kept_as_samples_and_a_single_number_as_its_value() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    inputs = (InputSpec(name="x", shape=("batch", 3), dtype="float32"), InputSpec(name="rate", shape=()))
    model = a_model(inputs=inputs, example={"x": rows, "rate": np.array(16_000)})

    assert measured_inputs(model, ()) == (
        InputSpec(name="x", dtype="float32", source="inputs.npz"),
        InputSpec(name="rate", shape=(), low=16_000, high=16_000),
    )
    assert example_samples(model, ()).keys() == {"x"}


@pytest.mark.parametrize(
    "inputs", [(InputSpec(name="x", dtype="object"),), (InputSpec(name="x", shape=("batch", "width")),)]
)
def test_nothing_is_told_of_lists_and_of_sizes_that_nobody_knows(inputs: tuple[InputSpec, ...]) -> None:
    assert measured_inputs(a_model(inputs=inputs), ()) == ()


def test_files_that_a_request_names_must_be_named_again() -> None:
    assert measured_inputs(a_model(inputs=(IDS,)), (InputSpec(source="texts.npz"),)) == ()


@pytest.mark.parametrize(
    ("declared", "names"),
    [
        (("mask", "ids"), ["ids", "mask"]),
        (("ids",), ["ids"]),
        (("args_0", "args_1"), ["args_0", "args_1"]),
        ((), ["ids", "mask"]),
    ],
    ids=["the same names", "one left out", "other names in order", "undeclared"],
)
def test_a_converted_model_has_names_of_its_own(declared: tuple[str, ...], names: list[str]) -> None:
    specs = with_names_of(SIZED, tuple(InputSpec(name=name) for name in declared))

    assert [spec.name for spec in specs] == names


def test_a_converted_model_that_takes_another_dtype_is_given_that() -> None:
    (spec,) = with_names_of((InputSpec(name="x", dtype="float64"),), (InputSpec(name="x", dtype="float32"),))

    assert spec.dtype == "float32"


TWO_INPUTS = """
import torch


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(50, 4)

    def forward(self, input_ids, attention_mask):
        return (self.words(input_ids) * attention_mask.unsqueeze(-1)).sum(1)


def two():
    ids = torch.randint(0, 50, (4, 6))
    return Two(), {"input_ids": ids, "attention_mask": (ids > 9).long()}
"""


def test_torchscript_of_a_model_of_two_inputs_is_called_with_its_samples(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "two.py").write_text(TWO_INPUTS)
    ref = ModelRef(scheme="torch", locator=f"{tmp_path}/two.py:two")
    request = ConversionRequest(model=str(ref), to=("torchscript",), output=tmp_path / "made")
    made = convert(request, in_process=True)["torchscript"]
    source = plugins.loader("torch").load(ref, seed=0, trust=True)
    script = plugins.loader("torchscript").load(
        ModelRef(scheme="torchscript", locator=made.path), seed=0, trust=True
    )
    for batch in (1, 3, 8):
        used = build_payloads(source, (), batch_size=batch, seed=0).used
        again = build_payloads(
            script, made.inputs, batch_size=batch, seed=0, base=tmp_path / "made" / "torchscript"
        ).used
        specs = [(spec.name, spec.shape, spec.dtype, spec.digest, spec.distinct) for spec in used]
        assert [(spec.name, spec.shape, spec.dtype, spec.digest, spec.distinct) for spec in again] == specs
