"""``xgboost:m.json`` and ``xgboost:m.ubj``: a model saved by XGBoost, read as data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.models.interface import Executes, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest, estimator

if TYPE_CHECKING:
    from modeldyno.base.job.model_ref import ModelRef

requires: tuple[str, ...] = ("xgboost",)
executes = Executes.NOTHING
backend = "python"

_SUFFIXES = {".json", ".ubj", ".xgb", ".model"}
_HEAD = 64
"""Bytes within which both forms name the learner."""


def claims(path: Path) -> bool:
    """Claim a file whose first key is the learner."""
    head = digest.read_head(path, _HEAD) if path.suffix in _SUFFIXES else b""
    return head.startswith(b"{") and b"learner" in head


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Load the booster.

    Raises:
        RequestError: the file is missing or damaged.
    """
    del seed, trust  # it is fitted, and nothing in it is executed
    path = Path(ref.locator)
    if not path.is_file():
        raise RequestError(f"There is no file '{path}'; give the path of a model that XGBoost saved.")
    import xgboost  # optional, and heavy

    try:
        booster = xgboost.Booster(model_file=str(path))
    except xgboost.core.XGBoostError as error:
        raise RequestError(
            f"'{path}' cannot be read by XGBoost {xgboost.__version__}: it has another format, or is "
            "damaged; save it with save_model as .json or .ubj."
        ) from error
    with describing():
        model = estimator.describe_estimator(booster, path.stem, content=path.read_bytes())
        return replace(model, file_bytes=path.stat().st_size)


look = load
"""The size of its trees is known only to XGBoost."""
