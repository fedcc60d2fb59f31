"""``modeldyno plugins``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from modeldyno import plugins
from modeldyno.errors import MissingExtra, UnknownName

if TYPE_CHECKING:
    from modeldyno.core.knob import Knob


@click.command(name="plugins")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """List what is installed; with the NAME of a backend, its knobs."""
    if name is not None:
        if name not in plugins.names("backend"):
            raise UnknownName.among("backend", name, plugins.names("backend"))
        for knob in plugins.backend(name).knobs:
            click.echo(_described(knob))
        return
    for kind in plugins.KINDS:
        click.echo(f"{kind}s")
        for plugin in plugins.names(kind):
            click.echo(f"  {plugin:<14}{_state(kind, plugin)}".rstrip())


def _described(knob: Knob) -> str:
    default = "" if knob.default is None else f" (default {str(knob.default).lower()})"
    aliases = f", also {', '.join(knob.aliases)}" if knob.aliases else ""
    return f"{knob.name}{aliases}: {knob.span()}{default}\n    {knob.sentence}"


def _state(kind: str, name: str) -> str:
    try:
        requires = getattr(plugins.resolve(kind, name), "requires", ())
    except MissingExtra as error:
        return str(error)
    absent = tuple(module for module in requires if find_spec(module) is None)
    return plugins.missing(absent, kind) if absent else ""
