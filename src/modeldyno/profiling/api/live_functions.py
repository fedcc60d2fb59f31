"""Functions before and after a model, by name or of this process: checked, and offered during a block."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.profiling.request import parse_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.job.probe_options import ProbeOptions


def check_functions(pre: Any, post: Any, example: Any, *, live: bool, **others: Any) -> None:
    """Refuse functions of this process for a model that runs in another one.

    Args:
        pre: makes the inputs of the model.
        post: takes its outputs.
        example: what `pre` is called with.
        live: whether the model runs in this process.
        others: further functions by the names of their arguments.

    Raises:
        RequestError: one cannot be called where the model runs, or with what is given.
    """
    for name, function in {"pre": pre, "post": post, **others}.items():
        if function is not None and not isinstance(function, str) and not callable(function):
            raise RequestError(f"{name} takes a function, or its name as 'file.py:name', not {function!r}.")
        if callable(function) and not live:
            raise RequestError(
                f"{name} is a function of this process, and the model runs in one of its own; give its "
                f"name as {name}='file.py:name', or inline=True."
            )
    if isinstance(pre, str) and example is not None:
        raise RequestError("example= is not given to a function by name; give pre the function itself.")


@contextmanager
def with_functions(
    observation: ProbeOptions,
    pre: str | Callable[..., Any] | None,
    post: str | Callable[..., Any] | None,
    example: Any,
) -> Iterator[ProbeOptions]:
    """Add the functions to an ProbeOptions, and offer those of this process while it is used.

    Raises:
        RequestError: there is no such file.
    """
    arguments = () if example is None else (example,)
    with offered_function(pre, "pre", *arguments) as before, offered_function(post, "post") as after:
        yield replace(observation, preprocess=before, postprocess=after)


@contextmanager
def offered_function(
    function: str | Callable[..., Any] | None, field: str, *arguments: Any
) -> Iterator[str | None]:
    """Yield the reference to a function, which one of this process has while it is used.

    Args:
        function: its name, or itself.
        field: the argument that it was given as.
        arguments: what one of this process is called with.

    Raises:
        RequestError: there is no such file.
    """
    if function is None or isinstance(function, str):
        yield parse_function(function, field)
        return
    objects = plugins.objects()
    name = getattr(function, "__name__", type(function).__name__)
    offer = objects.offer(partial(function, *arguments) if arguments else function, name=name)
    try:
        yield str(offer)
    finally:
        objects.withdraw(offer)
