"""``lightgbm:m.txt``: a model saved by LightGBM, read as data."""

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

requires: tuple[str, ...] = ("lightgbm",)
executes = Executes.NOTHING
backend = "python"

_HEAD = b"tree\nversion="
"""First bytes of LightGBM's text."""


def claims(path: Path) -> bool:
    """Claim a file by its first bytes, whatever its suffix."""
    return digest.read_head(path, len(_HEAD)) == _HEAD


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Load the booster.

    Raises:
        RequestError: the file is missing or damaged.
    """
    del seed, trust  # it is fitted, and nothing in it is executed
    path = Path(ref.locator)
    if not path.is_file():
        raise RequestError(f"There is no file '{path}'; give the path of a model that LightGBM saved.")
    if not claims(path):
        raise RequestError(f"'{path}' is no model that LightGBM saved; save it with booster.save_model.")
    import lightgbm  # optional, and heavy

    try:
        booster = lightgbm.Booster(model_file=str(path))
    except lightgbm.basic.LightGBMError as error:
        raise RequestError(
            f"'{path}' cannot be read by LightGBM {lightgbm.__version__}: it is damaged; save it again."
        ) from error
    with describing():
        model = estimator.describe_estimator(booster, path.stem, content=path.read_bytes())
        return replace(model, file_bytes=path.stat().st_size)


look = load
"""The size of its trees is known only to LightGBM."""
