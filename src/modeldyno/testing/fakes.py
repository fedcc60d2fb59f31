"""Fakes: a model in memory, for tests that need one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.models.interface import Form, Model
from modeldyno.models.static.weights import Weight

_WEIGHT = Weight(name="w", shape=(2, 3), dtype="float32", size=6, bytes=24, trainable=True)


def a_model(**changes: Any) -> Model:
    """Return a Model: a callable of one float32 input ``x`` of shape batch x 4, with one weight."""
    model = Model(
        identity=ModelIdentity(name="fake", digest="sha256:" + 64 * "0", framework="python"),
        form=Form.CALLABLE,
        value=lambda x: x,
        inputs=(InputSpec(name="x", shape=("batch", 4), dtype="float32"),),
        weights=lambda: (_WEIGHT,),
    )
    return replace(model, **changes)
