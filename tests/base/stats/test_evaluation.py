"""Scores of labelled samples agree with scikit-learn, and their intervals hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.stats import evaluation, statistics

LABELS = np.array([0, 1, 2, 2, 1, 0, 2])
LOGITS = np.random.default_rng(3).normal(size=(7, 3))


def test_scores_agree_with_scikit_learn() -> None:
    """Accuracy, top 2, log loss, macro F1 and mean absolute error are those of scikit-learn."""
    from sklearn import metrics

    shares = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    predicted = LOGITS.argmax(axis=1)
    mean = np.mean
    assert mean(evaluation.correct_within(LOGITS, LABELS)) == metrics.accuracy_score(LABELS, predicted)
    assert mean(evaluation.correct_within(LOGITS, LABELS, 2)) == pytest.approx(
        metrics.top_k_accuracy_score(LABELS, LOGITS, k=2)
    )
    assert mean(evaluation.cross_entropy(LOGITS, LABELS)) == pytest.approx(metrics.log_loss(LABELS, shares))
    assert evaluation.macro_f1(predicted, LABELS) == pytest.approx(
        metrics.f1_score(LABELS, predicted, average="macro")
    )
    assert mean(evaluation.absolute_errors(LOGITS, -LOGITS)) == pytest.approx(
        metrics.mean_absolute_error(-LOGITS, LOGITS)
    )


def test_one_column_means_the_second_of_two_classes() -> None:
    """A logit above 0, or a probability above one half, is class 1."""
    labels = np.array([[0], [1], [1]])
    assert evaluation.correct_within(np.array([-2.0, 3.0, -0.1]), labels).tolist() == [1, 1, 0]
    assert evaluation.correct_within(np.array([[0.4], [0.6], [0.3]]), labels).tolist() == [1, 1, 0]


def test_an_output_that_is_no_number_is_wrong() -> None:
    """NaN never counts as a correct answer."""
    assert evaluation.correct_within(np.full((1, 2), np.nan), np.array([0])).tolist() == [0]


def test_an_output_may_be_the_class_itself() -> None:
    """As of estimators: whole numbers or words, however many classes there are, judged as by scikit-learn."""
    from sklearn import metrics

    answers = np.array([0, 1, 2, 0, 1, 2, 2])
    words = np.array(["cat", "dog", "owl"])
    for outputs, labels in (
        (answers, LABELS[:, None]),
        (words[answers], words[LABELS]),
        (words[answers].astype(object), words[LABELS].astype(bytes)),
    ):
        assert evaluation.evaluate("accuracy", outputs, labels).value == pytest.approx(5 / 7)
        assert evaluation.evaluate("f1", outputs, labels).value == pytest.approx(
            metrics.f1_score(LABELS, answers, average="macro")
        )
    with pytest.raises(RequestError, match="no top 2"):
        evaluation.evaluate("top_2", answers, LABELS)
    with pytest.raises(RequestError, match="class itself"):
        evaluation.evaluate("evaluation_loss", answers, LABELS)
    with pytest.raises(RequestError, match="such as 'cat', but the labels are such as '0'"):
        evaluation.correct_within(words[answers], LABELS)
    with pytest.raises(RequestError, match="words, such as 'cat'"):
        evaluation.correct_within(LOGITS, words[LABELS])
    with pytest.raises(RequestError, match="shape"):
        evaluation.correct_within(answers, LABELS[:3])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_loss_of_probabilities_is_that_of_scikit_learn(dtype: str) -> None:
    """They are no logits, as they lie in [0, 1] and add up to 1; what was held impossible costs much."""
    from sklearn import metrics

    shares = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    shares[0] = [0, 0.25, 0.75]
    shares = shares.astype(dtype)

    assert evaluation.evaluate("evaluation_loss", shares, LABELS).value == pytest.approx(
        metrics.log_loss(LABELS, shares)
    )


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 1]), "shape"),
        (np.zeros((7, 3), int), "shape"),
        (np.array([0.5] * 7), "whole"),
        (np.array([3.0] * 7), "from 3 to 3"),
        (np.array([-1] * 7), "from -1"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: np.ndarray, message: str) -> None:
    """Labels of another shape, dtype or range are an error and never broadcast into a number."""
    with pytest.raises(RequestError, match=message):
        evaluation.correct_within(LOGITS, labels)


def test_targets_and_k_that_do_not_fit_are_refused() -> None:
    """Targets of another shape and more places than classes are errors; a flat column is not."""
    with pytest.raises(RequestError, match="shape"):
        evaluation.absolute_errors(LOGITS, np.zeros(7))
    with pytest.raises(RequestError, match="no top 4"):
        evaluation.correct_within(LOGITS, LABELS, 4)
    assert evaluation.absolute_errors(np.ones((2, 1)), np.array([0.0, 3.0])).tolist() == [1, 2]


def test_wilson_interval_of_357_of_360() -> None:
    """The interval of 357 of 360 is that of the published formula."""
    assert statistics.share_interval(357, 360) == pytest.approx((0.97578, 0.99716), abs=2e-5)


def test_intervals_cover_the_truth() -> None:
    """Of 4,000 evaluations of 400 samples, about 95 % of the intervals hold the true value."""
    random, n = np.random.default_rng(11), 400
    hits = random.binomial(n, 0.9, 4000)
    ends = [statistics.share_interval(int(h), n) for h in hits]
    assert 0.94 <= np.mean([low <= 0.9 <= high for low, high in ends]) <= 0.97
    means = [statistics.mean_interval(row, n) for row in random.exponential(1.0, (4000, n))]
    assert 0.935 <= np.mean([low <= 1 <= high for low, high in means]) <= 0.97


def test_paired_differences_raise_few_false_alarms_and_find_real_ones() -> None:
    """Models that are equally good differ in at most 5 % of evaluations; lost samples are found."""
    random, n = np.random.default_rng(12), 400
    alarms = 0
    for _ in range(2000):
        before = (random.random(n) < 0.9).astype(float)
        swapped = random.random(n) < 0.1
        after = np.where(swapped, (random.random(n) < 0.9).astype(float), before)
        _, low, high = evaluation.paired_share_difference(before, after)
        alarms += not low <= 0 <= high
    assert alarms / 2000 <= 0.055
    worse = np.where(np.arange(n) < 40, 0.0, 1.0)
    difference, low, high = evaluation.paired_share_difference(np.ones(n), worse)
    assert difference == pytest.approx(-0.1)
    assert low < -0.1 < high < 0
    assert evaluation.paired_mean_difference(np.arange(9.0), np.arange(9.0) + 1) == (1, 1, 1)


def test_the_bootstrap_interval_of_f1_holds_its_value() -> None:
    """The interval of F1 contains the value and narrows with the samples."""
    random = np.random.default_rng(5)
    labels = random.integers(0, 3, 2000)
    predicted = np.where(random.random(2000) < 0.8, labels, random.integers(0, 3, 2000))
    low, high = evaluation.macro_f1_interval(predicted, labels)
    few_low, few_high = evaluation.macro_f1_interval(predicted[:100], labels[:100])
    assert low < evaluation.macro_f1(predicted, labels) < high
    assert high - low < few_high - few_low


def test_a_metric_is_evaluated_with_its_interval_and_its_scores() -> None:
    """Each value is the mean of its scores, within its interval; F1 has no scores."""
    targets = LOGITS.argmax(axis=1)
    results = {
        name: evaluation.evaluate(name, LOGITS, LOGITS if "absolute" in name else LABELS)
        for name in ("accuracy", "misclassification", "f1", "evaluation_loss", "mean_absolute_error")
    }
    assert all(result.low <= result.value <= result.high for result in results.values())
    assert results["accuracy"].value == pytest.approx((targets == LABELS).mean())
    assert results["misclassification"].value == pytest.approx((targets != LABELS).mean())
    for name, result in results.items():
        assert name == "f1" if result.scores is None else result.scores.mean() == pytest.approx(result.value)
    assert (
        evaluation.evaluate("top_2", LOGITS, LABELS).value
        == evaluation.correct_within(LOGITS, LABELS, 2).mean()
    )
    with pytest.raises(RequestError, match=r"3 classes, all of which are in the top 3; take fewer than 3\."):
        evaluation.evaluate("top_3", LOGITS, LABELS)


def test_values_from_different_samples_raise_few_false_alarms() -> None:
    """Of two proportions that are equal, at most 5 % differ for certain; at a higher level fewer do."""
    random, n, alarms = np.random.default_rng(13), 300, np.zeros(2)
    for _ in range(2000):
        before, after = (
            evaluation.Evaluation(hits / n, *statistics.share_interval(int(hits), n))
            for hits in random.binomial(n, 0.95, 2)
        )
        ends = [evaluation.independent_difference(before, after, level) for level in (0.95, 0.99)]
        alarms += [not low <= 0 <= high for _, low, high in ends]
    assert alarms[0] / 2000 <= 0.055
    assert alarms[1] / 2000 <= 0.015


def test_a_paired_difference_is_that_of_its_metric() -> None:
    """Shares get the interval of Bonett and Price, means that of Student; one sample bounds nothing."""
    before, after = np.array([1.0, 1.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0, 1.0])
    assert evaluation.paired_difference("accuracy", before, after, 0.95) == (
        evaluation.paired_share_difference(before, after)
    )
    difference, low, high = evaluation.paired_difference("evaluation_loss", before, after, 0.95)
    assert (difference, high - difference) == pytest.approx((-0.25, difference - low))
    assert evaluation.paired_mean_difference(before[:1], after[:1]) == (0.0, -np.inf, np.inf)


def test_intervals_hold_the_truth_in_ten_thousand_evaluations() -> None:
    """Of 100 to 5,000 samples and accuracies of 50 to 99 %, 94 to 97 % of the intervals hold the truth."""
    random, runs = np.random.default_rng(2026), 10_000
    truths, sizes = random.uniform(0.5, 0.99, runs), random.integers(100, 5000, runs)
    ends = [
        statistics.share_interval(int(random.binomial(n, p)), int(n))
        for n, p in zip(sizes, truths, strict=True)
    ]
    held = [low <= p <= high for (low, high), p in zip(ends, truths, strict=True)]
    assert 0.94 <= np.mean(held) <= 0.97


def test_ten_thousand_comparisons_of_equal_models_raise_few_alarms() -> None:
    """Models that are equally good, and answer up to a fifth of the samples anew, differ in at most 5 %."""
    random, alarms = np.random.default_rng(2027), 0
    for _ in range(10_000):
        n, right, anew = int(random.integers(200, 2000)), random.uniform(0.6, 0.99), random.uniform(0.01, 0.2)
        before = (random.random(n) < right).astype(float)
        after = np.where(random.random(n) < anew, (random.random(n) < right).astype(float), before)
        _, low, high = evaluation.paired_share_difference(before, after)
        alarms += not low <= 0 <= high
    assert alarms / 10_000 <= 0.05
