"""Runs any Python callable as it is."""

from __future__ import annotations

import inspect
from array import array
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.backends.output_leaves import finished_leaves
from modeldyno.core.spec.knob import BATCH_SIZE
from modeldyno.data.torch_signature import NUMBERED
from modeldyno.errors import RequestError
from modeldyno.interfaces import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy import ndarray

    from modeldyno.core.spec.knob import Knob, KnobValue
    from modeldyno.interfaces import Feed, Model

requires: tuple[str, ...] = ()
accepts = frozenset({Form.CALLABLE})
knobs: tuple[Knob, ...] = (BATCH_SIZE,)


class Session:
    """A callable, as it is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Bind the inputs: by keyword, or by position where the callable takes them only so."""
        arrays = {name: _argument(array) for name, array in feed.items()}
        if not arrays:
            return self._function
        if takes_keywords(self._function, tuple(arrays)):
            return partial(self._function, **arrays)
        return partial(self._function, *arrays.values())

    def arrays(self, output: Any) -> Feed:
        """Give whatever of the output is numbers or text."""
        found = {name: _array(leaf) for name, leaf in finished_leaves(output)}
        return {name: array for name, array in found.items() if array is not None}


def _argument(array: ndarray) -> Any:
    """Give a copy of an array, or the object that an array without dimensions wraps."""
    return array.item() if array.dtype == object and not array.ndim else array.copy()


def check(config: Mapping[str, KnobValue]) -> None:
    """Accept everything: one knob cannot exclude another."""
    del config


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:  # noqa: A001 - the port's word
    """Give a session; there is nothing to make ready.

    Raises:
        RequestError: a call of it would only make something that is still to be run.
    """
    del config
    _check_runs(model.value)
    yield Session(model.value)


_LATER = (
    (inspect.iscoroutinefunction, "a coroutine", "asyncio.run(...)"),
    (inspect.isgeneratorfunction, "a generator", "list(...)"),
    (inspect.isasyncgenfunction, "an asynchronous generator", "asyncio.run(...) of a loop over it"),
)
"""What only makes something when it is called, and what would run that."""


def _check_runs(function: Any) -> None:
    """Refuse a callable whose body does not run when it is called: its time would be that of nothing."""
    called = function if inspect.isroutine(function) or isinstance(function, partial) else function.__call__
    for is_one, kind, runs in _LATER:
        if is_one(called):
            raise RequestError(
                f"A call of '{getattr(called, '__name__', 'it')}' only makes {kind}, and runs none of it; "
                f"name a function that runs it, by {runs}."
            )


def takes_keywords(function: Callable[..., Any], names: tuple[str, ...]) -> bool:
    """Whether all of these names can be given by keyword.

    Asked of the callable itself, not of a function that it wraps. A name such as ``input_0`` was made up for
    a value that was given by position, so that it means nothing to a callable that takes any keyword.
    """
    try:
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return False
    if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        return False
    unknown = set(names) - {p.name for p in parameters if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return not unknown or (takes_any and not any(map(NUMBERED.fullmatch, unknown)))


_PLAIN = (bool, int, float, complex, str, bytes, range, array, memoryview)
_ARRAYS = ("__array__", "__array_interface__", "__array_struct__", "__dlpack__", "__float__")
"""What marks a value that NumPy can take as it is."""


def _array(leaf: Any) -> ndarray | None:
    """Give an array of numbers or text; None for any other object."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    if hasattr(leaf, "detach"):  # a tensor that wants gradients does not show itself as an array
        leaf = leaf.detach()
        leaf = leaf.cpu() if hasattr(leaf, "cpu") else leaf
    if not isinstance(leaf, _PLAIN) and not any(hasattr(type(leaf), name) for name in _ARRAYS):
        return (
            None  # NumPy would take a sequence of any other kind apart element by element, to no end perhaps
        )
    try:
        found = np.asarray(leaf)
    except (TypeError, ValueError, RuntimeError):
        return None
    return None if found.dtype == object else found
