"""``modeldyno engine``."""

from __future__ import annotations

import click

from modeldyno.cli.declare import declare


@click.group(name="engine", no_args_is_help=True)
def command() -> None:
    """Install serving engines without Docker, each into its own environment."""


@declare("install", "engine.install_engine", within=command)
@click.argument("name")
@click.option(
    "--with", "options", multiple=True, metavar="WHAT", help="Optional part to install, such as torch."
)
def _install_engine() -> None:
    """Install the engine NAME: triton, torchserve, mlserver or openai.

    An interrupted installation is resumed. The environment variable MODELDYNO_ENGINES sets the directory.
    """


@declare("list", "engine.list_engines", within=command)
def _list_engines() -> None:
    """List the installed engines, with versions and sizes."""


@declare("path", "engine.print_path", within=command)
@click.argument("name")
def _print_path() -> None:
    """Print the directory of the engine NAME; removing it uninstalls it."""
