"""What ``modeldyno sweep`` does with a study: begins it, goes on with it, ranks it anew, and tells of it."""

from __future__ import annotations

import secrets
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno import codec, plugins
from modeldyno.cli import sweep_dry_run
from modeldyno.cli.output_options import Places
from modeldyno.cli.printing import listened, print_blocks
from modeldyno.cli.progress import Progress
from modeldyno.core.load import multi_model
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.report.blocks import Notice, Severity
from modeldyno.core.stats.units import SECONDS, format_quantity
from modeldyno.core.study import resume_guard
from modeldyno.core.study.goal import Rank
from modeldyno.core.study.ranking import Ranking, ranking
from modeldyno.core.study.rerank import reranked
from modeldyno.core.study.study import State
from modeldyno.documents.lookup import find_study
from modeldyno.documents.write import check, write
from modeldyno.errors import ModelDynoError, RequestError
from modeldyno.profiling.run import BROKEN, FAILED, INTERRUPTED, OK, UNDECIDED
from modeldyno.sweeps import build as told
from modeldyno.sweeps import export_configs, loop
from modeldyno.sweeps.run import carried_out
from modeldyno.sweeps.schema import GOALS
from modeldyno.views.study import blocks as laid_out
from modeldyno.views.text import count, lasting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.result.result import Result
    from modeldyno.core.study.search_space import Axis
    from modeldyno.core.study.study import Budget, Study
    from modeldyno.sweeps.yaml_file import Words


def begin(words: Words, options: dict[str, Any]) -> int:
    """Make a study of words, and carry it out; give the exit code."""
    study, chosen = told.study(words, trust=options["trust"])
    if options["dry_run"]:
        return sweep_dry_run.plan(study, chosen)
    places = _places(options)
    loop.check(study)  # a mistake is found before anything is said or kept
    if not places.silent and not options["quiet"]:
        with listened():
            print_blocks(Notice(severity=Severity.NOTE, text=_begun(study, chosen, stored=places.store)))
    return _measured(study, places, options)


def resume(words: Words, options: dict[str, Any]) -> int:
    """Go on with a study where it was left, perhaps with another budget; give the exit code.

    Under another goal it goes on as a study of its own, which has all trials of the first: what is best now
    is searched on and verified, and nothing is measured twice.
    """
    places = _places(options)
    if not places.store:
        raise RequestError("--resume goes on with a study in the store; leave --no-store away.")
    further = words.tree.keys() - {"budget", *GOALS}
    if further:
        raise RequestError(
            f"A study goes on as it was begun, so that {', '.join(sorted(further))} cannot change; only "
            "--max-time, --max-trials and --until can, and the goal."
        )
    study = find_study(options["resume"])
    if words.tree.keys() & GOALS:
        study, unknown = _reranked(study, words)
        if unknown and unknown == sum(trial.state is State.DONE for trial in study.measured):
            raise RequestError(
                f"No trial of study {study.id[:6]} tells {', '.join(map(str, study.goal.queries))}; "
                "begin a new sweep, which measures it."
            )
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        study = replace(study, id=secrets.token_hex(6), created=now)
    budget = told.budget(words, study.budget)
    return _measured(replace(study, budget=budget), places, options)


def rerank(words: Words, options: dict[str, Any]) -> int:
    """Rank a stored study under other goals, without measuring anything; give the exit code."""
    places = _places(options)
    further = words.tree.keys() - GOALS
    if further:
        raise RequestError(
            f"--rerank measures nothing, so that {', '.join(sorted(further))} would have no effect; "
            "it takes goals: --objective, --maximize, --minimize, --require, --rank."
        )
    found = find_study(options["rerank"])
    study, unknown = _reranked(found, words)
    code = _told(study, places, options)
    best = ranking(study).best
    if words.tree and best is not None and not best.verified and not places.silent:
        goal = " ".join(_typed(study))
        name = shlex.quote(options["rerank"])
        click.echo(f"To search on and verify it: modeldyno sweep --resume {name} {goal}")
    if unknown and not places.silent:
        click.echo(
            f"{unknown} of {len(study.measured)} trials do not tell all that is asked for: their results are "
            "not in the store, or it was not measured.",
        )
    return code


def _reranked(found: Study, words: Words) -> tuple[Study, int]:
    """Ask the results of a study for another goal; give it so, and how many trials do not tell all of it."""
    goal = told.goal_over(words, found.goal, found.job)
    with plugins.store() as store:

        def kept(identifier: str) -> Result | None:
            try:
                return store.get(identifier)
            except ModelDynoError:
                return None

        return reranked(found, goal, kept)


# --- carrying out ----------------------------------------------------------------------------------


def _measured(study: Study, places: Places, options: dict[str, Any]) -> int:
    """Measure until the end, and tell what came out."""
    before = len(study.trials)
    with Progress(quiet=options["quiet"]) as progress:
        study, interrupted = carried_out(
            study, store=places.store, watch=progress.watch, force=options["force"]
        )
    code = _told(study, places, options)
    if interrupted and places.store and not places.silent:
        click.echo(f"Interrupted; to go on: modeldyno sweep --resume {study.id[:6]}")
    elif len(study.trials) == before and not places.silent:
        click.echo(f"Nothing more was measured: {_why_over(study)}.")
    return INTERRUPTED if interrupted else code


def _told(study: Study, places: Places, options: dict[str, Any]) -> int:
    """Save a study where that was asked for, print what it found, and give the exit code."""
    ranked = ranking(study)
    if places.store and options["rerank"] is None:
        with plugins.store() as store:
            store.put_study(study, headline=laid_out.brief(study, ranked))
    places.write(codec.encode_study(study, ranking=ranked))
    if places.report:
        write(study, Path(places.report))
    written = (
        export_configs.export(study, ranked, Path(options["export_configs"]), options["top"])
        if options["export_configs"]
        else ()
    )
    if not places.silent:
        with listened():
            blocks = list(laid_out.study(study, ranked, top=options["top"], stored=places.store))
            print_blocks(*(blocks[:1] if options["quiet"] else blocks))
            for line in (*written, *(() if options["quiet"] else _further(study, places))):
                click.echo(line)
            places.told()
    return exit_code(ranked)


def exit_code(ranked: Ranking) -> int:
    """Give what a script is told: whether something holds the bounds, as far as the samples tell."""
    if ranked.best is not None:
        return UNDECIDED if ranked.best.verdict is Verdict.UNDECIDED else OK
    able = [row for row in ranked.rows if not row.failure]
    if not able:
        return FAILED
    return UNDECIDED if any(row.verdict is Verdict.UNDECIDED for row in able) else BROKEN


# --- where it is kept ------------------------------------------------------------------------------


def _places(options: dict[str, Any]) -> Places:
    """Find before measuring, not after, what cannot be kept or written."""
    places = Places.of(options)
    if places.tags:
        raise RequestError("A study has no tags; give it a name with --name, and leave --tag away.")
    if places.report:
        check(Path(places.report))
    if options["export_configs"]:
        export_configs.check_folder(Path(options["export_configs"]), overwrite=options["overwrite"])
    if options["export_configs"] and not places.store:
        raise RequestError(
            "--export-configs takes the configurations from the results of the trials; leave --no-store away."
        )
    return places


def _typed(study: Study) -> Iterator[str]:
    """Give the goal of a study as options of the command line."""
    own = str(study.job.name) if study.job.beside else ""
    for objective in study.goal.objectives:
        weight = f":{objective.weight:g}" if objective.weight != 1 else ""
        aim = f"{multi_model.told(objective.query, own)}{weight}"
        yield f"--{'maximize' if objective.maximize else 'minimize'} {aim}"
    bounds = (replace(bound, query=multi_model.told(bound.query, own)) for bound in study.goal.constraints)
    yield from (f"--require '{bound}'" for bound in bounds)
    yield from () if study.goal.rank is Rank.BEST else (f"--rank {study.goal.rank}",)


def _why_over(study: Study) -> str:
    """Say why a study takes no trial more: by its budget, or because none would teach anything."""
    budget = study.budget
    boundless = replace(study, budget=replace(budget, max_time=None, max_trials=None))
    if loop.next_ask(boundless, study.spent) is None:
        return "no trial that is left would make the answer more certain"
    if budget.max_trials is not None and len(study.measured) >= budget.max_trials:
        return f"all of {count(budget.max_trials, 'trial')} are made; allow more with --max-trials"
    spent, each = (format_quantity(s, SECONDS, 2) for s in (study.spent, resume_guard.usual(study)))
    whole = "" if budget.max_time is None else f" of {format_quantity(budget.max_time, SECONDS)}"
    return f"{spent}{whole} are spent, a trial takes about {each}; allow more in all with --max-time"


# --- what is said ----------------------------------------------------------------------------------


def _begun(study: Study, chosen: tuple[Axis, ...], *, stored: bool) -> str:
    """Say what is going to be varied, and by whose choice."""
    axes = "; ".join(map(str, study.space.axes))
    whose = "What usually matters is varied" if len(chosen) == len(study.space.axes) else "Varied"
    also = ", ".join(axis.name for axis in chosen)
    added = f" ({also} by our choice)" if chosen and len(chosen) < len(study.space.axes) else ""
    goal = ", ".join((*map(str, study.goal.objectives), *map(str, study.goal.constraints)))
    kept = f" as study {study.id}" if stored else ""
    return f"{whose}{added}{kept}: {axes}. Goal: {goal}. {_limit(study.budget)}"


def _limit(budget: Budget) -> str:
    """Say how long it takes at most."""
    time = [f"{lasting(budget.max_time)} (--max-time)"] if budget.max_time is not None else []
    trials = [f"{count(budget.max_trials, 'trial')} (--max-trials)"] if budget.max_trials is not None else []
    if not time and not trials:
        return "It ends when nothing more is to be learnt; --max-time ends it before."
    return f"At most {', '.join((*time, *trials))}."


def _further(study: Study, places: Places) -> Iterator[str]:
    """Say how to go on."""
    if not places.store:
        return
    name = study.id[:6]
    yield f"Study {study.id}; to see it again: modeldyno show {name}"
    yield f"Under another goal: modeldyno sweep --rerank {name} --require 'latency.p99 <= 5ms'"
    yield from export_configs.hint(study, name)
