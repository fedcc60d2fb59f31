"""``modeldyno plugins``."""

from __future__ import annotations

import click

from modeldyno.cli import actions
from modeldyno.cli.help_pages import HelpCommand


@click.command(name="plugins", cls=HelpCommand)
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """List the installed plugins, the knobs of a backend, or all metrics.

    NAME is a kind of plugin (probes), a backend (onnxruntime), or metrics.
    """
    actions.plugins.run(name)
