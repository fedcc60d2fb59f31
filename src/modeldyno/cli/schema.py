"""``modeldyno schema``."""

from __future__ import annotations

import click

from modeldyno.cli import defaults
from modeldyno.cli.declare import declare

_DOCUMENTS = tuple(dict.fromkeys((*defaults.SCHEMAS, *defaults.JOB_COMMANDS)))


@declare("schema")
@click.argument(
    "document", type=click.Choice(_DOCUMENTS), default="result", metavar="[result|sweep|job|COMMAND]"
)
def command() -> None:
    """Print a JSON Schema: of a result, a sweep file, a file of jobs, or a job of a COMMAND."""
