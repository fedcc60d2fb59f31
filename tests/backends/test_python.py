from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tests.zoo import callables

from modeldyno.backends import python as backend
from modeldyno.core.knob import configure
from modeldyno.loaders import object as objects
from modeldyno.testing.backends import BackendSuite

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.ports import Feed, Model


def lent(function: Callable[..., Any]) -> Model:
    """Lend a callable."""
    return objects.load(objects.offer(function), seed=0, trust=False)


def run(function: Callable[..., Any], feed: Feed) -> Feed:
    """Run a callable once."""
    with backend.open(lent(function), configure(backend.knobs, {})) as session:
        return session.arrays(session.prepare(feed)())


class TestSuite(BackendSuite):
    name = "python"

    @pytest.fixture
    def model(self) -> Model:
        """A small model."""
        return lent(callables.add)

    def feed(self, batch_size: int) -> Feed:
        """Random inputs of this batch size."""
        return {"left": np.arange(batch_size * 2.0).reshape(-1, 2), "right": np.ones((batch_size, 2))}


class TestCalls:
    def test_positional_parameters(self) -> None:
        """A parameter that is positional only is fed by position."""
        np.testing.assert_array_equal(run(callables.square, {"x": np.array([3.0])})["output"], [9.0])

    def test_no_parameters(self) -> None:
        """A callable without parameters is called as it is, and a number is an array."""
        assert run(callables.nothing, {}) == {"answer": np.array(42.0)}

    def test_builtins_without_a_signature(self) -> None:
        """A callable whose signature is not known is fed by position."""
        assert run(max, {"a": np.array(1.0), "b": np.array(2.0)})["output"] == 2.0

    def test_keywords_of_any_name(self) -> None:
        """A callable that takes any keyword gets its inputs by name."""

        def gather(**inputs: Any) -> list[str]:
            return sorted(inputs)

        assert run(gather, {"b": np.zeros(1), "a": np.zeros(1)})["output_0"] == "a"

    def test_other_objects_are_left_out(self) -> None:
        """What is no array, number or text is left out of the outputs; a tensor with gradients is not."""

        def odd() -> dict[str, object]:
            return {"thing": object(), "tensor": torch.ones(2, requires_grad=True), "none": None}

        assert list(run(odd, {})) == ["tensor"]
