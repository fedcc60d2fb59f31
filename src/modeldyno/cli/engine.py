"""``modeldyno engine``."""

from __future__ import annotations

import shutil

import click

from modeldyno.core.stats.units import BYTES, format_quantity


@click.group(name="engine", no_args_is_help=True)
def command() -> None:
    """Install serving engines, each into an environment of its own, without Docker."""


@command.command(name="install")
@click.argument("name")
@click.option("--with", "options", multiple=True, metavar="WHAT", help="What is optional, such as torch.")
def _install(name: str, options: tuple[str, ...]) -> None:
    """Install the engine NAME: triton, torchserve, mlserver or openai.

    What was interrupted goes on where it stopped. The environment variable MODELDYNO_ENGINES says where to.
    """
    from modeldyno.servers import install  # noqa: PLC0415 - --help needs none of it

    found = install.install(name, options, lambda line: click.echo(f"  {line}", err=True))
    click.echo(f"{name}: {_versions(found.versions)}")


@command.command(name="list")
def _list() -> None:
    """Say which engines are installed, with their versions and size."""
    from modeldyno.servers import install  # noqa: PLC0415 - --help needs none of it
    from modeldyno.servers.triton import CONTAINERS, elsewhere  # noqa: PLC0415

    for name, recipe in install.RECIPES.items():
        found = install.find(name)
        if found is None:
            click.echo(f"{name:<12}not installed; modeldyno engine install {name}")
            continue
        taken = format_quantity(install.size(found.folder), BYTES, 3)
        click.echo(f"{name:<12}{recipe.title}, {_versions(found.versions)}; {taken}")
    if foreign := elsewhere():
        click.echo(f"{'triton':<12}also {foreign}, not installed by us")
    for program in CONTAINERS:
        if found_at := shutil.which(program):
            click.echo(f"{program:<12}{found_at}")


@command.command(name="path")
@click.argument("name")
def _path(name: str) -> None:
    """Print the directory of the engine NAME; removing it uninstalls it."""
    from modeldyno.servers import install  # noqa: PLC0415 - --help needs none of it

    click.echo(install.need(name).folder)


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
