"""The format-neutral blocks of a report: N documents and M formats cost N + M, not N x M.

`views` turn documents into blocks, `reporters` turn blocks into formats. Texts are made printable when a
block is created; escaping what is special in one format (a tag, a pipe, a formula) is that format's job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from modeldyno.base.stats.sanitize import Printable, clean, clean_lines, shorten

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from modeldyno.base.report.charts import Picture

__all__ = [
    "Align",
    "Block",
    "Column",
    "Heading",
    "Notice",
    "Printable",
    "Severity",
    "Table",
    "clean",
    "clean_lines",
    "drop_empty_columns",
    "make_columns",
    "make_table",
    "note",
    "shorten",
]


class Align(StrEnum):
    """Alignment of a column's cells."""

    LEFT = "left"
    RIGHT = "right"
    """Numbers."""


class Severity(StrEnum):
    """The subject of a notice, from the verdict to a side note."""

    VERDICT = "verdict"
    HELD = "held"
    BROKEN = "broken"
    UNDECIDED = "undecided"
    FAILURE = "failure"
    DOUBT = "doubt"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Printable):
    """One message: the verdict, a bound and its judgement, a failure, a doubt."""

    severity: Severity
    text: str
    code: str = ""
    """A short stable name to look up: a doubt's code, a failure's stage and kind."""
    advice: str = ""
    """What to do about it: a sentence, or a command to paste and nothing else."""
    log: str = ""
    """Lines of output, as they were printed."""
    outcome: Severity | None = None
    """Whether a verdict is good (HELD), bad (BROKEN) or UNDECIDED; None if it only states figures."""
    gain: str = ""
    """Of something to try: what it may save, in a few words, which a page shows large."""
    risk: str = ""
    """Of something to try: what it may cost."""

    @property
    def advises_command(self) -> bool:
        """Whether the advice is a command to paste."""
        return self.advice.startswith("modeldyno ")

    def __post_init__(self) -> None:
        """Clean each text; the log keeps its lines."""
        log = clean_lines(self.log)
        Printable.__post_init__(self)
        object.__setattr__(self, "log", log)


def note(text: str, *, code: str = "", advice: str = "", log: str = "") -> Notice:
    """Make a notice that informs."""
    return Notice(severity=Severity.NOTE, text=text, code=code, advice=advice, log=log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Printable):
    """A column of a Table."""

    title: str
    align: Align = Align.LEFT


def make_columns(*titles: str) -> tuple[Column, ...]:
    """Make columns; a title that ends with ``>`` is right-aligned."""
    return tuple(
        Column(title=title.removesuffix(">"), align=Align.RIGHT if title.endswith(">") else Align.LEFT)
        for title in titles
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Printable):
    """Rows of text cells; a table without column titles is a list of names and values."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    tiles: bool = False
    """Whether each row (name, figure, note) is a key figure that a page shows large."""
    spare: tuple[str, ...] = ()
    """Titles of columns that are left out where not all have room, the first of them first."""
    folded: bool = False
    """Whether a page shows only its title until somebody opens it."""

    def __post_init__(self) -> None:
        """Clean each cell, and refuse a ragged table."""
        Printable.__post_init__(self)
        cells = tuple(tuple(map(clean, row)) for row in self.rows)
        if any(len(row) != len(self.columns) for row in cells):
            raise ValueError(f"Each row of the table '{self.title}' must have {len(self.columns)} cells.")
        object.__setattr__(self, "rows", cells)

    def without_column(self, title: str) -> Table:
        """Return the table without the column of a title."""
        return _without(self, [[column.title for column in self.columns].index(title)])


def make_table(
    title: str, titles: Iterable[str], rows: Iterable[Iterable[str]], *, spare: tuple[str, ...] = ()
) -> Table:
    """Make a table of the titles of its columns and its rows.

    A title that ends with ``>`` is right-aligned. One with a ``?`` behind it, such as ``peak>?``, is of a
    column that is left out if none of its cells says anything.
    """
    marked = tuple(titles)
    table = Table(
        title=title,
        columns=make_columns(*(title.removesuffix("?") for title in marked)),
        rows=tuple(map(tuple, rows)),
        spare=spare,
    )
    return _without(table, [at for at in _silent_columns(table) if marked[at].endswith("?")])


def choose_columns(table: Table, titles: Sequence[str]) -> Table:
    """Keep the columns with these titles, in this order; a title that the table lacks is an empty column."""
    places = {column.title: at for at, column in enumerate(table.columns)}
    added = make_columns(*titles)
    chosen = [places.get(title) for title in titles]
    return replace(
        table,
        columns=tuple(
            column if at is None else table.columns[at] for at, column in zip(chosen, added, strict=True)
        ),
        rows=tuple(tuple("" if at is None else row[at] for at in chosen) for row in table.rows),
    )


def drop_empty_columns(table: Table) -> Table:
    """Leave out every column of which no cell says anything."""
    return _without(table, _silent_columns(table))


def _silent_columns(table: Table) -> list[int]:
    return [at for at in range(len(table.columns)) if not any(row[at].strip("— ") for row in table.rows)]


def _without(table: Table, places: Container[int]) -> Table:
    kept = [at for at in range(len(table.columns)) if at not in places]
    if len(kept) == len(table.columns):
        return table
    return replace(
        table,
        columns=tuple(table.columns[at] for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in table.rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading(Printable):
    """Heading of the blocks up to the next one of the same or a higher level."""

    title: str
    level: int = 1
    """1 for a part of a report, 2 for a part of that."""
    folded: bool = False
    """Whether a page shows only the title of a part of level 1 until somebody opens it."""


Block: TypeAlias = "Notice | Table | Heading | Picture"
