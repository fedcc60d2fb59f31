"""Chats of several turns as the ground-truth server sees them: whether each history is what it said itself.

Each answer is another text, so that a history has its answers in order only if it is known, word by word, as
all that was said up to the last answer. A history is gone on with once.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ASSISTANT = "assistant"


@dataclass(slots=True, kw_only=True)
class SeenSession:
    """A chat."""

    turns: int = 0
    ends: list[int] = field(default_factory=list)
    """When each of its answers ended, in nanoseconds."""
    arrivals: list[int] = field(default_factory=list)
    connections: set[int] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class SeenSessions:
    """The chats so far."""

    seen: list[SeenSession] = field(default_factory=list)
    open: dict[str, SeenSession] = field(default_factory=dict)
    """Digest of all that was said in a chat to that chat."""
    lost: int = 0
    """Requests whose history is that of no open chat, or was gone on with before."""
    words: Iterator[int] = field(default_factory=count)

    def forget(self) -> None:
        """Forget the chats; those that are open may go on."""
        self.seen.clear()
        self.lost = 0

    def next_word(self) -> str:
        """Return a word that no other answer has."""
        return f"answer{next(self.words)}"

    def go_on(self, messages: Sequence[Any], answer: str) -> str:
        """Note a request and its answer; return by what its chat is known then."""
        last = max((at for at, each in enumerate(messages) if each["role"] == _ASSISTANT), default=-1)
        session = self.open.pop(_digest(messages[: last + 1]), None) if last >= 0 else SeenSession()
        if session is None:
            self.lost += 1
            session = SeenSession()
        if not session.turns:
            self.seen.append(session)
        session.turns += 1
        known = _digest([*messages, {"role": _ASSISTANT, "content": answer}])
        self.open[known] = session
        return known

    def arrive(self, turn: str, when: int, connection: int) -> None:
        """Note when a request came, and on which connection."""
        session = self.open[turn]
        session.arrivals.append(when)
        session.connections.add(connection)

    def end(self, turn: str, when: int) -> None:
        """Note when an answer ended."""
        if (session := self.open.get(turn)) is not None:
            session.ends.append(when)


def describe_sessions(sessions: SeenSessions) -> dict[str, Any]:
    """Return the number of chats by their turns, what was lost, and how long users thought."""
    pauses = [
        after - before
        for each in sessions.seen
        for before, after in zip(each.ends, each.arrivals[1:], strict=False)
    ]
    return {
        "sessions": len(sessions.seen),
        "turns": {
            str(turns): n for turns, n in sorted(Counter(each.turns for each in sessions.seen).items())
        },
        "lost": sessions.lost,
        "on several connections": sum(len(each.connections) > 1 for each in sessions.seen),
        "pauses": pauses,
    }


def _digest(messages: Sequence[Any]) -> str:
    texts = [(each["role"], each["content"]) for each in messages]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
