"""Agreement between the outputs of two models."""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.engine.data.outputs import (
    agreement,
    load_call,
    named_arrays,
    same_values,
    save_inputs,
    shared_samples,
)

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.result.output_agreement import OutputAgreement

ONE = np.array([[1.0, -4.0], [2.0, 0.5]], np.float32)


def agreed(one: object, other: object) -> OutputAgreement:
    """Compare two arrays."""
    (result,) = agreement({"y": np.asarray(one)}, {"y": np.asarray(other)})
    return result


def test_a_difference_has_its_largest_value_and_its_angle() -> None:
    """Relative to the largest value of the baseline."""
    result = agreed(ONE, ONE + np.array([[0.0, 0.0], [0.0, 0.5]], np.float32))

    assert result.largest == pytest.approx(0.5)
    assert result.relative == pytest.approx(0.125)
    cosine = (1 + 16 + 4 + 0.5) / (np.sqrt(21.25) * np.sqrt(22.0))
    assert result.cosine == pytest.approx(cosine)


def test_the_same_infinities_and_nans_agree() -> None:
    """Masks are filled with infinities on purpose; where only one output has them, it is not finite."""
    assert agreed([1.0, -inf, nan], [1.0, -inf, nan]).largest == 0.0
    assert agreed([1.0, -inf], [1.0, 2.0]).largest == inf
    assert agreed([1.0, nan], [1.0, 2.0]).relative == inf


def test_nothing_agrees_with_nothing() -> None:
    """Two zero arrays are equal; one nonzero array is infinitely far, relative to zero."""
    same, other = agreed([0.0, 0.0], [0.0, 0.0]), agreed([0.0], [1.0])

    assert (same.largest, same.relative, same.cosine) == (0.0, 0.0, 1.0)
    assert (other.relative, other.cosine) == (inf, 0.0)


def test_very_large_numbers_have_an_angle() -> None:
    """Large values are not squared."""
    assert agreed([1e300, 1e300], [1e300, 1e300]).cosine == pytest.approx(1.0)


def test_integers_truth_values_and_complex_numbers_are_numbers() -> None:
    """Differences of large values do not overflow."""
    assert agreed(np.array([250], np.uint8), np.array([5], np.uint8)).largest == 245
    assert agreed([True, False], [True, True]).largest == 1
    assert agreed([1 + 1j], [1 - 1j]).largest == 2


def test_text_is_the_same_or_is_not() -> None:
    """Flags have no values in between."""
    assert agreed(["a", "b"], ["a", "b"]).cosine == 1.0
    assert agreed(["a", "b"], ["a", "c"]).largest == inf


def test_arrays_are_matched_by_name_and_else_in_order() -> None:
    """Models of different frameworks name their outputs differently."""
    named = agreement({"a": ONE, "b": 2 * ONE}, {"b": 2 * ONE, "a": ONE})
    ordered = agreement({"a": ONE, "b": 2 * ONE}, {"c": ONE, "d": 2 * ONE})

    assert [result.largest for result in (*named, *ordered)] == [0.0] * 4


def test_what_cannot_be_matched_is_refused() -> None:
    """A different number of arrays, or a different shape, cannot be compared."""
    with pytest.raises(ValueError, match="one returns 1 arrays, the other 2"):
        agreement({"a": ONE}, {"a": ONE, "b": ONE})
    with pytest.raises(ValueError, match="'a' is 2 x 2 in one, and 4 in the other"):
        agreement({"a": ONE}, {"a": ONE.ravel()})


def test_a_file_holds_what_was_given_and_returned(tmp_path: Path) -> None:
    """Feeds are matched in order, though both may share one name."""
    path = tmp_path / "o.npz"
    np.savez(path, **named_arrays({"x": ONE, "z": ONE}, {"x": 2 * ONE}))  # type: ignore[arg-type]

    inputs, returned = load_call(path)

    assert (list(inputs), list(returned)) == (["x", "z"], ["x"])
    assert same_values(returned, {"x": 2 * ONE})


def test_feeds_are_alike_by_name_or_in_order() -> None:
    """Feeds of different numbers of arrays differ."""
    assert same_values({"a": ONE, "b": 2 * ONE}, {"b": 2 * ONE, "a": ONE})
    assert same_values({"a": ONE}, {"x": ONE})
    assert not same_values({"a": ONE}, {"a": 2 * ONE})
    assert not same_values({"a": ONE}, {"a": ONE, "b": ONE})


def test_numbers_are_written_for_another_process(tmp_path: Path) -> None:
    """Each array gets a file; text does not."""
    first, second = save_inputs({"a": ONE, "b": ONE.astype(np.int64)}, tmp_path)

    assert np.array_equal(np.load(first), ONE)
    assert np.load(second).dtype == np.int64
    with pytest.raises(ValueError, match="not numeric"):
        save_inputs({"a": np.array(["text"])}, tmp_path)


def batch(rows: int, **more: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Make a call of a number of samples, which returns twice its inputs, and a number of its own."""
    x = np.arange(2.0 * rows).reshape(rows, 2)
    return {"x": x, **more}, {"y": 2 * x, "scale": np.array(2.0)}


def test_of_two_batches_the_samples_in_both_are_compared() -> None:
    """The shared samples are those given first to both, whichever batch is larger."""
    for sizes in ((2, 5), (5, 2)):
        one, other = shared_samples(*map(batch, sizes))
        assert one["y"].shape == other["y"].shape == (2, 2)
        assert not any(result.largest for result in agreement(one, other))


def test_calls_of_one_size_are_compared_whole() -> None:
    """Equal values of another precision count as equal inputs."""
    one, other = batch(3), batch(3)
    assert shared_samples(one, ({"x": one[0]["x"] + 1}, other[1])) == (one[1], other[1])


def test_batches_of_other_samples_cannot_be_compared() -> None:
    """Calls whose inputs do not show the batch size cannot be compared."""
    one, other = batch(2), batch(4)
    with pytest.raises(ValueError, match="they were run with different inputs"):
        shared_samples(one, ({"x": other[0]["x"] + 1}, other[1]))
    with pytest.raises(ValueError, match="they were run with different inputs"):
        shared_samples(one, batch(4, z=np.ones(3)))
