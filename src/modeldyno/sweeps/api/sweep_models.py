"""Several models in one sweep from Python, and configurations of Model Analyzer as sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import RequestError
from modeldyno.base.yaml_file import FileConfig
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.sweeps.api.sweep import sweep
from modeldyno.sweeps.build import read_budget
from modeldyno.sweeps.model_analyzer import read_model_analyzer
from modeldyno.sweeps.model_set import share_of_budget
from modeldyno.sweeps.study import ranking
from modeldyno.sweeps.study.study import Budget

if TYPE_CHECKING:
    from modeldyno.sweeps.model_analyzer_draft import TranslatedSweep
    from modeldyno.sweeps.study.ranking import ModelRow
    from modeldyno.sweeps.study.study import Study


@reword_errors
def sweep_models(
    models: Sequence[Any] | Mapping[str, Any],
    *,
    max_time: float | str | None = None,
    max_trials: int | None = None,
    **options: Any,
) -> tuple[Study, ...]:
    """Sweep several models one after the other, as ``modeldyno sweep A --also B`` does.

    Args:
        models: what `sweep` takes as its model, each; or names to models, or to arguments of `sweep` of their
            own, with ``model`` among them: ``{"a": "a.onnx", "b": {"model": "b.onnx", "space": ...}}``.
        max_time: time limit of all sweeps, in seconds or as text such as ``"10m"``.
        max_trials: maximum number of measurements of all sweeps.
        **options: arguments of `sweep` for every model.

    Returns:
        The Study of each, for `rank_models`.

    Raises:
        RequestError: as `sweep` does; the studies before it are in the store.
    """
    if not models:
        raise RequestError("There are no models to sweep; give at least one.")
    named_models = models.items() if isinstance(models, Mapping) else ((None, model) for model in models)
    limits = {"max_time": max_time, "max_trials": max_trials}
    tree = {name: value for name, value in limits.items() if value is not None}
    budget = read_budget(FileConfig(tree={"budget": tree} if tree else {}), Budget())
    started = monotonic()
    studies: list[Study] = []
    for name, model in named_models:
        own = dict(model) if isinstance(model, Mapping) else {"model": model}
        if name is not None:
            own.setdefault("name", name)
        share = share_of_budget(budget, monotonic() - started, studies, len(models))
        arguments = {"max_time": share.max_time, "max_trials": share.max_trials, **options, **own}
        studies.append(sweep(arguments.pop("model"), **arguments))
    return tuple(studies)


@reword_errors
def rank_models(studies: Sequence[Study], top: int | None = 3) -> tuple[ModelRow, ...]:
    """Rank the configurations of several models together, as ``--top-models`` of ``modeldyno sweep`` does.

    Args:
        studies: as `sweep_models` returns them; all have the same objectives.
        top: number of configurations; all if None.

    Returns:
        The best first, each with its ``rank`` over all models, its ``study`` and its ``row``, as `ranking` of
        the study has it: ``row.configuration`` is its name. Those that break their bounds have no place.

    Raises:
        RequestError: the studies have different objectives.
    """
    return ranking.rank_models(studies, top)


@reword_errors
def from_model_analyzer(file: str | Path, model: str = "") -> TranslatedSweep:
    """Translate a configuration of Model Analyzer, as ``modeldyno sweep --from-model-analyzer`` does.

    Args:
        file: its YAML file.
        model: the model to sweep, instead of those that the file names.

    Returns:
        ``.text()`` is the sweep file, ``.tree`` what is in it, ``.command()`` how to measure it, and
        ``.dropped`` each key that it leaves out, with the ``reason``.

    Raises:
        RequestError: the file cannot be read, or Model Analyzer has no such key.
    """
    return read_model_analyzer(Path(file), model)
