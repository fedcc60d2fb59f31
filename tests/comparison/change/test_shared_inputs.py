"""The inputs that the sides of a comparison share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.stats.schedule import name_refusing_side, share_inputs
from modeldyno.testing.sample_results import a_job

X, Z = InputSpec(name="x", shape=(1, 8)), InputSpec(name="z", shape=(1, 8))


@pytest.mark.parametrize(
    ("inputs", "shared"), [([(X,), (X,)], True), ([(X,), (Z,)], False), ([(), ()], False), ([(X,)], False)]
)
def test_inputs_are_shared_if_several_models_were_given_the_same(
    inputs: list[tuple[InputSpec, ...]], *, shared: bool
) -> None:
    """One model, models without a given input and models with their own share none."""
    jobs = [replace(a_job(), inputs=specs) for specs in inputs]

    assert share_inputs(jobs) is shared


@pytest.mark.parametrize(
    ("spec", "ending"),
    [(X, "; give each model its own with `baseline_inputs` and `candidate_inputs`."), (Z, ".")],
)
def test_a_refused_input_says_how_each_model_gets_its_own(spec: InputSpec, ending: str) -> None:
    """The model that refuses is named; who gave it its own input already needs no such advice."""
    jobs = [replace(a_job("a"), inputs=(spec,)), replace(a_job("b"), inputs=(X,))]

    message = name_refusing_side("There is no input 'x'; known: z.", 1, jobs)

    assert message == f"{jobs[1].model.locator}: There is no input 'x'; known: z{ending}"
