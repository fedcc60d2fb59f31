"""``modeldyno verify``."""

from __future__ import annotations

from typing import Any

import click

from modeldyno.cli import actions
from modeldyno.cli.help_pages import HelpCommand
from modeldyno.cli.output_options import JSON, QUIET


@click.command(name="verify", cls=HelpCommand)
@click.argument("document")
@JSON
@QUIET
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Recompute every figure, verdict and doubt of DOCUMENT from its samples: exit 0 if it holds, else 1.

    DOCUMENT is a JSON file, or an id (or prefix, or tag) of the store: a result, a study, a comparison, a
    load series. What it keeps without samples cannot be recomputed, and is named. Its digest says whether it
    was changed after it was written.
    """
    actions.verify.run(ctx, options)
