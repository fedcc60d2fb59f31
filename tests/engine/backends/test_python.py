from __future__ import annotations

import asyncio
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tests.zoo import callables

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import configure
from modeldyno.engine.backends import python as backend
from modeldyno.models.loaders import live_object as objects
from modeldyno.testing.backends import BackendSuite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from modeldyno.models.interface import Feed, Model


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


async def later() -> int:
    return 1


def items() -> Iterator[int]:
    yield 1


async def stream() -> AsyncIterator[int]:
    yield 1


class Awaited:
    async def __call__(self) -> int:
        """Give a number, once it is awaited."""
        return 1


class TestCalls:
    @pytest.mark.parametrize(
        ("function", "kind"),
        [
            (items, "a generator"),
            (stream, "an asynchronous generator"),
        ],
    )
    def test_what_a_call_does_not_run_is_refused(self, function: Callable[..., Any], kind: str) -> None:
        """The time of making a generator is not that of what it does."""
        with pytest.raises(RequestError, match=f"only creates {kind} and does not run it"):
            run(function, {})

    @pytest.mark.parametrize("function", [later, partial(later), Awaited()])
    def test_a_coroutine_is_run_to_its_end(self, function: Callable[..., Any]) -> None:
        """In a loop of its own."""
        assert run(function, {})["output"] == 1

    def test_a_coroutine_is_measured_within_a_running_loop(self) -> None:
        """As in a notebook; the time is that of what it awaits, and the loop goes on."""

        async def wait(x: Any) -> Any:
            await asyncio.sleep(0.005)
            return x

        async def cell() -> float:
            result = modeldyno.profile(wait, np.ones(2), max_time=0.5, store=False, progress=False)
            await asyncio.sleep(0)
            return result["latency.p50.raw"] or 0

        assert 0.005 <= asyncio.run(cell()) < 0.05

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

    @pytest.mark.parametrize(
        "example", [np.full(2, 3.0), (np.full(2, 3.0), np.ones(2)), {"x": np.full(2, 3.0)}]
    )
    @pytest.mark.parametrize("kind", ["function", "wraps", "positional", "object", "partial", "keywords"])
    def test_any_arguments(self, kind: str, example: Any) -> None:
        """A callable that takes any arguments is called as its example was given: by position, or by name."""

        def scale(x: Any, by: Any = 2.0) -> Any:
            return x * by

        def anything(*args: Any, **kwargs: Any) -> Any:
            return scale(*args, **kwargs)

        class Keras:
            @wraps(anything)
            def __call__(self, *args: Any, **kwargs: Any) -> Any:
                return scale(*args, **kwargs)

        @wraps(scale)
        def forwarding(*args: Any, **kwargs: Any) -> Any:
            return scale(*args, **kwargs)

        @wraps(scale)
        def by_position(*args: Any) -> Any:
            return scale(*args)

        @wraps(scale)
        def by_name(**kwargs: Any) -> Any:
            return scale(**kwargs)

        functions: dict[str, Callable[..., Any]] = {
            "function": anything,
            "wraps": forwarding,
            "positional": by_position,
            "object": Keras(),
            "partial": partial(anything),
            "keywords": by_name,
        }
        model = objects.load(objects.offer(functions[kind], example=example), seed=0, trust=False)
        assert model.example is not None
        with backend.open(model, configure(backend.knobs, {})) as session:
            output = session.arrays(session.prepare(model.example)())["output"]
        assert output.tolist() == ([3.0] * 2 if isinstance(example, tuple) else [6.0] * 2)

    def test_other_objects_are_left_out(self) -> None:
        """What is no array, number or text is left out of the outputs; a tensor with gradients is not."""

        def odd() -> dict[str, object]:
            return {"thing": object(), "tensor": torch.ones(2, requires_grad=True), "none": None}

        assert list(run(odd, {})) == ["tensor"]


def test_an_output_that_fails_when_asked_for_an_attribute_is_no_array() -> None:
    """A `__getattr__` that raises something else than AttributeError is no failure of the call."""

    class Odd:
        def __getattr__(self, name: str) -> None:
            raise RuntimeError(name)

    assert run(Odd, {}) == {}
