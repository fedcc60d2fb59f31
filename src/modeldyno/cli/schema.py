"""``modeldyno schema``."""

from __future__ import annotations

import json

import click

from modeldyno import codec
from modeldyno.sweeps import schema as sweeps_schema

_SCHEMAS = {"result": codec.schema, "sweep": sweeps_schema.schema}


@click.command(name="schema")
@click.argument("document", type=click.Choice(list(_SCHEMAS)), default="result")
def command(document: str) -> None:
    """Print the JSON Schema of DOCUMENT: a result, or a sweep file."""
    click.echo(json.dumps(_SCHEMAS[document](), indent=2))
