"""Continue a stored study, or rank it by another goal without measuring."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import ModelDynoError, RequestError
from modeldyno.base.identity import new_identity
from modeldyno.sweeps import axes, build
from modeldyno.sweeps.point_to_job import check_axes
from modeldyno.sweeps.schema import GOALS
from modeldyno.sweeps.study.search_space import Space
from modeldyno.sweeps.study.study import TrialState, rerank_study

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result
    from modeldyno.base.yaml_file import FileConfig
    from modeldyno.sweeps.study.study import Study


def check_resume(config: FileConfig) -> None:
    """Refuse what a resumed study cannot change.

    Raises:
        RequestError: something other than the goal, the budget and further values of the axes is given.
    """
    unchangeable = config.tree.keys() - {"budget", "space", *GOALS}
    if unchangeable:
        raise RequestError(
            f"A resumed study cannot change {', '.join(sorted(unchangeable))}; only the goal, `max_time`, "
            "`max_trials` and `certain` can change, and `space` can grow."
        )


def resume_study(config: FileConfig, study: Study) -> Study:
    """Return the study to continue, with a new budget or goal, or with more values of its axes.

    With another goal or space, it is a new study that has all trials of the first: the search goes on around
    the best configurations, and nothing is measured twice.

    Raises:
        RequestError: something else is changed, or no trial measured what the new goal needs.
    """
    check_resume(config)
    if study.job.model.live:
        raise RequestError(
            f"Study {study.id[:6]} was of a live object, which is gone with its process or its call; sweep "
            "it again, or sweep a factory of it, such as torch:file.py:factory."
        )
    if "space" in config.tree:
        study = replace(_add_values(study, config), **new_identity())
    if config.tree.keys() & GOALS:
        study, unknown = rerank_stored(study, config)
        if unknown and unknown == sum(trial.state is TrialState.DONE for trial in study.measured):
            raise RequestError(
                f"No trial of study {study.id[:6]} measured {', '.join(map(str, study.goal.queries))}; "
                "start a new sweep."
            )
        study = replace(study, **new_identity())
    return replace(study, budget=build.read_budget(config, study.budget))


def _add_values(study: Study, config: FileConfig) -> Study:
    """Return the study with the values that are given added to those of its axes.

    Raises:
        RequestError: an axis is new, or a value is invalid.
    """
    new_axes = axes.read_axes(config, study.job.backend, [str(model.name) for model in study.job.beside])
    own = {axis.name: axis for axis in study.space.axes}
    for axis in new_axes:
        if axis.name not in own:
            raise RequestError(
                f"The study {study.id[:6]} does not vary {axis.name}, so its trials have no value of it; it "
                f"grows along {', '.join(own)}. Start a new sweep to vary {axis.name}."
            )
        values = tuple(dict.fromkeys((*own[axis.name].values, *axis.values)))
        own[axis.name] = replace(own[axis.name], values=tuple(sorted(values)) if axis.ordered else values)
    grown = replace(study, space=Space(axes=tuple(own.values())))
    with config.at("space"):
        check_axes(grown)
    return grown


def check_rerank(config: FileConfig) -> None:
    """Refuse what has no effect on a ranking.

    Raises:
        RequestError: something other than a goal is given.
    """
    unused = config.tree.keys() - GOALS
    if unused:
        raise RequestError(
            f"`rerank` measures nothing, so {', '.join(sorted(unused))} would have no effect; "
            "it takes goals: `objectives`, `maximize`, `minimize`, `require`, `rank`."
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
