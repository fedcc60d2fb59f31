"""Continue a stored study, or rank it by another goal without measuring."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.core.study.rerank import rerank_study
from modeldyno.core.study.study import TrialState
from modeldyno.errors import ModelDynoError, RequestError
from modeldyno.identity import new_identity
from modeldyno.sweeps import build
from modeldyno.sweeps.schema import GOALS

if TYPE_CHECKING:
    from modeldyno.core.result.result import Result
    from modeldyno.core.study.study import Study
    from modeldyno.documents.yaml_file import FileConfig


def check_resume(config: FileConfig) -> None:
    """Refuse what a resumed study cannot change.

    Raises:
        RequestError: something other than the goal and the budget is given.
    """
    unchangeable = config.tree.keys() - {"budget", *GOALS}
    if unchangeable:
        raise RequestError(
            f"A resumed study cannot change {', '.join(sorted(unchangeable))}; only the goal, --max-time, "
            "--max-trials and --until can change."
        )


def resume_study(config: FileConfig, study: Study) -> Study:
    """Return the study to continue, with a new budget or goal.

    With another goal, it is a new study that has all trials of the first: the search goes on around the best
    configurations by the new goal, and nothing is measured twice.

    Raises:
        RequestError: something else is changed, or no trial measured what the new goal needs.
    """
    check_resume(config)
    if config.tree.keys() & GOALS:
        study, unknown = rerank_stored(study, config)
        if unknown and unknown == sum(trial.state is TrialState.DONE for trial in study.measured):
            raise RequestError(
                f"No trial of study {study.id[:6]} measured {', '.join(map(str, study.goal.queries))}; "
                "start a new sweep."
            )
        study = replace(study, **new_identity())
    return replace(study, budget=build.read_budget(config, study.budget))


def check_rerank(config: FileConfig) -> None:
    """Refuse what has no effect on a ranking.

    Raises:
        RequestError: something other than a goal is given.
    """
    unused = config.tree.keys() - GOALS
    if unused:
        raise RequestError(
            f"--rerank measures nothing, so {', '.join(sorted(unused))} would have no effect; "
            "it takes goals: --objective, --maximize, --minimize, --require, --rank."
        )


def rerank_stored(stored: Study, config: FileConfig) -> tuple[Study, int]:
    """Rank a study by another goal; return it, and how many trials lack a metric of the goal.

    Raises:
        RequestError: the goal is invalid.
    """
    goal = build.override_goal(config, stored.goal, stored.job)
    with plugins.store() as store:

        def load_result(identifier: str) -> Result | None:
            try:
                return store.get(identifier)
            except ModelDynoError:
                return None

        return rerank_study(stored, goal, load_result)
