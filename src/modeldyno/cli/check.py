"""``modeldyno check``."""

from __future__ import annotations

from typing import Any

import click

from modeldyno.cli import gate_options
from modeldyno.cli import options as cli_options
from modeldyno.comparison.gate import baseline_of, checked, find_result
from modeldyno.core.comparison.gate_report import Checked
from modeldyno.core.metrics.constraints import Constraint
from modeldyno.errors import RequestError
from modeldyno.profiling.run import judged


@click.command(name="check", cls=gate_options.Bounded)
@click.argument("result")
@cli_options.bounds()
@gate_options.gate_options
@click.option("-q", "--quiet", is_flag=True, help="Print the verdict only.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Check RESULT without measuring: exit 0 if it passes, 1 if it fails, 5 if that is undecided.

    RESULT is a JSON file, or an id (or prefix, or tag) of the store. RESULT and its baseline were measured at
    different times, so only a change larger than the drift of a machine fails the gate; a smaller one is
    undecided. To decide it, run modeldyno profile --baseline, which measures both in turns.
    """
    required, notes = gate_options.bounds(options["require"])
    constraints = tuple(map(Constraint.parse, required))
    if not constraints and options["baseline"] is None:
        raise RequestError("Nothing to check; give bounds with --require, or a result with --baseline.")
    gate_options.check_baseline(ctx)
    gate_options.check_places(options)
    question = gate_options.question(options)
    candidate = find_result(options["result"])
    outcome = judged(candidate, constraints)
    report = Checked(result=outcome.result)
    if options["baseline"] is not None:
        report = checked(baseline_of(options["baseline"], candidate.name), candidate, question)
    report = gate_options.with_judgements(report, outcome).with_notes(*notes)
    gate_options.write(report, options)
    gate_options.tell(report, quiet=options["quiet"])
    ctx.exit(gate_options.exit_code(report))
