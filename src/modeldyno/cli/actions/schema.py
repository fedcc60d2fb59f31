"""What ``modeldyno schema`` does."""

from __future__ import annotations

import json

import click

from modeldyno.base import codec
from modeldyno.cli.actions import job_schema
from modeldyno.sweeps import schema as sweeps_schema

SCHEMAS = {"result": codec.schema, "sweep": sweeps_schema.schema, "job": job_schema.job_schema}
"""Besides that of a job of one command."""


def run(document: str) -> None:
    """Print a JSON Schema."""
    schema = SCHEMAS[document]() if document in SCHEMAS else job_schema.command_schema(document)
    click.echo(json.dumps(schema, indent=2))
