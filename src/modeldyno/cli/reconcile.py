"""``modeldyno reconcile``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modeldyno.cli import actions
from modeldyno.cli.help_pages import HelpCommand
from modeldyno.cli.output_options import JSON, QUIET


@click.command(name="reconcile", cls=HelpCommand)
@click.argument("result")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
@click.option("--from", "tool", metavar="TOOL", help="Tool that wrote the files; else it is recognised.")
@JSON
@QUIET
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Say why other load generators report other times than RESULT, of one server under the same load.

    Each FILE was written by one that `modeldyno import` reads. The difference of each figure is split into
    the percentile rule, the warm-up, the moment from which time counts, and what is left.
    """
    actions.reconcile.run(ctx, options)
