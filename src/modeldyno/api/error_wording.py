"""What the functions of Python have in common: errors name arguments, and a server stands for its URL."""

from __future__ import annotations

import re
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from modeldyno.environment.containers import Container
from modeldyno.environment.running_servers import ServerRecord
from modeldyno.errors import RequestError, RunFailed
from modeldyno.views.python_wording import use_python_words

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

_INPUTS = re.compile(r"--input|`inputs[`=]")
_EXAMPLE_HINT = "A live object also takes its inputs as example=."


class _Text:
    """An annotation that prints as its source; ``help()`` would quote a plain string."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def reword_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose first argument is a model: reword its errors for Python.

    Any argument may be a server that `serve` or `list_servers` returned, for which its URL is given.
    """

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*map(url_of_server, args), **{n: url_of_server(v) for n, v in kwargs.items()})
        except (RequestError, RunFailed) as error:
            model = args[0] if args else kwargs.get("model")
            error.args = (reword_for_python(str(error), live=not isinstance(model, str | Path | None)),)
            raise

    wrapper.__signature__ = readable_signature(function)  # type: ignore[attr-defined]
    return wrapper


def url_of_server(value: Any) -> Any:
    """Return the URL of a server that was started or listed here; anything else as it is."""
    record = getattr(value, "record", value)
    return record.url if isinstance(record, ServerRecord | Container) else value


def readable_signature(function: Callable[..., Any]) -> Signature:
    """Return the signature of a function with unquoted type annotations, for ``help()``."""
    original = signature(function)
    parameters = [
        parameter.replace(annotation=_Text(parameter.annotation))
        if isinstance(parameter.annotation, str)
        else parameter
        for parameter in original.parameters.values()
    ]
    return_type = original.return_annotation
    return original.replace(
        parameters=parameters,
        return_annotation=_Text(return_type) if isinstance(return_type, str) else return_type,
    )


def reword_for_python(text: str, *, live: bool) -> str:
    """Name arguments (``vary=`` for `vary`); mention ``example=`` for a live object."""
    reworded = use_python_words(text)
    return f"{reworded} {_EXAMPLE_HINT}" if live and _INPUTS.search(text) else reworded
