"""``modeldyno schema``."""

from __future__ import annotations

import click

from modeldyno.cli import actions, defaults


@click.command(name="schema")
@click.argument("document", type=click.Choice(defaults.SCHEMAS), default="result")
def command(document: str) -> None:
    """Print the JSON Schema of DOCUMENT: a result, or a sweep file."""
    actions.schema.run(document)
