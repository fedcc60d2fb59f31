"""Guess sizes for free dimensions that were not given, from what is known of the inputs.

A guess proves nothing: the caller checks whether the model accepts the sizes, tries the next guess if not,
and reports what was assumed.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from modeldyno.base.job.input_spec import BATCH, DEFAULT_LENGTH, is_sequence, symbols_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from modeldyno.base.job.input_spec import InputSpec

SIDES = (224, 320, 640, 256, 416, 512, 384, 128, 64, 32)
"""Sides of square images: classifiers take 224, detectors 320 to 640, all multiples of 32."""
TEXT_LINES = ((48, 320), (32, 320), (32, 100), (64, 256))
"""Height and width of images of text lines, as OCR models take them."""
LENGTHS = (DEFAULT_LENGTH, 64, 77, 32, 16, 8, 256, 512)
"""Lengths of sequences; CLIP takes 77."""
WINDOWS = (DEFAULT_LENGTH, 512, 576, 256, 1024, 1536, 4096, 16_000, 48_000)
"""Samples of sound: windows of voice activity detectors, and one second."""
STEPS = (DEFAULT_LENGTH, 1, 512, 16_000, 2, 4, 8, 16, 32, 64)
"""Steps of a series of numbers, or of vectors."""
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Sizes of dimensions without any hint."""

_CHANNELS = (3, 1, 4)
_IMAGE = 4
"""Dimensions of a batch of images."""
_SIDE = re.compile(r"height|width|(^|_)(h|w)$|image|img", re.IGNORECASE)
_STATE = re.compile(r"(?:h|c)[n0_]?\d*|.*(?:state|hidden|cell|cache|past).*", re.IGNORECASE)
_NAMELESS = re.compile(r".*_dim\d+|s\d+")
"""Names that loaders give to dimensions without one."""
_NO_SIZES: Mapping[str, int] = MappingProxyType({})

Choices = tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]
"""Dimensions that belong together, and sizes for them, the likeliest first."""


def guess_sizes(
    inputs: Iterable[InputSpec],
    known_sizes: Mapping[str, int],
    expected: Mapping[str, int] = _NO_SIZES,
) -> Iterator[dict[str, int]]:
    """Yield sizes for all free dimensions, the likeliest combination first.

    Args:
        inputs: as the model declares them; ``batch`` is not guessed.
        known_sizes: known sizes; these dimensions are not guessed.
        expected: sizes that the model itself suggests for dimensions; they are tried first.
    """
    groups: list[Choices] = []
    covered = {BATCH, *known_sizes}
    for spec in inputs:
        for names, choices in _choices_for_input(spec, known_sizes):
            if not covered.intersection(names):
                covered.update(names)
                groups.append((names, _with_expected_first(names, choices, expected)))
    if groups:
        yield from _combinations(groups)


def _with_expected_first(
    names: tuple[str, ...], choices: tuple[tuple[int, ...], ...], expected: Mapping[str, int]
) -> tuple[tuple[int, ...], ...]:
    """Put the sizes that the model suggests first."""
    expected_sizes = tuple(
        expected.get(name, default) for name, default in zip(names, choices[0], strict=True)
    )
    return tuple(dict.fromkeys((expected_sizes, *choices)))


def _combinations(groups: Sequence[Choices]) -> Iterator[dict[str, int]]:
    """Combine the choices of all groups, ordered by the sum of their ranks."""
    lengths = [len(choices) for _, choices in groups]
    for total in range(sum(lengths) - len(lengths) + 1):
        for indices in _indices_with_sum(lengths, total):
            yield {
                name: size
                for (names, choices), index in zip(groups, indices, strict=True)
                for name, size in zip(names, choices[index], strict=True)
            }


def _indices_with_sum(lengths: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """Yield all index tuples within the lengths whose sum is `total`."""
    if not lengths:
        if total == 0:
            yield ()
        return
    for first_index in range(min(total, lengths[0] - 1), -1, -1):
        for other_indices in _indices_with_sum(lengths[1:], total - first_index):
            yield (first_index, *other_indices)


def _choices_for_input(spec: InputSpec, known_sizes: Mapping[str, int]) -> Iterator[Choices]:
    shape = spec.shape or ()
    axes = image_axes(spec)
    if axes is not None:
        channels, height, width = axes
        yield from _single_choice(shape[channels], _CHANNELS)
        yield from _choices_for_image(
            *(known_sizes.get(str(shape[axis]), shape[axis]) for axis in (height, width))
        )
    for dimension in symbols_of(spec):
        yield from _single_choice(dimension, _sizes_for_dimension(spec, dimension))


def image_axes(spec: InputSpec) -> tuple[int, int, int] | None:
    """Return the axes of channels, height and width if the input looks like images; otherwise None."""
    shape = spec.shape or ()
    if len(shape) != _IMAGE or not (spec.dtype or "float32").startswith(("float", "bfloat", "uint8")):
        return None
    free = [isinstance(size, str) for size in shape]
    if (shape[3] in _CHANNELS and shape[1] not in _CHANNELS) or free[1:] == [True, True, False]:
        return 3, 1, 2
    return (1, 2, 3) if any(free[2:]) and (shape[1] in _CHANNELS or free[1]) else None


def _choices_for_image(height: int | str, width: int | str) -> Iterator[Choices]:
    squares = tuple((side, side) for side in SIDES)
    if isinstance(height, str) and isinstance(width, str):
        if height == width:
            yield from _single_choice(height, SIDES)
        else:
            yield (height, width), (*squares[:3], *TEXT_LINES, *squares[3:])
        return
    fixed = next((side for side in (height, width) if isinstance(side, int)), SIDES[0])
    lines = tuple(line[1] for line in TEXT_LINES if line[0] == fixed)
    for side in (height, width):
        yield from _single_choice(side, tuple(dict.fromkeys((*lines, fixed, 320, 4 * fixed, *SIDES))))


def _sizes_for_dimension(spec: InputSpec, name: str) -> tuple[int, ...]:
    floating = (spec.dtype or "float32").startswith(("float", "bfloat"))
    if _STATE.fullmatch(spec.name):
        return COUNTS
    if _SIDE.search(name):
        return SIDES
    if is_sequence(name) or len(spec.shape or ()) == 2:
        return WINDOWS if floating else LENGTHS
    if floating and _NAMELESS.fullmatch(name) and len(spec.shape or ()) == 3:
        return STEPS
    return COUNTS


def _single_choice(dimension: int | str, sizes: tuple[int, ...]) -> Iterator[Choices]:
    if isinstance(dimension, str):
        yield (dimension,), tuple((size,) for size in sizes)
