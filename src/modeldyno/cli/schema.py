"""``modeldyno schema``."""

from __future__ import annotations

import click

from modeldyno.cli import actions, defaults

_DOCUMENTS = tuple(dict.fromkeys((*defaults.SCHEMAS, *defaults.JOB_COMMANDS)))


@click.command(name="schema")
@click.argument(
    "document", type=click.Choice(_DOCUMENTS), default="result", metavar="[result|sweep|job|COMMAND]"
)
def command(document: str) -> None:
    """Print a JSON Schema: of a result, a sweep file, a file of jobs, or a job of a COMMAND."""
    actions.schema.run(document)
