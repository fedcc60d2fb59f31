"""Sizes to try for the free dimensions of a network that nobody gave, from what is known of its inputs.

A guess proves nothing: whoever takes one asks the network whether it takes such sizes, tries the next one if
it does not, and says what was assumed.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from modeldyno.core.spec.input_spec import BATCH, DEFAULT_LENGTH, is_sequence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from modeldyno.core.spec.input_spec import InputSpec

SIDES = (224, 320, 640, 256, 416, 512, 384, 128, 64, 32)
"""Of square images: classifiers are made for 224, detectors for 320 to 640, all of them multiples of 32."""
TEXT_LINES = ((48, 320), (32, 320), (32, 100), (64, 256))
"""Height and width of the image of a line of text, as readers of text take it."""
LENGTHS = (DEFAULT_LENGTH, 64, 77, 32, 16, 8, 256, 512)
"""Of sequences; 77 is what CLIP takes."""
WINDOWS = (DEFAULT_LENGTH, 512, 576, 256, 1024, 1536, 4096, 16_000, 48_000)
"""Samples of sound: windows of detectors of speech, and a second."""
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Of what nothing is known of."""

_CHANNELS = (3, 1, 4)
_IMAGE = 4
"""Dimensions of a batch of images."""
_SIDE = re.compile(r"height|width|(^|_)(h|w)$|image|img", re.IGNORECASE)
_STATE = re.compile(r"(?:h|c)[n0_]?\d*|.*(?:state|hidden|cell|cache|past).*", re.IGNORECASE)
_NO_SIZES: Mapping[str, int] = MappingProxyType({})

Choices = tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]
"""Dimensions that belong together, and sizes for them, the likeliest first."""


def guess_sizes(
    inputs: Iterable[InputSpec],
    given: Mapping[str, int],
    expected: Mapping[str, int] = _NO_SIZES,
) -> Iterator[dict[str, int]]:
    """Give sizes for all free dimensions, the likeliest combination first.

    Args:
        inputs: as the network declares them; ``batch`` is nobody's guess.
        given: sizes that are known; these dimensions are left out of the guesses.
        expected: of a dimension, the size that the network itself speaks for; it is tried first.
    """
    groups: list[Choices] = []
    covered = {BATCH, *given}
    for spec in inputs:
        for names, choices in _of_input(spec, given):
            if not covered.intersection(names):
                covered.update(names)
                groups.append((names, _first(names, choices, expected)))
    if groups:
        yield from _combined(groups)


def _first(
    names: tuple[str, ...], choices: tuple[tuple[int, ...], ...], expected: Mapping[str, int]
) -> tuple[tuple[int, ...], ...]:
    """Put what the network speaks for in front."""
    spoken = tuple(expected.get(name, usual) for name, usual in zip(names, choices[0], strict=True))
    return tuple(dict.fromkeys((spoken, *choices)))


def _combined(groups: Sequence[Choices]) -> Iterator[dict[str, int]]:
    """Combine the choices of all groups, in the order of how unlikely they are in sum."""
    lengths = [len(choices) for _, choices in groups]
    for total in range(sum(lengths) - len(lengths) + 1):
        for places in _with_sum(lengths, total):
            yield {
                name: size
                for (names, choices), place in zip(groups, places, strict=True)
                for name, size in zip(names, choices[place], strict=True)
            }


def _with_sum(lengths: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """Give all places, one within each length, of which the sum is `total`."""
    if not lengths:
        if total == 0:
            yield ()
        return
    for first in range(min(total, lengths[0] - 1), -1, -1):
        for rest in _with_sum(lengths[1:], total - first):
            yield (first, *rest)


def _of_input(spec: InputSpec, given: Mapping[str, int]) -> Iterator[Choices]:
    shape = spec.shape or ()
    axes = image_axes(spec)
    if axes is not None:
        channels, height, width = axes
        yield from _alone(shape[channels], _CHANNELS)
        yield from _of_image(*(given.get(str(shape[axis]), shape[axis]) for axis in (height, width)))
    for dimension in shape:
        yield from _alone(dimension, _of_dimension(spec, str(dimension)))


def image_axes(spec: InputSpec) -> tuple[int, int, int] | None:
    """Give the axes of channels, height and width of an input that looks like images; None for another."""
    shape = spec.shape or ()
    if len(shape) != _IMAGE or not (spec.dtype or "float32").startswith(("float", "bfloat", "uint8")):
        return None
    if shape[3] in _CHANNELS and shape[1] not in _CHANNELS:
        return 3, 1, 2
    spatial = any(isinstance(side, str) for side in shape[2:])
    return (1, 2, 3) if spatial and (shape[1] in _CHANNELS or isinstance(shape[1], str)) else None


def _of_image(height: int | str, width: int | str) -> Iterator[Choices]:
    squares = tuple((side, side) for side in SIDES)
    if isinstance(height, str) and isinstance(width, str):
        if height == width:
            yield from _alone(height, SIDES)
        else:
            yield (height, width), (*squares[:3], *TEXT_LINES, *squares[3:])
        return
    known = next((side for side in (height, width) if isinstance(side, int)), SIDES[0])
    lines = tuple(line[1] for line in TEXT_LINES if line[0] == known)
    for side in (height, width):
        yield from _alone(side, tuple(dict.fromkeys((*lines, known, 320, 4 * known, *SIDES))))


def _of_dimension(spec: InputSpec, name: str) -> tuple[int, ...]:
    floating = (spec.dtype or "float32").startswith(("float", "bfloat"))
    if _STATE.fullmatch(spec.name):
        return COUNTS
    if _SIDE.search(name):
        return SIDES
    if is_sequence(name) or len(spec.shape or ()) == 2:  # noqa: PLR2004 - (batch, length)
        return WINDOWS if floating else LENGTHS
    return COUNTS


def _alone(dimension: int | str, sizes: tuple[int, ...]) -> Iterator[Choices]:
    if isinstance(dimension, str):
        yield (dimension,), tuple((size,) for size in sizes)
