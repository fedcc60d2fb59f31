"""SVG: one chart as a picture that is sharp at every size, for a README, a page or a slide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.kinds import kind_of
from modeldyno.base.views.view_options import ViewOptions
from modeldyno.reports import drawing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.report.blocks import Block
    from modeldyno.base.report.charts import Picture
    from modeldyno.base.result.result import Result

suffix = ".svg"


def check_tools() -> None:
    """Look for Matplotlib.

    Raises:
        MissingExtra: it is not installed.
    """
    drawing.check_tools()


def render(document: Result, *, judgements: Sequence[Judgement] = ()) -> bytes:
    """Draw the first chart of a Result; its first sentence if it has none."""
    kind = kind_of(document)
    options = ViewOptions(judgements=tuple(judgements), knobs=plugins.knobs)
    return lay_out(kind.page(document, options), title=kind.headline(document))


def lay_out(blocks: Iterable[Block], *, title: str, foot: str = "") -> bytes:
    """Draw the first chart of blocks, or the title if there is none; a picture has no foot."""
    del foot
    return drawing.draw_first(blocks, title, "svg")


def draw(chart: Picture, *, title: str) -> bytes:
    """Draw a chart; the title says of what it is."""
    return drawing.draw(chart, "svg", title)
