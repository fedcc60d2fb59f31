"""Sessions of agents are read from files as AIPerf's `dag_jsonl` has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.engine.data.agent_graphs import is_graph_file, read_graphs
from modeldyno.engine.data.text_requests import read_request

if TYPE_CHECKING:
    from pathlib import Path


def turn(text: str, **fields: Any) -> dict[str, Any]:
    """Return a turn of a chat, in which the user says one thing."""
    return {"messages": [{"role": "user", "content": text}], **fields}


def chat(name: str, *turns: Any, **fields: Any) -> dict[str, Any]:
    """Return a line."""
    return {"session_id": name, "turns": [*turns], **fields}


def requests_of(folder: Path, *lines: Any) -> tuple[list[dict[str, Any]], tuple[int, ...]]:
    """Return what is sent for lines, and the lengths of sessions."""
    path = written(folder, *lines)
    assert is_graph_file(path)
    read = read_graphs(path)
    return [read_request(text) for text in read.texts], read.sessions


def written(folder: Path, *lines: Any) -> Path:
    """Write lines to a file."""
    path = folder / "agents.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def links(folder: Path, *lines: Any) -> dict[str, list[Any]]:
    """Return by what each turn says what it extends, and what it waits for, as texts."""
    requests, _ = requests_of(folder, *lines)
    texts = [request["messages"][0]["content"] for request in requests]
    return {
        texts[at]: [texts[other] if other >= 0 else None for other in request["links"]]
        for at, request in enumerate(requests)
    }


def test_a_chat_is_sent_turn_by_turn(tmp_path: Path) -> None:
    """With its pauses in seconds, and the fields of requests."""
    requests, sessions = requests_of(
        tmp_path,
        chat("a", turn("1", max_tokens=7, extra={"temperature": 0.5}), turn("2", delay=1500)),
        chat("b", turn("3")),
    )
    assert sessions == (2, 1)
    assert [request["think_time"] for request in requests] == [0, 1.5, 0]
    assert [request["links"] for request in requests] == [[-1], [0, 0], [-1]]
    assert (requests[0]["max_tokens"], requests[0]["temperature"]) == (7, 0.5)
    assert requests[1]["messages"] == [{"role": "user", "content": "2"}]


def test_the_next_turn_waits_for_what_a_turn_spawns(tmp_path: Path) -> None:
    """Such agents know nothing of what was said; with `join_at` a later turn waits."""
    assert links(
        tmp_path,
        chat("c", turn("c1"), turn("c2")),
        chat("d", turn("d1")),
        chat("a", turn("1", spawns=["c", {"children": ["d"], "join_at": 2}]), turn("2"), turn("3")),
    ) == {
        "1": [None], "c1": [None, "1"], "c2": ["c1", "c1"], "d1": [None, "1"],
        "2": ["1", "1", "c2"], "3": ["2", "2", "d1"],
    }  # fmt: skip


def test_a_fork_has_what_was_said(tmp_path: Path) -> None:
    """It takes the place of the chat that it ends, or runs beside it."""
    lines = [
        chat("a", turn("1", forks=[{"child": "b", "background": True}]), turn("2", spawns=["c"]), turn("3")),
        chat("b", turn("b1")),
        chat("c", turn("c1", forks=["d", "e"])),
        chat("d", turn("d1")),
        chat("e", turn("e1")),
    ]
    assert links(tmp_path, *lines) == {
        "1": [None], "b1": ["1", "1"], "2": ["1", "1"], "c1": [None, "2"], "d1": ["c1", "c1"],
        "e1": ["c1", "c1"], "3": ["2", "2", "d1", "e1"],
    }  # fmt: skip


def test_a_chat_that_is_started_twice_is_sent_twice(tmp_path: Path) -> None:
    """In the session of each chat that starts it."""
    requests, sessions = requests_of(
        tmp_path, chat("a", turn("1", spawns=["c"])), chat("b", turn("2", spawns=["c"])), chat("c", turn("3"))
    )
    assert sessions == (2, 2)
    assert [request["messages"][0]["content"] for request in requests] == ["1", "3", "2", "3"]


def test_fields_that_are_not_sent_are_known(tmp_path: Path) -> None:
    """Another model, and what no server of the kind takes."""
    read = read_graphs(
        written(tmp_path, chat("a", turn("1", model="m", extra={"priority": 3, "top_p": 0.1})))
    )
    assert read.unused == ("model", "priority")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([chat("a", turn("1", spawns=["b"]))], "line 1 starts 'b', which is the session_id of no line"),
        ([chat("a", turn("1")), {"prompt": "x"}], "line 2 is no chat of an agent; write its session_id"),
        ([chat("a", turn("1")), chat("a", turn("1"))], "line 2: 'a' is the session_id of another line"),
        (
            [chat("a", turn("1", spawns=["b"])), chat("b", turn("1", spawns=["c"])),
             chat("c", turn("1", forks=["b"]))],
            "line 2: 'b' starts itself",
        ),
        ([chat("a", turn("1", spawns=["a"]))], "each of its chats is started by another one"),
        ([chat("a", turn("1", forks=["b"]), turn("2")), chat("b", turn("1"))], "turn 0: a fork ends"),
        (
            [chat("a", turn("1", spawns=[{"children": ["b"], "join_at": 0}]), turn("2")), chat("b")],
            "turn 0: join_at is 0; give the number of a later turn",
        ),
        ([chat("a", turn("1", delay=-1))], "-1 is no delay of a turn in milliseconds"),
        ([chat("a", turn("1", spawns="b"))], "turn 0: spawns is 'b', no list of chats"),
        ([chat("a", turn("1", spawns=[{"children": []}]))], r"turn 0 starts \[\], which are no names"),
        ([chat("a", turn("1"), {"delay": 3})], "turn 1 .* has no messages"),
        ([chat("a", turn("1", max_tokens=True))], "True is no number of tokens to generate"),
        ([chat("a", turn("1", extra=[1]))], r"turn 0: extra is \[1\], no object"),
        ([chat("a", orchestrator=True, spawns=["b"])], "has orchestrator, which is not sent"),
        ([chat("a", turn("1"), pre_session_spawns=["b"])], "has pre_session_spawns, which is not sent"),
        ([chat("a", turn("1"), context_mode="message_array_with_responses")], "has the context_mode"),
        ([chat("a", turn("1")), chat("b", turn("1", spawns=["b"]))], "line 2: 'b' is started by chats"),
        ([chat(str(at), turn("1", spawns=[str(at + 1)])) for at in range(300)], "started by more than 100"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_sent_is_refused(lines: list[Any], problem: str, tmp_path: Path) -> None:
    """With its line, and the number of the turn as the format counts them."""
    with pytest.raises(RequestError, match=problem):
        read_graphs(written(tmp_path, *lines))


def test_agents_that_start_more_and_more_are_refused(tmp_path: Path) -> None:
    """Before they fill the memory."""
    lines = [chat(str(at), turn("1", spawns=[str(at + 1)] * 4)) for at in range(9)]
    with pytest.raises(RequestError, match="a session has at most 4,096 turns"):
        read_graphs(written(tmp_path, *lines, chat("9", turn("1"))))


@pytest.mark.parametrize(
    "line",
    [
        {"session_id": "a", "turns": [{"text": "x"}]},
        {"session_id": "a", "turns": ["x"]},
        {"messages": [{"role": "user", "content": "x"}]},
        "x",
    ],
)
def test_other_sessions_are_none_of_agents(line: Any, tmp_path: Path) -> None:
    """They are read as chats of one user."""
    assert not is_graph_file(written(tmp_path, line))
