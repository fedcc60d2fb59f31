"""What a model answers to labelled samples, and how good that is for its task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.conversion.reference import fitted, opened
from modeldyno.core.agreement.agreement import judge_task
from modeldyno.data import labelled_samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy import ndarray

    from modeldyno.core.agreement.agreement import TaskMetric
    from modeldyno.core.agreement.rule import AgreementRule
    from modeldyno.interfaces.loader import Feed, Model

_BATCH = 32


def task_outputs(model: Model, backend: str, like: Feed, source: str, *, batched: bool) -> ndarray:
    """Call a model with every labelled sample, and return its first output; the last batch is filled up.

    Args:
        model: the model.
        backend: what runs it.
        like: inputs that the source accepts.
        source: the file, perhaps followed by the name of its labels.
        batched: whether its batch is free; otherwise it is that of `like`.

    Raises:
        RequestError: the samples do not fit the model.
    """
    data = labelled_samples.read_samples(source, like)
    size = _BATCH if batched else len(next(iter(like.values())))
    with opened(model, backend) as run:
        return labelled_samples.first_outputs(data, size, lambda feed: run(fitted(feed, model)))


def task_metrics(
    metrics: Sequence[str], source: str, expected: ndarray, found: ndarray, rule: AgreementRule
) -> Iterator[TaskMetric]:
    """Yield each metric of the outputs of both models for the labelled samples.

    Raises:
        RequestError: a metric does not fit the outputs or the labels.
    """
    from modeldyno.core.stats.evaluation import evaluate  # noqa: PLC0415 - numpy is slow to import

    _, labels = labelled_samples.read_labels(source)
    for metric in metrics:
        before, after = (evaluate(metric, outputs, labels) for outputs in (expected, found))
        yield judge_task(metric, before, after, len(labels), rule)
