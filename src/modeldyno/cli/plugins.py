"""``modeldyno plugins``."""

from __future__ import annotations

import click

from modeldyno.cli.declare import declare


@declare("plugins")
@click.argument("name", required=False)
def command() -> None:
    """List the installed plugins, the knobs of a backend, or all metrics.

    NAME is a kind of plugin (probes), a backend (onnxruntime), or metrics.
    """
