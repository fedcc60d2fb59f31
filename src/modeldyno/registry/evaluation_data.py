"""The labelled samples of a version: kept beside its files, by their digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.probe_options import check_evaluations, evaluation_name
from modeldyno.engine.data import labelled_samples
from modeldyno.registry import weights
from modeldyno.registry.records.records import EvaluationData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Version


def check(metrics: Sequence[str], data: str) -> None:
    """Check what is to be evaluated, before anything is loaded.

    Raises:
        RequestError: a metric is unknown, or one of the two is missing; or the file has no labels.
    """
    check_evaluations([*map(evaluation_name, metrics)], needed=bool(data))
    if metrics and not data:
        raise RequestError("`evaluate` needs labelled samples; name them with `data`, such as test.npz.")
    if data:
        labelled_samples.read_labels(data)


def keep(metrics: Sequence[str], data: str, registry: Registry) -> EvaluationData | None:
    """Copy labelled samples beside the files of models; None if nothing is evaluated.

    Raises:
        StoreError: they cannot be copied.
    """
    if not metrics:
        return None
    path, _ = labelled_samples.read_labels(data)
    text, _, labels = data.rpartition(":")
    named = text and Path(text).expanduser() == path
    file = path.absolute()
    (kept,) = weights.keep([file], file.parent, weights.place(registry.weights))
    return EvaluationData(
        metrics=tuple(dict.fromkeys(map(evaluation_name, metrics))), file=kept, labels=labels if named else ""
    )


def located(version: Version, registry: Registry) -> str:
    """Return the labelled samples of a version on this machine, with the name of their labels.

    Raises:
        StoreError: they are gone.
    """
    assert version.evaluation is not None
    path = weights.fetch(version.evaluation, weights.place(registry.weights))
    return ":".join(filter(None, (str(path), version.evaluation.labels)))
