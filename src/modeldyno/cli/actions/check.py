"""What ``modeldyno check`` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.cli.actions import gate_options
from modeldyno.comparison.gate import check_stored, find_baseline, find_result
from modeldyno.core.comparison.gate_report import GateReport
from modeldyno.core.metrics.constraints import Constraint
from modeldyno.errors import RequestError
from modeldyno.profiling.run import judge_result

if TYPE_CHECKING:
    import click


def run(ctx: click.Context, options: dict[str, Any]) -> None:
    """Judge a saved result, and report it; exit with the code."""
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
