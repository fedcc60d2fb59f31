"""How many random images go with each prompt, and how large they are: ``1..3`` of ``512x512``.

``images:1..3/512x512`` is the source of an input of a result, whose requests had so many of that size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.job.prompt_lengths import Lengths, parse_amounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.job.knob import KnobValue

IMAGES, IMAGE_SIZE = "images", "image_size"
"""Knobs of a language model's requests."""
SCHEME = "images:"
MOST_IMAGES = 1000
"""Most images of a request."""
LARGEST = 8192
"""Pixels of the longest side."""
_DEFAULT_SIZE = "512x512"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptImages:
    """The images of a request, and their sizes in pixels."""

    count: Lengths
    width: Lengths
    height: Lengths

    def __str__(self) -> str:
        """Write it as a source."""
        return f"{SCHEME}{self.count}/{self.size}"

    @property
    def size(self) -> str:
        """The size as it is read."""
        return f"{self.width}x{self.height}"


def parse_images(source: str) -> PromptImages:
    """Read a source: ``images:2/512x512``.

    Raises:
        RequestError: a part is no amount.
    """
    count, _, size = source.removeprefix(SCHEME).partition("/")
    return _images(count, size or _DEFAULT_SIZE)


def images_of_knobs(config: Mapping[str, KnobValue]) -> PromptImages | None:
    """Return the images that knobs ask for, one of a size alone; None if they ask for none.

    Raises:
        RequestError: a knob is no number of images, or no size.
    """
    number = config.get(IMAGES, 1 if IMAGE_SIZE in config else 0)
    images = _images(str(number), str(config.get(IMAGE_SIZE, _DEFAULT_SIZE)))
    return images if images.count.low or images.count.high else None


def _images(count: str, size: str) -> PromptImages:
    number = parse_amounts(
        count, f"The knob {IMAGES}", least=0, most=MOST_IMAGES, unit="images", usual=(1, 3)
    )
    width, height = (
        parse_amounts(side, f"{IMAGE_SIZE}={size}: the side", least=1, most=LARGEST, unit="pixels")
        for side in _split_size(size)
    )
    return PromptImages(count=number, width=width, height=height)


def _split_size(size: str) -> tuple[str, str]:
    """Return width and height, which are alike if only one is given: an ``x`` after ``~`` is of a factor."""
    at = next((at for at, letter in enumerate(size) if letter == "x" and size[at - 1 : at] != "~"), None)
    return (size, size) if at is None else (size[:at], size[at + 1 :])
