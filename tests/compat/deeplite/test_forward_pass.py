"""From batches to calls of a model, and random inputs like them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modeldyno.compat.deeplite.forward_pass import DataLoader, ForwardPass, ModelInputPattern, TensorSampler


def test_a_pattern_takes_parts_in_the_order_of_their_numbers() -> None:
    """An underscore is a part that the model does not take."""
    assert ModelInputPattern((1, "_", 0)).rearrange_from_pattern(("a", "b", "c")) == ("c", "a")
    assert ModelInputPattern((0,)).rearrange_from_pattern("a") == ("a",)


@pytest.mark.parametrize("parts", [(0, -1), ("x",), (0, 1.0), (True,)])
def test_a_pattern_of_other_things_is_refused(parts: Any) -> None:
    """It holds numbers from 0 and underscores only."""
    with pytest.raises(TypeError, match="numbers from 0 and '_' only"):
        ModelInputPattern(parts)


def test_a_number_comes_once_and_the_parts_must_fit() -> None:
    """In a sentence each."""
    with pytest.raises(TypeError, match="has a number twice"):
        ModelInputPattern((0, 0))
    with pytest.raises(ValueError, match="batch has 3 parts, but the pattern \\(0, '_'\\) 2"):
        ModelInputPattern((0, "_")).rearrange_from_pattern((1, 2, 3))


def test_a_forward_pass_needs_a_pattern_or_its_own_method() -> None:
    """Both are checked when it is made; a method that a subclass inherits serves."""

    class Own(ForwardPass):
        def extract_model_inputs(self, batch: Any) -> Any:
            return (batch,)

        def create_random_model_inputs(self, batch_size: int) -> Any:
            return (np.zeros(batch_size),)

    class Heir(Own):
        pass

    with pytest.raises(TypeError, match="no extract_model_inputs of its own; give model_input_pattern="):
        ForwardPass()
    with pytest.raises(TypeError, match="no create_random_model_inputs of its own"):
        ForwardPass((0,), expecting_common_inputs=False)
    assert Heir(expecting_common_inputs=False).random_perform(len, 3) == 3


def test_random_inputs_are_like_the_sample() -> None:
    """In shape, type and containers; integers are within its range."""
    sample = ({"ids": np.array([[5, 7], [6, 9]])}, [np.zeros((2, 3), "float32")], np.array([[True]]))
    ids, (image,), flag = TensorSampler(sample).create_random_tensors(50)

    assert (ids["ids"].shape, image.shape, flag.shape) == ((50, 2), (50, 3), (50, 1))
    assert (ids["ids"].dtype, image.dtype, flag.dtype) == (np.int64, np.float32, np.bool_)
    assert 5 <= ids["ids"].min() < ids["ids"].max() <= 9
    assert TensorSampler(sample).get_flat_shapes_tuple() == ((2,), (3,), (1,))


def test_random_inputs_of_other_things_are_refused() -> None:
    """Text has no shape."""
    with pytest.raises(ValueError, match="like tensors and arrays, not str"):
        TensorSampler(("text",)).create_random_tensors(1)


def test_a_loader_calls_the_model_with_its_batches() -> None:
    """By a sample, by random inputs, and timed; it needs no length."""

    def batches() -> Any:
        while True:
            yield np.arange(4), "label"

    class Endless:
        def __iter__(self) -> Any:
            return batches()

    loader = DataLoader(Endless(), ForwardPass((0, "_")))
    assert list(loader.sample_forward(lambda x: x + 1)) == [1, 2, 3, 4]
    assert loader.sample_random_forward(len, batch_size=7) == 7
    assert loader.forward_pass.get_model_input_shapes() == ((),)
    assert loader.timed_forward(len) >= 0
    assert loader.timed_random_forward(len, 2) >= 0
    assert next(iter(loader))[1] == "label"
    with pytest.raises(TypeError):
        len(loader)
    assert len(DataLoader([1, 2])) == 2


def test_a_forward_pass_without_a_batch_says_what_to_do() -> None:
    """And an empty loader has none."""
    with pytest.raises(ValueError, match=r"call infer_sampler\(batch\) first"):
        ForwardPass((0,)).get_model_input_shapes()
    with pytest.raises(ValueError, match="no batches"):
        DataLoader([]).random_inputs(1)


def test_a_loader_without_a_forward_pass_gives_the_first_part_or_all_but_labels() -> None:
    """A batch may be a tensor, a pair, or a mapping."""
    batch = np.zeros(2)
    for item in (batch, (batch, 1), ((batch, batch), 1)):
        inputs = DataLoader([item]).forward_pass.extract_model_inputs(item)
        assert all(part is batch for part in inputs)
    named = DataLoader([]).forward_pass.extract_model_inputs({"x": 1, "labels": 2})
    assert named == {"x": 1}


def test_inputs_of_a_sample_must_be_tensors() -> None:
    """Others are refused when the sampler is made."""
    with pytest.raises(ValueError, match="like tensors and arrays, not NoneType"):
        TensorSampler((None,))


def test_no_device_leaves_inputs_where_they_are() -> None:
    """Nothing is moved, and no device is waited for."""
    loader = DataLoader([(np.zeros((1, 2)), 0)], ForwardPass((0, "_")))
    assert loader.timed_forward(lambda x: x, None) >= 0
    assert loader.sample_random_forward(lambda x: x.shape, 3, None) == (3, 2)


def test_a_sampler_moves_tensors_to_a_device() -> None:
    """In their containers; arrays become tensors, unless they are to stay what they are."""
    torch = pytest.importorskip("torch")
    array = np.array([[1], [2]])
    sampler = TensorSampler((array,))
    (moved,) = sampler.to_device((array,), "cpu")
    same = sampler.to_device({"x": [array]}, "cpu", standardize=False)

    assert torch.equal(moved, torch.tensor([[1], [2]]))
    assert moved.device.type == "cpu"
    assert same["x"][0] is array


def test_a_subclass_may_bring_its_own_sampler() -> None:
    """Which is made of the inputs in a batch."""

    class Ones(TensorSampler):
        def create_random_tensors(self, batch_size: int) -> Any:
            return (np.ones(batch_size),)

    class OnesPass(ForwardPass):
        sampler_class = Ones

    forward_pass = OnesPass((0,))
    forward_pass.infer_sampler((np.zeros(1),))
    assert forward_pass.create_random_model_inputs(3)[0].tolist() == [1, 1, 1]
