"""Outputs of any shape, taken apart into named leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ONLY = "output"
"""The name of an output that is a single array."""


def leaves(output: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what is in mappings, sequences and dataclasses, each by its path; nothing for None."""
    parts = _parts(output)
    if parts is None:
        if output is not None:
            yield name or ONLY, output
        return
    for key, part in parts:
        yield from leaves(part, f"{name}.{key}" if name else str(key))


def _parts(output: Any) -> Iterable[tuple[Any, Any]] | None:
    if isinstance(output, Mapping):
        return output.items()
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return zip(output._fields, output, strict=True)
    if isinstance(output, list | tuple):
        return ((f"{ONLY}_{index}", part) for index, part in enumerate(output))
    if is_dataclass(output) and not isinstance(output, type):
        return ((f.name, getattr(output, f.name)) for f in fields(output))
    return None
