"""Output options (--json, -o, --tag, --no-store) of the commands that measure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from modeldyno.cli import defaults, quantity_callback
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable


def result_output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of where a result is stored and written, and how much is printed."""
    options = (
        click.option("--tag", "tags", multiple=True, help="Tag the stored result."),
        click.option("--json", "json_path", metavar="PATH|-", help="Save the JSON document, or print it."),
        click.option("-o", "--output", metavar="FILE", help="Also write a report: .html .pdf .md .csv .json"),
        click.option("--no-store", is_flag=True, help="Do not store the result."),
        click.option("-q", "--quiet", is_flag=True, help="Print the verdict only."),
    )
    for option in reversed(options):
        command = option(command)
    return command


_LEAST_MEMORY = 64 * 2**20
"""Bytes that a child process needs at least."""


def _parse_memory(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    number: int | None = quantity_callback("B")(ctx, parameter, value)
    if number is not None and number < _LEAST_MEMORY:
        bare = str(value).strip().isdecimal()
        hint = f"it was read as bytes; write {value}GiB" if bare else "a child process needs at least 64 MiB"
        raise RequestError(f"{parameter.opts[0]} {value} is too little: {hint}.")
    return number


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that limit a child process."""
    command = click.option(
        "--memory-limit", callback=_parse_memory, help="Memory limit of a child process, such as 2GiB."
    )(command)
    return click.option(
        "--timeout", callback=quantity_callback("s"), help="Time limit of a child process, such as 10m."
    )(command)


def module_view_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select the modules to show."""
    options = (
        click.option("--depth", type=click.IntRange(min=0), help="Levels of modules to show."),
        click.option(
            "--sort",
            type=click.Choice(defaults.MODULE_ORDERS),
            default="order",
            show_default=True,
            help="Order of modules.",
        ),
        click.option("--filter", metavar="TEXT", default="", help="Only modules with TEXT in path or class."),
    )
    for option in reversed(options):
        command = option(command)
    return command
