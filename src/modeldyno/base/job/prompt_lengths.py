"""How many tokens prompts have and answers shall have: ``512``, ``512~64``, ``256..1024``, ``512~x1.5``.

``tokens:512~64/128`` is the source of an input whose texts have so many tokens, drawn for each, and whose
answers shall have 128.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy import ndarray
    from numpy.random import Generator

    from modeldyno.base.job.knob import KnobValue

SCHEME = "tokens:"
PROMPT_TOKENS, OUTPUT_TOKENS, TOKENIZER = "prompt_tokens", "output_tokens", "tokenizer"
"""Knobs of a language model's requests."""
MOST_TOKENS = 10_000_000
"""Most tokens of a prompt or of an answer."""
_NUMBER = r"\d+(?:\.\d+)?"
_WRITTEN = re.compile(
    rf"(?P<middle>{_NUMBER})(?:~(?P<spread>{_NUMBER})|~x(?P<factor>{_NUMBER})|\.\.(?P<high>\d+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A distribution of numbers of tokens."""

    low: float
    """The smallest of a uniform distribution, the mean of a normal one, the median of a log-normal one."""
    high: float
    """The largest of a uniform distribution; elsewhere the same as `low`."""
    spread: float = 0.0
    """Standard deviation of a normal distribution, in tokens."""
    factor: float = 1.0
    """Geometric standard deviation of a log-normal distribution."""

    def __str__(self) -> str:
        """Write it as it is read."""
        if self.low != self.high:
            return f"{self.low:g}..{self.high:g}"
        spread = f"~{self.spread:g}" if self.spread else f"~x{self.factor:g}" if self.factor > 1 else ""
        return f"{self.low:g}{spread}"

    @property
    def typical(self) -> float:
        """The middle of the distribution."""
        return (self.low + self.high) / 2

    def draw(self, count: int, generator: Generator) -> ndarray:
        """Draw whole numbers of tokens, each at least 1."""
        import numpy as np  # slow to import

        if self.low != self.high:
            return generator.integers(int(self.low), int(self.high), count, endpoint=True)
        if self.factor > 1:
            drawn = self.low * np.exp(math.log(self.factor) * generator.standard_normal(count))
        else:
            drawn = self.low + self.spread * generator.standard_normal(count)
        return np.clip(np.rint(drawn), 1, MOST_TOKENS).astype(np.int64)


WORDS_OF_A_PROMPT = 128
"""Words of a random prompt whose tokens nobody asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLengths:
    """The tokens of prompts, and of their answers."""

    prompt: Lengths | None = None
    """None: each has WORDS_OF_A_PROMPT words."""
    output: Lengths | None = None
    """None: all ask for the same number, the knob `max_tokens`."""

    def __str__(self) -> str:
        """Write it as a source."""
        output = "" if self.output is None else f"/{self.output}"
        return f"{SCHEME}{self.prompt or ''}{output}"


def parse_lengths(text: str, where: str) -> Lengths:
    """Read a distribution of lengths.

    Args:
        text: ``512``, ``512~64`` (normal), ``512~x1.5`` (log-normal) or ``256..1024`` (uniform).
        where: what it is given for.

    Raises:
        RequestError: it is none of these, or not between 1 and MOST_TOKENS tokens.
    """
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise RequestError(
            f"{where} '{text}' is no number of tokens; write 512, 512~64 for a normal distribution, 512~x1.5 "
            "for a log-normal one, or 256..1024 for a uniform one."
        )
    low = float(match["middle"])
    high = float(match["high"] or low)
    factor = float(match["factor"] or 1)
    if not 1 <= low <= high <= MOST_TOKENS or factor < 1:
        raise RequestError(f"{where} '{text}' is not between 1 and {MOST_TOKENS:,} tokens.")
    return Lengths(low=low, high=high, spread=float(match["spread"] or 0), factor=factor)


def parse_prompt_lengths(source: str) -> PromptLengths:
    """Read a source: ``tokens:512``, ``tokens:512/128`` or ``tokens:/128``.

    Raises:
        RequestError: a part is no distribution of lengths, or there is none.
    """
    prompt, _, output = source.removeprefix(SCHEME).partition("/")
    if not (prompt or output):
        raise RequestError(f"`inputs` '{source}' names no length; write tokens:512, or tokens:512/128.")
    return PromptLengths(
        prompt=parse_lengths(prompt, "The prompt's length") if prompt else None,
        output=parse_lengths(output, "The answer's length") if output else None,
    )


def lengths_of_knobs(config: Mapping[str, KnobValue]) -> PromptLengths | None:
    """Return the lengths that knobs ask for; None if they ask for none.

    Raises:
        RequestError: a knob is no distribution of lengths.
    """
    prompt, output = (
        parse_lengths(str(config[name]), f"The knob {name}") if name in config else None
        for name in (PROMPT_TOKENS, OUTPUT_TOKENS)
    )
    return None if prompt is None and output is None else PromptLengths(prompt=prompt, output=output)
