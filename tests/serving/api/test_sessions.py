"""Chats of several turns, as a user loads a server with them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAST: dict[str, Any] = {
    "max_time": 20,
    "store": False,
    "progress": False,
    "endpoint": "chat",
    "max_tokens": 4,
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with a prefix cache, which counts words as tokens."""
    with serve_in_subprocess("--sessions", "--prefix-cache", "--workers", "16", "--pace", "0.0005") as server:
        yield f"http://127.0.0.1:{server.port}/v1#echo"


def test_a_load_of_sessions_tells_its_turns(url: str, tmp_path: Path) -> None:
    """Later prompts are longer, and the server had most of them; the first ones it had not."""
    path = tmp_path / "requests.jsonl"
    result = modeldyno.load(
        url, concurrency=4, sequence=3, think_time="60ms", requests=36, records=path, **FAST
    )

    assert not result.failures
    tokens = [result.find("prompt_tokens", f"turn={turn}") for turn in (1, 2, 3)]
    assert [each and each.value for each in tokens] == [128, 260, 392]
    shares = [result.find("cached_prompt_share", f"turn={turn}") for turn in (1, 2, 3)]
    assert [bool(each and each.value) for each in shares] == [False, True, True]
    for turn in (1, 2, 3):
        for metric in ("latency", "time_to_first_token"):
            times = result.find(metric, f"turn={turn}")
            assert times is not None
            assert isinstance(times.value, Distribution)
    assert result.find("latency", "turn=4") is None
    assert "cached-prompts" not in {doubt.code for doubt in result.doubts}
    assert "concurrency 4 in sequences of 3, thinking 0.06s" in str(result)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert {row["turn"] for row in rows} == {1, 2, 3}
    assert {row["think_time"] for row in rows} == {0, 60_000_000}
    result.save(tmp_path / "load.json")
    assert modeldyno.read(tmp_path / "load.json") == result


def test_sessions_of_a_file_are_sent(url: str, tmp_path: Path) -> None:
    """Of AIPerf's form, with the pauses of its turns."""
    path = tmp_path / "chats.jsonl"
    lines = [
        {"session_id": str(at), "turns": [{"text": f"say {at}"}, {"text": "and again", "delay": 30}]}
        for at in range(20)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    result = modeldyno.load(url, inputs=str(path), concurrency=2, sequence="data", requests=20, **FAST)

    second = result.find("prompt_tokens", "turn=2")
    assert second is not None
    assert second.value == 8
    assert result.inputs[0].distinct == 21
    with pytest.raises(RequestError, match="requests at a rate wait for no answer"):
        modeldyno.load(url, inputs=str(path), rate=20, concurrency=2, sequence="data", requests=5, **FAST)
    with pytest.raises(RequestError, match="is a session of several turns"):
        modeldyno.load(url, inputs=str(path), requests=5, **FAST)


def test_what_is_no_session_is_refused(url: str) -> None:
    """What to write is said."""
    with pytest.raises(RequestError, match="sends the sessions of a file"):
        modeldyno.load(url, sequence="data", requests=5, **FAST)
    with pytest.raises(RequestError, match="Sessions of several turns are chats"):
        modeldyno.load(url, sequence=5, requests=5, **{**FAST, "endpoint": "completions"})


def a_turn(text: str, **fields: Any) -> dict[str, Any]:
    """Return a turn of an agent."""
    return {"messages": [{"role": "user", "content": text}], **fields}


def agents(path: Path, *, forks: bool) -> str:
    """Write sessions of an agent that starts two others, waits for them and for a tool, and perhaps forks."""
    lines = []
    for at in range(30):
        ends = {"forks": [f"end {at}", f"other end {at}"]} if forks else {}
        lines += [
            {
                "session_id": str(at),
                "turns": [
                    a_turn(f"plan {at}", spawns=[f"find {at}", f"test {at}"]),
                    a_turn("what was found", delay=20, **ends),
                ],
            },
            {"session_id": f"find {at}", "turns": [a_turn(f"find {at}"), a_turn("more", delay=40)]},
            {"session_id": f"test {at}", "turns": [a_turn(f"test {at}")]},
        ]
        lines += [{"session_id": each, "turns": [a_turn("so end it")]} for each in ends.get("forks", [])]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return str(path)


@pytest.mark.parametrize("forks", [False, True])
def test_sessions_of_agents_are_sent(forks: bool, tmp_path: Path) -> None:
    """Their histories are the server's own answers, on a connection for each branch, and tools take time."""
    records, turns = tmp_path / "requests.jsonl", 7 if forks else 5
    with serve_in_subprocess("--sessions", "--workers", "16", "--pace", "0.0005") as server:
        result = modeldyno.load(
            f"http://127.0.0.1:{server.port}/v1#echo", inputs=agents(tmp_path / "agents.jsonl", forks=forks),
            concurrency=3, sequence="data", requests=20 * turns, records=records, **FAST,
        )  # fmt: skip
        seen = server.sessions()

    assert not result.failures
    assert "trace-reduced" not in {doubt.code for doubt in result.doubts}
    rows = [json.loads(line) for line in records.read_text("utf-8").splitlines()]
    assert {row["turn"] for row in rows} == ({1, 2, 3} if forks else {1, 2})
    assert {row["think_time"] for row in rows} == {0, 20_000_000, 40_000_000}
    assert forks or not seen["on several connections"]
    again = sum(row["turn"] == 3 for row in rows)
    assert (again > 20) is forks
    assert abs(seen["lost"] - again / 2) <= 3  # a history with two forks is gone on with twice
    assert result.find("latency", "turn=2") is not None


def test_agents_at_a_rate_are_sessions(tmp_path: Path) -> None:
    """So many a second begin; requests at a rate wait for no answer."""
    path = agents(tmp_path / "agents.jsonl", forks=False)
    with serve_in_subprocess("--sessions", "--workers", "16") as server:
        url = f"http://127.0.0.1:{server.port}/v1#echo"
        result = modeldyno.load(
            url, inputs=path, rate="30:sequences", concurrency=8, sequence="data", requests=20, **FAST
        )
        assert server.sessions()["lost"] == 0
        with pytest.raises(RequestError, match="requests at a rate wait for no answer"):
            modeldyno.load(url, inputs=path, rate=20, concurrency=2, sequence="data", requests=5, **FAST)
    assert not result.failures
