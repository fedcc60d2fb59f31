"""The number and the size of images are read as they are written."""

from __future__ import annotations

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.prompt_images import images_of_knobs, parse_images


@pytest.mark.parametrize(
    ("knobs", "source"),
    [
        ({"images": 2}, "images:2/512x512"),
        ({"images": "1..3", "image_size": 640}, "images:1..3/640x640"),
        ({"images": "0..2", "image_size": "640x480"}, "images:0..2/640x480"),
        ({"images": "2~1", "image_size": "256..1024"}, "images:2~1/256..1024x256..1024"),
        ({"image_size": "64x32"}, "images:1/64x32"),
        ({"images": 1, "image_size": "512~x1.5x480~64"}, "images:1/512~x1.5x480~64"),
        ({"images": 1, "image_size": "512~x1.5"}, "images:1/512~x1.5x512~x1.5"),
    ],
)
def test_knobs_are_written_as_a_source_and_read_again(knobs: dict[str, int | str], source: str) -> None:
    """A side alone is of both, a size alone of one image; what is not given is a square of 512."""
    images = images_of_knobs(knobs)
    assert str(images) == source
    assert parse_images(source) == images


@pytest.mark.parametrize("knobs", [{}, {"images": 0}, {"images": "0", "image_size": "64x64"}])
def test_no_images_are_none(knobs: dict[str, int | str]) -> None:
    """So that a sweep may begin without any."""
    assert images_of_knobs(knobs) is None


def test_the_numbers_that_are_drawn_are_within_their_bounds() -> None:
    """A number of images may be none, a side has a pixel at least."""
    images = parse_images("images:1~2/2~9x8000~900")
    generator = np.random.default_rng(1)
    counts, widths, heights = (
        each.draw(1000, generator) for each in (images.count, images.width, images.height)
    )
    assert (counts.min(), widths.min(), heights.max()) == (0, 1, 8192)


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"images": "x"}, "images 'x' is no number of images; write 2, 2~1 for a normal distribution"),
        ({"images": 1001}, "'1001' is not between 0 and 1,000 images"),
        ({"images": 1, "image_size": "512x"}, "image_size=512x: the side '' is no number of pixels"),
        (
            {"images": 1, "image_size": "0x9"},
            "image_size=0x9: the side '0' is not between 1 and 8,192 pixels",
        ),
    ],
)
def test_what_is_no_image_is_refused(knobs: dict[str, int | str], why: str) -> None:
    """In one sentence."""
    with pytest.raises(RequestError, match=why):
        images_of_knobs(knobs)
