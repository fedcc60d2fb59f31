"""Make untrusted text printable: strip terminal escapes, control and bidirectional characters.

Names and logs come from people and from models. Every text is cleaned when a value is made of it, so that no
output format has to handle escape sequences, line breaks in a cell, or right-to-left overrides. What is
special in one format only (a tag, a pipe, a formula) is escaped by that format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\|$)|[@-Z\\-_])")
"""Terminal control: colours and cursor movement, window titles and links, two-character commands."""
_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_INVISIBLE = re.compile("[\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")
"""Invisible characters, and those that change the direction of the text."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Lone surrogates, as in file names that are not UTF-8; no encoding can write them."""


def clean(text: str) -> str:
    """Make text from outside printable on one line."""
    text = _INVISIBLE.sub("", _ESCAPE.sub("", text))
    return _SURROGATE.sub("\ufffd", _SPACE.sub(" ", text)).strip()


def is_writable_text(text: str) -> bool:
    """Return whether an encoding can write the text, which a file name that is not UTF-8 is not."""
    return _SURROGATE.search(text) is None


def clean_lines(text: str) -> str:
    """Make text from outside printable, keeping its lines and indentation."""
    lines = (_INVISIBLE.sub("", line.expandtabs(4)) for line in _ESCAPE.sub("", text).splitlines())
    return "\n".join(_SURROGATE.sub("\ufffd", _SPACE.sub(_as_spaces, line)).rstrip() for line in lines)


def escape_json(data: bytes) -> bytes:
    """Escape the control characters that JSON allows and a terminal would interpret."""
    return _CONTROLS_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", data.decode()).encode()


_CONTROLS_IN_JSON = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def shorten(text: str, limit: int) -> str:
    """Cut text to at most `limit` characters, the last an ellipsis where something is missing."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _as_spaces(match: re.Match[str]) -> str:
    return " " * len(match[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Printable:
    """Base of dataclasses whose strings are made printable on construction."""

    def __post_init__(self) -> None:
        """Clean each string, also in tuples of strings."""
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is str:
                object.__setattr__(self, field.name, clean(value))
            elif type(value) is tuple and value and type(value[0]) is str:
                object.__setattr__(self, field.name, tuple(map(clean, value)))
