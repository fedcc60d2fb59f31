"""What was wrong with a request, in the words of Python instead of those of the command line."""

from __future__ import annotations

import re
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

_SHAPE = re.compile(r"--input (?P<shape>[^\s=]+=\S+?)(?=[,;.]?(?:\s|$))")
_MODE = re.compile(r"--mode (\w+)")
_FLAGS = {"--trust": "trust=True", "--inline": "inline=True", "--input": "inputs=", "--device": "devices="}
_LIVE = "A live object takes its inputs as example=, too."
_OPTION = re.compile(r"(?<!\S)(?P<quote>['(]?)--(?P<name>[a-z]+(?:-[a-z]+)*)")


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

    return called


def worded(text: str, *, live: bool) -> str:
    """Write options as arguments: ``--vary`` as ``vary=``; for a live object tell of ``example=``, too."""
    found = _SHAPE.sub(r"inputs='\g<shape>'", text)
    found = _OPTION.sub(_argument, _MODE.sub(r"mode='\1'", found))
    return f"{found} {_LIVE}" if live and "--input" in text else found


def _argument(match: re.Match[str]) -> str:
    flag = f"--{match['name']}"
    return match["quote"] + _FLAGS.get(flag, f"{match['name'].replace('-', '_')}=")
