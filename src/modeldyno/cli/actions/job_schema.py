"""The JSON Schema of a job file: the options of each command, as the command line declares them."""

from __future__ import annotations

from functools import cache
from typing import Any

import click

from modeldyno.cli import COMMANDS, cli
from modeldyno.cli.defaults import NEVER_IN_FILES
from modeldyno.cli.job_file import takes_job_files
from modeldyno.profiling.job_file import COMMAND, JOBS, MATRIX
from modeldyno.sweeps.schema import KEYS as SWEEP_KEYS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SWEEP = "sweep"
_TEXT = {"type": ["string", "number"]}
_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_MAPPING = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}


@cache
def job_commands() -> tuple[str, ...]:
    """Return the commands that a job can be of."""
    ctx = click.Context(cli)
    return tuple(name for name in COMMANDS if name == _SWEEP or takes_job_files(_command(ctx, name)))


def command_schema(name: str) -> dict[str, Any]:
    """Return the schema of a file that holds one job of a command, or several in a matrix."""
    return {"$schema": _DIALECT, "title": f"ModelDyno job: {name}", **_job_of(name)}


def job_schema() -> dict[str, Any]:
    """Return the schema of a file of jobs of any commands."""
    of_command = [
        {
            "if": {"properties": {COMMAND: {"const": name}}, "required": [COMMAND]},
            "then": {"$ref": f"#/$defs/{name}"},
        }
        for name in job_commands()
    ]
    job = {"type": "object", "properties": {COMMAND: {"enum": list(job_commands())}}, "allOf": of_command}
    return {
        "$schema": _DIALECT,
        "title": "ModelDyno jobs",
        "$defs": {**{name: _job_of(name) for name in job_commands()}, "job": job},
        "if": {"required": [JOBS]},
        "then": {"properties": {JOBS: {"type": "array", "minItems": 1, "items": {"type": "object"}}}},
        "else": {"$ref": "#/$defs/job", "required": [COMMAND]},
    }


def _job_of(name: str) -> dict[str, Any]:
    if name == _SWEEP:
        properties = dict(SWEEP_KEYS)
    else:
        properties = dict(map(_property, filter(_is_key, _command(click.Context(cli), name).params)))
    matrix = {"type": "object", "description": "Keys and their values; a job for each combination."}
    return {
        "type": "object",
        "properties": {COMMAND: {"const": name}, **properties, MATRIX: matrix},
        "additionalProperties": False,
    }


def _command(ctx: click.Context, name: str) -> click.Command:
    command = cli.get_command(ctx, name)
    assert command is not None
    return command


def _is_key(parameter: click.Parameter) -> bool:
    """Return whether a file can have this option; those that are eager print and exit."""
    if set(parameter.opts) & {*NEVER_IN_FILES, "--model-path"}:
        return False
    return not parameter.is_eager or parameter.name == "batch_size"


def _property(parameter: click.Parameter) -> tuple[str, dict[str, Any]]:
    """Return the key of an option or an argument, and what it takes."""
    if isinstance(parameter, click.Argument):
        return str(parameter.name), _TEXTS if parameter.nargs == -1 else _TEXT
    assert isinstance(parameter, click.Option)
    flag = next(text for text in parameter.opts if text.startswith("--"))
    return flag.removeprefix("--").replace("-", "_"), {**_shape(parameter), "description": parameter.help}


def _shape(option: click.Option) -> dict[str, Any]:
    if option.is_flag:
        return {"type": "boolean"}
    if option.name == "settings":
        return {"anyOf": [_MAPPING, *_TEXTS["anyOf"]]}
    if isinstance(option.type, click.Choice):
        return {"enum": list(option.type.choices)}
    if option.multiple:
        return dict(_TEXTS)
    return {"type": "integer"} if isinstance(option.type, click.IntRange) else dict(_TEXTS)
