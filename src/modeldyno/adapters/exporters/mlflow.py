"""MLflow: a run in a tracking store: parameters, metrics, doubts as tags, the document as an artifact.

The target is a tracking URI (``sqlite:///mlflow.db``, ``http://host:5000``), or a directory, in which the
database and the artifacts then lie. Names of metrics are queries, with ``/`` before a scope; units are tags.
"""

from __future__ import annotations

import logging
import re
import warnings
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import codec
from modeldyno.core.result.numbers import circumstances, figures, settings
from modeldyno.core.study.study import State
from modeldyno.errors import RequestError
from modeldyno.views.result.headline import headline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.core.result.numbers import Figure
    from modeldyno.core.result.result import Result
    from modeldyno.core.study.study import Study

requires = ("mlflow", "sqlalchemy")
EXPERIMENT = "modeldyno"
_ID, _PARENT, _NAME, _NOTE = "modeldyno.id", "mlflow.parentRunId", "mlflow.runName", "mlflow.note.content"
_FOREIGN = re.compile(r"[^\w\-. :/]")
"""What a name in MLflow cannot have."""
_LONGEST_TAG, _LONGEST_PARAM, _MOST = 5000, 6000, 1000
"""Characters that MLflow keeps, and metrics that it takes at once."""


def export(document: Result, target: str) -> str:
    """Log one run; where the store has it already, that one is named."""
    with _store(target) as (client, experiment):
        run = _logged(client, experiment, document, {})
        return f"run {run} of the experiment '{EXPERIMENT}' in {target}"


def export_study(study: Study, results: Mapping[str, Result], target: str) -> str:
    """Log a run for the study, and one within it for each trial whose result is known."""
    with _store(target) as (client, experiment):
        run = _found(client, experiment, study.id)
        if run is None:
            tags = {_ID: study.id, _NAME: study.name or study.id, "strategy": study.strategy}
            run = client.create_run(
                experiment, tags=tags, start_time=_milliseconds(study.created)
            ).info.run_id
        for trial in study.trials:
            if (found := results.get(trial.result)) is not None:
                tags = {_PARENT: run, "trial": str(trial.number), "state": str(trial.state)}
                _logged(client, experiment, found, tags)
        failed = any(trial.state is State.FAILED for trial in study.trials)
        client.log_text(run, codec.encode_study(study).decode(), "study.json")
        client.set_tag(run, "failed_trials", str(failed).lower())
        client.set_terminated(run)
        return f"run {run} with {len(results)} trials, of the experiment '{EXPERIMENT}' in {target}"


@contextmanager
def _store(target: str) -> Iterator[tuple[Any, str]]:
    """Give a client of the store, and the id of our experiment in it.

    Raises:
        RequestError: MLflow refuses it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own use of its libraries
        from mlflow import MlflowClient  # noqa: PLC0415 - dear
        from mlflow.exceptions import MlflowException  # noqa: PLC0415

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells of the making of its tables

        uri, place = target, None
        if "://" not in target:
            folder = Path(target).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            uri, place = f"sqlite:///{folder}/mlflow.db", (folder / "artifacts").as_uri()
        try:
            client = MlflowClient(tracking_uri=uri)
            known = client.get_experiment_by_name(EXPERIMENT)
            yield client, known.experiment_id if known else client.create_experiment(EXPERIMENT, place)
        except MlflowException as error:
            raise RequestError(f"MLflow cannot use {target}: {' '.join(str(error).split())[:300]}") from error


def _found(client: Any, experiment: str, name: str) -> str | None:
    runs = client.search_runs([experiment], f"tags.`{_ID}` = '{name}'", max_results=1)
    return runs[0].info.run_id if runs else None


def _logged(client: Any, experiment: str, result: Result, tags: Mapping[str, str]) -> str:
    """Log a run, and give its id; the same Result is logged once."""
    from mlflow.entities import Metric, Param, RunTag  # noqa: PLC0415 - dear

    if (known := _found(client, experiment, result.id)) is not None:
        return known
    when = _milliseconds(result.created)
    told = {f"modeldyno.{name}": value for name, value in circumstances(result).items()}
    numbers = {_name(each): each for each in figures(result)}
    units = {f"unit.{each.query.metric}": each.unit for each in numbers.values() if each.unit}
    words = {
        _FOREIGN.sub("_", name): value[:_LONGEST_TAG] for name, value in {**told, **units, **tags}.items()
    }
    words |= {_NAME: f"{result.name} {result.id}", _NOTE: headline(result)}
    run: str = client.create_run(experiment, start_time=when, tags={_ID: result.id}).info.run_id
    metrics = [Metric(name, value, when, 0) for name, value in _values(numbers)]
    params = [Param(_FOREIGN.sub("_", k), v[:_LONGEST_PARAM]) for k, v in settings(result).items()]
    client.log_batch(run, params=params, tags=[RunTag(name, value) for name, value in words.items()])
    for begin in range(0, len(metrics), _MOST):
        client.log_batch(run, metrics=metrics[begin : begin + _MOST])
    client.log_text(run, codec.encode(result).decode(), "result.json")
    client.set_terminated(run, status="FAILED" if result.failures else "FINISHED")
    return run


def _values(numbers: Mapping[str, Figure]) -> Iterator[tuple[str, float]]:
    """Give each number, and the ends of its interval beside it."""
    for name, each in numbers.items():
        yield name, each.value
        if each.interval is not None:
            yield f"{name}.low", each.interval.low
            yield f"{name}.high", each.interval.high


def _name(found: Figure) -> str:
    return _FOREIGN.sub("_", str(found.query).replace("@", "/", 1))


def _milliseconds(created: str) -> int:
    return int(datetime.fromisoformat(created).timestamp() * 1000)
