"""Parameters of estimators: what fit learns and a prediction reads, by hand and by watching predictions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn import naive_bayes
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import (
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.svm import LinearSVC

from modeldyno.base.errors import RequestError
from modeldyno.models.loaders.estimator import describe_estimator

TABLE = np.abs(np.random.default_rng(0).normal(size=(120, 8))) + 0.1
LABELS = (TABLE[:, 0] > TABLE[:, 1]).astype(int)
TEXTS = ["the cat sat", "a dog ran"]  # five words of two letters or more


def parameters(estimator: Any) -> int:
    """Return the parameters of a fitted estimator."""
    weights = describe_estimator(estimator, "model").weights
    assert weights is not None
    return sum(weight.size for weight in weights() if weight.parameter)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        # three folds, each with 8 coefficients, an intercept, and a slope and an offset of the sigmoid
        (CalibratedClassifierCV(LinearSVC(), cv=3), 3 * (8 + 1 + 2)),
        (CalibratedClassifierCV(LinearSVC(), cv=3, ensemble=False), 8 + 1 + 2),
        (naive_bayes.GaussianNB(), 2 * 8 + 2 * 8 + 2),  # means, variances, priors
        (naive_bayes.MultinomialNB(), 2 * 8 + 2),
        (naive_bayes.BernoulliNB(), 2 * 8 + 2),
        (PCA(3), 3 * 8 + 8),  # components and mean
        (PCA(3, whiten=True), 3 * 8 + 8 + 3),
        (GaussianMixture(2, random_state=0), 2 + 2 * 8 + 2 * 64),  # weights, means, factors of the precisions
        (StandardScaler(), 16),
        (make_pipeline(StandardScaler(), LogisticRegression()), 16 + 9),
        (Normalizer(), 0),
    ],
    ids=lambda value: str(value)[:40],
)
def test_parameters_by_hand(estimator: Any, expected: int) -> None:
    """What only tells of the fit is none of them."""
    assert parameters(estimator.fit(TABLE, LABELS)) == expected


def test_the_weights_of_words_are_parameters() -> None:
    """One for each word, also where the vectorizer keeps them in an estimator of its own."""
    assert parameters(TfidfVectorizer().fit(TEXTS)) == 5
    assert parameters(TfidfTransformer().fit(np.eye(5))) == 5


def test_what_need_not_be_fitted_is_not_refused() -> None:
    """Stateless transformers are ready as they are; the others are refused until they are fitted."""
    assert parameters(HashingVectorizer()) == 0
    assert parameters(FunctionTransformer(np.log1p)) == 0
    assert parameters(make_pipeline(HashingVectorizer(), Normalizer())) == 0
    for unfitted in (TfidfVectorizer(), CalibratedClassifierCV(), GaussianMixture(), StandardScaler()):
        with pytest.raises(RequestError, match="not fitted; call its fit first"):
            describe_estimator(unfitted, "model")


# -- against what predictions read -----------------------------------------------------------------------

DIFFERENT = {
    "BisectingKMeans",  # reads its tree, whose leaves are the centres
    "CategoricalNB",  # reads counts of classes for its priors
    "HistGradientBoostingClassifier",  # trees of another kind, which no attribute access shows
    "HistGradientBoostingRegressor",
    "KNNImputer",  # reads the table of training only where a value is missing
    "KNeighborsClassifier",  # searches a tree that holds the table of training
    "KNeighborsRegressor",
    "KNeighborsTransformer",
    "RadiusNeighborsClassifier",
    "RadiusNeighborsRegressor",
    "RadiusNeighborsTransformer",
    "NuSVC",  # reads copies of coefficients and intercepts
    "NuSVR",
    "OneClassSVM",
    "SVC",
    "SVR",
    "SGDOneClassSVM",  # an offset beside its coefficients, which is its intercept
    "GenericUnivariateSelect",  # choose columns by scores of the fit
    "SelectFdr",
    "SelectFpr",
    "SelectFwe",
    "SelectKBest",
    "SelectPercentile",
}
"""Estimators of which the attributes that are read, and those that count, are not the same by design."""


class Watch:
    """Records which attributes of an estimator, and of those within it, are read."""

    def __init__(self, estimator: Any) -> None:
        self.read: set[str] = set()
        self._visited: dict[int, Any] = {}
        self._watch(estimator, "")

    def _watch(self, value: Any, path: str) -> None:
        if id(value) in self._visited:
            return
        self._visited[id(value)] = value
        if isinstance(value, list | tuple):
            for place, item in enumerate(value):
                self._watch(item, f"{path}.{place}")
        elif type(value).__module__.startswith("sklearn.") and hasattr(value, "__dict__"):
            for name, item in list(vars(value).items()):
                self._watch(item, f"{path}.{name}")
            kind, read = type(value), self.read

            def watched(self: Any, name: str) -> Any:
                read.add(f"{path}.{name}".lstrip("."))
                return object.__getattribute__(self, name)

            with_watch = {"__getattribute__": watched, "__module__": kind.__module__}
            try:
                value.__class__ = type(kind.__name__, (kind,), with_watch)
            except TypeError:  # a class of C
                return


def _fitted() -> list[Any]:
    from sklearn.utils import all_estimators

    estimators = []
    target = TABLE @ np.arange(8.0)
    for _, kind in all_estimators():
        try:
            estimator = kind()
            continuous = "Regress" in kind.__name__ or hasattr(estimator, "_more_tags_regressor")
            estimators.append(estimator.fit(TABLE, target if continuous else LABELS))
        except Exception:  # noqa: BLE001 - it needs another estimator, texts, or other targets
            continue
    return estimators


@pytest.mark.slow
def test_the_parameters_of_every_estimator_are_what_its_prediction_reads() -> None:
    """All that count are read by a prediction, and all float arrays of the fit that it reads count."""
    wrong: dict[str, tuple[set[str], set[str]]] = {}
    checked = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for estimator in _fitted():
            name = type(estimator).__name__
            if name in DIFFERENT or not any(hasattr(estimator, each) for each in ("predict", "transform")):
                continue
            model = describe_estimator(estimator, name)
            assert model.weights is not None
            counted = {weight.name for weight in model.weights() if weight.parameter and weight.size}
            learned = {path for path, array in _arrays(estimator, "") if array.dtype.kind == "f"}
            watch = Watch(estimator)
            try:
                getattr(estimator, model.value.__name__)(TABLE)
            except (AttributeError, ValueError):  # it takes texts or images
                continue
            checked += 1
            unread = {path for path in counted if not any(path.startswith(read) for read in watch.read)}
            missed = {path for path in learned & watch.read - counted if not path.endswith("classes_")}
            if unread or missed:
                wrong[name] = (unread, missed)
    assert wrong == {}
    assert checked > 80


def _arrays(estimator: Any, path: str) -> list[tuple[str, Any]]:
    """Return the arrays in the attributes of an estimator itself whose names end in an underscore."""
    attributes = ((f"{path}{name}", value) for name, value in vars(estimator).items() if name.endswith("_"))
    return [(name, value) for name, value in attributes if isinstance(value, np.ndarray) and value.ndim]
