"""What ``modeldyno show`` does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.kinds import kind_of
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.result.result import Result
from modeldyno.cli.actions.options import split_list
from modeldyno.cli.actions.printing import print_blocks, print_document, print_result
from modeldyno.comparison.views.blocks import memory_diff_blocks
from modeldyno.engine.trace.carbon import Emission, with_carbon
from modeldyno.exchange.views.job_text import job_text
from modeldyno.profiling.run import judge_result
from modeldyno.profiling.views import ViewOptions
from modeldyno.profiling.views.findings import findings_of
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.load_curve import LoadCurve
from modeldyno.serving.loadtest.replicas import CostAnswer, CostOptions
from modeldyno.stores.catalog import caching_reader
from modeldyno.stores.lookup import find, find_any
from modeldyno.sweeps.study.study import Study

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.base.document import StoredDocument
    from modeldyno.base.metrics.constraints import Answer, Constraint


def run(**options: Any) -> int | None:
    """Show a document or a part of it; return the exit code of its bounds."""
    if options["baseline"] is not None and (options["query"] or options["require"] or options["as_json"]):
        raise RequestError("--baseline cannot be combined with --get, --require or --json; give one of them.")
    document = _find(options)
    planned = CostOptions.parse(options["demand"], options["price"])
    if options["configurations"] and not isinstance(document, Study):
        raise RequestError("--configuration applies to a study; STUDY#3 is the result of one configuration.")
    if options["as_job"]:
        click.echo(job_text(document, options["require"]), nl=False)
    elif isinstance(document, Result):
        return _print_result(document, planned, options)
    else:
        _print_other(document, planned, options)
    return None


def _print_result(document: Result, planned: CostOptions, options: Mapping[str, Any]) -> int | None:
    """Print a result or a part of it; return the exit code of its bounds."""
    query = options["query"]
    constraints = tuple(map(document.read_bound, options["require"]))
    if query is not None:
        answer = document.ask(query)
        click.echo(format_answer(answer))
        if answer.value is None and answer.query.part is None:
            click.echo(f"modeldyno: {spell_for_command_line(answer.why)}", err=True)
        if (metric := answer.query.metric) not in METRICS:
            text = f"There is no metric '{metric}' here; the number is as the document has it."
            click.echo(f"modeldyno: {text}", err=True)
    elif options["as_json"]:
        judgements = tuple(bound.judge(document.measurements) for bound in constraints)
        provided = _cost_answer(document, planned, constraints)
        derived = {"judgements": judgements} if judgements else {}
        print_document(codec.encode(document, **derived, **provided.derived()))
    elif options["as_findings"]:
        print_blocks(*findings_of(document, plugins.knobs(document.job.backend)))
    elif planned.is_set:
        print_blocks(*_cost_answer(document, planned, constraints).blocks())
    elif options["baseline"] is not None:
        print_blocks(*memory_diff_blocks(find(options["baseline"]), document))
    else:
        outcome = judge_result(document, constraints)
        verbose = options["verbose"]
        view_options = ViewOptions(
            depth=options["depth"], sort=options["sort"], filter=options["filter"], verbose=verbose
        )
        print_result(outcome.result, outcome.judgements, view_options, verbose=verbose)
        return outcome.exit_code if constraints else None
    return None


def _find(options: Mapping[str, Any]) -> StoredDocument:
    """Return the document; a result with its carbon, if that was asked for."""
    emission, document = Emission.parse(options["carbon"], options["power"]), find_any(options["result"])
    return with_carbon(document, emission) if emission and isinstance(document, Result) else document


def _cost_answer(result: Result, planned: CostOptions, constraints: Sequence[Constraint]) -> CostAnswer:
    """Compute replicas and costs of a result; raise if the number of replicas is unknown."""
    cost_answer = planned.of_result(result, constraints)
    if cost_answer.why:
        raise RequestError(cost_answer.why)
    return cost_answer


def _print_other(document: StoredDocument, planned: CostOptions, options: Mapping[str, Any]) -> None:
    """Print a document that is no Result, or its JSON; a load series with replicas and costs."""
    kind, series = kind_of(document), isinstance(document, LoadCurve | Capacity)
    flags = {
        "--get": "query", "--require": "require", "--baseline": "baseline", "--findings": "as_findings",
        "--carbon": "carbon",
    }  # fmt: skip
    flags |= {} if series else {"--demand": "demand", "--price": "price"}
    if refused := [flag for flag, name in flags.items() if options[name]]:
        noun = "load series" if series else kind.name
        instead = _INSTEAD.get(noun, "show one of its results")
        raise RequestError(f"{', '.join(refused)} applies to a result, and this is a {noun}; {instead}.")
    provided = planned.of_document(document) if isinstance(document, LoadCurve | Capacity) else CostAnswer()
    if options["as_json"]:
        print_document(kind.encode(document, **provided.derived()))
    else:
        view_options = ViewOptions(
            verbose=options["verbose"],
            configurations=split_list(",".join(options["configurations"])),
            load_result=caching_reader(),
        )
        print_blocks(*kind.blocks(document, view_options), *provided.blocks())


_INSTEAD = {"study": "use modeldyno sweep --rerank, or show the result of a trial"}


def format_answer(answer: Answer) -> str:
    """Format an answer for a script: a number, or the two ends of its interval; ``null`` for none."""
    if answer.query.part == "ci":
        interval = answer.interval or (
            answer.bounds() if answer.exact else Interval(low=-math.inf, high=math.inf)
        )
        return f"{_format_number(interval.low)} {_format_number(interval.high)}"
    return _format_number(answer.value)


def _format_number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "null"
    return str(value) if isinstance(value, int) else f"{value:.12g}"
