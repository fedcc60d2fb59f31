"""Models of scikit-learn, XGBoost and LightGBM: files, live objects, and what is counted."""

from __future__ import annotations

import os
import pickle
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.packages import skip_module_without

import modeldyno
from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, TrustRequired
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.models.loaders import estimator, live_object
from modeldyno.models.static.weights import weight_measurements
from modeldyno.testing.loaders import LoaderSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Model

skip_module_without("sklearn")
FEATURES = 5
ROWS = np.random.default_rng(0).random((120, FEATURES))
LABELS = (ROWS[:, 0] > 0.5).astype(int)


def linear(seed: int = 0) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression().fit(ROWS + seed, LABELS)


def forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=4, max_depth=3, random_state=0).fit(ROWS, LABELS)


def xgb(seed: int = 0) -> Any:
    xgboost = pytest.importorskip("xgboost")
    return xgboost.XGBClassifier(n_estimators=3, max_depth=2, n_jobs=1, seed=seed).fit(ROWS + seed, LABELS)


def lgb(seed: int = 0) -> Any:
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(n_estimators=3, num_leaves=4, verbose=-1, n_jobs=1, min_child_samples=2)
    return model.fit(ROWS + seed, LABELS)


def dumped(path: Path, value: Any) -> ModelRef:
    import joblib

    joblib.dump(value, path)
    return ModelRef(scheme="sklearn", locator=str(path))


def counted(model: Model, metric: str = "parameters") -> object:
    assert model.weights is not None
    return next(m.value for m in weight_measurements(model.weights()) if m.metric == metric and not m.scope)


def live(value: Any, example: Any = None) -> Model:
    ref = live_object.offer(value, example=example)
    try:
        return live_object.load(ref, seed=0, trust=False)
    finally:
        live_object.withdraw(ref)


def called(model: Model, rows: Any) -> Any:
    backend = plugins.backend("python")
    with backend.open(model, configure(backend.knobs, {})) as session:
        assert isinstance(session, LocalSession)
        return session.arrays(session.prepare({model.inputs[0].name: rows})())["output"]


class TestSklearn(LoaderSuite):
    scheme = "sklearn"

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        """A small model of this kind."""
        return dumped(tmp_path / "one.joblib", linear())

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        """One with different content."""
        return dumped(tmp_path / "two.joblib", linear(1))

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        """One that cannot be loaded."""
        ref = dumped(tmp_path / "whole.joblib", linear())
        path = Path(ref.locator)
        path.write_bytes(path.read_bytes()[:300])
        return ref

    @pytest.fixture
    def claimed(self, tmp_path: Path) -> Path:
        """A path of this kind."""
        path = tmp_path / "one.pkl"
        path.write_bytes(pickle.dumps(linear()))
        return path

    @pytest.fixture
    def unclaimed(self, tmp_path: Path) -> Path:
        """A pickle of something else."""
        path = tmp_path / "other.pkl"
        path.write_bytes(pickle.dumps({"a": 1}))
        return path


class TestXgboost(LoaderSuite):
    scheme = "xgboost"

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        """A small model of this kind."""
        xgb().save_model(tmp_path / "one.json")
        return ModelRef(scheme="xgboost", locator=str(tmp_path / "one.json"))

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        """One with different content, in the binary form."""
        xgb(1).save_model(tmp_path / "two.ubj")
        return ModelRef(scheme="xgboost", locator=str(tmp_path / "two.ubj"))

    @pytest.fixture
    def damaged(self, ref: ModelRef, tmp_path: Path) -> ModelRef:
        """One that cannot be loaded."""
        (tmp_path / "damaged.json").write_bytes(Path(ref.locator).read_bytes()[:500])
        return ModelRef(scheme="xgboost", locator=str(tmp_path / "damaged.json"))

    @pytest.fixture
    def claimed(self, other: ModelRef) -> Path:
        """A path of this kind."""
        return Path(other.locator)


class TestLightgbm(LoaderSuite):
    scheme = "lightgbm"

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        """A small model of this kind."""
        lgb().booster_.save_model(tmp_path / "one.txt")
        return ModelRef(scheme="lightgbm", locator=str(tmp_path / "one.txt"))

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        """One with different content."""
        lgb(1).booster_.save_model(tmp_path / "two.txt")
        return ModelRef(scheme="lightgbm", locator=str(tmp_path / "two.txt"))

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        """One that cannot be loaded."""
        (tmp_path / "notes.txt").write_text("no model")
        return ModelRef(scheme="lightgbm", locator=str(tmp_path / "notes.txt"))

    @pytest.fixture
    def claimed(self, ref: ModelRef) -> Path:
        """A path of this kind."""
        return Path(ref.locator)


def test_a_linear_model_counts_coefficients_and_intercepts() -> None:
    """Five coefficients and an intercept of eight bytes each; iterations and classes are no parameters."""
    model = live(linear())
    assert (counted(model), counted(model, "weight_bytes")) == (FEATURES + 1, 8 * (FEATURES + 1))


def test_a_forest_counts_splits_and_leaves() -> None:
    """Each split is a threshold, each leaf a value for each class."""
    fitted = forest()
    trees = [each.tree_ for each in fitted.estimators_]
    expected = sum(tree.node_count - tree.n_leaves + 2 * tree.n_leaves for tree in trees)
    assert counted(live(fitted)) == expected


def test_boosted_trees_count_splits_and_leaves() -> None:
    """Gradient boosting, with and without histograms, is counted by its nodes, whoever calls it."""
    from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

    plain = GradientBoostingRegressor(n_estimators=3, max_depth=2).fit(ROWS, LABELS)
    nodes = sum(each.tree_.node_count for each in plain.estimators_.ravel())
    assert counted(live(plain)) == nodes + 1  # and the mean that it begins with
    binned = HistGradientBoostingRegressor(max_iter=3).fit(ROWS, LABELS)
    grown = sum(len(each.nodes) for row in binned._predictors for each in row)
    assert counted(live(binned)) == grown


def test_a_pipeline_counts_its_parts() -> None:
    """A scaler reads a mean and a scale for each feature; the linear model has six numbers."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = live(make_pipeline(StandardScaler(), linear()).fit(ROWS, LABELS))
    assert counted(model) == 2 * FEATURES + FEATURES + 1


def test_a_perceptron_counts_its_layers() -> None:
    """Its lists of arrays are weights; the loss of each step is none."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    with pytest.warns(ConvergenceWarning):
        fitted = MLPClassifier((3,), max_iter=2).fit(ROWS, LABELS)
    assert counted(live(fitted)) == FEATURES * 3 + 3 + 3 + 1


def test_xgboost_counts_nodes() -> None:
    """The estimator and its booster have a number in each node: a threshold, or the value of a leaf."""
    fitted = xgb()
    dump = "".join(fitted.get_booster().get_dump(dump_format="json"))
    nodes = dump.count('"nodeid"')
    assert counted(live(fitted)) == counted(live(fitted.get_booster())) == nodes
    assert counted(live(fitted), "weight_bytes") == 4 * nodes


def test_a_linear_booster_counts_coefficients() -> None:
    """A booster of linear models has a coefficient for each feature, and a bias."""
    xgboost = pytest.importorskip("xgboost")
    with xgboost.config_context(verbosity=0):  # XGBoost 3.4 calls such boosters deprecated
        fitted = xgboost.XGBRegressor(booster="gblinear", n_estimators=2, n_jobs=1).fit(ROWS, LABELS)
        assert counted(live(fitted)) == FEATURES + 1


def test_lightgbm_counts_nodes() -> None:
    """The estimator and its booster have a number in each node, of eight bytes."""
    fitted = lgb()
    leaves = sum(tree["num_leaves"] for tree in fitted.booster_.dump_model()["tree_info"])
    nodes = 2 * leaves - len(fitted.booster_.dump_model()["tree_info"])
    assert counted(live(fitted)) == counted(live(fitted.booster_)) == nodes
    assert counted(live(fitted), "weight_bytes") == 8 * nodes


@pytest.mark.parametrize("make", [linear, forest, xgb, lgb])
def test_an_estimator_predicts_what_it_predicts(make: Any) -> None:
    """The input is the table that it was fitted with, and the output that of predict."""
    fitted = make()
    model = live(fitted)
    assert model.inputs[0].shape == ("batch", FEATURES)
    assert model.identity.framework in {"sklearn", "xgboost", "lightgbm"}
    np.testing.assert_array_equal(called(model, ROWS[:7]), fitted.predict(ROWS[:7]))


@pytest.mark.parametrize("make", [xgb, lgb])
def test_a_booster_predicts_from_an_array(make: Any) -> None:
    """A booster is called with an array, and gives probabilities."""
    fitted = make()
    booster = fitted.get_booster() if hasattr(fitted, "get_booster") else fitted.booster_
    predicted = called(live(booster), ROWS[:7].astype(np.float32))
    np.testing.assert_allclose(predicted, fitted.predict_proba(ROWS[:7].astype(np.float32))[:, 1], rtol=1e-5)


def test_a_pipeline_of_texts_takes_texts() -> None:
    """Its input has no columns; random texts are made for it, as for any input of text."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    texts = ["a good one", "a bad one"] * 4
    fitted = make_pipeline(TfidfVectorizer(), linear().__class__()).fit(texts, [1, 0] * 4)
    model = live(fitted)
    assert (model.inputs[0].shape, model.inputs[0].dtype) == (("batch",), "string")
    assert called(model, np.array(texts, dtype=object)).tolist() == [1, 0] * 4


def test_a_method_can_be_named(tmp_path: Path) -> None:
    """A bound method, or a name after the #, is called instead; that is another model."""
    fitted = linear()
    ref = dumped(tmp_path / "m.joblib", fitted)
    named = plugins.loader("sklearn").load(
        ModelRef(scheme="sklearn", locator=f"{ref.locator}#predict_proba"), seed=0, trust=True
    )
    for model in (named, live(fitted.predict_proba)):
        np.testing.assert_array_equal(called(model, ROWS[:4]), fitted.predict_proba(ROWS[:4]))
    assert live(fitted).identity.digest != live(fitted.predict_proba).identity.digest
    with pytest.raises(
        RequestError, match="has no method predit; name another after the #, such as #predict"
    ):
        plugins.loader("sklearn").load(
            ModelRef(scheme="sklearn", locator=f"{ref.locator}#predit"), seed=0, trust=True
        )


def test_what_is_not_fitted_is_refused() -> None:
    """There is nothing to measure before fit."""
    from sklearn.linear_model import LogisticRegression

    unfitted = [LogisticRegression()]
    unfitted += [type(make())() for make in (xgb, lgb)]
    for value in unfitted:
        with pytest.raises(RequestError, match="not fitted; call its fit first"):
            live(value)


class Canary:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_an_untrusted_pickle_does_not_run(tmp_path: Path) -> None:
    """Neither claiming nor loading without trust unpickles it."""
    ref = dumped(tmp_path / "m.joblib", Canary(tmp_path / "mark"))
    loader: Any = plugins.loader("sklearn")
    assert loader.claims(Path(ref.locator))
    for bring in (loader.load, loader.look):
        with pytest.raises(TrustRequired):
            bring(ref, seed=0, trust=False)
    assert not (tmp_path / "mark").exists()
    with pytest.raises(RequestError, match="holds NoneType, which is no estimator"):
        loader.load(ref, seed=0, trust=True)
    assert (tmp_path / "mark").exists()


def test_a_live_estimator_is_profiled() -> None:
    """`profile` takes an estimator and a table; its parameters are in the result."""
    result = modeldyno.profile(linear(), ROWS[:8], max_time=0.3, min_time=0.0, precision=0.9)
    assert result["parameters"] == FEATURES + 1
    assert result["throughput"]


def test_a_file_is_profiled_in_its_own_process(tmp_path: Path) -> None:
    """The file is trusted in words; the result names the version of the framework."""
    ref = dumped(tmp_path / "m.joblib", forest())
    result = modeldyno.profile(
        ref.locator, trust=True, batch_size=4, probes=["latency"], max_time=0.3, min_time=0.0, precision=0.9
    )
    assert result.environment is not None
    assert result.environment.software["sklearn"] == version("scikit-learn")
    assert result.inputs[0].shape == (4, FEATURES)


def test_the_framework_is_known_by_the_class() -> None:
    """Anything without a method to call is no estimator, nor is a class."""
    assert estimator.framework_of(linear()) == "sklearn"
    assert estimator.framework_of(type(linear())) is None
    assert estimator.framework_of(ROWS) is None
    assert estimator.framework_of(len) is None
