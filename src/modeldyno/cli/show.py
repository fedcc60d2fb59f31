"""``modeldyno show``."""

from __future__ import annotations

from typing import Any

import click

from modeldyno.cli import actions
from modeldyno.cli import options as cli_options
from modeldyno.cli.help_pages import HelpCommand
from modeldyno.cli.output_options import module_view_options


@click.command(name="show", cls=HelpCommand)
@click.argument("result")
@click.option(
    "--get",
    "query",
    metavar="QUERY",
    help="One number in base units: latency.p99, latency.p99.ci, throughput.",
)
@click.option(
    "--require", multiple=True, metavar="BOUND", help="Judge the result: exit 1 if broken, 5 if undecided."
)
@click.option(
    "--baseline", metavar="RESULT", help="Show how the memory at the peak changed since this result."
)
@click.option("--findings", "as_findings", is_flag=True, help="Show the findings, with advice.")
@click.option(
    "--demand", help="For a load: number of replicas for this request rate within --require: 1000/s."
)
@click.option(
    "--price", help="Price of a replica, such as 1.20/h or '876 EUR/month': show what the work costs."
)
@cli_options.carbon_options
@click.option(
    "--configuration",
    "configurations",
    multiple=True,
    metavar="NAME,...",
    help="For a study: these configurations under each of their loads.",
)
@click.option(
    "--job", "as_job", is_flag=True, help="Print the YAML file that measures it again: --job > job.yaml."
)
@click.option("--json", "as_json", is_flag=True, help="Print the JSON document.")
@module_view_options
@click.option("-v", "--verbose", is_flag=True, help="Print everything: all figures, tables and advice.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Show RESULT: a JSON file, or an id (or prefix, or tag) of the store.

    It also shows a study, a comparison, a load curve, a conversion or the answer of --find-load.
    """
    actions.show.run(ctx, options)
