"""The user's own function that judges outputs: ``verify(outputs, expected)`` returns whether they will do."""

from __future__ import annotations

from collections.abc import Callable

from modeldyno.base.errors import RequestError
from modeldyno.engine.runtime.stage_functions import import_function
from modeldyno.models.interface import Feed

_LIVE = "object:"
"""Beginning of the reference to a function of this process, whose name ends with a number."""
Verify = Callable[[Feed, Feed], str]
"""Gets what a model returned and what its source did, by the same names; returns why that will not do."""


def load_verify(reference: str) -> Verify:
    """Import a function of the user.

    It gets an array and the expected one, or two dicts by name of a model with several outputs. Where it
    returns False or raises an AssertionError, as those of ``numpy.testing`` do, the outputs are refused.

    Raises:
        RequestError: it cannot be imported.
    """
    try:
        function = import_function(reference).value
    except RequestError as error:
        raise RequestError(f"`verify`: {error}") from error
    name = reference.rpartition(":")[2]

    def verify(outputs: Feed, expected: Feed) -> str:
        single = len(expected) == 1
        pair = (next(iter(feed.values())) if single else dict(feed) for feed in (outputs, expected))
        try:
            accepted = function(*pair)
        except AssertionError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return "; ".join(lines[:2]) or "an assertion failed"
        if accepted is None:
            raise RequestError(
                f"`verify`: {name} returns nothing; it is to return True where the outputs will do, or False."
            )
        return "" if accepted else "it returns False"

    return verify


def name_of(reference: str) -> str:
    """Return a function's name for a sentence: ``close.py:same``, without its folder."""
    if reference.startswith(_LIVE):
        return reference.removeprefix(_LIVE).rpartition("-")[0]
    return reference.rpartition("/")[2]
