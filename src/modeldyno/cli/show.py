"""``modeldyno show``."""

from __future__ import annotations

import math
from typing import Any

import click

from modeldyno.cli.output import (
    draw,
    find,
    find_any,
    listened,
    look_options,
    print_blocks,
    print_json,
    print_study,
)
from modeldyno.core.goal import Answer, Constraint
from modeldyno.core.measurement import Interval
from modeldyno.core.metric import Query
from modeldyno.core.study import Study
from modeldyno.errors import RequestError
from modeldyno.measure import judged
from modeldyno.views import Look, memory_changed


@click.command(name="show")
@click.argument("result")
@click.option(
    "--get",
    "query",
    metavar="QUERY",
    help="One number in base units: latency.p99, latency.p99.ci, throughput.",
)
@click.option(
    "--require", multiple=True, metavar="BOUND", help="Judge it: exit 1 when broken, 5 when undecided."
)
@click.option(
    "--baseline", metavar="RESULT", help="Show instead what has changed in memory at the peak since this one."
)
@click.option("--json", "as_json", is_flag=True, help="Print the document.")
@look_options
@click.option("-v", "--verbose", is_flag=True, help="Print every measurement of the whole.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Show RESULT: a JSON file, or an id (or prefix, or tag) of the store; of a sweep, its study."""
    asked = None if options["query"] is None else Query.parse(options["query"])
    constraints = tuple(map(Constraint.parse, options["require"]))
    if options["baseline"] is not None and (asked or constraints or options["as_json"]):
        raise RequestError("--baseline goes with none of --get, --require and --json; ask for one at a time.")
    found = find_any(options["result"])
    if isinstance(found, Study):
        _refuse(options)
        print_study(found, as_json=options["as_json"])
        return
    if asked is not None:
        answer = found.ask(asked)
        click.echo(number(answer))
        if answer.value is None and asked.part is None:
            click.echo(f"modeldyno: {answer.why}", err=True)
    elif options["as_json"]:
        print_json(found)
    elif options["baseline"] is not None:
        changed = memory_changed(find(options["baseline"]), found)
        with listened():
            print_blocks(*changed)
    else:
        outcome = judged(found, constraints)
        verbose = options["verbose"]
        look = Look(depth=options["depth"], sort=options["sort"], filter=options["filter"], verbose=verbose)
        with listened():
            draw(outcome.result, outcome.judgements, look, verbose=verbose)
        ctx.exit(outcome.exit_code if constraints else 0)


def _refuse(options: dict[str, Any]) -> None:
    """Refuse what is asked of a result only."""
    asked = {"--get": options["query"], "--require": options["require"], "--baseline": options["baseline"]}
    if wrong := [flag for flag, value in asked.items() if value]:
        raise RequestError(
            f"{', '.join(wrong)} is asked of a result, and this is a study; take modeldyno sweep --rerank, "
            "or show the result of a trial."
        )


def number(answer: Answer) -> str:
    """Write an answer for a script: one number, or the two ends of its interval; ``null`` where none is."""
    if answer.query.part == "ci":
        interval = answer.interval or (
            answer.bounds() if answer.exact else Interval(low=-math.inf, high=math.inf)
        )
        return f"{_plain(interval.low)} {_plain(interval.high)}"
    return _plain(answer.value)


def _plain(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "null"
    return str(value) if isinstance(value, int) else f"{value:.12g}"
