"""The neutral blocks that a report is made of: N documents and M formats cost N + M, not N x M.

`views` turns documents into blocks, `reporters` turn blocks into formats. Names and logs come from
people and from models; every text is made printable as its block is made, so that no format needs
to think of escape sequences, line breaks in a cell, or text that runs backwards. What has a meaning
in one format only (a tag, a pipe, a formula) is that format's to escape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from enum import StrEnum

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


class Align(StrEnum):
    """Where the cells of a column stand."""

    LEFT = "left"
    RIGHT = "right"
    """Numbers."""


class Severity(StrEnum):
    """What a notice is about, from the verdict to a side note."""

    VERDICT = "verdict"
    HELD = "held"
    BROKEN = "broken"
    UNDECIDED = "undecided"
    FAILURE = "failure"
    DOUBT = "doubt"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Printable:
    """A block whose texts are printable, whatever it was made from."""

    def __post_init__(self) -> None:
        """Clean each text."""
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is str:
                object.__setattr__(self, field.name, clean(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Printable):
    """One thing to say: the verdict, a bound and how it fared, a failure, a doubt."""

    severity: Severity
    text: str
    code: str = ""
    """A short stable name to look up: a doubt's code, a failure's stage and kind."""
    advice: str = ""
    """What to do about it."""
    log: str = ""
    """Lines of output, as they were printed."""

    def __post_init__(self) -> None:
        """Clean each text; the log keeps its lines."""
        log = clean_lines(self.log)
        Printable.__post_init__(self)
        object.__setattr__(self, "log", log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Printable):
    """A column of a Table."""

    title: str
    align: Align = Align.LEFT


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Printable):
    """Rows of cells as text; a table whose columns have no titles is a list of names and values."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Clean each cell, and refuse a ragged table."""
        Printable.__post_init__(self)
        cells = tuple(tuple(map(clean, row)) for row in self.rows)
        if any(len(row) != len(self.columns) for row in cells):
            raise ValueError(f"Each row of the table '{self.title}' must have {len(self.columns)} cells.")
        object.__setattr__(self, "rows", cells)


class ChartKind(StrEnum):
    """How a Chart is drawn."""

    HISTOGRAM = "histogram"
    """`x` holds the edges of the bins, one more than the counts in `y`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(Printable):
    """A place on the x axis that has a name, such as the median."""

    name: str
    x: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart(Printable):
    """A picture of numbers, in base units."""

    kind: ChartKind
    title: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    x_label: str
    y_label: str
    x_unit: str
    marks: tuple[Mark, ...] = ()
    note: str = ""
    """What the picture leaves out."""


Block = Notice | Table | Chart
