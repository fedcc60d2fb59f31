"""``modeldyno import``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modeldyno.cli import options as cli_options
from modeldyno.cli.output_options import Places, keeping_options, verdict
from modeldyno.cli.printing import draw, listened
from modeldyno.core.metrics.constraints import Constraint
from modeldyno.documents import import_
from modeldyno.profiling.run import judged


@click.command(name="import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from", "tool", metavar="TOOL", help="Who wrote it: aiperf, guidellm, perf_analyzer, vllm.")
@cli_options.bounds()
@keeping_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Read what another load generator has measured, and keep it as results.

    FILE is one that AIPerf, GuideLLM, perf_analyzer or vLLM's bench has written; its content tells which.
    What its definitions have otherwise than ours is told as doubts.
    """
    constraints = tuple(map(Constraint.parse, options["require"]))
    places = Places.of(options)
    outcomes = [judged(found, constraints) for found in import_.read(options["file"], options["tool"])]
    if len(outcomes) > 1:
        places.refuse_report(f"{options['file']} tells of {len(outcomes)} loads, and a report is of one")
    problem = places.keep(*outcomes)
    if not places.silent:
        with listened():
            if options["quiet"] or len(outcomes) > 1:
                for outcome in outcomes:
                    click.echo(f"{outcome.result.id}  {verdict(outcome)}")
            else:
                draw(outcomes[0].result, outcomes[0].judgements)
            places.told()
    if problem is not None:
        raise problem
    ctx.exit(max(outcome.exit_code for outcome in outcomes))
