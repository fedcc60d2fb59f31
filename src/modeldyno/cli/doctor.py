"""``modeldyno doctor``."""

from __future__ import annotations

import click

from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare
from modeldyno.cli.output_options import RESULT_OUTPUT


@declare("doctor")
@click.argument("model", required=False)
@cli_options.time_option("--budget", "2m", "Time budget of a gate, in which twelve processes must fit.")
@cli_options.repeatable(
    "--max-regression", "regressions", "[METRIC=]SIZE",
    "Largest allowed regression of a candidate, such as 5%; 3% by default.",
)  # fmt: skip
@cli_options.BACKEND
@cli_options.KNOBS
@cli_options.INPUTS
@cli_options.NAME
@cli_options.TRUST
@RESULT_OUTPUT
def command() -> None:
    """Run MODEL against itself to see how often a gate would be wrong here, and what it can detect.

    Without MODEL, a small built-in network is used. The result is stored with the tag doctor; modeldyno
    profile --baseline quotes its figures.
    """
