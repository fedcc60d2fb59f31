"""Whether a lossy form is still as good at its task."""

from __future__ import annotations

import numpy as np
import pytest

from modeldyno.base.stats.evaluation import Evaluation
from modeldyno.conversion.agreement.agreement import ModelAgreement, TaskMetric, judge_task, with_task
from modeldyno.conversion.agreement.rule import AgreementRule, Equivalence

CLOSE = ModelAgreement(verdict=Equivalence.CLOSE, sentence="close", outputs=(), samples=4, calls=("batch=4",))


def shares(right: int, of: int) -> Evaluation:
    scores = np.zeros(of)
    scores[:right] = 1
    return Evaluation(right / of, 0, 1, scores)


def judged(metric: str, source: Evaluation, candidate: Evaluation) -> TaskMetric:
    return judge_task(metric, source, candidate, 1000, AgreementRule())


def test_the_same_scores_are_not_inferior() -> None:
    """However few there are."""
    assert judged("accuracy", shares(3, 4), shares(3, 4)).sentence == (
        "accuracy 0.75, of the source 0.75, on 1,000 samples (no sample differs)"
    )


@pytest.mark.parametrize(
    ("lost", "of", "inferior", "phrase"),
    [
        (1, 1000, False, "not inferior: at most 0.0"),
        (1, 200, True, "and 0.01 is allowed; more labelled samples would tell"),
        (100, 1000, True, "worse, and 0.01 is allowed)"),
    ],
)
def test_a_share_may_surely_lose_a_hundredth(lost: int, of: int, inferior: bool, phrase: str) -> None:
    """What is not sure is told as such, and counts as inferior."""
    task_metric = judged("accuracy", shares(of, of), shares(of - lost, of))

    assert task_metric.inferior is inferior
    assert phrase in task_metric.sentence


def test_the_direction_is_that_of_the_metric() -> None:
    """A loss is better if it is low."""
    high, low = (Evaluation(value, value, value, np.full(100, value)) for value in (2.0, 1.0))

    assert not judged("evaluation_loss", high, low).inferior
    assert judged("evaluation_loss", low, high).inferior


def test_a_metric_that_is_no_mean_is_compared_by_its_intervals() -> None:
    """As F1 is."""
    source = Evaluation(0.9, 0.899, 0.901)

    assert not judged("f1", source, Evaluation(0.9, 0.899, 0.901)).inferior
    assert judged("f1", source, Evaluation(0.8, 0.799, 0.801)).inferior


def test_a_form_that_is_inferior_in_one_metric_differs() -> None:
    """Otherwise the metrics are told beside its verdict."""
    good = judged("accuracy", shares(3, 4), shares(3, 4))
    bad = judged("f1", Evaluation(0.9, 0.89, 0.91), Evaluation(0.5, 0.49, 0.51))

    assert with_task(CLOSE, [good]).sentence == f"close; {good.sentence}"
    assert with_task(CLOSE, [good]).verdict is Equivalence.CLOSE
    worse = with_task(CLOSE, [good, bad])
    assert worse.verdict is Equivalence.DIFFERS
    assert worse.sentence == f"differs: {bad.sentence}"
    assert worse.metrics == (good, bad)
