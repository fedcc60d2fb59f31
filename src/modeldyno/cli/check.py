"""``modeldyno check``."""

from __future__ import annotations

from typing import Any

import click

from modeldyno.cli import actions, gate_options
from modeldyno.cli import options as cli_options
from modeldyno.cli.output_options import QUIET


@click.command(name="check", cls=gate_options.BoundsCommand)
@click.argument("result")
@cli_options.require_option()
@gate_options.gate_options
@QUIET
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Check RESULT without measuring: exit 0 if it passes, 1 if it fails, 5 if that is undecided.

    RESULT is a JSON file, or an id (or prefix, or tag) of the store. RESULT and its baseline were measured at
    different times, so only a change larger than the drift of a machine fails the gate; a smaller one is
    undecided. To decide it, run modeldyno profile --baseline, which measures both in turns.
    """
    actions.check.run(ctx, options)
