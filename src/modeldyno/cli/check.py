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
    """Judge RESULT, without measuring: exit 0 when it holds, 1 when it does not, 5 when that is undecided.

    RESULT is a JSON file, or an id (or prefix, or tag) of the store. A result that was measured at another
    time than its baseline breaks the gate only by more than a machine changes in between; what may be less is
    undecided, and modeldyno profile --baseline, which measures both in turns, decides it.
    """
    required, notes = gate_options.bounds(options["require"])
    constraints = tuple(map(Constraint.parse, required))
    if not constraints and options["baseline"] is None:
        raise RequestError("Nothing to check; give bounds with --require, or a result with --baseline.")
    gate_options.check_baseline(ctx)
    gate_options.check_places(options)
    asked = gate_options.question(options)
    candidate = find_result(options["result"])
    outcome = judged(candidate, constraints)
    found = Checked(result=outcome.result)
    if options["baseline"] is not None:
        found = checked(baseline_of(options["baseline"], candidate.name), candidate, asked)
    found = gate_options.with_judgements(found, outcome).with_notes(*notes)
    gate_options.write(found, options)
    gate_options.tell(found, quiet=options["quiet"])
    ctx.exit(gate_options.exit_code(found))
