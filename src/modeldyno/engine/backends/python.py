"""Python backend: runs any callable as it is, and a coroutine function in an event loop of its own."""

from __future__ import annotations

import inspect
from array import array
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import BATCH_SIZE
from modeldyno.engine.backends.output_leaves import finished_leaves, has_attributes
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.models.interface import Form
from modeldyno.models.torch_signature import NUMBERED_INPUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy import ndarray

    from modeldyno.base.job.knob import Knob, KnobValue
    from modeldyno.models.interface import Feed, Model

requires: tuple[str, ...] = ()
accepts = frozenset({Form.CALLABLE})
knobs: tuple[Knob, ...] = (BATCH_SIZE,)


class PythonSession(LocalSession):
    """A Python callable."""

    def __init__(self, function: Callable[..., Any], run: Callable[[Any], Any] | None = None) -> None:
        """Keep the function, and what runs the coroutine that a call of it gives, if it gives one."""
        self._function = function
        self._run = run

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Bind the inputs by keyword, or by position if the callable does not take them by keyword."""
        call, run = self._bind(feed), self._run
        return call if run is None else lambda: run(call())

    def _bind(self, feed: Feed) -> Callable[[], Any]:
        arrays = {name: _argument(array) for name, array in feed.items()}
        if not arrays:
            return self._function
        if takes_keywords(self._function, tuple(arrays)):
            return partial(self._function, **arrays)
        return partial(self._function, *arrays.values())

    def arrays(self, output: Any) -> Feed:
        """Return the parts of the output that are numbers or text, as arrays."""
        candidates = {name: _array(leaf) for name, leaf in finished_leaves(output)}
        return {name: array for name, array in candidates.items() if array is not None}


def _argument(array: ndarray) -> Any:
    """Return a copy of an array, or the object wrapped in a zero-dimensional object array."""
    return array.item() if array.dtype == object and not array.ndim else array.copy()


def check(config: Mapping[str, KnobValue]) -> None:
    """Accept every configuration: no knob excludes another."""
    del config


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[PythonSession]:
    """Open a session; a coroutine function has an event loop as long as it is open.

    Raises:
        RequestError: calling it would only create a generator, not run it.
    """
    del config
    _check_runs_when_called(model.value)
    if not inspect.iscoroutinefunction(_callee(model.value)):
        yield PythonSession(model.value)
        return
    import asyncio  # only a coroutine needs it

    loop = asyncio.new_event_loop()

    def run(coroutine: Any) -> Any:
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return loop.run_until_complete(coroutine)
        finally:
            asyncio._set_running_loop(outer)

    try:
        yield PythonSession(model.value, run)
    finally:
        run(loop.shutdown_asyncgens())
        loop.close()


def _callee(function: Any) -> Any:
    """Return what is called: of an object that is no function, its method for that."""
    return function if inspect.isroutine(function) or isinstance(function, partial) else function.__call__


_DEFERRED = (
    (inspect.isgeneratorfunction, "a generator", "list(...)"),
    (inspect.isasyncgenfunction, "an asynchronous generator", "asyncio.run(...) of a loop over it"),
)
"""Tests of functions that only create an object when called, its kind, and how to run it."""


def _check_runs_when_called(function: Any) -> None:
    """Refuse a callable whose body does not run when it is called: there would be nothing to time."""
    callee = _callee(function)
    for is_one, kind, remedy in _DEFERRED:
        if is_one(callee):
            raise RequestError(
                f"Calling '{getattr(callee, '__name__', 'it')}' only creates {kind} and does not run it; "
                f"name a function that runs it, by {remedy}."
            )


def takes_keywords(function: Callable[..., Any], names: tuple[str, ...]) -> bool:
    """Check whether the callable takes all of these names by keyword.

    The callable's own signature counts, not that of a function it wraps. A name such as ``input_0`` was
    invented for a value given by position, so a callable with ``**kwargs`` cannot take it.
    """
    try:
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return False
    if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        return False
    unknown = set(names) - {p.name for p in parameters if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return not unknown or (takes_any and not any(map(NUMBERED_INPUT.fullmatch, unknown)))


_ARRAY_LIKE_TYPES = (bool, int, float, complex, str, bytes, range, array, memoryview)
_ARRAYS = ("__array__", "__array_interface__", "__array_struct__", "__dlpack__", "__float__")
"""Attributes of values that NumPy converts directly."""


def _array(leaf: Any) -> ndarray | None:
    """Return an array of numbers or text; None for any other object."""
    import numpy as np  # slow to import

    if has_attributes(leaf, "detach"):  # a tensor that requires gradients does not convert itself
        leaf = leaf.detach()
        leaf = leaf.cpu() if hasattr(leaf, "cpu") else leaf
    if not isinstance(leaf, _ARRAY_LIKE_TYPES) and not any(hasattr(type(leaf), name) for name in _ARRAYS):
        return None  # NumPy would iterate over any other sequence, perhaps endlessly
    try:
        array = np.asarray(leaf)
    except (TypeError, ValueError, RuntimeError):
        return None
    return None if array.dtype == object else array
