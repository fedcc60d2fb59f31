"""Estimators of scikit-learn, XGBoost and LightGBM as callables, their inputs, and what `fit` stored.

Counted as parameters are the numbers that `fit` chose and a prediction reads: coefficients and intercepts of
linear models; of each tree the threshold of every split and the values of every leaf; of any other estimator
the float arrays in attributes whose names end in an underscore, without what only tells of the fit (scores,
losses, counts, the variance that PCA explains). Other arrays, such as the classes, are buffers. A test holds
it against what a prediction of each estimator of scikit-learn reads.
"""

from __future__ import annotations

import json
import pickle
import re
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.models.interface import Form, Model
from modeldyno.models.loaders import call, digest
from modeldyno.models.static.weights import Weight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy import ndarray

_METHODS = ("predict", "transform")
"""What is called unless the user names a method; of a Booster of XGBoost it is `inplace_predict`."""
_LINEAR = ("coef_", "intercept_")
_CLASSES = "classes_"
"""The labels, which trees keep as floats."""
_REPORT = re.compile(
    r"^_|score|loss|curve|singular|oob|error|count|explained|pvalues|affinity_matrix|h_samples"
    r"|^(mean|covariance)_prior_$|^(raw_)?covariances?_$|^precisions_$|^raw_location_$|^dist_$"
    r"|^whitening_$|^mixing_$|^feature_all_$|^data_(min|max|range)_$|^class_weight_$|deviations_$|std_dev_$"
)
"""Attributes that tell of the fit, and that no prediction reads."""
_UNREAD = {
    "BayesianGaussianMixture": {"weights_"},
    "BernoulliRBM": {"intercept_visible_"},
    "ComplementNB": {"class_log_prior_"},
    "GaussianProcessRegressor": {"L_", "y_train_"},
    "IncrementalPCA": {"var_"},
    "Isomap": {"embedding_"},
    "MaxAbsScaler": {"max_abs_"},
    "StandardScaler": {"var_"},
}
"""Further ones, by class, whose names mean something else in other classes."""
_NUMBERS = frozenset({"a_", "b_", "beta_"})
"""Single numbers of calibrators, which are parameters as the arrays of others are."""
_READ_INSIDE = frozenset({"_centerer", "_predictors", "_scaler", "_tfidf"})
"""Attributes that hold estimators, or the trees of histogram gradient boosting, which a prediction reads."""
_TRAINING_DATA = "_fit_X"
"""Where nearest neighbours keep the training data, which every prediction reads."""
_DTYPES = {"sklearn": "float64", "xgboost": "float32", "lightgbm": "float64"}
"""Framework to the dtype that it computes in, which spares a call the conversion."""
_LEAVES = re.compile(r"^num_leaves=(\d+)$", re.MULTILINE)


def framework_of(value: Any) -> str | None:
    """Return the framework of an estimator or a method of one: sklearn, xgboost or lightgbm; else None.

    Only names of classes are looked at, so that none of them is imported.
    """
    owner = _owner(value)
    if isinstance(owner, type) or not any(hasattr(owner, method) for method in _METHODS):
        return None
    packages = [kind.__module__.partition(".")[0] for kind in type(owner).__mro__]
    return next((package for package in ("xgboost", "lightgbm", "sklearn") if package in packages), None)


def describe_estimator(
    value: Any, name: str, *, method: str = "", content: bytes | None = None, example: Any = None
) -> Model:
    """Return the model of a fitted estimator, or of one of its methods.

    Args:
        value: the estimator, or a bound method of it.
        name: for people.
        method: the method to call; empty for the first of predict and transform.
        content: what to digest; None for the estimator's own saved form.
        example: an input for it, or None.

    Raises:
        RequestError: it has no such method, or is not fitted.
    """
    framework = framework_of(value)
    assert framework is not None
    owner = _owner(value)
    function = value if owner is not value else getattr(owner, _method(owner, name, method))
    features = _features(owner)
    weights = tuple(_weights(owner))
    if features is None and framework == "sklearn" and not weights:
        _check_is_fitted(owner, name)
    feed = None if example is None else call.example_feed(function, example)
    parameter = next(iter(call.declare_inputs(function, None)), InputSpec(name="X")).name
    saved = _saved(owner, function) if content is None else content
    return Model(
        identity=ModelIdentity(
            name=name, digest=digest.digest_parts((framework, function.__name__, saved)), framework=framework
        ),
        form=Form.CALLABLE,
        value=function,
        inputs=call.declare_inputs(function, feed)
        if feed is not None
        else (_table(owner, parameter, features, _DTYPES[framework]),),
        weights=lambda: weights,
        example=feed,
    )


def _check_is_fitted(owner: Any, name: str) -> None:
    """Raise RequestError for an estimator that has to be fitted and is not, as scikit-learn tells."""
    from sklearn.exceptions import NotFittedError  # optional
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(owner)
    except NotFittedError as error:
        raise RequestError(f"'{name}' is not fitted; call its fit first, or save it after that.") from error
    except (TypeError, AttributeError):  # a class in the style of scikit-learn, which cannot tell
        return


def _table(owner: Any, name: str, features: int | None, dtype: str) -> InputSpec:
    """Declare the input: a table, texts for a vectorizer of them, or one whose shape the user has to give."""
    if features is not None:
        return InputSpec(name=name, shape=(BATCH, features), dtype=dtype)
    first = owner.steps[0][1] if getattr(owner, "steps", None) else owner
    if hasattr(first, "analyzer"):  # a vectorizer of texts
        return InputSpec(name=name, shape=(BATCH,), dtype="string")
    return InputSpec(name=name)


def _owner(value: Any) -> Any:
    """Return the object of a bound method, or the value itself."""
    owner = getattr(value, "__self__", None)
    return value if owner is None or isinstance(owner, type) else owner


def _method(owner: Any, name: str, method: str) -> str:
    if method:
        if not callable(getattr(owner, method, None)):
            raise RequestError(
                f"{type(owner).__name__} '{name}' has no method {method}; name another after the #, such as "
                f"#{_method(owner, name, '')}."
            )
        return method
    if _is_booster(owner, "xgboost"):
        return "inplace_predict"
    return next(each for each in _METHODS if hasattr(owner, each))


def _is_booster(owner: Any, package: str) -> bool:
    kind = type(owner)
    return kind.__name__ == "Booster" and kind.__module__.partition(".")[0] == package


def _features(owner: Any) -> int | None:
    """Return the number of columns of its input; None if it does not know, as a pipeline of texts."""
    try:
        if _is_booster(owner, "xgboost"):
            return int(owner.num_features())
        if _is_booster(owner, "lightgbm"):
            return int(owner.num_feature())
        return int(owner.n_features_in_)
    except (AttributeError, ValueError):
        return None  # both raise it for what is not fitted


def _saved(owner: Any, function: Callable[..., Any]) -> bytes:
    """Return the estimator as it would be saved, or the code of its method if it cannot be."""
    if (booster := _booster(owner)) is not None:
        return (
            bytes(booster.save_raw("json"))
            if _is_booster(booster, "xgboost")
            else booster.model_to_string().encode()
        )
    try:
        return pickle.dumps(owner)
    except (pickle.PicklingError, TypeError, AttributeError):
        return call.callable_digest(function).encode()


def _booster(owner: Any) -> Any:
    """Return the booster of an estimator of XGBoost or LightGBM; None of any other."""
    if _is_booster(owner, "xgboost") or _is_booster(owner, "lightgbm"):
        return owner
    framework = framework_of(owner)
    if framework == "sklearn":
        return None
    try:
        return owner.get_booster() if framework == "xgboost" else owner.booster_
    except (ValueError, TypeError, AttributeError) as error:  # NotFittedError is a ValueError
        raise RequestError(
            f"This {type(owner).__name__} is not fitted; call its fit first, or save it after that."
        ) from error


# -- what fit stored --------------------------------------------------------------------------------------


def _weights(owner: Any) -> Iterator[Weight]:
    booster = _booster(owner)
    if booster is None:
        yield from _sklearn_weights(owner, "", {})
    elif _is_booster(booster, "xgboost"):
        yield from _xgboost_weights(json.loads(bytes(booster.save_raw("json"))))
    else:
        leaves = sum(map(int, _LEAVES.findall(booster.model_to_string())))
        yield from _tree_weights("trees", leaves - booster.num_trees(), leaves, 8)


def _xgboost_weights(saved: Any) -> Iterator[Weight]:
    """Count in the JSON form of a booster; that of dart holds one of trees."""
    model = saved["learner"]["gradient_booster"]
    model = model.get("gbtree", model)["model"]
    if "trees" not in model:
        yield _weight("coefficients", (len(model["weights"]),), "float32")
        return
    splits = leaves = 0
    for tree in model["trees"]:
        ends = sum(child == -1 for child in tree["left_children"])
        splits += len(tree["left_children"]) - ends
        leaves += ends * max(1, int(tree["tree_param"]["size_leaf_vector"]))
    yield from _tree_weights("trees", splits, leaves, 4)


def _tree_weights(path: str, splits: int, leaves: int, size: int) -> Iterator[Weight]:
    """Yield the thresholds of splits and the values of leaves, of `size` bytes each."""
    yield _weight(f"{path}.thresholds", (splits,), f"float{8 * size}")
    yield _weight(f"{path}.leaf_values", (leaves,), f"float{8 * size}")


def _weight(name: str, shape: tuple[int, ...], dtype: str) -> Weight:
    import numpy as np  # slow to import

    size = int(np.prod(shape))
    return Weight(name=name, shape=shape, dtype=dtype, size=size, bytes=size * np.dtype(dtype).itemsize)


def _sklearn_weights(part: Any, path: str, visited: dict[int, Any]) -> Iterator[Weight]:
    """Yield the arrays and trees of an estimator and of those within it, each once."""
    if id(part) in visited:
        return
    visited[id(part)] = part  # so that no other object gets its id: an array makes its rows anew
    if isinstance(part, list | tuple | dict) or _is_array(part):
        items = part.items() if isinstance(part, dict) else enumerate(part)
        for key, item in items:
            yield from _sklearn_weights(item, f"{path}.{key}".lstrip("."), visited)
    elif hasattr(part, "node_count") and hasattr(part, "n_leaves"):  # sklearn.tree._tree.Tree
        values = part.value[0].size if part.node_count else 1
        yield from _tree_weights(path, part.node_count - part.n_leaves, part.n_leaves * values, 8)
    elif type(part).__name__ == "TreePredictor":  # of histogram gradient boosting
        leaves = int(part.nodes["is_leaf"].sum())
        yield from _tree_weights(path, len(part.nodes) - leaves, leaves, 8)
    elif _is_part(part):
        if framework_of(part) in {"xgboost", "lightgbm"}:
            yield from _weights(part)
            return
        for name, value in vars(part).items():
            yield from _attribute(part, name, value, f"{path}.{name}".lstrip("."), visited)


def _is_part(value: Any) -> bool:
    """Whether it is an estimator, or what holds one and its calibrators."""
    if isinstance(value, type):
        return False
    return hasattr(value, "get_params") or type(value).__name__ == "_CalibratedClassifier"


def _attribute(part: Any, name: str, value: Any, path: str, visited: dict[int, Any]) -> Iterator[Weight]:
    arrays = value if isinstance(value, list) else [value]
    if name in _NUMBERS and isinstance(value, float):
        yield _weight(path, (), "float64")
        return
    if not arrays or not all(map(_is_numeric, arrays)):
        if name in _READ_INSIDE or not name.startswith("_"):
            yield from _sklearn_weights(value, path, visited)
        return
    fitted = name == _TRAINING_DATA or (name.endswith("_") and not _tells_of_the_fit(part, name))
    if name in _LINEAR or (fitted and "coef_" not in vars(part) and all(array.ndim for array in arrays)):
        for index, array in enumerate(arrays):
            yield _array_weight(array, path if array is value else f"{path}.{index}", name)


def _tells_of_the_fit(part: Any, name: str) -> bool:
    """Whether no prediction reads an attribute; one that whitens reads the variances."""
    if name == "explained_variance_" and getattr(part, "whiten", False):
        return False
    return _REPORT.search(name) is not None or name in _UNREAD.get(type(part).__name__, ())


def _array_weight(array: ndarray, path: str, name: str) -> Weight:
    return Weight(
        name=path,
        shape=array.shape,
        dtype=str(array.dtype),
        size=array.size,
        bytes=array.nbytes,
        parameter=array.dtype.kind in "fc" and name != _CLASSES,
    )


def _is_array(value: Any) -> bool:
    """Whether it is an array of objects, such as the estimators of gradient boosting."""
    return type(value).__module__ == "numpy" and hasattr(value, "dtype") and value.dtype == object


def _is_numeric(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "dtype") and value.dtype.kind in "biufc"
