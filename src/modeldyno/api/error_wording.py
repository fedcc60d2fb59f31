"""What was wrong with a request, in the words of Python instead of those of the command line."""

from __future__ import annotations

from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from modeldyno.errors import RequestError
from modeldyno.views.python_wording import use_python_words

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

_LIVE = "A live object takes its inputs as example=, too."


class _Text:
    """An annotation that reads as its source: ``help()`` would put the text itself in quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def in_python(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function, whose first argument is a model, say what was wrong as it is written in Python."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except RequestError as error:
            model = args[0] if args else kwargs.get("model")
            error.args = (worded(str(error), live=not isinstance(model, str | Path)),)
            raise

    called.__signature__ = readable_signature(function)  # type: ignore[attr-defined]
    return called


def readable_signature(function: Callable[..., Any]) -> Signature:
    """Give the signature of a function with its types as they are written, for ``help()``."""
    found = signature(function)
    parameters = [
        parameter.replace(annotation=_Text(parameter.annotation))
        if isinstance(parameter.annotation, str)
        else parameter
        for parameter in found.parameters.values()
    ]
    returned = found.return_annotation
    return found.replace(
        parameters=parameters, return_annotation=_Text(returned) if isinstance(returned, str) else returned
    )


def worded(text: str, *, live: bool) -> str:
    """Write options as arguments: ``--vary`` as ``vary=``; for a live object tell of ``example=``, too."""
    found = use_python_words(text)
    return f"{found} {_LIVE}" if live and "--input" in text else found
