"""The first words of random prompts, in place of which others are sent when a prompt is sent again.

There are only so many random prompts, and a server with a prefix cache has those that it has seen before. A
prompt that begins with other words is new to it from there on. The others have as many bytes and tokens, so
that neither the size of the request nor the length of the prompt changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.engine.data.text_requests import read_request
from modeldyno.models.word_list import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COUNT = 3
"""Words of a prompt that are changed: a word has few others of its length, three have thousands."""
_AROUND = 64
"""Characters on both sides of a word that decide how many tokens it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWords:
    """Where each prompt has words that may be others, and which."""

    at: int
    """Characters before them, with which all prompts begin."""
    texts: tuple[str, ...]
    """The prompts."""
    groups: tuple[tuple[str, ...], ...]
    """Words that may take each other's place."""
    groups_of: tuple[tuple[int, ...], ...]
    """Of each prompt the groups that have its words, one after the other."""


def find_first_words(requests: Iterable[str], *, alike: bool, tokenizer: Any = None) -> FirstWords | None:
    """Find words to change in random prompts; None if some prompt has none.

    Args:
        requests: texts, or what `text_requests.read_request` reads.
        alike: whether all begin with the same words, which are to stay.
        tokenizer: of the library `tokenizers`, which counts the tokens; None if nobody counts them.
    """
    texts = [read_request(request).get("prompt", "") for request in requests]
    at = _common_start(texts).rfind(" ") + 1 if alike else 0
    groups: list[tuple[str, ...]] = []
    at_start = set[int]()  # groups of words with which a text begins, which may have other tokens there
    groups_of = []
    for text in texts:
        place, numbers = at, []
        for word in text[at:].split(" ")[:_COUNT]:
            of_place = (n for n in range(len(groups)) if (n in at_start) is (place == 0))
            number = next((n for n in of_place if word in groups[n]), len(groups))
            if number == len(groups):
                groups.append(_alternatives(text, place, word, tokenizer))
                at_start |= {number} if place == 0 else set()
            if word not in groups[number]:
                return None
            numbers.append(number)
            place += len(word) + 1
        groups_of.append(tuple(numbers))
    return FirstWords(at=at, texts=tuple(texts), groups=tuple(groups), groups_of=tuple(groups_of))


def _common_start(texts: Sequence[str]) -> str:
    """Return the characters with which all texts begin."""
    first, last = min(texts), max(texts)
    same = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), None)
    return first[:same]


def _alternatives(text: str, at: int, word: str, tokenizer: Any) -> tuple[str, ...]:
    """Return the words of the same length that leave the number of tokens as it is, this one included."""
    words = [other for other in WORDS if len(other) == len(word)]
    if tokenizer is None or not words:
        return tuple(words)
    before, after = text[max(0, at - _AROUND) : at], text[at + len(word) : at + len(word) + _AROUND]
    counts = _token_counts(tokenizer, [f"{before}{other}{after}" for other in (word, *words)])
    return tuple(other for other, count in zip(words, counts[1:], strict=True) if count == counts[0])


def _token_counts(tokenizer: Any, texts: Sequence[str]) -> list[int]:
    return [len(one.ids) for one in tokenizer.encode_batch(list(texts))]
