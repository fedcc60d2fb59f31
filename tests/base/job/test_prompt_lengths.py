"""Lengths of prompts and answers are read as they are written, and drawn as they say."""

from __future__ import annotations

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.prompt_lengths import (
    Lengths,
    PromptLengths,
    format_trace_source,
    lengths_of_knobs,
    parse_lengths,
    parse_prompt_lengths,
    parse_trace_source,
)


@pytest.mark.parametrize(
    "text", ["512", "512~64", "512~x1.5", "256..1024", "1", "1234567", "1000001..2000000"]
)
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


@pytest.mark.parametrize(
    "source",
    [
        "tokens:512",
        "tokens:512~64/128",
        "tokens:/16..64",
        "tokens:512/9,shared=256",
        "tokens:8..9,shared=4",
        "tokens:@a/b.csv",
        "tokens:@b.csv,shared=9",
    ],
)
def test_a_source_is_written_as_it_is_read(source: str) -> None:
    """With the length of answers behind a stroke."""
    assert str(parse_prompt_lengths(source)) == source


def test_a_source_without_a_length_is_refused() -> None:
    """With an example."""
    with pytest.raises(RequestError, match="names no length; write tokens:512"):
        parse_prompt_lengths("tokens:/")


@pytest.mark.parametrize(
    "source", ["tokens:512,shared=x", "tokens:512,shared=-1", "tokens:9,shared=99999999999"]
)
def test_a_shared_beginning_that_is_no_number_is_refused(source: str) -> None:
    """With an example."""
    with pytest.raises(RequestError, match=r"shared_prefix '.*' is no number of tokens; write 256"):
        parse_prompt_lengths(source)


def test_lengths_of_a_file_are_those_of_answers_too() -> None:
    """So others are refused beside them, as is a file without a name."""
    assert lengths_of_knobs({"prompt_tokens": "@b.csv"}) == PromptLengths(pairs="b.csv")
    assert parse_prompt_lengths("tokens:@b.csv,shared=9") == PromptLengths(pairs="b.csv", shared=9)
    with pytest.raises(RequestError, match=r"prompt_tokens=@b\.csv draws the lengths of answers, too; leave"):
        lengths_of_knobs({"prompt_tokens": "@b.csv", "output_tokens": 8})
    with pytest.raises(RequestError, match=r"'@' names no file of lengths; write @pairs\.csv"):
        lengths_of_knobs({"prompt_tokens": "@"})


def test_a_shared_beginning_needs_the_length_of_prompts() -> None:
    """As it is a part of it; as a knob it is a number like any other."""
    with pytest.raises(RequestError, match="shared_prefix=9 are the first tokens of prompts, whose length"):
        lengths_of_knobs({"shared_prefix": 9})
    with pytest.raises(RequestError, match="whose length is not given; set prompt_tokens, too"):
        parse_prompt_lengths("tokens:/8,shared=9")
    assert lengths_of_knobs({"shared_prefix": 0}) is None
    assert str(lengths_of_knobs({"shared_prefix": 9, "prompt_tokens": 12})) == "tokens:12,shared=9"


def test_knobs_ask_for_lengths() -> None:
    """One, both or none of them; a number is as good as a text."""
    eight = Lengths(low=8, high=8)

    assert lengths_of_knobs({"threads": 1}) is None
    assert lengths_of_knobs({"prompt_tokens": 8}) == PromptLengths(prompt=eight)
    assert lengths_of_knobs({"output_tokens": "8"}) == PromptLengths(output=eight)
    assert eight.typical == 8
    with pytest.raises(RequestError, match="The knob prompt_tokens 'x' is no number"):
        lengths_of_knobs({"prompt_tokens": "x"})


@pytest.mark.parametrize("window", [None, 600.0, 0.5, 1_080_000.0, 5e-5])
def test_the_source_of_a_trace_is_written_as_it_is_read(window: float | None) -> None:
    """With the seconds of it that are used."""
    assert parse_trace_source(format_trace_source("/a/t.jsonl", window)) == ("/a/t.jsonl", window)
    with pytest.raises(RequestError, match="The window 'x' of a trace is no number of seconds; write 600"):
        parse_trace_source("trace:t,window=x")
