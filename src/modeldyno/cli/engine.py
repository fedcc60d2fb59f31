"""``modeldyno engine``."""

from __future__ import annotations

import click

from modeldyno.cli import actions


@click.group(name="engine", no_args_is_help=True)
def command() -> None:
    """Install serving engines without Docker, each into its own environment."""


@command.command(name="install")
@click.argument("name")
@click.option(
    "--with", "options", multiple=True, metavar="WHAT", help="Optional part to install, such as torch."
)
def _install_engine(name: str, options: tuple[str, ...]) -> None:
    """Install the engine NAME: triton, torchserve, mlserver or openai.

    An interrupted installation is resumed. The environment variable MODELDYNO_ENGINES sets the directory.
    """
    actions.engine.install_engine(name, options)


@command.command(name="list")
def _list_engines() -> None:
    """List the installed engines, with versions and sizes."""
    actions.engine.list_engines()


@command.command(name="path")
@click.argument("name")
def _print_path(name: str) -> None:
    """Print the directory of the engine NAME; removing it uninstalls it."""
    actions.engine.print_path(name)
