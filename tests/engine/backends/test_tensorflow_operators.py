"""Operators in TensorFlow's profile; what TensorFlow itself records is examined where it is installed."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from modeldyno.engine.backends.tensorflow_operators import ProfileEvent, find_occurrences, watch_operators
from modeldyno.engine.trace.op_events import sum_occurrences

if TYPE_CHECKING:
    from pathlib import Path


def event(name: str, begin: float, end: float, *, thread: int = 0, kind: str = "") -> ProfileEvent:
    return ProfileEvent(
        name=f"{name}:{kind}" if kind else name, kind=kind, thread=thread, begin=begin, end=end
    )


def scope_of(name: str) -> str:
    return name.rpartition("/")[0]


def test_operators_belong_to_the_call_in_which_they_begin() -> None:
    """Those before, between and after the watched calls are left out; threads do not matter."""
    events = [
        event("a/MatMul", 0.1, 0.2, kind="MatMul"),
        event("modeldyno call", 1.0, 2.0),
        event("a/MatMul", 1.1, 1.4, thread=1, kind="MatMul"),
        event("b/Relu", 2.1, 2.2, kind="Relu"),
        event("modeldyno call#id=2#", 3.0, 4.0),
        event("a/MatMul", 3.1, 3.6, kind="MatMul"),
        event("c/Relu", 4.5, 4.6, kind="Relu"),
    ]
    occurrences = find_occurrences(events, scope_of)
    assert [
        (each.name, each.scope, each.call) for each in sorted(occurrences, key=lambda each: each.call)
    ] == [
        ("MatMul", "a", 0),
        ("MatMul", "a", 1),
    ]


def test_an_operator_within_another_is_its_callee() -> None:
    """The time of a loop's body is not the loop's own."""
    events = [
        event("modeldyno call", 0.0, 9.0),
        event("lstm/while", 1.0, 5.0, kind="While"),
        event("lstm/while/body/MatMul", 2.0, 4.0, kind="MatMul"),
        event("lstm/while/body/Tanh", 2.5, 3.0, thread=1, kind="Tanh"),
        event("dense/MatMul", 6.0, 7.0, kind="MatMul"),
    ]
    occurrences = find_occurrences(events, scope_of)
    assert {(each.name, each.scope): each.self_time for each in occurrences} == {
        ("While", "lstm"): 2.0,
        ("MatMul", "lstm/while/body"): 2.0,
        ("Tanh", "lstm/while/body"): 0.5,
        ("MatMul", "dense"): 1.0,
    }


def test_tensorflow_names_operators_by_their_layers(tmp_path: Path) -> None:
    """A real profile has the operators of each layer, and its trace opens as one of Chrome."""
    pytest.importorskip("tensorflow")
    import keras
    import numpy as np

    from modeldyno.engine.backends import tensorflow as backend
    from modeldyno.models.loaders import keras_model

    layers = [keras.layers.Dense(6, name="dense"), keras.layers.Dense(2, name="dense_1")]
    network = keras.Sequential([keras.Input((8,), name="x"), *layers])
    model = keras_model.describe_model(network, "model", "sha256:0")
    trace = tmp_path / "trace.json.gz"
    with backend.open(model, {"device": "cpu"}) as session:
        watched = session.operators({"x": np.zeros((1, 8), "float32")}, 3, trace)

    assert len(watched.times) == 3
    scopes = [each.scope for each in sum_occurrences(watched) if "MatMul" in each.name]
    assert sorted(scopes) == ["dense", "dense_1"]
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]


def test_a_profile_of_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, not shown as a call without operators."""
    tf = pytest.importorskip("tensorflow")
    from modeldyno.base.errors import RunFailed

    monkeypatch.setattr(tf.profiler.experimental, "start", lambda _folder: None)
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: None)
    with pytest.raises(RunFailed, match="wrote no profile"):
        watch_operators(lambda: None, 1, None, scope_of)
