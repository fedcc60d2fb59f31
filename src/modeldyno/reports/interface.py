"""What a reporter offers: documents in a format."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from modeldyno.base.report.blocks import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.report.blocks import Block, Table
    from modeldyno.base.report.charts import Picture
    from modeldyno.base.result.result import Result


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
class ChecksTools(Protocol):
    """A Reporter that writes with a program or a package that may not be there."""

    def check_tools(self) -> None:
        """Check that it can write here, before anything is measured.

        Raises:
            MissingExtra: something is missing.
        """


@runtime_checkable
class Tabulates(Protocol):
    """A Reporter that can also write a table of numbers, such as the trials of a study."""

    def table(self, block: Table) -> str:
        """Render a table with unrounded numbers."""


@runtime_checkable
class DrawsCharts(Protocol):
    """A Reporter whose files are pictures of one chart each."""

    def draw(self, chart: Picture, *, title: str) -> bytes:
        """Draw a chart; the title says of what it is."""

    def lay_out(self, blocks: Iterable[Block], *, title: str) -> bytes:
        """Draw the first chart of blocks, or the title if there is none."""


class DrawsInTerminal(Protocol):
    """The reporter ``terminal``."""

    def text(self, blocks: Iterable[Block]) -> str:
        """Lay out blocks as plain text of 80 columns."""

    def print_blocks(self, blocks: Iterable[Block], *, console: Console) -> None:
        """Print blocks on a console, in its width, colours and character set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLinks:
    """What the cells of tables lead to, where a page is one of many."""

    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Title of a column to the text of a cell to its address."""
    found_by: Mapping[str, str] = field(default_factory=dict)
    """Title of a column to that of another one whose text finds the address, such as that of the ids."""
    times: Collection[str] = ()
    """Titles of columns of times, UTC, which a browser may tell as how long ago they were."""
    faint: Collection[str] = ()
    """Titles of columns that only few readers need."""
    chips: Mapping[str, Severity] = field(default_factory=dict)
    """Text of a cell that is a state to what it means."""
    boxes: Mapping[str, str] = field(default_factory=dict)
    """Text of the first cell of a row, or of the one of `found_by`, to the value of its check box."""
    form: str = ""
    """Id of the form that the check boxes belong to."""
    box: str = ""
    """Name of the check boxes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlBody:
    """Blocks as elements, and what a page needs to show them."""

    elements: str
    """The blocks, within an element of class ``modeldyno``."""
    contents: str
    """A list of links to the sections; empty for fewer than two."""
    charts: str
    """The charts as JSON, safe within a script element; empty if there are none."""
    scripts: tuple[str, ...]
    """Names of the files of `page_files` that draw the charts and sort the tables, in their order."""


class WritesHtml(Protocol):
    """The reporter ``html``."""

    def write_body(self, blocks: Iterable[Block], links: TableLinks = ...) -> HtmlBody:
        """Write blocks for a page of a site, whose files are those of `page_files`."""

    def page_files(self) -> Mapping[str, str]:
        """Return the texts of the files that a page of a site needs: scripts, and ``report.css``."""

    def lay_out(self, blocks: Iterable[Block], *, title: str) -> str:
        """Render blocks as a page."""

    def fragment_of(self, blocks: Iterable[Block]) -> str:
        """Write blocks as a fragment without scripts, for a notebook."""
