"""What a reporter offers: documents in a format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from modeldyno.base.plugins.contract import overrides
from modeldyno.base.report.blocks import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.report.blocks import Block, Table
    from modeldyno.base.report.charts import Picture
    from modeldyno.base.result.result import Result


class Content(StrEnum):
    """What the files of a reporter hold, beside a Result."""

    RESULTS = "results"
    """Nothing else."""
    PAGES = "pages"
    """Any blocks, such as those of a comparison: `Reporter.lay_out`."""
    TABLES = "tables"
    """A table of numbers, such as the trials of a study: `Reporter.table`."""
    CHART = "chart"
    """One chart: `Reporter.draw`, and `Reporter.lay_out` for the first of several blocks."""


class Reporter(ABC):
    """Renders documents as text or bytes."""

    suffix: str
    """Suffix of the files that it writes, such as ``.csv``."""

    @property
    def content(self) -> Content:
        """What its files hold, by what it has."""
        if overrides(self.draw, Reporter.draw):
            return Content.CHART
        if overrides(self.table, Reporter.table):
            return Content.TABLES
        return Content.PAGES if overrides(self.lay_out, Reporter.lay_out) else Content.RESULTS

    @abstractmethod
    def render(self, document: Result, *, judgements: Sequence[Judgement] = ()) -> str | bytes:
        """Render a Result, with the verdicts on the requested bounds."""

    def check_tools(self) -> None:
        """Check that what it writes with is installed here, before anything is measured.

        Raises:
            MissingExtra: something is missing.
        """

    def lay_out(self, blocks: Iterable[Block], *, title: str, foot: str = "") -> str | bytes:
        """Render blocks as a whole file.

        The title is used if the format has one; the foot, which says of what and of when it is, if each sheet
        of it is printed with one.
        """
        raise NotImplementedError

    def table(self, block: Table) -> str:
        """Render a table with unrounded numbers."""
        raise NotImplementedError

    def draw(self, chart: Picture, *, title: str) -> bytes:
        """Draw a chart; the title names what it is of."""
        raise NotImplementedError


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
    library: str = ""
    """Name of the file that they load when the first chart comes into view; empty if there are none."""


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
