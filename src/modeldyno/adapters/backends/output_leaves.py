"""Outputs of any shape, taken apart into named leaves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

ONLY = "output"
"""The name of an output that is a single array."""
_DEEPEST = 100
"""Levels of an output that are taken apart; what lies deeper is left out."""
_MOST = 10_000
"""Parts of an output that are looked at: a mapping may have no end."""


def leaves(output: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what is in mappings, sequences and dataclasses, each by its path; nothing for None.

    What contains itself is not entered again; of what has too many parts, or is too deep, the rest is left
    out.
    """
    open_parts: list[Iterator[tuple[str, Any]]] = [iter([(name, output)])]
    open_ids = [0]
    for _ in range(_MOST):
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
        elif id(part) not in open_ids and len(open_parts) < _DEEPEST:
            open_parts.append(_with_paths(path, parts))
            open_ids.append(id(part))


def finished_leaves(output: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of what a call returned.

    Raises:
        RequestError: one is no value, but something that has yet to be run or waited for; the time of the
            call would be that of making it.
    """
    for path, leaf in leaves(output):
        if made := _unfinished(leaf):
            kind, remedy = made
            where = "" if path == ONLY else f" in '{path}'"
            raise RequestError(
                f"The call returned {kind} ({type(leaf).__name__}){where}, and the work that it stands for "
                f"was not done within the call; profile a function that does it, {remedy}."
            )
        yield path, leaf


def _unfinished(leaf: Any) -> tuple[str, str] | None:
    """Say what has yet to be run, and what would run it; None for a value."""
    kind = type(leaf)
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
        "by list(...), or by a loop over what is wanted of it",
    ),
)
"""What stands for work that is still to be done: its name, how its type is known, and what does the work."""


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
