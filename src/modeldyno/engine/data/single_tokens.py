"""Texts that have as many tokens as pieces, and share the tokens of the pieces that they share.

A piece is a word with a space before it, or a single letter where words are several tokens. It is one token
wherever it stands, so that a text that begins like another one has the same first tokens, and its length is
known without counting.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.models.word_list import WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.random import Generator

_FEWEST = 32
"""Different tokens that random texts need at least."""
_CHECKS = 8
"""Orders of all pieces in which it is checked that each is one token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleTokens:
    """Pieces that are one token each, of a tokenizer."""

    pieces: tuple[str, ...]
    starts: tuple[str, ...]
    """Those that are one token at the beginning of a text as well, where their space is left out."""
    before: int
    """Tokens that the tokenizer itself adds before a text."""
    after: int
    """Those that it adds behind it."""

    @property
    def own(self) -> int:
        """Tokens that the tokenizer itself adds."""
        return self.before + self.after

    def draw(self, count: int, generator: Generator) -> str:
        """Draw so many pieces, with which a text may begin."""
        if not count:
            return ""
        first = self.starts[generator.integers(len(self.starts))]
        rest = generator.integers(len(self.pieces), size=count - 1)
        return first + "".join([self.pieces[at] for at in rest.tolist()])

    def cut(self, text: str, count: int) -> str:
        """Return the first pieces of a text that begins with a space, or is of letters."""
        if not count:
            return ""
        return " ".join(text.split(" ", count + 1)[: count + 1]) if text.startswith(" ") else text[:count]

    @staticmethod
    def begin(text: str) -> str:
        """Return a text without the space with which it begins."""
        return text.removeprefix(" ")


def find_single_tokens(tokenizer: Any, file: Path) -> SingleTokens:
    """Find pieces of a tokenizer, of the library `tokenizers`.

    Raises:
        RequestError: too few texts are one token wherever they stand.
    """
    for pieces in ([f" {word}" for word in WORDS], [*ascii_letters, *digits]):
        tokens = tokens_within_text(tokenizer, pieces)
        single = {piece: ids[0] for piece, ids in zip(pieces, tokens, strict=True) if len(ids) == 1}
        begins = tokenizer.encode_batch(
            [SingleTokens.begin(piece) for piece in single], add_special_tokens=False
        )
        first = {piece: one.ids[0] for piece, one in zip(single, begins, strict=True) if len(one.ids) == 1}
        if len({*single.values()}) < _FEWEST or not first or not _are_single(tokenizer, single, first):
            continue
        start = next(iter(first))
        ids = tokenizer.encode(SingleTokens.begin(start)).ids
        before = ids.index(first[start])
        return SingleTokens(
            pieces=tuple(single), starts=tuple(first), before=before, after=len(ids) - 1 - before
        )
    raise RequestError(
        f"With {file} no texts were found that share exactly so many tokens: it has no token for common "
        "words, nor for letters."
    )


def tokens_within_text(tokenizer: Any, pieces: Sequence[str]) -> list[list[int]]:
    """Return the tokens that each piece has behind other text; empty where that changes with it.

    At the beginning of a text a tokenizer may add a space, or leave one out.
    """
    anchor = tokenizer.encode(_ANCHOR, add_special_tokens=False).ids
    texts = tokenizer.encode_batch([_ANCHOR + piece for piece in pieces], add_special_tokens=False)
    return [one.ids[len(anchor) :] if one.ids[: len(anchor)] == anchor else [] for one in texts]


_ANCHOR = "a"


def _are_single(tokenizer: Any, single: Mapping[str, int], first: Mapping[str, int]) -> bool:
    """Check that the tokens of texts are those of their pieces, whatever stands beside each."""
    import numpy as np  # slow to import

    generator = np.random.default_rng(0)
    pieces, starts = list(single), list(first)
    for _ in range(_CHECKS):
        start = starts[generator.integers(len(starts))]
        order = [pieces[at] for at in generator.permutation(len(pieces))]
        ids = tokenizer.encode(SingleTokens.begin(start) + "".join(order), add_special_tokens=False).ids
        if ids != [first[start], *(single[piece] for piece in order)]:
            return False
    return True
