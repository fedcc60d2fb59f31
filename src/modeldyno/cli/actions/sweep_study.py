"""The actions of ``modeldyno sweep``: begin, resume and rerank a study, and print it."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.progress import Progress
from modeldyno.base.report.blocks import note
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.base.views.text import count, format_rough_duration
from modeldyno.cli.actions import sweep_dry_run
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.cli.actions.printing import print_blocks
from modeldyno.profiling.run import BROKEN, FAILED, INTERRUPTED, OK, UNDECIDED
from modeldyno.profiling.views import ViewOptions
from modeldyno.stores.lookup import find_study
from modeldyno.sweeps import build, config_export, loop
from modeldyno.sweeps import codec as codec_study
from modeldyno.sweeps.loop import run_study
from modeldyno.sweeps.resume import check_rerank, check_resume, rerank_stored, resume_study
from modeldyno.sweeps.study import study_progress, verification
from modeldyno.sweeps.study.ranking import Ranking, ranking
from modeldyno.sweeps.views import blocks as study_blocks
from modeldyno.sweeps.views.sweep_command import goal_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.yaml_file import FileConfig
    from modeldyno.sweeps.study.search_space import Axis
    from modeldyno.sweeps.study.study import Budget, Study


def begin(config: FileConfig, options: Mapping[str, Any]) -> int:
    """Start a study from its configuration and run it; return the exit code."""
    study, chosen_axes = build.build_study(config, trust=options["trust"])
    if options["dry_run"]:
        return sweep_dry_run.print_plan(study, chosen_axes)
    targets = check_targets(options)
    loop.check_study(study)  # find mistakes before printing or storing anything
    if not targets.silent and not options["quiet"]:
        print_blocks(note(_describe_start(study, chosen_axes, stored=targets.store)))
    return _run_study(study, targets, options)


def resume(config: FileConfig, options: Mapping[str, Any]) -> int:
    """Resume a study where it ended, perhaps with another budget; return the exit code.

    With another goal, it continues as a new study that has all trials of the first: the search goes on
    around the best configurations by the new goal, and nothing is measured twice.
    """
    targets = check_targets(options)
    if not targets.store:
        raise RequestError("--resume continues a study in the store; drop --no-store.")
    check_resume(config)
    return _run_study(resume_study(config, find_study(options["resume"])), targets, options)


def rerank(config: FileConfig, options: Mapping[str, Any]) -> int:
    """Rank a stored study by other goals without measuring; return the exit code."""
    targets = check_targets(options)
    check_rerank(config)
    stored = find_study(options["rerank"])
    study, unknown = rerank_stored(stored, config)
    code = report_study(study, targets, options)
    best = ranking(study).best
    if config.tree and best is not None and not best.verified and not targets.silent:
        goal = shlex.join(goal_words(study))
        name = shlex.quote(options["rerank"])
        click.echo(f"To continue the search and verify it: modeldyno sweep --resume {name} {goal}")
    if unknown and not targets.silent:
        click.echo(
            f"{unknown} of {len(study.measured)} trials lack a requested metric: their results are not in "
            "the store, or it was not measured.",
        )
    return code


# --- running ----------------------------------------------------------------------------------


def _run_study(study: Study, targets: OutputTargets, options: Mapping[str, Any]) -> int:
    """Run a study until it ends, and report it; return the exit code."""
    before = len(study.trials)
    with Progress(quiet=options["quiet"]) as progress:
        study, interrupted = run_study(
            study,
            store=targets.store,
            watch=progress.watch,
            force=options["force"],
            reuse=options["reuse"],
        )
    code = report_study(study, targets, options)
    if interrupted and targets.store and not targets.silent:
        click.echo(f"Interrupted; to continue: modeldyno sweep --resume {study.id[:6]}")
    elif not interrupted and not targets.silent:
        lead = "Nothing more was measured" if len(study.trials) == before else "It ended here"
        if len(study.trials) == before or _is_open(study):
            click.echo(f"{lead}: {_explain_end(study)}.")
    return INTERRUPTED if interrupted else code


def report_study(
    study: Study, targets: OutputTargets, options: Mapping[str, Any], *, quiet: bool = False
) -> int:
    """Store, write and print a study, unless `quiet`; return the exit code."""
    study_ranking = ranking(study)
    if targets.store and options["rerank"] is None:
        with plugins.store() as store:
            store.put_study(study, headline=study_blocks.brief(study, study_ranking))
    problem = targets.write_both(study, codec_study.encode(study, ranking=study_ranking))
    written = (
        config_export.export_configurations(
            study, study_ranking, Path(options["export_configs"]), options["top"]
        ).lines()
        if options["export_configs"]
        else ()
    )
    if not quiet:
        view_options = ViewOptions(top=options["top"], stored=targets.store)
        blocks = study_blocks.blocks(study, view_options, study_ranking)
        targets.print_report(
            islice(blocks, 1 if options["quiet"] else None),
            hints=(*written, *(() if options["quiet"] else _next_commands(study, targets))),
            problem=problem,
        )
    return exit_code(study, study_ranking)


def exit_code(study: Study, ranked: Ranking) -> int:
    """Return the exit code: whether a configuration holds the bounds, as far as the samples show.

    A certainty that was required and not reached is undecided too, as is one that leaves values untried.
    """
    if ranked.best is not None:
        least = study.budget.certain
        undecided = ranked.best.verdict is Verdict.UNDECIDED or (
            least is not None and not ranked.is_certain(least)
        )
        return UNDECIDED if undecided else OK
    succeeded = [row for row in ranked.rows if not row.failure]
    if not succeeded:
        return FAILED
    return BROKEN if all(row.verdict is Verdict.BROKEN for row in succeeded) else UNDECIDED


# --- outputs ------------------------------------------------------------------------------


def check_targets(options: Mapping[str, Any]) -> OutputTargets:
    """Check before measuring that the outputs can be stored and written."""
    targets = OutputTargets.of(options, of_results=False)
    if targets.tags:
        raise RequestError("A study has no tags; drop --tag, and name it with --name.")
    if options["export_configs"]:
        config_export.check_folder(Path(options["export_configs"]), overwrite=options["overwrite"])
    if options["export_configs"] and not targets.store:
        raise RequestError("--export-configs reads the configurations from stored results; drop --no-store.")
    return targets


def _is_open(study: Study) -> bool:
    """Return whether a study ended without a certain answer, so that its end needs a reason."""
    ranked = ranking(study)
    undecided = exit_code(study, ranked) == UNDECIDED
    return undecided or (ranked.best is not None and not ranked.is_certain(study.budget.enough))


def _explain_end(study: Study) -> str:
    """Explain why a study makes no further trial: its budget, or nothing left to learn; and what it takes."""
    budget = study.budget
    boundless = replace(study, budget=replace(budget, max_time=None, max_trials=None))
    if loop.next_trial(boundless, study.spent) is None:
        return "no remaining trial would make the answer more certain"
    if budget.max_trials is not None and len(study.measured) >= budget.max_trials:
        return f"the limit of {count(budget.max_trials, 'trial')} is reached; raise it with --max-trials"
    seconds = study_progress.mean_trial_seconds(study)
    spent, per_trial = (format_quantity(s, SECONDS, 2) for s in (study.spent, seconds))
    of_budget = "" if budget.max_time is None else f" of {format_quantity(budget.max_time, SECONDS, 3)}"
    enough = math.ceil(study.spent + (verification.RIVALS + 1) * seconds)
    return (
        f"{spent}{of_budget} are spent, earlier runs of the study included, and a trial takes about "
        f"{per_trial}; for another round of the best, give it --max-time {enough}s"
    )


# --- sentences ----------------------------------------------------------------------------------


def _describe_start(study: Study, chosen_axes: tuple[Axis, ...], *, stored: bool) -> str:
    """Describe what is varied, the goal and the budget, before the sweep starts."""
    axes = "; ".join(map(str, study.space.axes))
    lead = "Varying the usual knobs" if len(chosen_axes) == len(study.space.axes) else "Varying"
    default_names = ", ".join(axis.name for axis in chosen_axes)
    by_default = (
        f" ({default_names} by default)" if chosen_axes and len(chosen_axes) < len(study.space.axes) else ""
    )
    goal = ", ".join((*map(str, study.goal.objectives), *map(str, study.goal.constraints)))
    stored_as = f" as study {study.id}" if stored else ""
    return f"{lead}{by_default}{stored_as}: {axes}. Goal: {goal}. {_describe_budget(study.budget)}"


def _describe_budget(budget: Budget) -> str:
    """Describe the budget of a study."""
    time = [f"{format_rough_duration(budget.max_time)} (--max-time)"] if budget.max_time is not None else []
    trials = [f"{count(budget.max_trials, 'trial')} (--max-trials)"] if budget.max_trials is not None else []
    if not time and not trials:
        return "It ends when nothing more can be learned; --max-time sets a limit."
    return f"At most {', '.join((*time, *trials))}."


def _next_commands(study: Study, targets: OutputTargets) -> Iterator[str]:
    """Yield the commands that continue from a study."""
    if not targets.store:
        return
    name = study.id[:6]
    yield f"Study {study.id}; to show it again: modeldyno show {name}"
    yield f"One in detail: modeldyno report {name} --configuration 1,default -o FILE.html"
    yield f"Another goal: modeldyno sweep --rerank {name} --require 'latency.p99 <= 5ms'"
    yield from config_export.export_hint(study, name)
