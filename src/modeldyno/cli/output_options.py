"""Output options (--json, -o, --tag, --no-store) of the commands that measure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from modeldyno.cli import defaults

if TYPE_CHECKING:
    from collections.abc import Callable


JSON = click.option("--json", "json_path", metavar="PATH|-", help="Save the JSON document, or print it.")
NO_STORE = click.option("--no-store", is_flag=True, help="Do not store the result.")
QUIET = click.option("-q", "--quiet", is_flag=True, help="Print the verdict only.")


def result_output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of where a result is stored and written, and how much is printed."""
    options = (
        click.option("--tag", "tags", multiple=True, help="Tag the stored result."),
        JSON,
        click.option("-o", "--output", metavar="FILE", help="Also write a report: .html .pdf .md .csv .json"),
        NO_STORE,
        QUIET,
    )
    for option in reversed(options):
        command = option(command)
    return command


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
