"""What a reporter offers: documents in a format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.report.blocks import Block, Table
    from modeldyno.core.result.result import Result


class Reporter(Protocol):
    """Renders documents as text or bytes."""

    suffix: str
    """Suffix of the files that it writes, such as ``.csv``."""

    def render(self, document: Result, *, judgements: Sequence[Judgement] = ()) -> str | bytes:
        """Render a Result, with the verdicts on the requested bounds."""


@runtime_checkable
class LaysOut(Protocol):
    """A Reporter that can write any blocks, such as those of a comparison."""

    def lay_out(self, blocks: Iterable[Block], *, title: str) -> str | bytes:
        """Render blocks as a whole file; the title is used if the format has one."""


@runtime_checkable
class Tabulates(Protocol):
    """A Reporter that can also write a table of numbers, such as the trials of a study."""

    def table(self, block: Table) -> str:
        """Render a table with unrounded numbers."""


class DrawsInTerminal(Protocol):
    """The reporter ``terminal``."""

    def text(self, blocks: Iterable[Block]) -> str:
        """Lay out blocks as plain text of 80 columns."""

    def print_blocks(self, blocks: Iterable[Block], *, console: Console) -> None:
        """Print blocks on a console, in its width, colours and character set."""


class WritesHtml(Protocol):
    """The reporter ``html``."""

    def lay_out(self, blocks: Iterable[Block], *, title: str) -> str:
        """Render blocks as a page."""

    def fragment_of(self, blocks: Iterable[Block]) -> str:
        """Write blocks as a fragment without scripts, for a notebook."""
