"""``modeldyno run``."""

from __future__ import annotations

import click

from modeldyno.cli.declare import declare


@declare("run", context_settings={"allow_interspersed_args": False})
@click.option(
    "--json",
    "json_path",
    metavar="PATH",
    help="Save the measurements as a JSON document; of jobs: a directory, with a document for each.",
)
@click.option(
    "--ops",
    is_flag=True,
    help="Follow the whole SCRIPT: its wall time by line, its operators, what it could do without (torch).",
)
@click.argument("script", metavar="SCRIPT|JOBS.yaml [ARGS]...")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="")
def command() -> None:
    """Run SCRIPT as Python would, and report time and memory of its @profiled functions at the end.

    The script's own output, exit code and errors are unchanged; the tables go to standard error.

    Of a file JOBS.yaml each job is run, with the options that follow it. JOBS.yaml#2 is its second job,
    JOBS.yaml#3- are all from the third.
    """
