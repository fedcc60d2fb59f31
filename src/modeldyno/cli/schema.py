"""``modeldyno schema``."""

from __future__ import annotations

import json

import click

from modeldyno import wire


@click.command(name="schema")
def command() -> None:
    """Print the JSON Schema of a result."""
    click.echo(json.dumps(wire.schema(), indent=2))
