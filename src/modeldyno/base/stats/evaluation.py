"""How well a model answers: scores of labelled samples, their value, and how sure it is.

A score belongs to one sample, so that a value is over samples, not the mean of batches, and two models that
answered the same samples are compared sample by sample. Proportions have Wilson's interval and means (loss,
absolute error) that of Student's t, both in `base/stats/statistics.py`; F1, which is no mean, has that
of a bootstrap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from modeldyno.base.errors import RequestError
from modeldyno.base.stats import student_t
from modeldyno.base.stats.statistics import NORMAL, Z, mean_interval, share_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy import ndarray

_SHARES = frozenset({"accuracy", "misclassification"})
_TOP = "top_"
_SUM_TOLERANCE = 1e-2
"""How far from 1 probabilities may add up: those of half precision or eight bits are off by thousandths."""
RESAMPLES = 2000
"""Resamples of a bootstrap: its 2.5 % ends then vary by a few percent of its width."""


def correct_within(outputs: ndarray, labels: ndarray, k: int = 1) -> ndarray:
    """Return 1.0 for each sample whose label is among the k largest outputs, otherwise 0.0.

    Args:
        outputs: scores of the classes, (n, classes); or of the second of two classes, (n,) or (n, 1), of
            which a positive logit, or a probability above one half if all lie in [0, 1], means that class;
            or the classes themselves, whole numbers or words, (n,).
        labels: numbers of classes, (n,), from 0; or what the model answers with.
        k: at most the number of classes.

    A label counts as beaten by each class that scores more, and by each that comes first with the same score.
    A sample with an output that is no number is wrong.

    Raises:
        RequestError: outputs and labels do not fit each other, or k is no number of classes.
    """
    if _are_classes(outputs):
        if k != 1:
            raise RequestError(
                f"The first output is the class itself, without scores, so there is no top {k}."
            )
        answered, true_classes = _answers(outputs, labels)
        return np.asarray(answered == true_classes, dtype=float)
    scores = _class_scores(outputs)
    classes = _class_labels(scores, labels)
    if not 1 <= k <= scores.shape[1]:
        raise RequestError(f"The model has {scores.shape[1]} classes, so there is no top {k}.")
    own = scores[np.arange(len(classes)), classes][:, None]
    earlier = np.arange(scores.shape[1]) < classes[:, None]
    beaten_by = ((scores > own) | ((scores == own) & earlier)).sum(axis=1)
    correct: ndarray = ((beaten_by < k) & ~np.isnan(scores).any(axis=1)).astype(float)
    return correct


def is_share(metric: str) -> bool:
    """Return whether the scores of a metric are 0 or 1."""
    return metric in _SHARES or metric.startswith(_TOP)


def _within_top(outputs: ndarray, labels: ndarray, k: int) -> ndarray:
    """Return the scores of ``top_<k>``.

    Raises:
        RequestError: k is not less than the number of classes, so every label would be right.
    """
    correct_within(outputs, labels, k if _are_classes(outputs) else 1)  # refuses what does not fit
    classes = _class_scores(outputs).shape[1]
    if k >= classes:
        raise RequestError(
            f"The model has {classes} classes, all of which are in the top {k}; take fewer than {classes}."
        )
    return correct_within(outputs, labels, k)


def cross_entropy(outputs: ndarray, labels: ndarray) -> ndarray:
    """Return the cross entropy of each sample in nats, of class numbers (n,) and outputs (n, classes).

    Outputs are logits, or probabilities if they lie in [0, 1] and add up to 1 in every sample; a
    probability counts as no less than the resolution of its dtype, as in scikit-learn.

    Raises:
        RequestError: they do not fit each other, or outputs are the classes themselves.
    """
    if _are_classes(outputs):
        raise RequestError("The first output is the class itself; a loss needs a score of each class.")
    scores = np.asarray(outputs, dtype=float)
    if _are_probabilities(scores):
        dtype = np.asarray(outputs).dtype
        scores = np.log(np.maximum(scores, np.finfo(dtype if dtype.kind == "f" else float).eps))
    classes = _class_labels(scores, labels)
    shifted = scores - scores.max(axis=1, keepdims=True)
    picked = shifted[np.arange(len(classes)), classes]
    return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - picked)


def absolute_errors(outputs: ndarray, targets: ndarray) -> ndarray:
    """Return the absolute error of each sample, averaged over its elements; a column may be flat.

    Raises:
        RequestError: the shapes differ, which would otherwise broadcast into a number.
    """
    values, expected = np.asarray(outputs, dtype=float), np.asarray(targets, dtype=float)
    if values.size == expected.size and len(values) == len(expected):
        expected = expected.reshape(values.shape)
    if values.shape != expected.shape or not values.size:
        raise RequestError(
            f"The targets have the shape {np.shape(targets)}, but the outputs {np.shape(outputs)}; "
            "give one target for each output."
        )
    return np.asarray(np.abs(values - expected).reshape(len(values), -1).mean(axis=1))


def macro_f1(predicted: ndarray, labels: ndarray) -> float:
    """Return the mean of the F1 scores of all classes that occur among predictions or labels.

    Args:
        predicted: numbers of classes, (n,).
        labels: numbers of classes, (n,).
    """
    return float(_macro_f1_of_counts(_confusion(predicted, labels))[0])


def macro_f1_interval(predicted: ndarray, labels: ndarray) -> tuple[float, float]:
    """Return the 95 % interval of `macro_f1` by the percentile bootstrap over samples.

    Resampling samples is drawing the cells of the confusion matrix, which costs the same for any n.
    """
    counts = _confusion(predicted, labels)
    shares = counts.ravel() / counts.sum()
    draws = np.random.default_rng(0).multinomial(int(counts.sum()), shares, RESAMPLES)
    low, high = np.quantile(_macro_f1_of_counts(draws.reshape(RESAMPLES, *counts.shape)), (0.025, 0.975))
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A metric of labelled samples: its value, the ends of its 95 % interval, and what it was made of."""

    value: float
    low: float
    high: float
    scores: np.ndarray | None = None
    """One for each sample, of which the value is the mean; None if it is no mean."""


def evaluate(metric: str, outputs: ndarray, labels: ndarray) -> Evaluation:
    """Evaluate a metric of `EVALUATIONS`, or ``top_<k>``, over samples.

    Args:
        metric: its name.
        outputs: those of the model, (n, classes) or (n,), or (n, ...) for targets.
        labels: numbers of classes, (n,), or what the model answers with, or targets like the outputs.

    Raises:
        RequestError: outputs and labels do not fit each other or the metric.
    """
    if metric == "f1":
        correct_within(outputs, labels)  # refuses what does not fit
        predicted, classes = _answers(outputs, labels)
        return Evaluation(macro_f1(predicted, classes), *macro_f1_interval(predicted, classes))
    scores = (
        _within_top(outputs, labels, int(metric.removeprefix(_TOP)))
        if metric.startswith(_TOP)
        else _SCORES[metric](outputs, labels)
    )
    value = float(scores.mean())
    if is_share(metric):
        return Evaluation(value, *share_interval(int(scores.sum()), len(scores)), scores)
    return Evaluation(value, *mean_interval(scores, len(scores)), scores)


def independent_difference(before: Evaluation, after: Evaluation, level: float) -> tuple[float, float, float]:
    """Return after - before of two values from different samples, and the ends of its interval.

    The method is that of Newcombe (1998, method 10), which is Zou and Donner's (2008) for any two intervals.
    """
    scale = NORMAL.inv_cdf((1 + level) / 2) / Z
    difference = after.value - before.value
    low = scale * math.hypot(after.value - after.low, before.high - before.value)
    high = scale * math.hypot(after.high - after.value, before.value - before.low)
    return difference, difference - low, difference + high


def paired_difference(
    metric: str, before: ndarray, after: ndarray, level: float
) -> tuple[float, float, float]:
    """Return after - before of the mean scores of the same samples, and the ends of its interval."""
    if is_share(metric):
        return paired_share_difference(before, after, level)
    return paired_mean_difference(before, after, level)


def paired_share_difference(
    before: ndarray, after: ndarray, level: float = 0.95
) -> tuple[float, float, float]:
    """Return after - before of two proportions of the same samples, and the ends of its interval.

    The interval is that of Bonett and Price (2012): Wald's, after half a sample was added to each of the four
    cells, so that it holds where few or no samples differ.

    Args:
        before: 0 or 1 for each sample, (n,).
        after: the same of the other model, in the same order.
        level: confidence of the interval, two-sided.
    """
    n = len(before)
    gained, lost = int(np.sum(after > before)), int(np.sum(after < before))
    more, less = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    centre = more - less
    reach = NORMAL.inv_cdf((1 + level) / 2) * math.sqrt((more + less - centre * centre) / (n + 2))
    return (gained - lost) / n, max(-1.0, centre - reach), min(1.0, centre + reach)


def paired_mean_difference(
    before: ndarray, after: ndarray, level: float = 0.95
) -> tuple[float, float, float]:
    """Return after - before of two means of the same samples, and the ends of its interval (Student's t)."""
    differences = np.asarray(after) - np.asarray(before)
    n, difference = len(differences), float(differences.mean())
    if n == 1:
        return difference, -math.inf, math.inf
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    reach = student_t.upper_tail_quantile((1 - level) / 2, n - 1) * error
    return difference, difference - reach, difference + reach


def _class_scores(outputs: ndarray) -> ndarray:
    """Return scores (n, classes); a single column becomes two, with its threshold as the score of class 0."""
    scores = np.asarray(outputs, dtype=float)
    if scores.ndim == 1 or scores.shape[1:] == (1,):
        column = scores.reshape(len(scores), 1)
        probable = bool(np.all((column >= 0) & (column <= 1)))
        scores = np.hstack((np.full_like(column, 0.5 if probable else 0.0), column))
    return scores


def _are_classes(outputs: ndarray) -> bool:
    """Return whether a model answers with a class for each sample, as estimators do, and not with scores."""
    answers = np.asarray(outputs)
    return answers.ndim == 1 and answers.dtype.kind in "iuOUS"


def _are_probabilities(scores: ndarray) -> bool:
    return (
        scores.ndim == 2
        and bool(np.all((scores >= 0) & (scores <= 1)))
        and bool(np.all(np.abs(scores.sum(axis=1) - 1) <= _SUM_TOLERANCE))
    )


def _answers(outputs: ndarray, labels: ndarray) -> tuple[ndarray, ndarray]:
    """Return numbers of the classes that the model answers with, and those of the labels, (n,) each.

    Raises:
        RequestError: labels do not fit the outputs.
    """
    if not _are_classes(outputs):
        scores = _class_scores(outputs)
        return scores.argmax(axis=1), _class_labels(scores, labels)
    answers, true_classes = _words_as_text(outputs), _words_as_text(labels)
    if true_classes.shape[1:] == (1,):
        true_classes = true_classes[:, 0]
    if true_classes.shape != answers.shape or not len(true_classes):
        raise RequestError(
            f"The labels have the shape {np.shape(labels)}, but the model answers with one class for each of "
            f"{len(answers)} samples; give one label for each."
        )
    if (true_classes.dtype.kind == "U") != (answers.dtype.kind == "U"):
        raise RequestError(
            f"The model answers with classes such as '{answers[0]}', but the labels are such as "
            f"'{true_classes[0]}'; give the classes that it answers with."
        )
    numbers = np.unique(np.concatenate((answers, true_classes)), return_inverse=True)[1]
    return numbers[: len(answers)], numbers[len(answers) :]


def _words_as_text(classes: ndarray) -> ndarray:
    array = np.asarray(classes)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8")
    return array.astype(str) if array.dtype.kind == "O" else array


def _class_labels(scores: ndarray, labels: ndarray) -> ndarray:
    """Return labels as numbers of classes, (n,).

    Raises:
        RequestError: their number, shape, dtype or range does not fit the scores (n, classes).
    """
    numbers = np.asarray(labels)
    if numbers.shape[1:] == (1,):
        numbers = numbers[:, 0]
    if scores.ndim != 2 or numbers.shape != scores.shape[:1] or not len(numbers):
        raise RequestError(
            f"The labels have the shape {np.shape(labels)}, but the outputs {scores.shape}; "
            "give one label for each sample, and outputs of samples x classes."
        )
    if numbers.dtype.kind in "OUS":
        raise RequestError(
            f"The labels are words, such as '{numbers[0]}', but the model gives scores of classes; "
            "give the number of the class, from 0."
        )
    if numbers.dtype.kind not in "biu" and not np.all(numbers == np.floor(numbers)):
        raise RequestError("The labels are not whole numbers; give the number of the class, from 0.")
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= scores.shape[1]:
        raise RequestError(
            f"The labels go from {low} to {high}, but the model has {scores.shape[1]} classes; "
            "number them from 0."
        )
    return numbers.astype(int)


def _confusion(predicted: ndarray, labels: ndarray) -> ndarray:
    """Count samples by label (row) and prediction (column)."""
    classes = int(max(np.max(predicted), np.max(labels))) + 1
    cells = np.asarray(labels).astype(int) * classes + np.asarray(predicted).astype(int)
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)


def _macro_f1_of_counts(counts: ndarray) -> ndarray:
    """Return the macro F1 of confusion matrices (..., classes, classes), one for each; at least 1-D."""
    tables = counts.reshape(-1, *counts.shape[-2:])
    right = np.diagonal(tables, axis1=1, axis2=2)
    total = tables.sum(axis=1) + tables.sum(axis=2)
    scores = 2 * right / np.maximum(total, 1)
    return np.asarray(scores.sum(axis=1) / (total > 0).sum(axis=1))


_SCORES: dict[str, Callable[[ndarray, ndarray], ndarray]] = {
    "accuracy": correct_within,
    "misclassification": lambda outputs, labels: 1 - correct_within(outputs, labels),
    "evaluation_loss": cross_entropy,
    "mean_absolute_error": absolute_errors,
}
"""The score of each sample, by metric."""
