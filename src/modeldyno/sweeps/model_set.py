"""Several models in one sweep, one after the other: a study for each, ranked together at the end."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.yaml_file import FileConfig
from modeldyno.sweeps.schema import KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.sweeps.study.study import Budget, Study

MODELS = "models"
"""The key of a sweep file, and what it may not stand beside."""


def split_models(config: FileConfig) -> tuple[FileConfig, ...]:
    """Return the sweep of each model: what stands below it, over what is common; empty for a single model.

    Raises:
        RequestError: ``models`` holds something else than models, or stands beside ``model``.
    """
    if MODELS not in config.tree:
        return ()
    with config.at(MODELS):
        if config.tree.get("model"):
            raise RequestError("A sweep has model: or models:, not both; move the model below models:.")
        models = _models(config.tree[MODELS])
    common = replace(config, tree={key: value for key, value in config.tree.items() if key != MODELS})
    return tuple(_of_model(config, common, name, below) for name, below in models.items())


def _models(models: Any) -> dict[str, Mapping[str, Any]]:
    """Return what stands below each model, by its name."""
    if isinstance(models, list) and models and all(isinstance(item, str) for item in models):
        return {item: {"model": item} for item in models}
    if not isinstance(models, dict) or not models:
        raise RequestError(
            "'models' holds models: [a.onnx, b.onnx], or names with keys below: {a: {model: a.onnx}}."
        )
    for name, below in models.items():
        if not isinstance(below, dict):
            raise RequestError(f"Below '{name}' stand keys of a sweep, such as model: {name}.onnx.")
    return {name: {"model": name, "name": name, **below} for name, below in models.items()}


def _of_model(config: FileConfig, common: FileConfig, name: str, below: Mapping[str, Any]) -> FileConfig:
    for key in below:
        if key not in KEYS or key in {MODELS, "budget"}:
            with config.at(MODELS, name, key):
                if key in {MODELS, "budget"}:
                    raise RequestError(f"'{key}' holds for all models; move it out of models:.")
                raise UnknownName.among("part of a sweep", key, KEYS)
    lines = {
        place[2:]: line
        for place, line in config.lines.items()
        if place[:2] == (MODELS, name) and len(place) > 2
    }
    return FileConfig(tree=dict(below), lines=lines, origin=config.origin).over(common)


def share_of_budget(budget: Budget, spent: float, done: Sequence[Study], number: int) -> Budget:
    """Return the budget of the next of so many models: an equal share of what is left.

    That is what the seconds spent and the measurements of the studies that are done leave of the budget.
    """
    trials, left = sum(len(study.measured) for study in done), number - len(done)
    time = None if budget.max_time is None else max(1.0, (budget.max_time - spent) / left)
    most = None if budget.max_trials is None else max(1, math.ceil((budget.max_trials - trials) / left))
    return replace(budget, max_time=time, max_trials=most)
