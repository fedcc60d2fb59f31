"""``call:pkg.mod:func`` and ``call:file.py:func``: any Python callable.

Its inputs come from ``<func>_inputs`` in the same module: a dict (keyword arguments) or a tuple of
arrays or of any other objects, or a function without arguments that gives one. A callable without
parameters needs none.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.loaders import digest, python_source
from modeldyno.core.spec.input_spec import BATCH, InputSpec
from modeldyno.core.spec.model_ref import ModelIdentity
from modeldyno.errors import RequestError
from modeldyno.interfaces import Executes, Form, Model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy import ndarray

    from modeldyno.core.spec.model_ref import ModelRef
    from modeldyno.interfaces import Feed

requires: tuple[str, ...] = ()
tools: tuple[str, ...] = ()
executes = Executes.NAMED
backend = "python"


def claims(path: Path) -> bool:
    """Claim nothing: ``file.py:name`` is taken to be a torch factory unless ``call:`` says otherwise."""
    del path
    return False


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Import the callable and its inputs."""
    del seed, trust  # the user names the code, and what it does at random is its own affair
    found = python_source.find(ref.scheme, ref.locator)
    if not callable(found.value):
        raise RequestError(
            f"'{ref}' is {type(found.value).__name__}, which cannot be called; name a function."
        )
    _check_is_no_maker(ref, found.value)
    example = _companion(found)
    feed = None if example is None else example_feed(found.value, example)
    return Model(
        identity=ModelIdentity(name=found.label, digest=callable_digest(found.value), framework="python"),
        form=Form.CALLABLE,
        value=found.value,
        inputs=inputs(found.value, feed),
        example=feed,
    )


look = load
"""There are no weights to spare."""


def _check_is_no_maker(ref: ModelRef, value: Any) -> None:
    """Refuse a class whose instances are what is called: calling it would time the making of one.

    Raises:
        RequestError: it is such a class.
    """
    if not isinstance(value, type):
        return
    if any(kind.__module__.startswith("torch.nn.") and kind.__name__ == "Module" for kind in value.__mro__):
        raise RequestError(
            f"'{ref}' is a class of torch modules, and calling it only makes one; to measure the module "
            f"itself write {ref.locator}."
        )
    if any("__call__" in vars(kind) for kind in value.__mro__):
        raise RequestError(
            f"'{ref}' is a class, and calling it only makes an object; name an object of it, such as "
            f"model = {value.__name__}() in the file, and write its name."
        )


def inputs(function: Callable[..., Any], feed: Feed | None) -> tuple[InputSpec, ...]:
    """Declare the inputs: those of the example, or the required parameters."""
    if feed is None:
        return tuple(InputSpec(name=name) for name in python_source.required(function))
    first = {array.shape[0] if array.ndim else None for array in feed.values()}
    batched = len(first) == 1 and None not in first
    return tuple(
        InputSpec(
            name=name,
            shape=(BATCH, *array.shape[1:]) if batched else tuple(array.shape),
            dtype=_dtype(array),
        )
        for name, array in feed.items()
    )


def example_feed(function: Callable[..., Any], example: Any) -> Feed:
    """Turn example inputs (a dict by name, a tuple, or one value) into named arrays."""
    if not isinstance(example, Mapping):
        values = example if isinstance(example, tuple) else (example,)
        names = [*_positional(function), *(f"input_{index}" for index in range(len(values)))]
        example = dict(zip(names, values, strict=False))
    return {str(name): _as_array(value) for name, value in example.items()}


def _as_array(value: Any) -> ndarray:
    """Give an array of numbers, or any other object wrapped in an array without dimensions."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    if not isinstance(value, str | bytes):
        with suppress(ValueError):  # such as a list of lists of unlike lengths
            array = np.asarray(value)
            if array.dtype.kind in "biufc" or (isinstance(value, np.ndarray) and array.dtype.kind != "O"):
                return array
    wrapped = np.empty((), dtype=object)
    wrapped[()] = value
    return wrapped


def callable_digest(function: Callable[..., Any]) -> str:
    """Digest a callable by its qualified name and its source, or byte code."""
    bound: list[str] = []
    while isinstance(function, partial):
        bound.append(repr((function.args, sorted(function.keywords.items()))))
        function = function.func
    inner = inspect.unwrap(function)
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    return digest.of_parts((name, python_source.code_of(inner) or python_source.code_of(type(inner)), *bound))


def _companion(found: python_source.Source) -> Any:
    owner, _, name = found.attribute.rpartition(".")
    holder = found.module
    for part in filter(None, owner.split(".")):
        holder = getattr(holder, part)
    given = getattr(holder, f"{name}_inputs", None)
    return given() if callable(given) else given


def _positional(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]


def _dtype(array: Any) -> str:
    return "string" if array.dtype.kind in "US" or isinstance(array[()], str) else str(array.dtype)
