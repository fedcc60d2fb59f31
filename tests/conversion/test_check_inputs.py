"""The calls that compare two models: distinct samples, sizes, magnitudes, masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.conversion.check_inputs import CheckCall, CheckPlan, first_axis
from modeldyno.testing.fakes import a_model

if TYPE_CHECKING:
    from pathlib import Path


def plan_of(*inputs: InputSpec, requested: tuple[InputSpec, ...] = (), **changes: Any) -> CheckPlan:
    return CheckPlan.of(a_model(inputs=inputs, **changes), requested)


def calls_of(plan: CheckPlan) -> list[CheckCall]:
    return [*plan.calls(0), *(call for _, call in plan.scaled_calls(0))]


def test_32_distinct_samples_in_three_batches_and_several_magnitudes() -> None:
    """The calls say what they are."""
    calls = calls_of(plan_of(InputSpec(name="x", shape=("batch", 64), dtype="float32")))

    assert [(call.words, call.batch) for call in calls] == [
        ("batch=32", 32),
        ("batch=3", 3),
        ("batch=1", 1),
        ("batch=3 (x 0.01)", 3),
        ("batch=3 (x 0.1)", 3),
        ("batch=3 (x 10)", 3),
    ]
    assert len({row.tobytes() for call in calls for row in call.feed["x"]}) == 45
    assert calls[3].feed["x"].std() < 0.02
    assert calls[5].feed["x"].std() > 5


def test_a_fixed_batch_is_called_until_there_are_32_samples() -> None:
    """With other samples each time."""
    calls = calls_of(plan_of(InputSpec(name="x", shape=(4, 8), dtype="float32")))

    assert [call.words for call in calls[:8]] == ["its fixed sizes"] * 8
    assert len({call.feed["x"].tobytes() for call in calls}) == 8 + 3


def test_the_exporters_get_as_many_samples_as_a_fixed_batch_has() -> None:
    """And two where the batch is free."""
    assert plan_of(InputSpec(name="x", shape=(1, 8), dtype="float32")).example(0)["x"].shape == (1, 8)
    assert plan_of(InputSpec(name="x", shape=("batch", 8), dtype="float32")).example(0)["x"].shape == (2, 8)


def test_a_range_is_kept() -> None:
    """Numbers within a range have no other magnitude."""
    spec = InputSpec(name="x", shape=("batch", 8), dtype="float32", low=0.0, high=1.0)
    feeds = [call.feed["x"] for call in plan_of(spec).calls(0)]

    assert all(feed.min() >= 0 and feed.max() <= 1 for feed in feeds)


def test_free_dimensions_have_other_sizes_within_the_limits() -> None:
    """The usual length is short; a size that was given stays the usual one."""
    spec = InputSpec(name="ids", shape=("batch", "seq"), dtype="int64", low=0, high=99)
    plan = plan_of(spec, limits={"seq": 40})
    ((name, calls),) = plan.other_sizes(0)

    assert plan.usual == {"seq": 32}
    assert name == "seq"
    assert [call.feed["ids"].shape for call in calls] == [(3, 16), (3, 8), (3, 24), (3, 4)]
    assert plan_of(spec, requested=(InputSpec(name="ids", shape=(1, 64)),)).usual == {"seq": 64}


def test_masks_end_early() -> None:
    """So that a mask that is ignored shows; each sample keeps its first word."""
    mask = InputSpec(name="attention_mask", shape=("batch", "seq"), dtype="int64", low=1, high=1)
    first = next(iter(plan_of(mask).calls(0))).feed["attention_mask"]

    assert first[:, 0].all()
    assert first[0].all()
    assert 0 < first.mean() < 1
    assert (np.diff(first, axis=1) <= 0).all()


def test_integers_of_an_example_keep_its_range() -> None:
    """No other ids are known to be accepted."""
    plan = plan_of(
        InputSpec(name="ids", shape=("batch", 4), dtype="int64"),
        example={"ids": np.array([[3, 7, 5, 3]] * 2)},
    )
    drawn = np.concatenate([call.feed["ids"].ravel() for call in plan.calls(0)])

    assert (drawn.min(), drawn.max()) == (3, 7)


def test_lists_of_an_example_cannot_be_varied() -> None:
    """The example alone is called."""
    wrapped = np.empty((), object)
    wrapped[()] = [1, 2]
    plan = plan_of(InputSpec(name="parts", shape=(), dtype="object"), example={"parts": wrapped})

    assert plan.fixed
    assert [call.feed["parts"].item() for call in plan.calls(0)] == [[1, 2]]


def test_a_shape_that_the_user_gives_leaves_the_batch_free() -> None:
    """A model that declares none takes it as that of one sample."""
    plan = plan_of(InputSpec(name="x"), requested=(InputSpec(name="x", shape=(1, 3, 8), dtype="float32"),))

    assert plan.model.inputs[0].shape == ("batch", 3, 8)
    assert plan.example(0)["x"].shape == (2, 3, 8)


def test_samples_of_a_file_are_all_called(tmp_path: Path) -> None:
    """In batches of 32, and once each in the others."""
    np.savez(tmp_path / "val.npz", x=np.arange(400, dtype=np.float32).reshape(100, 4))
    plan = plan_of(
        InputSpec(name="x", shape=("batch", 4), dtype="float32"),
        requested=(InputSpec(source=str(tmp_path / "val.npz")),),
    )
    calls = list(plan.calls(0))

    assert [call.batch for call in calls] == [32, 32, 32, 32, 3, 1]
    assert calls[0].feed["x"][1].tolist() == [4, 5, 6, 7]


def test_a_size_that_is_missing_is_told() -> None:
    """As when the model is profiled."""
    with pytest.raises(RequestError, match="height"):
        plan_of(InputSpec(name="x", shape=("batch", "height"), dtype="float32"))


def test_the_first_axis_is_that_of_all_inputs() -> None:
    """A single number has none."""
    assert first_axis({"x": np.zeros((2, 3)), "y": np.zeros(2)}) == 2
    assert first_axis({"x": np.zeros((2, 3)), "y": np.zeros(3)}) is None
    assert first_axis({"x": np.zeros((2, 3)), "y": np.zeros(())}) is None
