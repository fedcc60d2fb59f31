"""Combine several documents into one page: a summary table, then one section per document."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.core.report.blocks import Block, Heading, Notice, Severity, Table, make_columns
from modeldyno.views.text import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The blocks of one document, with its title."""

    title: str
    blocks: tuple[Block, ...]


def combine_pages(pages: Sequence[Page]) -> Page:
    """Combine pages into one, with a table of their verdicts at the top."""
    names = [page.title for page in pages]
    return Page(
        title=f"{count(len(pages), 'document')}: {', '.join(names)}", blocks=tuple(_combined_blocks(pages))
    )


def _combined_blocks(pages: Sequence[Page]) -> Iterator[Block]:
    yield Notice(severity=Severity.VERDICT, text=f"{count(len(pages), 'document')}.")
    yield Table(
        title="",
        columns=make_columns("document", "verdict"),
        rows=tuple((page.title, _verdict(page)) for page in pages),
    )
    for page in pages:
        yield Heading(title=page.title)
        for block in page.blocks:
            yield replace(block, level=block.level + 1) if isinstance(block, Heading) else block


def _verdict(page: Page) -> str:
    texts = (block.text for block in page.blocks if isinstance(block, Notice))
    return next(texts, "")
