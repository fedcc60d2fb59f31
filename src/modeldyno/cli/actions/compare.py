"""What ``modeldyno compare`` does."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.progress import Progress
from modeldyno.base.result.result import Result
from modeldyno.base.stats.schedule import QUICK, RoundSchedule
from modeldyno.base.views.text import format_rough_duration
from modeldyno.cli.actions import options as cli_options
from modeldyno.cli.actions.output_options import OutputTargets, report_hint, requested_optimizer
from modeldyno.comparison import codec as codec_comparison
from modeldyno.comparison.change.build import CompareOptions, parse_smallest_effects
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.explain import run_comparison
from modeldyno.comparison.operands import resolve_operands
from modeldyno.comparison.run import any_failed, build_comparison
from modeldyno.comparison.views import blocks as comparison_blocks
from modeldyno.conversion.request import make_output_check
from modeldyno.engine.runtime.session import open_run_session
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.profiling import request
from modeldyno.profiling.run import BROKEN, FAILED, INTERRUPTED, OK, UNDECIDED, JudgedResult
from modeldyno.profiling.views import ViewOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.base.job.job import Job
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.comparison.change.comparison import Comparison


def run(**options: Any) -> int:
    """Compare models or results, and report it; return the exit code."""
    asked_time = options["max_time"]
    if options["quick"]:
        options = _with_quick_look(options)
    limit = TimeLimit.begin(asked_time if options["max_time"] == asked_time else QUICK.longest)
    criteria = CompareOptions(
        metrics=cli_options.split_names(options["metrics"]),
        smallest=parse_smallest_effects(options["smallest"]),
        force=options["force"],
        why=not options["no_why"],
        outputs=make_output_check(options["tolerance"], options["verify"]),
    )
    cli_options.check_order(options, "min_rounds", "max_rounds")
    operands = resolve_operands(_requests(options), run=options["run"])
    targets = OutputTargets.of(options, of_results=False)
    turns = RoundSchedule(
        side_count=len(operands),
        first=min(options["min_rounds"], options["max_rounds"]),
        most=options["max_rounds"],
        max_time=options["max_time"],
        block=options["block"],
    )
    stored = [side for side in operands if isinstance(side, Result)]
    if stored:
        comparison_result, interrupted = build_comparison(stored, criteria), False
    else:
        jobs = [side for side in operands if not isinstance(side, Result)]
        comparison_result, interrupted = _run(jobs, turns, criteria, options, limit)
        store_comparison(comparison_result, targets)
    is_stored = targets.store and not stored
    report_comparison(
        comparison_result,
        targets,
        everything=options["everything"],
        quiet=options["quiet"],
        kept=is_stored,
        quick=options["quick"],
    )
    return INTERRUPTED if interrupted else exit_code(comparison_result, options["fail_on"])


def _with_quick_look(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with those of a quick look in place of those that were not typed."""
    ctx = click.get_current_context()
    quick = {
        "min_rounds": QUICK.min_rounds,
        "max_rounds": QUICK.max_rounds,
        "max_time": QUICK.max_time,
        "probes": QUICK.probes,
        "no_why": not QUICK.why,
        "run_time": QUICK.plan.max_time,
        "min_time": QUICK.plan.min_time,
    }
    typed = {name for name in quick if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    return {**options, **{name: value for name, value in quick.items() if name not in typed}}


def _requests(options: Mapping[str, Any]) -> list[request.Request]:
    """Build one request per side; they differ only in the model, its own knobs and its own inputs."""
    plan = {**options, "max_time": options["run_time"]}
    shared = cli_options.request_from_options(
        options,
        model="",
        probes=cli_options.split_names(options["probes"]),
        plan=cli_options.plan_from_options(plan),
        inspection=request.make_inspection(
            mode=options["mode"], optimizer=requested_optimizer(), modules=False
        ),
        observation=ProbeOptions(
            **cli_options.functions_from_options(options), **cli_options.evaluation_from_options(options)
        ),
    )
    own_settings = [request.parse_settings(options[name]) for name in ("baseline_set", "candidate_set")]
    own_inputs = [options[name] for name in ("baseline_input", "candidate_input")]
    models = (options["baseline"], options["candidate"], *options["more"])
    return [
        replace(
            shared,
            model=model,
            settings=_merge_settings(shared.settings, own_settings[min(index, 1)]),
            inputs=(*options["inputs"], *own_inputs[min(index, 1)]),
        )
        for index, model in enumerate(models)
    ]


def _merge_settings(shared: Mapping[str, KnobValue], own: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    if duplicates := shared.keys() & own.keys():
        raise RequestError(f"{min(duplicates)} is set for both sides and for one of them; remove one.")
    return {**shared, **own}


def _run(
    jobs: Sequence[Job],
    turns: RoundSchedule,
    criteria: CompareOptions,
    options: Mapping[str, Any],
    limit: TimeLimit | None,
) -> tuple[Comparison, bool]:
    """Run the models in turns; return the comparison, and whether it was interrupted."""
    with (
        Progress(quiet=options["quiet"], longest=None if limit is None else limit.seconds) as progress,
        open_run_session(progress.watch, limit) as bench,
    ):
        longest = format_rough_duration(turns.max_time or inf)
        within = (
            f"{longest} (--max-time)"
            if limit is None or limit.seconds == turns.max_time
            else f"{longest} or after one"
        )
        progress.announce(
            f"Comparing in up to {turns.most} rounds of {len(jobs)} fresh processes, within {within}."
        )
        result = run_comparison(jobs, turns, criteria, bench)
    interrupted = bool(bench.interrupted())
    if result is None:
        raise KeyboardInterrupt if interrupted else RunFailed("No round was completed.")
    return result, interrupted


def exit_code(result: Comparison, fail_on: str | None) -> int:
    """Return the exit code; only ``--fail-on`` makes a verdict fail."""
    if any_failed(result):
        return FAILED
    outcomes = {contrast.outcome for contrast in result.contrasts}
    if fail_on is None:
        return OK
    if ChangeVerdict.WORSE in outcomes:
        return BROKEN
    return UNDECIDED if ChangeVerdict.UNDECIDED in outcomes else OK


def store_comparison(comparison: Comparison, targets: OutputTargets) -> None:
    """Store the Results of both sides, and the comparison."""
    for result in comparison.results:
        targets.store_only(JudgedResult(result=result))
    targets.store_conclusion(comparison)


def report_comparison(
    comparison: Comparison,
    targets: OutputTargets,
    *,
    everything: bool,
    quiet: bool,
    kept: bool,
    quick: bool = False,
) -> None:
    """Write and print a comparison, with `everything` also what is equal in both; `kept` is in the store."""
    problem = targets.write_both(comparison, codec_comparison.encode(comparison))
    if quick and not everything:
        blocks = comparison_blocks.quick_blocks(comparison)
    else:
        blocks = comparison_blocks.blocks(comparison, ViewOptions(verbose=everything))
    hints = [report_hint(comparison, "compared.html")] if kept and not quiet else []
    targets.print_report(blocks[:1] if quiet else blocks, hints=hints, problem=problem)
