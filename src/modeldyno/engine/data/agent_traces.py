"""Requests of agents in recorded traces: sessions as Weka has them, and tables as Baseten has them.

A session of Weka's is an object that has ``requests`` with ``t`` (seconds from its beginning), ``in`` and
``out`` (tokens) and ``hash_ids``, and agents that it started: entries of the type ``subagent`` with requests
of their own.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import MissingExtra, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

REQUESTS, BLOCK_SIZE = "requests", "block_size"
TIME, PROMPT, OUTPUT, BLOCKS = "t", "in", "out", "hash_ids"
TABLE_SUFFIXES = (".parquet", ".arrow", ".ipc")
_ROUNDED = 1e-6
"""Seconds by which times may differ because they were rounded."""
_ROWS = 1024
"""Rows of a table that are read at a time."""


def is_session(document: Mapping[str, Any]) -> bool:
    """Return whether an object of JSON is a session of an agent, as Weka's traces have it."""
    return isinstance(document.get(REQUESTS), list)


def session_requests(
    document: Mapping[str, Any], number: int, where: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the requests of a session and of the agents that it started, each with its place.

    Blocks are known within their session alone, unless it says that they are of all (``hash_id_scope``).

    Args:
        document: the session.
        number: of the session in its file.
        where: place of the session, for messages.

    Raises:
        RequestError: an entry is no request.
    """
    own = document.get("hash_id_scope") != "global"
    for place, request in _requests(document[REQUESTS], where):
        blocks = request.get(BLOCKS)
        ids = blocks if isinstance(blocks, list) else []
        yield place, {**request, BLOCKS: [f"{number}/{each}" for each in ids] if own else ids}


def _requests(entries: Iterable[Any], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for at, entry in enumerate(entries, 1):
        place = f"{where}, request {at}"
        if not isinstance(entry, dict):
            raise RequestError(
                f"Line {place} of the trace is no object of JSON; write its {TIME}, {PROMPT} and {OUTPUT}."
            )
        if not is_session(entry):
            yield place, entry
            continue
        begin = entry.get(TIME)
        for inner, request in _requests(entry[REQUESTS], place):
            yield inner, {**request, TIME: _since_session(request.get(TIME), begin)}


def _since_session(time: Any, begin: Any) -> Any:
    """Return when a request of an agent was sent; older traces count from when that was started."""
    if isinstance(time, int | float) and isinstance(begin, int | float) and time < begin - _ROUNDED:
        return begin + time
    return time


@contextmanager
def opened_table(path: str) -> Iterator[tuple[tuple[str, ...], Callable[[Iterable[str]], Iterator[Any]]]]:
    """Yield the names of the columns of a table in Parquet or Arrow's file format, and what reads its rows.

    That takes the names of the columns to read: texts of prompts are long.

    Raises:
        MissingExtra: the library `pyarrow` is not there.
        RequestError: the file cannot be read.
    """
    try:
        from pyarrow import ArrowException, dataset  # optional
    except ImportError:
        raise MissingExtra(
            "Traces in Parquet or Arrow need pyarrow; install it with: pip install pyarrow"
        ) from None
    try:
        table = dataset.dataset(path, format="parquet" if path.lower().endswith(".parquet") else "ipc")
        yield (
            tuple(table.schema.names),
            lambda names: chain.from_iterable(
                batch.to_pylist() for batch in table.to_batches(columns=[*names], batch_size=_ROWS)
            ),
        )
    except (ArrowException, OSError) as error:
        raise RequestError(f"The trace {path} is no table that can be read: {error}") from error
