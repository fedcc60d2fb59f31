"""``jax:pkg.mod:func`` and ``jax:file.py:func``: a function of JAX; a call waits for the device.

Its inputs are given as for ``call:``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.models.interface import Executes, Model
from modeldyno.models.loaders import call

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.job.model_ref import ModelRef

requires: tuple[str, ...] = ("jax",)
executes = Executes.NAMED
backend = "jax"


def claims(path: Path) -> bool:
    """Claim nothing: ``file.py:name`` is taken as a torch factory unless ``jax:`` is given."""
    del path
    return False


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Import the function and its inputs.

    Raises:
        RequestError: it cannot be imported or called.
    """
    model = call.load(ref, seed=seed, trust=trust)
    return replace(model, identity=replace(model.identity, framework="jax"))


look = load
"""Nothing to save by not loading: its arrays belong to the code."""
