"""What ``modeldyno schema`` does."""

from __future__ import annotations

import json

import click

from modeldyno import codec
from modeldyno.sweeps import schema as sweeps_schema

SCHEMAS = {"result": codec.schema, "sweep": sweeps_schema.schema}


def run(document: str) -> None:
    """Print a JSON Schema."""
    click.echo(json.dumps(SCHEMAS[document](), indent=2))
