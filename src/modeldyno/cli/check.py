"""``modeldyno check``."""

from __future__ import annotations

from typing import Any

import click

from modeldyno.cli import gate_options
from modeldyno.cli import options as cli_options
from modeldyno.comparison.gate import check_stored, find_baseline, find_result
from modeldyno.core.comparison.gate_report import GateReport
from modeldyno.core.metrics.constraints import Constraint
from modeldyno.errors import RequestError
from modeldyno.profiling.run import judge_result


@click.command(name="check", cls=gate_options.BoundsCommand)
@click.argument("result")
@cli_options.require_option()
@gate_options.gate_options
@click.option("-q", "--quiet", is_flag=True, help="Print the verdict only.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Check RESULT without measuring: exit 0 if it passes, 1 if it fails, 5 if that is undecided.

    RESULT is a JSON file, or an id (or prefix, or tag) of the store. RESULT and its baseline were measured at
    different times, so only a change larger than the drift of a machine fails the gate; a smaller one is
    undecided. To decide it, run modeldyno profile --baseline, which measures both in turns.
    """
    required, notes = gate_options.expand_bounds(options["require"])
    constraints = tuple(map(Constraint.parse, required))
    if not constraints and options["baseline"] is None:
        raise RequestError("Nothing to check; give bounds with --require, or a result with --baseline.")
    gate_options.check_baseline(ctx)
    gate_options.check_output_paths(options)
    question = gate_options.compare_options_from(options)
    candidate = find_result(options["result"])
    outcome = judge_result(candidate, constraints)
    report = GateReport(result=outcome.result)
    if options["baseline"] is not None:
        report = check_stored(find_baseline(options["baseline"], candidate.name), candidate, question)
    report = gate_options.with_judgements(report, outcome).with_notes(*notes)
    gate_options.write_verdict(report, options)
    gate_options.print_verdict(report, quiet=options["quiet"])
    ctx.exit(gate_options.exit_code(report))
