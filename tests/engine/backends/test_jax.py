"""Functions of JAX: their inputs are on the device before a call, their outputs after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.backends import jax as backend
from modeldyno.models.loaders import jax as loader
from modeldyno.models.loaders import live_object
from modeldyno.testing.backends import BackendSuite
from modeldyno.testing.loaders import LoaderSuite

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.models.interface import Feed, Model

jax = pytest.importorskip("jax")

CODE = """
import jax
import jax.numpy as jnp

WEIGHTS = jnp.ones((4, 2))

@jax.jit
def double(x):
    return {"y": x @ WEIGHTS * 2}

double_inputs = {"x": jnp.ones((3, 4))}

def eager(params, x):
    return x @ params["w"]

eager_inputs = ({"w": WEIGHTS}, jnp.ones((3, 4)))
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "functions.py"
    path.write_text(CODE)
    return path


def load(code: Path, name: str) -> Model:
    return loader.load(ModelRef(scheme="jax", locator=f"{code}:{name}"), seed=0, trust=False)


class TestLoader(LoaderSuite):
    scheme = "jax"
    has_weights = False

    @pytest.fixture
    def ref(self, code: Path) -> ModelRef:
        """A jitted function."""
        return ModelRef(scheme="jax", locator=f"{code}:double")

    @pytest.fixture
    def other(self, code: Path) -> ModelRef:
        """One with different content."""
        return ModelRef(scheme="jax", locator=f"{code}:eager")


class TestBackend(BackendSuite):
    name = "jax"

    @pytest.fixture
    def model(self, code: Path) -> Model:
        """Give a jitted function."""
        return load(code, "double")

    def feed(self, batch_size: int) -> Feed:
        """Give rows of four numbers."""
        return {"x": np.random.default_rng(0).random((batch_size, 4), np.float32)}


def test_a_call_waits_for_the_device(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call returns was waited for, all of it."""
    model = load(code, "double")
    waited: list[Any] = []
    wait = jax.block_until_ready

    def watch(value: Any) -> Any:
        waited.append(value)
        return wait(value)

    monkeypatch.setattr(jax, "block_until_ready", watch)
    with backend.open(model, configure(backend.knobs, {})) as session:
        assert model.example is not None
        call = session.prepare(model.example)
        waited.clear()
        output = call()
    assert waited == [output]


def test_inputs_are_copied_before_the_call(code: Path) -> None:
    """The function gets arrays of the device, in structures too."""
    arrays: list[Any] = []

    def record(params: Any, x: Any) -> Any:
        arrays.extend((params["w"], x))
        return x

    model = load(code, "eager")
    assert model.example is not None
    with backend.open(model, configure(backend.knobs, {"device": "cpu"})) as session:
        session._function = record
        session.prepare(model.example)()
    assert all(isinstance(array, jax.Array) for array in arrays)
    assert session.device == str(jax.devices("cpu")[0])


def test_parameters_are_passed_as_they_are(code: Path) -> None:
    """A dict of arrays is one argument."""
    model = load(code, "eager")
    assert model.example is not None
    with backend.open(model, configure(backend.knobs, {})) as session:
        output = session.arrays(session.prepare(model.example)())["output"]
    np.testing.assert_array_equal(output, np.full((3, 2), 4.0))


def test_a_device_that_is_not_there_is_refused(code: Path) -> None:
    """The sentence lists those that JAX finds."""
    model = load(code, "double")
    config = configure(backend.knobs, {"device": "cpu:99"})
    with (
        pytest.raises(RequestError, match="finds no device cpu:99 here; available: "),
        backend.open(model, config),
    ):
        pass
    with pytest.raises(RequestError, match="such as cpu or gpu:1"):
        backend.check({"device": "CPU 0"})


def test_a_live_jitted_function_is_run_by_jax() -> None:
    """It needs no other word, so that nobody measures only its dispatch."""
    jitted = jax.jit(lambda x: x * 2)
    assert live_object.backend_of(jitted) == "jax"
    ref = live_object.offer(jitted, "double", np.ones((2, 3), np.float32))
    model = live_object.load(ref, seed=0, trust=False)
    live_object.withdraw(ref)
    assert model.identity.framework == "jax"
