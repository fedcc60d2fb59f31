"""What ``modeldyno plugins`` does."""

from __future__ import annotations

import shutil
import textwrap
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from modeldyno import plugins
from modeldyno.core.metrics.metric import METRICS
from modeldyno.errors import MissingExtra, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.core.spec.knob import Knob

_METRICS = "metrics"
_USES = {
    "loader": "MODEL is NAME:LOCATOR, or a path that one of them recognises",
    "backend": "--backend NAME; its knobs: modeldyno plugins NAME",
    "probe": "--probe NAME,...",
    "store": "MODELDYNO_STORE=NAME://...",
    "strategy": "sweep --strategy NAME",
    "importer": "import --from NAME",
    "exporter": "export --to NAME:TARGET",
}
"""How a kind of plugin is selected."""
_NARROWEST, _WIDEST = 60, 110


def run(name: str | None) -> None:
    """List plugins, the knobs of a backend, or the metrics."""
    kinds = {plugins.plural(kind): kind for kind in plugins.KINDS}
    backends = plugins.names("backend")
    if name is None:
        for index, kind in enumerate(plugins.KINDS):
            click.echo("\n" * bool(index), nl=False)
            _list_kind(kind)
    elif name in kinds:
        _list_kind(kinds[name])
    elif name == _METRICS:
        METRICS.complete()
        for row in METRICS.values():
            _write_entry(row.name, (row.sentence,))
    elif name in backends:
        for knob in plugins.backend(name).knobs:
            _write_knob(knob)
    else:
        raise UnknownName.among("backend or kind of plugin", name, (*backends, *kinds, _METRICS))


def _list_kind(kind: str) -> None:
    use = _USES.get(kind, "")
    click.echo(plugins.plural(kind) + (f"  ({use})" if use else ""))
    for name in plugins.names(kind):
        _write_entry(name, _describe(kind, name))


def _describe(kind: str, name: str) -> Iterable[str]:
    """Describe a plugin: its summary, the packages it lacks, and the knobs of a backend."""
    try:
        plugin = plugins.resolve(kind, name)
        yield plugins.describe(kind, name)
    except MissingExtra as error:
        yield str(error)
        return
    missing = tuple(module for module in getattr(plugin, "requires", ()) if find_spec(module) is None)
    if missing:
        yield f"Not usable yet: {plugins.install_command(missing)}"
    if kind == "backend" and plugin.knobs:
        yield f"knobs: {', '.join(knob.name for knob in plugin.knobs)}"


_INDENT = 18


def _write_entry(name: str, texts: Iterable[str]) -> None:
    lines = [line for text in texts for line in textwrap.wrap(text, _width() - _INDENT)]
    label = f"  {name}"
    if len(label) >= _INDENT:  # a long name has a line of its own
        click.echo(label)
        label = ""
    for line in lines or [""]:
        click.echo(f"{label:<{_INDENT}}{line}".rstrip())
        label = ""


def _write_knob(knob: Knob) -> None:
    default = "" if knob.default is None else f" (default {str(knob.default).lower()})"
    aliases = f", also {', '.join(knob.aliases)}" if knob.aliases else ""
    head = f"{knob.name}{aliases}: {knob.span()}{default}"
    click.echo("\n".join(textwrap.wrap(head, _width(), subsequent_indent="  ")))
    click.echo(textwrap.fill(knob.sentence, _width(), initial_indent="    ", subsequent_indent="    "))


def _width() -> int:
    return min(_WIDEST, max(_NARROWEST, shutil.get_terminal_size((80, 24)).columns))
