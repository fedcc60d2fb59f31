"""What ``modeldyno profile`` does."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from modeldyno.base.errors import ModelDynoError, RequestError
from modeldyno.base.job.probe_options import ProbeOptions, parse_token_counts
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.measurement_plan import LENGTHS
from modeldyno.base.progress import Progress
from modeldyno.base.stats.schedule import PLAN
from modeldyno.base.views.text import format_rough_duration
from modeldyno.cli.actions import gate_options
from modeldyno.cli.actions import options as cli_options
from modeldyno.cli.actions.output_options import OutputTargets, requested_optimizer, verdict_line
from modeldyno.cli.actions.printing import ignore_broken_pipe, print_blocks, print_hint, print_result
from modeldyno.comparison.baseline import find_baseline, is_checkout, measure_checkout, possible_names
from modeldyno.comparison.change.gate_report import GateReport
from modeldyno.comparison.change.gate_rule import GateRule
from modeldyno.comparison.gate import run_gate as measure_gate
from modeldyno.engine.runtime.session import open_run_session
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.engine.trace.carbon import Emission
from modeldyno.profiling import request
from modeldyno.profiling.run import INTERRUPTED, OK, UNDECIDED, JudgedResult, judge_result, run_request
from modeldyno.serving.loadtest.replicas import CostOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def run(**options: Any) -> int:
    """Measure a model, perhaps against a baseline, and report it; return the exit code."""
    ctx = click.get_current_context()
    model = gate_options.selected_model(options)
    if options["baseline"] and ctx.get_parameter_source("max_time") is ParameterSource.DEFAULT:
        options = {**options, "max_time": PLAN.max_time}
    require, notes = gate_options.expand_bounds(options["require"])
    planned = CostOptions.parse(None, options["price"])
    model_request = cli_options.request_from_options(
        options,
        model=model,
        probes=cli_options.split_names(options["probes"]),
        require=require,
        plan=cli_options.plan_from_options(options),
        inspection=request.make_inspection(
            mode=options["mode"], optimizer=requested_optimizer(), modules=False
        ),
        observation=ProbeOptions(
            layers=cli_options.split_list(options["layers"]),
            prompts=parse_token_counts(options["prompt"], "--prompt"),
            generated=parse_token_counts(options["generate"], "--generate"),
            trace=options["trace"] and str(Path(options["trace"]).absolute()),
            outputs=options["outputs"] and str(Path(options["outputs"]).absolute()),
            **cli_options.functions_from_options(options),
            **cli_options.evaluation_from_options(options),
        ),
        emission=Emission.parse(options["carbon"], options["power"]),
        price=planned.price,
    )
    for flag, given in (("--carbon", model_request.emission), ("--price", planned.price)):
        if given is not None and options["baseline"] is not None:
            raise RequestError(f"{flag} is of one result; drop it, or --baseline.")
    gate_options.check_baseline()
    gate_options.check_output_paths(options)
    tags = (*options["tags"], *gate_options.baseline_tags(options))
    targets = OutputTargets.of({**options, "tags": tags})
    if options["baseline"] is not None:
        sources = {ctx.get_parameter_source(name) for name in LENGTHS}
        as_long = sources <= {None, ParameterSource.DEFAULT}
        return profile_against_baseline(model_request, targets, options, notes, as_long=as_long)
    with Progress(quiet=options["quiet"]) as progress:
        outcome = run_request(model_request, in_process=options["inline"], watch=progress.watch)
    report = GateReport(
        result=outcome.result,
        judgements=outcome.judgements,
        undecided=gate_options.undecided_from(options),
    )
    provided = planned.of_result(outcome.result)
    further = _gate_files(report, outcome, options)
    problem = replace(targets, derived=provided.derived()).keep(outcome, further=further)
    print_outcome(outcome, targets, options, problem, notes)
    if not (targets.silent or options["quiet"]):
        print_blocks(*provided.blocks())
    if problem is not None:
        raise problem
    return gate_options.exit_code(report) if outcome.exit_code == UNDECIDED else outcome.exit_code


def profile_against_baseline(
    model_request: request.Request,
    targets: OutputTargets,
    options: Mapping[str, Any],
    notes: tuple[str, ...],
    *,
    as_long: bool,
) -> int:
    """Measure against a baseline and report the verdict; return the exit code.

    Args:
        model_request: the candidate.
        targets: where the result goes.
        options: those of the command.
        notes: what to tell with the verdict.
        as_long: whether both are measured for as long as the baseline was.
    """
    limit = TimeLimit.begin(options["budget"], "budget")
    if options["inline"]:
        raise RequestError("A gate measures in fresh processes; drop --inline or --baseline.")
    criteria, resolved = gate_options.compare_options_from(options), model_request.resolve()
    job = resolved.job
    word = options["baseline"]
    stored = None if is_checkout(word) else find_baseline(word, *possible_names(job))
    display = Progress(quiet=options["quiet"], longest=options["budget"])
    with display as progress, open_run_session(progress.watch, limit) as bench:
        progress.announce(
            f"Measuring rounds of both models, within {format_rough_duration(options['budget'])} (--budget)."
        )
        report = measure_gate(
            measure_checkout(word, job, bench) if stored is None else stored,
            job,
            criteria,
            GateRule(),
            bench,
            max_time=options["budget"],
            as_long=as_long,
        )
    outcome = judge_result(report.result, resolved.constraints)
    report = replace(
        report.with_notes(*notes, *gate_options.error_rate_notes(report)),
        result=outcome.result,
        judgements=outcome.judgements,
        undecided=gate_options.undecided_from(options),
    )
    code = INTERRUPTED if bench.interrupted() else gate_options.exit_code(report)
    kept = code == OK and report.verdict is Verdict.HELD
    problem = (targets if kept else gate_options.without_baseline_tags(targets)).keep(
        outcome, further=_gate_files(report, outcome, options)
    )
    gate_options.print_verdict(report, targets, quiet=options["quiet"], problem=problem)
    return code


def _gate_files(
    report: GateReport, outcome: JudgedResult, options: Mapping[str, Any]
) -> tuple[Callable[[], None], ...]:
    """Return what writes the verdict and the output directory."""
    return (
        partial(gate_options.write_verdict, report, options),
        partial(gate_options.write_output_dir, outcome, options),
    )


def print_outcome(
    outcome: JudgedResult,
    targets: OutputTargets,
    options: Mapping[str, Any],
    problem: ModelDynoError | None,
    notes: tuple[str, ...] = (),
) -> None:
    """Print the report, unless standard output is reserved for the document."""
    if targets.silent:
        return
    with ignore_broken_pipe():
        for note in notes:
            click.echo(f"{note}.")
        if options["quiet"]:
            click.echo(verdict_line(outcome))
            return
        print_result(outcome.result, outcome.judgements, verbose=options["verbose"])
        print_hint(outcome.result)
        targets.print_saved(problem)
