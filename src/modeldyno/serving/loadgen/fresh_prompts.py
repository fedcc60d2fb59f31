"""Prompts that are new to a prefix cache: when one is sent again, its first words are others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.engine.data.first_words import FirstWords
    from modeldyno.engine.interfaces.request_target import Target
    from modeldyno.serving.loadgen.arrivals import LoadShare


def mark_first_words(target: Target, first_words: FirstWords) -> Target:
    """Return a target whose messages have their first words marked; as it is if some message has none.

    A target that has other marks stays as it is, too.
    """
    if target.marks or len(target.messages) != len(first_words.texts):
        return target
    marks = []
    for message, text in zip(target.messages, first_words.texts, strict=True):
        place = _place(message, text.encode())
        if place < 0:
            return target
        marks.append(place + len(text[: first_words.at].encode()))
    return replace(
        target, marks=tuple(marks), word_groups=first_words.groups, word_groups_of=first_words.groups_of
    )


def _place(message: bytes, text: bytes) -> int:
    """Return where a message has a text; -1 if it is compressed, has other texts, or has it more than once.

    A text of one word may be in the path or a header, too, or name the model: it is looked for in its quotes
    first, as nearly all messages are JSON.
    """
    quoted = b'"%b"' % text
    for form, before in ((quoted, 1), (text, 0)):
        if (count := message.count(form)) == 1:
            return message.index(form) + before
        if count:
            break
    return -1


class FreshWords:
    """The words with which each message is sent next, in one of several drivers."""

    def __init__(self, target: Target, share: LoadShare) -> None:
        encoded = [[word.encode() for word in group] for group in target.word_groups]
        self._groups = [[encoded[number] for number in numbers] for numbers in target.word_groups_of]
        self._first = [
            _places(message[at:], groups)
            for message, at, groups in zip(target.messages, target.marks, self._groups, strict=True)
        ]
        self._share = share
        self._sent = Counter[int]()

    def next(self, message: int) -> bytes:
        """Return the words of a message that is about to be sent: at first its own."""
        turn = self._sent[message] * self._share.of + self._share.index
        self._sent[message] += 1
        words = []
        for group, first in zip(self._groups[message], self._first[message], strict=True):
            turn, place = divmod(turn, len(group))
            words.append(group[(first + place) % len(group)])
        return b" ".join(words)


def _places(text: bytes, groups: Sequence[Sequence[bytes]]) -> list[int]:
    """Return where the words with which a text begins are in their groups."""
    places, at = [], 0
    for group in groups:
        size = len(group[0])
        places.append(group.index(text[at : at + size]))
        at += size + 1
    return places
