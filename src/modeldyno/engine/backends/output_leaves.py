"""Flattens outputs of any structure into named leaves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

ONLY = "output"
"""Name of an output that is a single array."""
_MAX_DEPTH = 100
"""Levels of an output that are flattened; deeper parts are left out."""
_MAX_PARTS = 10_000
"""Parts of an output that are visited: a mapping may be endless."""


def leaves(output: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings, sequences and dataclasses with their paths; skip None.

    Cycles are not entered again; parts beyond the limits of depth and number are left out.
    """
    open_parts: list[Iterator[tuple[str, Any]]] = [iter([(name, output)])]
    open_ids = [0]
    for _ in range(_MAX_PARTS):
        while (entry := next(open_parts[-1], None)) is None:
            open_parts.pop()
            open_ids.pop()
            if not open_parts:
                return
        path, part = entry
        parts = _parts(part)
        if parts is None:
            if part is not None:
                yield path or ONLY, part
        elif id(part) not in open_ids and len(open_parts) < _MAX_DEPTH:
            open_parts.append(_with_paths(path, parts))
            open_ids.append(id(part))


def finished_leaves(output: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of what a call returned.

    Raises:
        RequestError: a leaf is not a value but still has to be run or awaited, so that the call's time would
            not include its work.
    """
    for path, leaf in leaves(output):
        kind: type = type(leaf)
        if unfinished := _unfinished(kind):
            what, remedy = unfinished
            where = "" if path == ONLY else f" in '{path}'"
            raise RequestError(
                f"The call returned {what} ({type(leaf).__name__}){where}, whose work "
                f"was not done within the call; profile a function that does it, {remedy}."
            )
        yield path, leaf


def has_attributes(leaf: Any, *names: str) -> bool:
    """Return whether an object has all of these; one that fails when asked has none."""
    try:
        return all(hasattr(leaf, name) for name in names)
    except Exception:  # noqa: BLE001 - its own `__getattr__` may raise anything
        return False


@lru_cache(maxsize=256)  # listing the attributes of a tensor takes longer than a small model
def _unfinished(kind: type) -> tuple[str, str] | None:
    """Return what kind of unfinished work a leaf of this type is, and how to run it; None for a value."""
    return next(((name, remedy) for name, is_one, remedy in _UNFINISHED if is_one(kind)), None)


def _is_future(kind: type) -> bool:
    return hasattr(kind, "done") and (hasattr(kind, "result") or hasattr(kind, "wait"))


_UNFINISHED: tuple[tuple[str, Callable[[type], bool], str], ...] = (
    ("a coroutine", lambda kind: issubclass(kind, Coroutine), "by asyncio.run(...)"),
    (
        "an asynchronous iterator",
        lambda kind: hasattr(kind, "__anext__"),
        "by asyncio.run(...) of a loop over it",
    ),
    ("a future", _is_future, "by waiting for its result"),
    (
        "a pending result",
        lambda kind: {"ready", "get", "wait"} <= {*dir(kind)},
        "by waiting for it with get()",
    ),
    ("an awaitable", lambda kind: hasattr(kind, "__await__"), "by asyncio.run(...)"),
    (
        "an iterator",
        lambda kind: hasattr(kind, "__next__"),
        "by list(...), or by a loop over the items that you need",
    ),
)
"""Kinds of unfinished work: name, test of the type, and how to run it."""


def _with_paths(path: str, parts: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    for key, part in parts:
        yield (f"{path}.{key}" if path else str(key)), part


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
