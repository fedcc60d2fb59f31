"""What ``modeldyno import`` does."""

from __future__ import annotations

from typing import Any

import click

from modeldyno.cli.actions.output_options import OutputTargets, verdict_line
from modeldyno.cli.actions.printing import ignore_broken_pipe, print_result
from modeldyno.core.metrics.constraints import Constraint
from modeldyno.documents import import_
from modeldyno.profiling.run import judge_result


def run(**options: Any) -> int:
    """Import the measurements of a file, and report them; return the exit code."""
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
            targets.print_saved(problem)
    if problem is not None:
        raise problem
    return max(outcome.exit_code for outcome in outcomes)
