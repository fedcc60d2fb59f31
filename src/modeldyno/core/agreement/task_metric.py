"""Whether a model that loses precision on purpose is still as good at its task: a test of non-inferiority."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.agreement.agreement import ModelAgreement, TaskMetric
from modeldyno.core.agreement.rule import AgreementRule, Sameness
from modeldyno.core.metrics.metric import METRICS, Better

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.stats.evaluation import Evaluation

_LEVEL = 0.9
"""Confidence of the interval: 95 % on the side of the harm."""


def judge_task(
    metric: str, source: Evaluation, found: Evaluation, samples: int, rule: AgreementRule
) -> TaskMetric:
    """Judge a metric of the same labelled samples: sample by sample, unless it is no mean, as F1.

    Args:
        metric: its name.
        source: of the source.
        found: of the converted model.
        samples: how many there are.
        rule: how much worse the metric may be.
    """
    from modeldyno.core.stats.evaluation import (  # noqa: PLC0415 - numpy is slow to import
        independent_difference,
        paired_difference,
    )

    if source.scores is not None and found.scores is not None:
        change, low, high = paired_difference(metric, source.scores, found.scores, _LEVEL)
        same = bool((source.scores == found.scores).all())
    else:
        change, low, high = independent_difference(source, found, _LEVEL)
        same = False
    sign = -1.0 if METRICS[metric].better is Better.HIGHER else 1.0
    harm = 0.0 if same else max(sign * low, sign * high)
    allowed = rule.inferior * abs(source.value)
    inferior = harm > allowed
    told = f"{metric} {found.value:.4g}, of the source {source.value:.4g}, on {samples:,} samples"
    if same:
        why = "no sample differs"
    elif not inferior:
        why = f"not inferior: at most {harm:.2g} worse"
    else:
        why = f"it may be {harm:.2g} worse, and {allowed:.2g} is allowed"
        why += "; more labelled samples would tell" if sign * change <= allowed else ""
    return TaskMetric(
        metric=metric,
        source=source.value,
        value=found.value,
        low=low,
        high=high,
        samples=samples,
        inferior=inferior,
        sentence=f"{told} ({why})",
    )


def with_task(agreement: ModelAgreement, metrics: Sequence[TaskMetric]) -> ModelAgreement:
    """Add the metrics of the task: a model that may be inferior in one differs."""
    found = replace(agreement, metrics=tuple(metrics))
    if (worse := next((metric for metric in metrics if metric.inferior), None)) is not None:
        return replace(found, verdict=Sameness.DIFFERS, sentence=f"differs: {worse.sentence}")
    return replace(found, sentence="; ".join([found.sentence, *(metric.sentence for metric in metrics)]))
