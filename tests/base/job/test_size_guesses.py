from __future__ import annotations

from itertools import islice

import pytest

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.size_guesses import LENGTHS, SIDES, WINDOWS, guess_sizes, image_axes


def spec(name: str, *shape: int | str, dtype: str = "float32") -> InputSpec:
    return InputSpec(name=name, shape=shape, dtype=dtype)


@pytest.mark.parametrize(
    ("one", "first"),
    [
        (spec("images", "batch", 3, "height", "width"), {"height": 224, "width": 224}),
        (spec("images", "batch", "height", "width", 3), {"height": 224, "width": 224}),
        (spec("x", "batch", 3, "d", "d"), {"d": 224}),
        (spec("x", "batch", "c", "h", "w"), {"c": 3, "h": 224, "w": 224}),
        (spec("line", 1, 3, 48, "w"), {"w": 320}),
        (spec("line", 1, 1, "rows", 100), {"rows": 100}),
        (spec("frame", 3, "height", "width"), {"height": 224, "width": 224}),
        (spec("ids", "batch", "x1", dtype="int64"), {"x1": LENGTHS[0]}),
        (spec("sound", "batch", "samples"), {"samples": WINDOWS[0]}),
        (spec("tokens", "batch", "sequence", 16), {"sequence": WINDOWS[0]}),
        (spec("state", 2, "rows", 128), {"rows": 1}),
        (spec("x", "batch", "x_dim1", "x_dim2", 8), {"x_dim1": 224, "x_dim2": 224}),
        (spec("x", "batch", "x_dim1", 8), {"x_dim1": 128}),
        (spec("boxes", "batch", "boxes", 4), {"boxes": 1}),
        (spec("volume", "batch", 8, "depth", "breadth"), {"depth": 1, "breadth": 1}),
        (spec("ids", "batch", 3, "height", "width", dtype="int64"), {"height": 224, "width": 224}),
    ],
)
def test_the_first_guess_is_what_such_inputs_have(one: InputSpec, first: dict[str, int]) -> None:
    """Images are square and as classifiers take them, sequences and windows of sound have usual lengths."""
    assert next(guess_sizes([one], {})) == first


def test_the_height_of_a_line_of_text_comes_after_squares() -> None:
    """Readers of text take 48 rows; they are tried after the usual squares."""
    guesses = list(guess_sizes([spec("x", "batch", 3, "h", "w")], {}))
    assert guesses[:4] == [
        {"h": 224, "w": 224}, {"h": 320, "w": 320}, {"h": 640, "w": 640}, {"h": 48, "w": 320},
    ]  # fmt: skip


def test_what_is_known_is_not_guessed() -> None:
    """A size that somebody gave leaves the others to be guessed beside it; a batch never is."""
    image = spec("x", "batch", 3, "h", "w")
    assert next(guess_sizes([image], {"h": 48})) == {"w": 320}
    assert list(guess_sizes([image], {"h": 48, "w": 96})) == []
    assert list(guess_sizes([InputSpec(name="any")], {})) == []


def test_what_the_network_speaks_for_comes_first() -> None:
    """A size that weights or notes speak for stands before the usual ones."""
    image = spec("x", "batch", 3, "h", "w")
    first, second = islice(guess_sizes([image], {}, {"h": 640, "w": 384}), 2)
    assert (first, second) == ({"h": 640, "w": 384}, {"h": 224, "w": 224})
    assert next(guess_sizes([spec("x", "batch", "n")], {}, {"n": 7})) == {"n": 7}


def test_inputs_are_guessed_together() -> None:
    """Combinations of several inputs come in the order of how far they are from the likeliest."""
    inputs = [spec("ids", "batch", "a", dtype="int64"), spec("state", 2, "b", 4), spec("same", "batch", "a")]
    guesses = list(guess_sizes(inputs, {}))
    assert guesses[:3] == [{"a": 128, "b": 1}, {"a": 64, "b": 1}, {"a": 128, "b": 2}]
    assert len(guesses) == len({tuple(guess.items()) for guess in guesses})


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        (("batch", 3, "h", "w"), (1, 2, 3)),
        (("batch", "h", "w", 1), (3, 1, 2)),
        (("batch", 3, 4, 4), None),
        (("batch", 8, "h", "w"), None),
        (("batch", 3), None),
    ],
)
def test_images_are_known_by_their_channels(
    shape: tuple[int | str, ...], axes: tuple[int, int, int] | None
) -> None:
    """Four dimensions of which one has 1, 3 or 4 channels are images, where their sides are free."""
    assert image_axes(spec("x", *shape)) == axes


def test_all_sides_are_multiples_of_the_usual_strides() -> None:
    """Networks halve images five times."""
    assert all(side % 32 == 0 for side in SIDES)
