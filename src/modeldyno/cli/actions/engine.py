"""What ``modeldyno engine`` does."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from modeldyno.base.errors import RequestError
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.serving.servers import install
from modeldyno.serving.servers.triton import CONTAINERS, find_other_tritonserver, find_tritonserver


def install_engine(name: str, options: tuple[str, ...]) -> None:
    """Install an engine."""
    engine = install.install_server(name, options, lambda line: click.echo(f"  {line}", err=True))
    click.echo(f"{name}: {_format_versions(engine.versions)}")


def run_engine(name: str, command: tuple[str, ...]) -> None:
    """Replace this process by a command in the environment of an engine.

    Raises:
        MissingExtra: the engine is not installed.
        RequestError: it has no such command.
    """
    engine = install.require_installed(name)
    program, *arguments = command
    environment = {**os.environ, **engine.environment}
    if name == TRITON:
        server = find_tritonserver()
        environment |= server.environment
        environment["PATH"] = f"{Path(server.path).parent}{os.pathsep}{environment['PATH']}"
        if Path(program).name == Path(server.path).name and not any(_BACKENDS in word for word in arguments):
            arguments = [f"{_BACKENDS}={server.backends}", *arguments]
    path = shutil.which(program, path=environment["PATH"])
    if path is None:
        raise RequestError(f"{name} has no command '{program}'; its commands are in {engine.venv / 'bin'}.")
    sys.stdout.flush()
    os.execve(path, [path, *arguments], environment)  # noqa: S606 - the user's own command, without a shell


TRITON, _BACKENDS = "triton", "--backend-directory"


def list_engines() -> None:
    """List the installed engines."""
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


def print_path(name: str) -> None:
    """Print the directory of an engine."""
    click.echo(install.require_installed(name).folder)


def _format_versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
