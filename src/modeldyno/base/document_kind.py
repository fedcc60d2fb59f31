"""A kind of document: how it is encoded, shown and verified, whichever feature it is of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from modeldyno.base.document import Document, StoredDocument
from modeldyno.base.report.blocks import Block, Notice, Table, make_table
from modeldyno.base.report.figure_checks import FigureCheck

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

    FindResult: TypeAlias = Callable[[str], Result | None]
    """Gives the Result of an id; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentKind:
    """What is known of a kind of document; each function takes a document of its type.

    It is named by an entry point of the group ``modeldyno.documents``, whose name is the `KIND` of the class.
    """

    name: str
    """The value of ``kind`` in its JSON, which that of a Result lacks; messages use it, too."""
    document: type[Document]
    encode: Callable[..., bytes]
    """Encodes a document as JSON; of a Result, a study or a load series with further keys, not read back."""
    decode: Callable[..., StoredDocument] | None = None
    """Decodes JSON; errors call it `origin`. None for a document that is not read back."""
    command: str = ""
    """The command that writes it, of a document that is not read back."""
    checks: Callable[[Mapping[str, Any], Any, FindResult], Iterable[FigureCheck]] | None = None
    """Recomputes the figures of a document, given its JSON and what finds its Results; None if not stored."""
    headline: Callable[[Any], str]
    """The verdict in one sentence."""
    blocks: Callable[..., Iterable[Block]]
    """What a terminal shows of a document, by ViewOptions."""
    page: Callable[..., Iterable[Block]]
    """The same in sections and with charts, by ViewOptions."""
    numbers: Callable[..., Table]
    """Every number, in base units and unrounded; of Results also those of several."""
    title: Callable[[Any], str]
    """The title of its page."""
    brief: Callable[[Any], str]
    """Its line in a list."""
    columns: tuple[str, ...] = ()
    """Columns that `numbers` may lack, as not every document of this kind has them."""
    formats: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    """Suffix of a file to what writes it, where no reporter does or this kind has its own."""
    configurations_title: Callable[[Any, Sequence[str]], str] | None = None
    """The title of a page of configurations that were chosen by name; None of a kind that has none."""


def plain_kind(
    document: type[Document],
    blocks: Callable[[Any], Iterable[Block]],
    *,
    encode: Callable[..., bytes],
    command: str = "",
    formats: Mapping[str, Callable[[Any], str]] | None = None,
) -> DocumentKind:
    """Return the kind of a document that has no more views than its blocks, and is not read back."""

    def show(document: Any, _: object = None) -> Iterable[Block]:
        return blocks(document)

    headline = partial(_first_notice, blocks)
    return DocumentKind(
        name=document.KIND, document=document, encode=encode, command=command, headline=headline, blocks=show,
        page=show, numbers=partial(_first_table, blocks), title=headline, brief=headline,
        formats=formats or {},
    )  # fmt: skip


def _first_notice(blocks: Callable[[Any], Iterable[Block]], document: Any) -> str:
    """Return the first sentence of a document; empty if it has none."""
    return next((block.text for block in blocks(document) if isinstance(block, Notice)), "")


def _first_table(blocks: Callable[[Any], Iterable[Block]], document: Any) -> Table:
    """Return the first table of a document, or else a table of what it says."""
    shown = tuple(blocks(document))
    notices = [(str(block.severity), block.code, block.text) for block in shown if isinstance(block, Notice)]
    tables = (block for block in shown if isinstance(block, Table))
    return next(tables, None) or make_table("", ("severity", "code", "text"), notices)
