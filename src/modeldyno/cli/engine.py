"""``modeldyno engine``."""

from __future__ import annotations

import shutil

import click

from modeldyno.core.stats.units import BYTES, format_quantity


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
    from modeldyno.servers import install  # noqa: PLC0415 - --help needs none of it

    engine = install.install_server(name, options, lambda line: click.echo(f"  {line}", err=True))
    click.echo(f"{name}: {_format_versions(engine.versions)}")


@command.command(name="list")
def _list_engines() -> None:
    """List the installed engines, with versions and sizes."""
    from modeldyno.servers import install  # noqa: PLC0415 - --help needs none of it
    from modeldyno.servers.triton import CONTAINERS, find_other_tritonserver  # noqa: PLC0415

    for name, recipe in install.RECIPES.items():
        engine = install.find_installed(name)
        if engine is None:
            click.echo(f"{name:<12}not installed; modeldyno engine install {name}")
            continue
        size = format_quantity(install.directory_size(engine.folder), BYTES, 3)
        click.echo(f"{name:<12}{recipe.title}, {_format_versions(engine.versions)}; {size}")
    if foreign := find_other_tritonserver():
        click.echo(f"{'triton':<12}also {foreign}, not installed by modeldyno")
    for program in CONTAINERS:
        if found_at := shutil.which(program):
            click.echo(f"{program:<12}{found_at}")


@command.command(name="path")
@click.argument("name")
def _print_path(name: str) -> None:
    """Print the directory of the engine NAME; removing it uninstalls it."""
    from modeldyno.servers import install  # noqa: PLC0415 - --help needs none of it

    click.echo(install.require_installed(name).folder)


def _format_versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
