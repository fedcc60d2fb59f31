"""``modeldyno trend``."""

from __future__ import annotations

import click

from modeldyno.cli import defaults, quantity_callback
from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare
from modeldyno.cli.output_options import JSON, QUIET


@declare("trend")
@click.argument("model")
@click.option("--metric", metavar="QUERY", help="Such as latency.p99; by default the typical latency.")
@click.option("--backend", help="Only results of this backend.")
@cli_options.KNOBS
@click.option(
    "--limit",
    type=click.IntRange(1, defaults.LONGEST_TREND),
    default=defaults.LONGEST_TREND,
    show_default=True,
    help="Number of newest results to use.",
)
@click.option(
    "--smallest",
    default="3%",
    show_default=True,
    callback=quantity_callback("1"),
    help="Smallest change that matters.",
)
@click.option("--fail-on-regression", is_flag=True, help="Exit 1 if a regression persists.")
@click.option(
    "--exec",
    "hook",
    metavar="COMMAND",
    help="Run COMMAND on a regression, with the JSON document on its standard input.",
)
@JSON
@click.option(
    "-o", "--output", metavar="FILE", help="Write a report with its chart: .html .pdf .md .csv .json"
)
@QUIET
def command() -> None:
    """Show the history of a metric of MODEL over the stored results: its levels and the steps between them.

    MODEL is a name of `modeldyno list`. A step that coincides with a change of the environment is not counted
    as a regression of the model.
    """
