"""What ``modeldyno inspect`` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from modeldyno.base.errors import InputRefused, RequestError
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.progress import Progress
from modeldyno.base.stats.schedule import name_refusing_side
from modeldyno.cli.actions.options import request_from_options
from modeldyno.cli.actions.output_options import OutputTargets, requested_optimizer, verdict_line
from modeldyno.cli.actions.printing import ignore_broken_pipe, print_blocks, print_result
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.profiling import views
from modeldyno.profiling.request import make_inspection
from modeldyno.profiling.run import INTERRUPTED, run_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.errors import ModelDynoError
    from modeldyno.base.result.result import Result
    from modeldyno.profiling.request import Request, ResolvedRequest
    from modeldyno.profiling.run import JudgedResult


def run(**options: Any) -> int:
    """Analyse a model or two, and report it; return the exit code."""
    own_inputs = [options["baseline_input"], options["candidate_input"]]
    if any(own_inputs) and options["other"] is None:
        raise RequestError(
            "--baseline-input and --candidate-input need two models; name the second one with --compare."
        )
    requests = [_request(options, options["model"], options["name"], own_inputs[0])]
    if options["other"] is not None:
        requests.append(_request(options, options["other"], None, own_inputs[1]))
    targets = OutputTargets.of(options)
    resolved = [
        each.resolve() for each in requests
    ]  # find a mistake in the second before analysing the first
    limit = TimeLimit.begin(options["max_time"])
    with Progress(quiet=options["quiet"]) as progress:
        outcomes = list(_measure_all(resolved, progress, limit))
    code = max(outcome.exit_code for outcome in outcomes)
    if len(outcomes) > 1 and not options["table"]:
        _compare([outcome.result for outcome in outcomes], targets, options)
        return code
    problem = targets.keep(*outcomes)
    with ignore_broken_pipe():
        _print_outcomes(outcomes, targets, options, problem)
    if problem is not None:
        raise problem
    return code


def _request(
    options: Mapping[str, Any], model: str, name: str | None, own_inputs: tuple[str, ...]
) -> Request:
    return request_from_options(
        options,
        model=model,
        inputs=(*options["inputs"], *own_inputs),
        probes=("static",),
        plan=Plan(timeout=options["timeout"], memory_limit=options["memory_limit"]),
        inspection=make_inspection(
            mode=options["mode"],
            optimizer=requested_optimizer(),
            vary=options["vary"],
            devices=options["devices"],
            memory=options["memory"],
        ),
        name=name,
    )


def _measure_all(
    requests: Sequence[ResolvedRequest], progress: Progress, limit: TimeLimit | None
) -> Iterator[JudgedResult]:
    for side, model_request in enumerate(requests):
        try:
            outcome = run_request(model_request, watch=progress.watch, limit=limit)
        except InputRefused as error:
            if len(requests) == 1:
                raise
            jobs = [each.job for each in requests]
            raise InputRefused(name_refusing_side(str(error), side, jobs)) from error
        yield outcome
        if outcome.exit_code == INTERRUPTED:
            return


def _compare(results: Sequence[Result], targets: OutputTargets, options: Mapping[str, Any]) -> None:
    """Compare the Results of two models, and store and report the comparison."""
    from modeldyno.cli.actions import compare  # only --compare needs them
    from modeldyno.comparison.change.build import CompareOptions
    from modeldyno.comparison.run import build_comparison

    comparison = build_comparison(results, CompareOptions())
    compare.store_comparison(comparison, targets)
    compare.report_comparison(
        comparison,
        targets,
        everything=options["verbose"],
        quiet=options["quiet"],
        kept=targets.store,
    )


def _print_outcomes(
    outcomes: Sequence[JudgedResult],
    targets: OutputTargets,
    options: Mapping[str, Any],
    problem: ModelDynoError | None,
) -> None:
    """Print the verdict, the requested table, or the whole report."""
    results = [outcome.result for outcome in outcomes]
    if targets.silent:
        return
    if options["quiet"]:
        click.echo("\n".join(map(verdict_line, outcomes)))
        return
    if options["table"]:
        print_blocks(views.summary(results))
    else:
        view_options = views.ViewOptions(
            depth=options["depth"],
            sort=options["sort"],
            filter=options["filter"],
            verbose=options["verbose"],
        )
        print_result(results[0], view=view_options, verbose=options["verbose"])
    targets.print_saved(problem)
