"""How many tokens prompts have and answers shall have: ``512``, ``512~64``, ``256..1024``, ``512~x1.5``.

``tokens:512~64/128`` is the source of an input whose texts have so many tokens, drawn for each, and whose
answers shall have 128; in ``tokens:512/128,shared=256`` the first 256 tokens are the same in all texts.
``@pairs.csv`` has lengths of prompts and answers of a file, drawn together.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.random_amount import RandomAmount
from modeldyno.base.stats.units import plain_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy import ndarray
    from numpy.random import Generator

    from modeldyno.base.job.knob import KnobValue

SCHEME = "tokens:"
TRACE_SCHEME = "trace:"
"""Of the source of prompts that have the lengths of a trace, and begin alike where those did."""
_WINDOW = ",window="
PROMPT_TOKENS, OUTPUT_TOKENS, TOKENIZER = "prompt_tokens", "output_tokens", "tokenizer"
SHARED_PREFIX = "shared_prefix"
"""Knobs of a language model's requests."""
PREFIX_CACHE, FRESH, PRIMED = "prefix_cache", "fresh", "primed"
"""Knob that says whether random prompts are new to a server's prefix cache, and its values."""
MOST_TOKENS = 10_000_000
"""Most tokens of a prompt or of an answer."""
_NUMBER = r"\d+(?:\.\d+)?"
_WRITTEN = re.compile(
    rf"(?P<middle>{_NUMBER})(?:~(?P<spread>{_NUMBER})|~x(?P<factor>{_NUMBER})|\.\.(?P<high>\d+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths(RandomAmount):
    """A distribution of whole numbers, as of tokens."""

    least: int = 1
    most: int = MOST_TOKENS
    """Between which the numbers are that are drawn."""

    def __str__(self) -> str:
        """Write it as it is read."""
        return self.text()

    @property
    def typical(self) -> float:
        """The middle of the distribution."""
        return (self.low + self.high) / 2

    def draw(self, count: int, generator: Generator) -> ndarray:
        """Draw whole numbers, none beyond the least and the most."""
        import numpy as np  # slow to import

        if self.low != self.high:
            return generator.integers(int(self.low), int(self.high), count, endpoint=True)
        if self.factor > 1:
            drawn = self.low * np.exp(math.log(self.factor) * generator.standard_normal(count))
        else:
            drawn = self.low + self.spread * generator.standard_normal(count)
        return np.clip(np.rint(drawn), self.least, self.most).astype(np.int64)


WORDS_OF_A_PROMPT = 128
"""Words of a random prompt whose tokens nobody asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLengths:
    """The tokens of prompts, and of their answers."""

    prompt: Lengths | None = None
    """None: each has WORDS_OF_A_PROMPT words."""
    output: Lengths | None = None
    """None: all ask for the same number, the knob `max_tokens`."""
    shared: int = 0
    """First tokens of a prompt that are the same in all of them; they are counted among its own."""
    pairs: str = ""
    """File of lengths of prompts and answers to draw from, in place of `prompt` and `output`; empty: none."""

    def __post_init__(self) -> None:
        """Refuse lengths of answers beside those of a file, and a shared beginning without a length."""
        if self.pairs and self.output is not None:
            raise RequestError(
                f"{PROMPT_TOKENS}={_FILE}{self.pairs} draws the lengths of answers, too; "
                f"leave out {OUTPUT_TOKENS}."
            )
        if self.shared and self.prompt is None and not self.pairs:
            raise RequestError(
                f"{SHARED_PREFIX}={self.shared} are the first tokens of prompts, whose length is not given; "
                f"set {PROMPT_TOKENS}, too."
            )

    def __str__(self) -> str:
        """Write it as a source."""
        prompt = f"{_FILE}{self.pairs}" if self.pairs else self.prompt or ""
        output = "" if self.output is None else f"/{self.output}"
        return f"{SCHEME}{prompt}{output}{f'{_SHARED}{self.shared}' if self.shared else ''}"


_SHARED, _FILE = ",shared=", "@"


def parse_lengths(text: str, where: str) -> Lengths:
    """Read a distribution of numbers of tokens; see `parse_amounts`."""
    return parse_amounts(text, where, least=1, most=MOST_TOKENS, unit="tokens")


def parse_amounts(
    text: str, where: str, *, least: int, most: int, unit: str, usual: tuple[int, int] = (256, 1024)
) -> Lengths:
    """Read a distribution of whole numbers.

    Args:
        text: ``512``, ``512~64`` (normal), ``512~x1.5`` (log-normal) or ``256..1024`` (uniform).
        where: what it is given for.
        least: the smallest number.
        most: the largest.
        unit: of what they are numbers.
        usual: a range of them that is an example.

    Raises:
        RequestError: it is none of these, or not between the least and the most.
    """
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        first, last = usual
        middle, spread = 2 * first, -(-first // 4)
        raise RequestError(
            f"{where} '{text}' is no number of {unit}; write {middle}, {middle}~{spread} for a normal "
            f"distribution, {middle}~x1.5 for a log-normal one, or {first}..{last} for a uniform one."
        )
    low = float(match["middle"])
    high = float(match["high"] or low)
    factor = float(match["factor"] or 1)
    if not least <= low <= high <= most or factor < 1:
        raise RequestError(f"{where} '{text}' is not between {least} and {most:,} {unit}.")
    return Lengths(
        low=low, high=high, spread=float(match["spread"] or 0), factor=factor, least=least, most=most
    )


def format_trace_source(path: str, window: float | None) -> str:
    """Return the source of the prompts of a trace, or of its first seconds."""
    return f"{TRACE_SCHEME}{path}{'' if window is None else f'{_WINDOW}{plain_number(window)}'}"


def parse_trace_source(source: str) -> tuple[str, float | None]:
    """Read the file of a source, and the seconds of the trace that are used: ``trace:t.jsonl,window=600``.

    Raises:
        RequestError: the window is no number of seconds.
    """
    path, _, window = source.removeprefix(TRACE_SCHEME).partition(_WINDOW)
    if window and not re.fullmatch(_NUMBER, window):
        raise RequestError(f"The window '{window}' of a trace is no number of seconds; write 600.")
    return path, float(window) if window else None


def parse_prompt_lengths(source: str) -> PromptLengths:
    """Read a source: ``tokens:512``, ``tokens:512/128``, ``tokens:/128`` or ``tokens:512,shared=256``.

    Raises:
        RequestError: a part is no distribution of lengths, or there is none.
    """
    lengths, _, shared_text = source.removeprefix(SCHEME).partition(_SHARED)
    shared = _parse_shared(shared_text) if shared_text else 0
    if lengths.startswith(_FILE):
        return PromptLengths(pairs=_parse_file(lengths), shared=shared)
    prompt, _, output = lengths.partition("/")
    if not (prompt or output):
        raise RequestError(f"`inputs` '{source}' names no length; write tokens:512, or tokens:512/128.")
    return PromptLengths(
        prompt=parse_lengths(prompt, "The prompt's length") if prompt else None,
        output=parse_lengths(output, "The answer's length") if output else None,
        shared=shared,
    )


def _parse_file(text: str) -> str:
    if text == _FILE:
        raise RequestError(f"{PROMPT_TOKENS} '{text}' names no file of lengths; write {_FILE}pairs.csv.")
    return text.removeprefix(_FILE)


def _parse_shared(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_TOKENS:
        raise RequestError(f"{SHARED_PREFIX} '{text}' is no number of tokens; write 256.")
    return int(text)


def lengths_of_knobs(config: Mapping[str, KnobValue]) -> PromptLengths | None:
    """Return the lengths that knobs ask for; None if they ask for none.

    Raises:
        RequestError: a knob is no distribution of lengths.
    """
    written = str(config.get(PROMPT_TOKENS, ""))
    pairs = _parse_file(written) if written.startswith(_FILE) else ""
    prompt, output = (
        parse_lengths(str(config[name]), f"The knob {name}") if name in config and not ours else None
        for name, ours in ((PROMPT_TOKENS, pairs), (OUTPUT_TOKENS, ""))
    )
    shared = _parse_shared(str(config.get(SHARED_PREFIX, 0)))
    if prompt is None and output is None and not shared and not pairs:
        return None
    return PromptLengths(prompt=prompt, output=output, shared=shared, pairs=pairs)
