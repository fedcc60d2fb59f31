"""Refuses the numbers that no document holds, while whoever asked for them can still change them."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

_END = 2**63
"""Whole numbers from here on, up or down, do not fit into the 64 bits of a database."""


def check_numbers(document: Any, name: str) -> Any:
    """Return a document that somebody asks for as plain values, if it is read again as it is written.

    JSON has neither NaN nor infinities: they would become null, and the document could never be read again.
    Measured values are no matter of this; of those, null is read as what it was.

    Args:
        document: a dataclass, or plain values.
        name: what the message calls it, such as ``policy``.

    Raises:
        RequestError: a number is NaN, infinite, or a whole one of more than 64 bits; the first is named.
    """
    plain = msgspec.to_builtins(document)
    for path, number in _numbers(plain, ""):
        if isinstance(number, float):
            if not isfinite(number):
                raise RequestError(
                    f"`{path}` of the {name} is {number}, which no document can hold; write a finite number."
                )
        elif not -_END < number < _END:
            raise RequestError(f"`{path}` of the {name} has more than 64 bits; write a smaller number.")
    return plain


def _numbers(part: Any, path: str) -> Iterator[tuple[str, int | float]]:
    """Yield the numbers of a document, each with the keys that lead to it."""
    match part:
        case int() | float():
            yield path, part
        case dict():
            for key, value in part.items():
                yield from _numbers(value, f"{path}.{key}" if path else str(key))
        case list() | tuple():
            for position, value in enumerate(part):
                yield from _numbers(value, f"{path}[{position}]")
