"""``modeldyno import``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modeldyno.cli import options as cli_options
from modeldyno.cli.output_options import OutputTargets, result_output_options, verdict_line
from modeldyno.cli.printing import ignore_broken_pipe, print_result
from modeldyno.core.metrics.constraints import Constraint
from modeldyno.documents import import_
from modeldyno.profiling.run import judge_result


@click.command(name="import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--from", "tool", metavar="TOOL", help="Tool that wrote it: aiperf, guidellm, perf_analyzer, vllm."
)
@cli_options.require_option()
@result_output_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Import measurements of another load generator, and store them as results.

    FILE was written by AIPerf, GuideLLM, perf_analyzer or vLLM's bench; which one is detected from its
    content. Where its metrics are defined differently, the result has a doubt.
    """
    constraints = tuple(map(Constraint.parse, options["require"]))
    targets = OutputTargets.of(options)
    outcomes = [
        judge_result(result, constraints) for result in import_.read(options["file"], options["tool"])
    ]
    if len(outcomes) > 1:
        targets.refuse_report(f"{options['file']} has {len(outcomes)} loads, and a report shows one")
    problem = targets.keep(*outcomes)
    if not targets.silent:
        with ignore_broken_pipe():
            if options["quiet"] or len(outcomes) > 1:
                for outcome in outcomes:
                    click.echo(f"{outcome.result.id}  {verdict_line(outcome)}")
            else:
                print_result(outcomes[0].result, outcomes[0].judgements)
            targets.told()
    if problem is not None:
        raise problem
    ctx.exit(max(outcome.exit_code for outcome in outcomes))
