"""What ``modeldyno plugins`` and ``plugins new`` do."""

from __future__ import annotations

import shlex
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modeldyno.base import plugins
from modeldyno.base.errors import UnknownName
from modeldyno.base.plugins import scaffold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.job.knob import Knob

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


def list(name: str | None) -> None:  # noqa: A001 - as its command
    """List plugins, the knobs of a backend, or the metrics."""
    kind = ""
    for row in plugins.list_plugins(name):
        if row.kind in plugins.KINDS and row.kind != kind:
            click.echo("\n" * bool(kind), nl=False)
            kind = row.kind
            use = _USES.get(kind, "")
            click.echo(plugins.plural(kind) + (f"  ({use})" if use else ""))
        if row.knob is None:
            _write_entry(row.name, row.sentences)
        else:
            _write_knob(row.knob)


def new(name: str, kinds: tuple[str, ...], folder: str | None) -> None:
    """Write a package of new plugins, and say how they are tried."""
    for kind in kinds:
        if kind not in plugins.KINDS:
            raise UnknownName.among("kind of plugin", kind, plugins.KINDS)
    written = scaffold.write_package(name, kinds, Path(folder or name))
    for path in written:
        click.echo(path)
    click.echo(
        f"\nNext: pip install -e {shlex.quote(folder or name)} pytest && pytest {shlex.quote(folder or name)}"
    )


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
