"""Text from outside made printable, and values that hold nothing else.

Names and logs come from people and from models. Every text is made printable as a value is made of it, so
that no format needs to think of escape sequences, line breaks in a cell, or text that runs backwards. What
has a meaning in one format only (a tag, a pipe, a formula) is that format's to escape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\|$)|[@-Z\\-_])")
"""Terminal control: colours and cursor movement, window titles and links, two-character commands."""
_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_UNSEEN = re.compile("[\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")
"""Characters that show nothing or change the direction of what follows."""
_LONE = re.compile("[\ud800-\udfff]")
"""Halves of a character, as in names of files that are no UTF-8; no encoding can write them."""


def clean(text: str) -> str:
    """Make text from outside printable on one line."""
    text = _UNSEEN.sub("", _ESCAPE.sub("", text))
    return _LONE.sub("\ufffd", _SPACE.sub(" ", text)).strip()


def clean_lines(text: str) -> str:
    """Make text from outside printable, keeping its lines and indentation."""
    lines = (_UNSEEN.sub("", line.expandtabs(4)) for line in _ESCAPE.sub("", text).splitlines())
    return "\n".join(_LONE.sub("\ufffd", _SPACE.sub(_spaces, line)).rstrip() for line in lines)


def shorten(text: str, limit: int) -> str:
    """Cut text to at most `limit` characters, the last an ellipsis where something is missing."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _spaces(match: re.Match[str]) -> str:
    return " " * len(match[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Printable:
    """A value whose texts are printable, whatever it was made from."""

    def __post_init__(self) -> None:
        """Clean each text, also in tuples of them."""
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is str:
                object.__setattr__(self, field.name, clean(value))
            elif type(value) is tuple and value and type(value[0]) is str:
                object.__setattr__(self, field.name, tuple(map(clean, value)))
