"""``modeldyno advise``."""

from __future__ import annotations

import click

from modeldyno.cli import defaults, quantity_callback
from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare
from modeldyno.cli.output_options import JSON, QUIET


@declare("advise")
@click.argument("model")
@cli_options.BACKEND
@cli_options.KNOBS
@cli_options.INPUTS
@cli_options.EVALUATION
@click.option(
    "--metric",
    default="throughput",
    show_default=True,
    help="Such as throughput, latency.p50 or cost.",
)
@click.option("--price", help="Price of this machine, such as 1.20/h, for what inferences cost.")
@cli_options.time_option("--max-time", "3m", "Time limit of the whole command, loading included.")
@cli_options.run_time_option("2s")
@click.option(
    "--tolerance", default=defaults.TOLERANCE, show_default=True, callback=quantity_callback("1", zero=True),
    help="Largest accepted difference of the outputs, relative to the largest output.",
)  # fmt: skip
@click.option("--findings-only", is_flag=True, help="Try only what the findings suggest.")
@cli_options.plan_options("max_time", "processes", "percentiles", min_time="0.3s")
@cli_options.NAME
@cli_options.TRUST
@JSON
@QUIET
def command() -> None:
    """Try optimizations of MODEL and report what helped, how surely, and how the outputs change.

    The model is profiled first. Each setting that a finding suggests, and each usual one of its backend, is
    then measured in turns with the unchanged model, in fresh processes; those that help are combined and
    measured together.
    """
