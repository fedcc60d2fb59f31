"""New inputs are the values of known ones in another order, or changed by little; ids of real data stay."""

from __future__ import annotations

import numpy as np

from modeldyno.engine.data.new_inputs import new_inputs

IDS = np.arange(32).reshape(2, 16)


def test_drawn_values_are_rolled() -> None:
    """So the same rows of a table are touched."""
    (first, second) = new_inputs([{"ids": IDS}], {"ids"}, 2)

    for each in (first, second):
        assert not np.array_equal(each["ids"], IDS)
        assert sorted(each["ids"].flat) == sorted(IDS.flat)


def test_real_numbers_are_changed_by_a_thousandth_at_most() -> None:
    """With their dtype."""
    x = np.linspace(1, 2, 8, dtype=np.float32)
    (new,) = new_inputs([{"x": x}], (), 1)

    assert new["x"].dtype == x.dtype
    assert 0 < np.abs(new["x"] / x - 1).max() <= 1.1e-3


def test_words_are_shuffled() -> None:
    """The words stay the same."""
    texts = np.array([" ".join("abcdefghijkl")], dtype=object)
    (new,) = new_inputs([{"text": texts}], (), 1)

    assert new["text"][0] != texts[0]
    assert sorted(new["text"][0].split()) == list("abcdefghijkl")


def test_ids_of_real_data_are_not_varied() -> None:
    """Another id may be none of the model's."""
    assert not list(new_inputs([{"ids": IDS}], (), 2))


def test_an_input_of_one_value_has_no_other_order() -> None:
    """Nor has one of equal values."""
    assert not list(new_inputs([{"ids": np.array([3])}], {"ids"}, 1))
    assert not list(new_inputs([{"ids": np.zeros(8, int)}], {"ids"}, 1))
