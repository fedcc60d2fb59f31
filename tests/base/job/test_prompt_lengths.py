"""Lengths of prompts and answers are read as they are written, and drawn as they say."""

from __future__ import annotations

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.prompt_lengths import (
    Lengths,
    PromptLengths,
    lengths_of_knobs,
    parse_lengths,
    parse_prompt_lengths,
)


@pytest.mark.parametrize("text", ["512", "512~64", "512~x1.5", "256..1024", "1"])
def test_lengths_are_written_as_they_are_read(text: str) -> None:
    """Whatever the distribution."""
    assert str(parse_lengths(text, "The length")) == text


@pytest.mark.parametrize("text", ["", "zebra", "-3", "512~", "512~x", "1..2..3", "1e3", "512~64..3"])
def test_what_is_no_length_is_refused_with_the_forms_that_are(text: str) -> None:
    """In one sentence."""
    with pytest.raises(RequestError, match=r"is no number of tokens; write 512, 512~64 for a normal"):
        parse_lengths(text, "The length")


@pytest.mark.parametrize("text", ["0", "9..3", "0..3", "512~x0.5", "99999999999"])
def test_what_is_no_number_of_tokens_is_refused(text: str) -> None:
    """None, fewer than the fewest, more than anything has."""
    with pytest.raises(RequestError, match="is not between 1 and 10,000,000 tokens"):
        parse_lengths(text, "The length")


@pytest.mark.parametrize(
    ("text", "mean", "spread"),
    [("512", 512, 0.0), ("512~64", 512, 64), ("100..300", 200, 200 / 12**0.5), ("512~x1.5", 556, 235)],
)
def test_lengths_have_the_mean_and_the_spread_that_were_asked_for(
    text: str, mean: float, spread: float
) -> None:
    """The mean of a log-normal one lies above its median, by half of the variance of its logarithm."""
    drawn = parse_lengths(text, "").draw(20_000, np.random.default_rng(1))

    assert drawn.dtype.kind == "i"
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert drawn.std() == pytest.approx(spread, rel=0.05, abs=0.5)


def test_a_prompt_has_at_least_a_token() -> None:
    """However wide its distribution is."""
    assert parse_lengths("2~50", "").draw(1000, np.random.default_rng(1)).min() == 1


@pytest.mark.parametrize("source", ["tokens:512", "tokens:512~64/128", "tokens:/16..64"])
def test_a_source_is_written_as_it_is_read(source: str) -> None:
    """With the length of answers behind a stroke."""
    assert str(parse_prompt_lengths(source)) == source


def test_a_source_without_a_length_is_refused() -> None:
    """With an example."""
    with pytest.raises(RequestError, match="names no length; write tokens:512"):
        parse_prompt_lengths("tokens:/")


def test_knobs_ask_for_lengths() -> None:
    """One, both or none of them; a number is as good as a text."""
    eight = Lengths(low=8, high=8)

    assert lengths_of_knobs({"threads": 1}) is None
    assert lengths_of_knobs({"prompt_tokens": 8}) == PromptLengths(prompt=eight)
    assert lengths_of_knobs({"output_tokens": "8"}) == PromptLengths(output=eight)
    assert eight.typical == 8
    with pytest.raises(RequestError, match="The knob prompt_tokens 'x' is no number"):
        lengths_of_knobs({"prompt_tokens": "x"})
