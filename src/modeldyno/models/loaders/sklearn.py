"""``sklearn:m.joblib``: a fitted estimator of scikit-learn, saved by joblib or pickle; it needs trust.

``sklearn:m.joblib#predict_proba`` names the method to call; otherwise it is `predict`, or `transform`.
"""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, TrustRequired
from modeldyno.models.interface import Executes, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest, estimator

if TYPE_CHECKING:
    from modeldyno.base.job.model_ref import ModelRef

requires: tuple[str, ...] = ("sklearn",)
executes = Executes.PICKLE
backend = "python"

_PICKLED = {".pkl", ".pickle"}
_HEAD = 4096
"""Bytes within which a pickle names the class of its object."""
_MAX_REASON = 160
"""Characters of a reason shown in an error."""
_LOAD_ERRORS = (
    OSError, ValueError, TypeError, LookupError, AttributeError, ImportError, EOFError, RuntimeError,
    MemoryError, pickle.UnpicklingError,
)  # fmt: skip
"""What a damaged pickle raises."""


def claims(path: Path) -> bool:
    """Claim a file of joblib by its suffix, and a pickle that begins with a class of scikit-learn."""
    if path.suffix == ".joblib":
        return path.is_file()
    return path.suffix in _PICKLED and b"sklearn." in digest.read_head(path, _HEAD)


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Load the estimator.

    Raises:
        RequestError: the file is missing, damaged, or holds no fitted estimator.
        TrustRequired: it is not trusted.
    """
    del seed  # it is fitted
    locator, _, method = ref.locator.partition("#")
    path = Path(locator)
    if not path.is_file():
        raise RequestError(f"There is no file '{path}'; give the path of an estimator that joblib saved.")
    if not trust:
        raise TrustRequired(
            f"'{path}' is a pickle, which runs code when it is loaded; give `trust` if you know where it "
            "comes from."
        )
    value = _unpickle(path)
    if estimator.framework_of(value) is None:
        raise RequestError(
            f"'{path}' holds {type(value).__name__}, which is no estimator of scikit-learn, XGBoost or "
            "LightGBM; write a function that loads and calls it, and profile it as call:file.py:function."
        )
    with describing():
        model = estimator.describe_estimator(value, path.stem, method=method, content=path.read_bytes())
        return replace(model, file_bytes=path.stat().st_size)


look = load
"""Nothing is known of such a model without loading it."""


def _unpickle(path: Path) -> Any:
    import joblib  # comes with scikit-learn

    # An estimator that was fitted with a table warns at every call that an array has no column names.
    warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
    try:
        return joblib.load(path)
    except ModuleNotFoundError as error:
        raise RequestError(
            f"'{path}' needs the Python module {error.name}, which is not installed here; install it."
        ) from error
    except _LOAD_ERRORS as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0][:_MAX_REASON]
        raise RequestError(
            f"'{path}' cannot be read by joblib, with {type(error).__name__}: {reason}; it is no pickle, is "
            "damaged, or is of another version of scikit-learn."
        ) from error
