"""``modeldyno import``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modeldyno.cli import actions
from modeldyno.cli import options as cli_options
from modeldyno.cli.output_options import result_output_options


@click.command(name="import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "tool",
    metavar="TOOL",
    help="Its tool: aiperf, guidellm, loadgen, perf_analyzer, vllm.",
)
@cli_options.require_option()
@result_output_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Import measurements of another load generator, and store them as results.

    FILE was written by AIPerf, GuideLLM, MLPerf LoadGen, perf_analyzer or vLLM's bench; which one is detected
    from its content. Where its metrics are defined differently, the result has a doubt.
    """
    actions.import_.run(ctx, options)
