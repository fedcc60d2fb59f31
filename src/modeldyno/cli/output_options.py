"""Output options (--json, -o, --tag, --no-store) of the commands that measure."""

from __future__ import annotations

import click

from modeldyno.cli import defaults
from modeldyno.cli.options import combine_options

JSON = click.option("--json", "json_path", metavar="PATH|-", help="Save the JSON document, or print it.")
NO_STORE = click.option("--no-store", is_flag=True, help="Do not store the result.")
QUIET = click.option("-q", "--quiet", is_flag=True, help="Print the verdict only.")
REPORTS = click.option(
    "-o", "--output", "reports", multiple=True, metavar="FILE",
    help="Also write a report: .html .pdf .md .csv .json; several times for several.",
)  # fmt: skip
RESULT_OUTPUT = combine_options(
    click.option("--tag", "tags", multiple=True, help="Tag the stored result."),
    JSON,
    REPORTS,
    NO_STORE,
    QUIET,
)
"""Where a result is stored and written, and how much is printed."""
MODULE_VIEW = combine_options(
    click.option("--depth", type=click.IntRange(min=0), help="Levels of modules to show."),
    click.option(
        "--sort", type=click.Choice(defaults.MODULE_ORDERS), default="order", show_default=True,
        help="Order of modules.",
    ),
    click.option("--filter", metavar="TEXT", default="", help="Only modules with TEXT in path or class."),
)  # fmt: skip
"""The modules to show."""
