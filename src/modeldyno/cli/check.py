"""``modeldyno check``."""

from __future__ import annotations

from typing import Any

import click

from modeldyno.cli import asking, gating
from modeldyno.core.checked import Checked
from modeldyno.core.goal import Constraint
from modeldyno.errors import RequestError
from modeldyno.gates import baseline_of, checked, find_result
from modeldyno.measure import judged


@click.command(name="check", cls=gating.Bounded)
@click.argument("result")
@asking.bounds()
@gating.gate_options
@click.option("-q", "--quiet", is_flag=True, help="Print the verdict only.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Judge RESULT, without measuring: exit 0 when it holds, 1 when it does not, 5 when that is undecided.

    RESULT is a JSON file, or an id (or prefix, or tag) of the store. A result that was measured at another
    time than its baseline breaks the gate only by more than a machine changes in between; what may be less is
    undecided, and modeldyno profile --baseline, which measures both in turns, decides it.
    """
    required, notes = gating.bounds(options["require"])
    constraints = tuple(map(Constraint.parse, required))
    if not constraints and options["baseline"] is None:
        raise RequestError("Nothing to check; give bounds with --require, or a result with --baseline.")
    gating.check_baseline(ctx)
    gating.check_places(options)
    asked = gating.question(options)
    candidate = find_result(options["result"])
    outcome = judged(candidate, constraints)
    found = Checked(result=outcome.result)
    if options["baseline"] is not None:
        found = checked(baseline_of(options["baseline"], candidate.name), candidate, asked)
    found = gating.with_judgements(found, outcome).with_notes(*notes)
    gating.write(found, options)
    gating.tell(found, quiet=options["quiet"])
    ctx.exit(gating.exit_code(found))
