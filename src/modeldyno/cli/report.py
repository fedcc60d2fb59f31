"""``modeldyno report``."""

from __future__ import annotations

from typing import Any

import click

from modeldyno.cli import actions
from modeldyno.cli import options as cli_options
from modeldyno.cli.help_pages import HelpCommand


@click.command(name="report", cls=HelpCommand)
@click.argument("documents", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help=".html .pdf .md, only the numbers: .csv .json, or one chart: .svg .png",
)
@click.option("--chart", metavar="TITLE", help="The chart of a .svg or .png, by its title or a part of it.")
@cli_options.require_option("Bounds to judge the result by; shown with their verdicts.")
@click.option(
    "--configuration",
    "configurations",
    multiple=True,
    metavar="NAME,...",
    help="Of a study: only these configurations, in detail: text_3, 3 or default.",
)
@click.option(
    "--plot",
    "plots",
    multiple=True,
    metavar="x=QUERY,y=QUERY",
    help="Of a study: a chart of your own, such as x=latency.p99,y=throughput; x=concurrency.",
)
@click.option(
    "--pictures",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Write every chart of the document into DIR as .svg and .png, too.",
)
def command(**options: Any) -> None:
    """Write DOCUMENTS as a report, in the format of FILE's suffix; several go into one file.

    A document is a JSON file, the id or tag of a stored result, the name of a study, or the id of a
    comparison, a load curve, a search for the largest load or a conversion.
    """
    actions.report.run(options)
