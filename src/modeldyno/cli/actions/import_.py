"""What ``modeldyno import`` does."""

from __future__ import annotations

from typing import Any

from modeldyno.base import plugins
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.cli.actions.output_options import OutputTargets, verdict_line
from modeldyno.exchange import import_
from modeldyno.profiling.run import judge_result
from modeldyno.profiling.views import ViewOptions, overview


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
    brief = options["quiet"] or len(outcomes) > 1
    lines = (f"{outcome.result.id}  {verdict_line(outcome)}" for outcome in outcomes)
    blocks = overview(outcomes[0].result, ViewOptions(judgements=outcomes[0].judgements, knobs=plugins.knobs))
    targets.print_report(blocks, "\n".join(lines) if brief else "", problem=problem)
    return max(outcome.exit_code for outcome in outcomes)
