"""``call:pkg.mod:func`` and ``call:file.py:func``: any Python callable.

Its inputs come from ``<func>_inputs`` in the same module: a dict (keyword arguments) or a tuple of
arrays or of any other objects, or a function without arguments that returns one. A callable without
parameters needs none.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.models.interface import Executes, Form, Model
from modeldyno.models.loaders import digest, python_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy import ndarray

    from modeldyno.base.job.model_ref import ModelRef
    from modeldyno.models.interface import Feed

requires: tuple[str, ...] = ()
executes = Executes.NAMED
backend = "python"


def claims(path: Path) -> bool:
    """Claim nothing: ``file.py:name`` is taken as a torch factory unless ``call:`` is given."""
    del path
    return False


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Import the callable and its inputs."""
    del seed, trust  # the user names the code, and controls its randomness
    source = python_source.import_object(ref.scheme, ref.locator)
    if not callable(source.value):
        raise RequestError(
            f"'{ref}' is {type(source.value).__name__}, which cannot be called; name a function."
        )
    _check_not_class(ref, source.value)
    example = _companion_inputs(source)
    feed = None if example is None else example_feed(source.value, example)
    return Model(
        identity=ModelIdentity(name=source.label, digest=callable_digest(source.value), framework="python"),
        form=Form.CALLABLE,
        value=source.value,
        inputs=declare_inputs(source.value, feed),
        optional=optional_inputs(source.value, feed),
        undeclared=python_source.takes_others(source.value),
        example=feed,
    )


look = load
"""Nothing to save by not loading: there are no weights."""


def _check_not_class(ref: ModelRef, value: Any) -> None:
    """Reject a class whose instances are meant to be called: calling it would time the constructor.

    Raises:
        RequestError: it is such a class.
    """
    if not isinstance(value, type):
        return
    if any(kind.__module__.startswith("torch.nn.") and kind.__name__ == "Module" for kind in value.__mro__):
        raise RequestError(
            f"'{ref}' is a class of torch modules, and calling it only creates one; to measure the module "
            f"itself write {ref.locator}."
        )
    if any("__call__" in vars(kind) for kind in value.__mro__):
        raise RequestError(
            f"'{ref}' is a class, and calling it only creates an object; create one in the file, such as "
            f"model = {value.__name__}(), and give its name."
        )


def declare_inputs(function: Callable[..., Any], feed: Feed | None) -> tuple[InputSpec, ...]:
    """Declare the inputs: those of the example, or the required parameters."""
    if feed is None:
        return tuple(InputSpec(name=name) for name in python_source.required_parameters(function))
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


def optional_inputs(function: Callable[..., Any], feed: Feed | None) -> tuple[InputSpec, ...]:
    """Declare the parameters that need no value and are not in the example."""
    known = {*(feed or ()), *python_source.required_parameters(function)}
    return tuple(InputSpec(name=name) for name in python_source.parameters(function) if name not in known)


def example_feed(function: Callable[..., Any], example: Any) -> Feed:
    """Turn example inputs (a dict by name, a tuple, or one value) into named arrays."""
    if not isinstance(example, Mapping):
        values = example if isinstance(example, tuple) else (example,)
        names = [*_positional(function), *(f"input_{index}" for index in range(len(values)))]
        example = dict(zip(names, values, strict=False))
    return {str(name): _as_array(value) for name, value in example.items()}


def _as_array(value: Any) -> ndarray:
    """Return an array of numbers, or any other object wrapped in a zero-dimensional array."""
    import numpy as np  # slow to import

    if not isinstance(value, str | bytes):
        with suppress(ValueError):  # such as ragged nested lists
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
    return digest.digest_parts(
        (name, python_source.source_code(inner) or python_source.source_code(type(inner)), *bound)
    )


def _companion_inputs(source: python_source.PythonObject) -> Any:
    owner, _, name = source.attribute.rpartition(".")
    holder = source.module
    for part in filter(None, owner.split(".")):
        holder = getattr(holder, part)
    inputs_value = getattr(holder, f"{name}_inputs", None)
    return inputs_value() if callable(inputs_value) else inputs_value


def _positional(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]


def _dtype(array: Any) -> str:
    return "string" if array.dtype.kind in "US" or isinstance(array[()], str) else str(array.dtype)
