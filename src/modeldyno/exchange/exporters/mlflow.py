"""MLflow: one run in a tracking store, with parameters, metrics, doubts as tags, the document as an artifact.

The target is a tracking URI (``sqlite:///mlflow.db``, ``http://host:5000``), or a directory for the
database and the artifacts. Metric names are queries, with ``/`` before a scope; units are tags.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import codec
from modeldyno.engine.environment.mlflow_client import REQUIRES, local_uri, mlflow_client
from modeldyno.exchange.exporters.exported_numbers import circumstances, figures, settings
from modeldyno.profiling.views.result.headline import headline
from modeldyno.sweeps import codec as codec_study
from modeldyno.sweeps.study.study import TrialState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.result.result import Result
    from modeldyno.exchange.exporters.exported_numbers import Figure
    from modeldyno.sweeps.study.study import Study

requires = REQUIRES
EXPERIMENT = "modeldyno"
_ID, _PARENT, _NAME, _NOTE = "modeldyno.id", "mlflow.parentRunId", "mlflow.runName", "mlflow.note.content"
_ILLEGAL = re.compile(r"[^\w\-. :/]")
"""Characters that MLflow does not allow in a name."""
_TAG_LIMIT, _PARAM_LIMIT, _METRIC_BATCH = 5000, 6000, 1000
"""Maximum characters of a tag and of a parameter, and maximum metrics per call."""


def export(document: Result, target: str) -> str:
    """Log one run, or find the run of this Result in the store; return where it is."""
    with _open_store(target) as (client, experiment):
        run = _log_run(client, experiment, document, {})
        return f"run {run} of the experiment '{EXPERIMENT}' in {target}"


def export_study(study: Study, results: Mapping[str, Result], target: str) -> str:
    """Log a run for the study, with a nested run for each trial that has a result."""
    with _open_store(target) as (client, experiment):
        run = _find_run(client, experiment, study.id)
        if run is None:
            tags = {_ID: study.id, _NAME: study.name or study.id, "strategy": study.strategy}
            run = client.create_run(
                experiment, tags=tags, start_time=_milliseconds(study.created)
            ).info.run_id
        for trial in study.trials:
            if (result := results.get(trial.result)) is not None:
                tags = {_PARENT: run, "trial": str(trial.number), "state": str(trial.state)}
                _log_run(client, experiment, result, tags)
        failed = any(trial.state is TrialState.FAILED for trial in study.trials)
        client.log_text(run, codec_study.encode(study).decode(), "study.json")
        client.set_tag(run, "failed_trials", str(failed).lower())
        client.set_terminated(run)
        return f"run {run} with {len(results)} trials, of the experiment '{EXPERIMENT}' in {target}"


@contextmanager
def _open_store(target: str) -> Iterator[tuple[Any, str]]:
    """Yield a client of the store, and the id of our experiment in it.

    Raises:
        RequestError: MLflow cannot use the store.
    """
    artifact_location = None if "://" in target else (Path(target).resolve() / "artifacts").as_uri()
    with mlflow_client(local_uri(target), target) as client:
        found_experiment = client.get_experiment_by_name(EXPERIMENT)
        if found_experiment:
            yield client, found_experiment.experiment_id
        else:
            yield client, client.create_experiment(EXPERIMENT, artifact_location)


def _find_run(client: Any, experiment: str, name: str) -> str | None:
    runs = client.search_runs([experiment], f"tags.`{_ID}` = '{name}'", max_results=1)
    return runs[0].info.run_id if runs else None


def _log_run(client: Any, experiment: str, result: Result, tags: Mapping[str, str]) -> str:
    """Log a run and return its id; a Result that is already logged is not logged again."""
    from mlflow.entities import Metric, Param, RunTag  # slow to import

    if (existing := _find_run(client, experiment, result.id)) is not None:
        return existing
    timestamp = _milliseconds(result.created)
    facts = {f"modeldyno.{name}": value for name, value in circumstances(result).items()}
    numbers = {_metric_name(figure): figure for figure in figures(result)}
    units = {f"unit.{figure.query.metric}": figure.unit for figure in numbers.values() if figure.unit}
    all_tags = {
        _ILLEGAL.sub("_", name): value[:_TAG_LIMIT] for name, value in {**facts, **units, **tags}.items()
    }
    all_tags |= {_NAME: f"{result.name} {result.id}", _NOTE: headline(result)}
    run: str = client.create_run(experiment, start_time=timestamp, tags={_ID: result.id}).info.run_id
    metrics = [Metric(name, value, timestamp, 0) for name, value in _metric_values(numbers)]
    params = [Param(_ILLEGAL.sub("_", k), v[:_PARAM_LIMIT]) for k, v in settings(result).items()]
    client.log_batch(run, params=params, tags=[RunTag(name, value) for name, value in all_tags.items()])
    for begin in range(0, len(metrics), _METRIC_BATCH):
        client.log_batch(run, metrics=metrics[begin : begin + _METRIC_BATCH])
    client.log_text(run, codec.encode(result).decode(), "result.json")
    client.set_terminated(run, status="FAILED" if result.failures else "FINISHED")
    return run


def _metric_values(numbers: Mapping[str, Figure]) -> Iterator[tuple[str, float]]:
    """Yield each number, and the ends of its interval."""
    for name, figure in numbers.items():
        yield name, figure.value
        if figure.interval is not None:
            yield f"{name}.low", figure.interval.low
            yield f"{name}.high", figure.interval.high


def _metric_name(figure: Figure) -> str:
    return _ILLEGAL.sub("_", str(figure.query).replace("@", "/", 1))


def _milliseconds(created: str) -> int:
    return int(datetime.fromisoformat(created).timestamp() * 1000)
