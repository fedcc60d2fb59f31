"""Reads sessions of agents: chats that start others beside themselves, and wait for them, or for their tools.

A line is a chat with a ``session_id`` and ``turns``, as AIPerf has them (``dag_jsonl``). A turn has the
``messages`` that are added to what was said before, a ``delay`` in milliseconds, and what begins with its
answer: ``spawns``, chats of their own for which a later turn waits, and ``forks``, which have all that was
said so far. A chat that no other one starts begins a session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.engine.data import data_files
from modeldyno.engine.data.text_requests import (
    LINKS,
    MOST_TURNS,
    SENT,
    THINK_TIME,
    TextRequests,
    request_fields,
    seconds_of,
    write_request,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_NAME, _TURNS, _MESSAGES, _EXTRA = "session_id", "turns", "messages", "extra"
_FORKS, _SPAWNS, _DELAY, _CHILD, _CHILDREN = "forks", "spawns", "delay", "child", "children"
_JOIN_AT, _BACKGROUND = "join_at", "background"
_NO_HISTORY = -1
_REFUSED = ("orchestrator", "rounds", "pre_session_spawns")
_OWN_HISTORY = "message_array_with_responses"
_DEEPEST = 100
"""Chats, one started by the other."""
_USED = frozenset({_MESSAGES, _EXTRA, _FORKS, _SPAWNS, _DELAY, "max_tokens"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """A chat that begins with the answer of a turn."""

    chat: str
    inherits: bool
    """Whether it has what was said up to there."""
    joined: int | None
    """The turn that waits for its end; None if none does."""
    carries_on: bool = False
    """Whether it takes the place of the chat that starts it, which has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chat:
    turns: list[dict[str, Any]]
    starts: list[list[_Start]]
    """For each turn."""
    where: str


def is_graph(line: Any) -> bool:
    """Return whether a line of a file is a chat of an agent."""
    if not isinstance(line, dict) or not isinstance(line.get(_NAME), str):
        return False
    turns = line.get(_TURNS)
    authored = isinstance(turns, list) and any(
        isinstance(turn, dict) and isinstance(turn.get(_MESSAGES), list) for turn in turns
    )
    return authored or "orchestrator" in line


def is_graph_file(path: Path) -> bool:
    """Return whether the first line of a file is a chat of an agent.

    Raises:
        RequestError: it is not JSON.
    """
    return is_graph(next((line for _, line in data_files.json_lines(path)), None))


def read_graphs(path: Path) -> TextRequests:
    """Read the sessions of a file, up to `MOST_TURNS` turns.

    Raises:
        RequestError: a line is no chat, or starts one that is not there, or that started it.
    """
    chats = dict[str, _Chat]()
    unused = dict[str, None]()
    for number, line in data_files.json_lines(path):
        where = f"{path}, line {number}"
        if not is_graph(line):
            raise RequestError(f"{where} is no chat of an agent; write its {_NAME}, and turns with messages.")
        if line[_NAME] in chats:
            raise RequestError(
                f"{where}: '{line[_NAME]}' is the {_NAME} of another line, too; name one anew."
            )
        chats[line[_NAME]] = _chat(line, where)
        unused |= dict.fromkeys(_unused(line))
    children = {start.chat for chat in chats.values() for start in chain.from_iterable(chat.starts)}
    texts, lengths, sent = list[str](), list[int](), set[str]()
    for name in (name for name in chats if name not in children):
        session = _Session(chats=chats, sent=sent)
        session.add(name, (), _NO_HISTORY, ())
        texts += session.texts
        lengths.append(len(session.texts))
        if len(texts) >= MOST_TURNS:
            break
    if not lengths:
        raise RequestError(f"{path}: each of its chats is started by another one, so that none begins.")
    never = next((name for name in chats if name not in sent), None)
    if never is not None and len(texts) < MOST_TURNS:
        raise RequestError(f"{chats[never].where}: '{never}' is started by chats that it starts alone.")
    return TextRequests(texts=texts, sessions=tuple(lengths), unused=tuple(unused))


@dataclass(slots=True, kw_only=True)
class _Session:
    """The requests of a session so far."""

    chats: Mapping[str, _Chat]
    sent: set[str]
    """Chats of this session and those before."""
    texts: list[str] = field(default_factory=list)

    def add(self, name: str, waits: Sequence[int], extended: int, above: tuple[str, ...]) -> list[int]:
        """Add a chat; return the turns with which it ends.

        Args:
            name: of the chat.
            waits: turns that its first one waits for.
            extended: turn whose history it has; -1 for none.
            above: chats that it was started by, one after the other.

        Raises:
            RequestError: it is one of these, or the session is too long.
        """
        chat = self.chats.get(name)
        if chat is None:
            by = self.chats[above[-1]]
            raise RequestError(
                f"{by.where} starts '{name}', which is the {_NAME} of no line; write that chat, too."
            )
        if len(above) > _DEEPEST:
            raise RequestError(
                f"{chat.where}: it is started by more than {_DEEPEST} chats, one by the other."
            )
        if name in above:
            raise RequestError(f"{chat.where}: '{name}' starts itself, by way of the chats that it starts.")
        self.sent.add(name)
        ends = list[int]()
        joins: dict[int, list[int]] = {}
        last = len(chat.turns) - 1
        for at, turn in enumerate(chat.turns):
            number = len(self.texts)
            if number >= MOST_TURNS:
                raise RequestError(f"{chat.where}: a session has at most {MOST_TURNS:,} turns.")
            self.texts.append(write_request({**turn, LINKS: [extended, *waits, *joins.pop(at, ())]}))
            waits, extended = (number,), number
            carried = False
            for start in chat.starts[at]:
                ended = self.add(start.chat, waits, number if start.inherits else _NO_HISTORY, (*above, name))
                carried = carried or start.carries_on
                if start.joined is not None:
                    joins.setdefault(start.joined, []).extend(ended)
                elif start.carries_on:
                    ends += ended
            if at == last and not carried:
                ends.append(number)
        return ends


def _chat(line: Mapping[str, Any], where: str) -> _Chat:
    """Read a line.

    Raises:
        RequestError: it has what is not sent, or a turn is none.
    """
    given = next((name for name in _REFUSED if line.get(name)), None)
    if given is not None or line.get("context_mode") == _OWN_HISTORY:
        what = given or f"the context_mode {_OWN_HISTORY}"
        raise RequestError(
            f"{where} has {what}, which is not sent; write a chat whose turns start others with {_SPAWNS}."
        )
    turns = line[_TURNS]
    if not turns:
        raise RequestError(f"{where}: a chat has at least one turn.")
    read = [_turn(turn, f"{where}, turn {at}") for at, turn in enumerate(turns)]
    starts = [[*_starts(turn, at, len(turns), f"{where}, turn {at}")] for at, turn in enumerate(turns)]
    return _Chat(turns=read, starts=starts, where=where)


def _turn(turn: Any, where: str) -> dict[str, Any]:
    messages = turn.get(_MESSAGES) if isinstance(turn, dict) else None
    if not (isinstance(messages, list) and messages and all(map(_is_message, messages))):
        raise RequestError(f"{where} (the first is 0) has no messages; write a list of them with their role.")
    extra = turn.get(_EXTRA) or {}
    if not isinstance(extra, dict):
        raise RequestError(f"{where}: extra is {extra!r}, no object of a request's fields.")
    fields = request_fields({**extra, **turn}, where)
    return {_MESSAGES: messages, **fields, THINK_TIME: seconds_of(turn.get(_DELAY) or 0, where)}


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("role"), str)


def _starts(turn: Mapping[str, Any], at: int, count: int, where: str) -> Iterator[_Start]:
    """Yield the chats that begin with the answer of a turn.

    Raises:
        RequestError: one is named in no way, or the turn that waits for it does not come later.
    """
    for entry in _entries(turn, _SPAWNS, where):
        named: dict[str, Any] = {_CHILDREN: [entry]} if isinstance(entry, str) else entry
        joined = named.get(_JOIN_AT, at + 1 if at + 1 < count else None)
        if named.get(_JOIN_AT) is not None and not (type(joined) is int and at < joined < count):
            raise RequestError(
                f"{where}: {_JOIN_AT} is {joined!r}; give the number of a later turn; the first is 0."
            )
        for name in _names(named.get(_CHILDREN), where):
            yield _Start(chat=name, inherits=False, joined=joined)
    for entry in _entries(turn, _FORKS, where):
        named = {_CHILD: entry} if isinstance(entry, str) else entry
        beside = bool(named.get(_BACKGROUND))
        if not beside and at + 1 < count:
            raise RequestError(
                f"{where}: a fork ends the chat, which has further turns; set {_BACKGROUND} if both go on."
            )
        for name in _names([named.get(_CHILD)], where):
            yield _Start(chat=name, inherits=True, joined=None, carries_on=not beside)


def _entries(turn: Mapping[str, Any], name: str, where: str) -> list[Any]:
    entries = turn.get(name) or []
    if not (isinstance(entries, list) and all(isinstance(entry, str | dict) for entry in entries)):
        raise RequestError(f"{where}: {name} is {entries!r}, no list of chats.")
    return entries


def _names(names: Any, where: str) -> list[str]:
    if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
        raise RequestError(f"{where} starts {names!r}, which are no names of chats.")
    return names


def _unused(line: Mapping[str, Any]) -> Iterable[str]:
    """Return the names of fields that are not sent."""
    for turn in line[_TURNS]:
        yield from (key for key in turn if key not in _USED and key not in SENT)
        yield from (key for key in turn.get(_EXTRA) or {} if key not in SENT and key != "max_tokens")
