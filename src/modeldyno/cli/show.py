"""``modeldyno show``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from modeldyno import codec, plugins
from modeldyno.cli.help_pages import Command
from modeldyno.cli.printing import (
    draw,
    listened,
    look_options,
    print_blocks,
    print_contrast,
    print_document,
    print_study,
)
from modeldyno.cli.replica_options import Planned, Provided
from modeldyno.codec import series as codec_series
from modeldyno.core.comparison.comparison import Comparison
from modeldyno.core.load.capacity_spec import RATE
from modeldyno.core.load.load_curve import Ladder
from modeldyno.core.metrics.constraints import Answer, Constraint
from modeldyno.core.metrics.measurement import Interval
from modeldyno.core.metrics.metric import Query
from modeldyno.core.result.result import Result
from modeldyno.core.study.study import Study
from modeldyno.documents.lookup import find, find_any
from modeldyno.errors import RequestError
from modeldyno.profiling.run import judged
from modeldyno.views import Look, memory_changed
from modeldyno.views.advice.findings import findings_of
from modeldyno.views.load import page as load_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.comparison.saved_kinds import Conclusion
    from modeldyno.core.load.capacity import Capacity


@click.command(name="show", cls=Command)
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
@click.option("--findings", "as_findings", is_flag=True, help="Tell what may be done about what it shows.")
@click.option("--demand", help="Of a load: how many replicas so many requests take within --require: 1000/s.")
@click.option("--price", help="Of a replica, such as 1.20/h or '876 EUR/month': what the work costs.")
@click.option("--json", "as_json", is_flag=True, help="Print the document.")
@look_options
@click.option("-v", "--verbose", is_flag=True, help="Print all: every figure, table and advice.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Show RESULT: a JSON file, or an id (or prefix, or tag) of the store.

    A study, a comparison, a ladder of loads and the answer of --find-load are shown likewise.
    """
    asked = None if options["query"] is None else Query.parse(options["query"])
    constraints = tuple(map(Constraint.parse, options["require"]))
    if options["baseline"] is not None and (asked or constraints or options["as_json"]):
        raise RequestError("--baseline goes with none of --get, --require and --json; ask for one at a time.")
    found = find_any(options["result"])
    planned = Planned.of(options)
    if not isinstance(found, Result):
        _print_other(found, planned, options)
        return
    if asked is not None:
        answer = found.ask(asked)
        click.echo(number(answer))
        if answer.value is None and asked.part is None:
            click.echo(f"modeldyno: {answer.why}", err=True)
    elif options["as_json"]:
        judgements = tuple(bound.judge(found.measurements) for bound in constraints)
        provided = _provided(found, planned, constraints)
        derived = {"judgements": judgements} if judgements else {}
        with listened():
            print_document(codec.encode(found, **derived, **provided.derived()))
    elif options["as_findings"]:
        with listened():
            print_blocks(*findings_of(found, plugins.knobs(found.job.backend)))
    elif planned.asked:
        _provided(found, planned, constraints).tell()
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


def _provided(found: Result, planned: Planned, constraints: Sequence[Constraint]) -> Provided:
    """Say what a demand takes; who asks for that alone is told by an error where it is not known."""
    provided = planned.of_result(found, constraints)
    if provided.why:
        raise RequestError(provided.why)
    return provided


def _print_other(found: Study | Conclusion, planned: Planned, options: dict[str, Any]) -> None:
    """Print what is of several Results."""
    match found:
        case Study():
            _refuse(options, "a study; take modeldyno sweep --rerank, or show the result of a trial")
            print_study(found, as_json=options["as_json"])
        case Comparison():
            _refuse(options, "a comparison; show one of its results")
            print_contrast(found, as_json=options["as_json"], everything=options["verbose"])
        case _:
            _refuse(options, "of several loads; show one of its results", planned=True)
            _print_loads(found, planned, as_json=options["as_json"])


def _print_loads(found: Ladder | Capacity, planned: Planned, *, as_json: bool) -> None:
    """Print what several loads show, or their document."""
    knob = found.knob if isinstance(found, Ladder) else found.search.knob
    provided = planned.of_several(found, closed=knob != RATE)
    with listened():
        if as_json:
            print_document(codec_series.encode(found, **provided.derived()))
        else:
            print_blocks(*load_page.lines(found), *provided.blocks())


def _refuse(options: dict[str, Any], kind: str, *, planned: bool = False) -> None:
    """Refuse what is asked of a result only; a demand may be asked of loads, too."""
    asked = {
        "--get": options["query"],
        "--require": options["require"],
        "--baseline": options["baseline"],
        "--findings": options["as_findings"],
        "--demand": options["demand"] and not planned,
        "--price": options["price"] and not planned,
    }
    if wrong := [flag for flag, value in asked.items() if value]:
        raise RequestError(f"{', '.join(wrong)} is asked of a result, and this is {kind}.")


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
