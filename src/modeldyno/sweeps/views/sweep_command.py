"""Shell command that repeats a study."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.result.multi_model import with_model_named
from modeldyno.profiling.views.rerun_command import (
    format_neighbours,
    input_options,
    name_and_trust,
    observation_options,
    repeated_options,
    setting_options,
)
from modeldyno.sweeps.study.goal import Rank

if TYPE_CHECKING:
    from modeldyno.sweeps.study.goal import Goal
    from modeldyno.sweeps.study.study import Study


def sweep_command(study: Study) -> str:
    """Return the command line that repeats a study from its beginning."""
    job = study.job
    command = ["modeldyno", "sweep", job.model.argument, "--backend", job.backend]
    command += repeated_options("--space", study.space.axes)
    command += setting_options(study.settings)
    command += input_options(job)
    command += observation_options(job.observation)
    command += goal_words(study)
    command += ["--strategy", study.strategy, "--seed", str(study.seed)]
    command += repeated_options(
        "--beside", format_neighbours(job, settings=False)
    )  # `--set` has their settings
    return shlex.join([*command, *name_and_trust(job)])


def goal_words(study: Study) -> list[str]:
    """Return the options that give the goal of a study."""
    goal = named_goal(study)
    words: list[str] = []
    for objective in goal.objectives:
        weight = f":{objective.weight:g}" if objective.weight != 1 else ""
        words += ["--maximize" if objective.maximize else "--minimize", f"{objective.query}{weight}"]
    words += repeated_options("--require", goal.constraints)
    words += () if goal.rank is Rank.BEST else ("--rank", str(goal.rank))
    return [*words, *(() if goal.price is None else ("--price", str(goal.price)))]


def named_goal(study: Study) -> Goal:
    """Return the goal of a study as it is given: beside other models, what is of the first one names it."""
    own = str(study.job.name) if study.job.beside else ""
    return replace(
        study.goal,
        objectives=tuple(
            replace(objective, query=with_model_named(objective.query, own))
            for objective in study.goal.objectives
        ),
        constraints=tuple(
            replace(bound, query=with_model_named(bound.query, own)) for bound in study.goal.constraints
        ),
    )
