"""Chats of several turns against a server that knows what was said in each."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.job.cancellation import Cancellation
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.job.think_time import ThinkTime
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.data.text_requests import write_request
from modeldyno.engine.interfaces.request_target import Endpoint, Target
from modeldyno.serving.clients import openai
from modeldyno.serving.load.request_log import Records, join_records
from modeldyno.serving.loadgen.driver_pool import run_load_drivers
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.testing.server import RunningServer

PAUSE = 0.02


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serve_in_subprocess("--sessions", "--workers", "16", "--pace", "0.0001") as running:
        yield running


@pytest.fixture(autouse=True)
def forgotten(server: RunningServer) -> None:
    server.forget()


def chats(server: RunningServer, count: int = 64, path: str = "", **options: Any) -> Target:
    feeds = [{"prompt": np.array([f'say "{at}" in one word'], object)} for at in range(count)]
    fields = {"endpoint": "chat", "max_tokens": 4, **options}
    endpoint = Endpoint(host=server.host, port=server.port, model="echo", path=path, options=fields)
    return openai.sequence_target(feeds, endpoint)


def driven(target: Target, load: Load) -> Records:
    """Drive a load until all of its requests have ended."""
    parts = []
    with run_load_drivers(target, load) as pool:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            taken = pool.take(0.05)
            parts.append(taken.records)
            if taken.ended:
                break
        ending = pool.stop(5.0)
    return join_records([*parts, ending.records])


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_two_hundred_sessions_of_five_turns_are_in_order(server: RunningServer, stream: bool) -> None:
    """Each history has the server's own answers, none is lost, and each session has one connection."""
    load = Load(
        concurrency=20, requests=1000, sequence=(5, 5), think_time=ThinkTime(low=PAUSE, high=PAUSE), drivers=2
    )
    rows = driven(chats(server, stream=stream), load)
    seen = server.sessions()

    assert (rows.outcome == RequestOutcome.OK).all()
    assert len(rows) == 1000
    assert (seen["lost"], seen["on several connections"]) == (0, 0)
    assert sum(int(turns) * count for turns, count in seen["turns"].items()) == 1000
    assert seen["turns"]["5"] >= 180
    session, turn, think = (rows.turn(name) for name in ("session", "turn", "think_time"))
    assert len(set(zip(session.tolist(), turn.tolist(), strict=True))) == 1000
    assert (think == np.where(turn > 1, PAUSE * 1e9, 0)).all()
    assert min(seen["pauses"]) >= PAUSE * 1e9
    assert np.bincount(turn)[1:].tolist() == sorted(np.bincount(turn)[1:].tolist(), reverse=True)


def test_prompts_grow_by_what_was_said(server: RunningServer) -> None:
    """Five words of the user and four of the server a turn, as the server counts them."""
    rows = driven(chats(server), Load(concurrency=2, requests=20, sequence=(4, 4)))
    assert rows.turn("prompt_tokens").tolist() == (9 * rows.turn("turn") - 4).tolist()
    assert set(rows.turn("cached_tokens").tolist()) == {-1}


def test_sessions_begin_differently(server: RunningServer) -> None:
    """Each with another message, so that a cache of beginnings gains nothing."""
    rows = driven(chats(server, count=30), Load(concurrency=2, requests=40, sequence=(2, 2), drivers=2))
    first = rows.message[rows.turn("turn") == 1].tolist()
    assert len(set(first)) == len(first) >= 20


def test_arriving_sessions_go_on_by_themselves(server: RunningServer) -> None:
    """Each sends its turns one after the other, whatever the others do."""
    load = Load(
        arrivals=Arrivals.SEQUENCES, rate=50.0, requests=40, sequence=(2, 4),
        think_time=ThinkTime(low=0.01, high=0.03),
    )  # fmt: skip
    rows = driven(chats(server), load)
    seen = server.sessions()
    assert seen["sessions"] == 40
    assert (seen["lost"], seen["on several connections"]) == (0, 0)
    assert set(seen["turns"]) == {"2", "3", "4"}
    assert (rows.outcome == RequestOutcome.OK).all()


def test_sessions_of_data_are_sent_as_they_are(server: RunningServer) -> None:
    """With what the system says first, and each turn after its own pause."""
    texts = [
        write_request(
            {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "a"}]}
        ),
        write_request({"messages": [{"role": "user", "content": "b"}], "think_time": 0.05}),
        "c",
    ]
    feeds = [{"prompt": np.array([text], object)} for text in texts]
    endpoint = Endpoint(
        host=server.host, port=server.port, model="echo", options={"endpoint": "chat", "max_tokens": 2}
    )
    target = openai.sequence_target(feeds, endpoint)
    rows = driven(replace(target, streams=(2, 1)), Load(concurrency=1, requests=6, sequence=(0, 0)))
    assert rows.message.tolist() == [0, 1, 2, 0, 1, 2]
    assert rows.turn("turn").tolist() == [1, 2, 1, 1, 2, 1]
    assert rows.turn("prompt_tokens").tolist()[:3] == [3, 6, 1]
    assert (rows.turn("think_time") / 1e6).tolist() == [0, 50, 0, 0, 50, 0]
    assert server.sessions()["turns"] == {"1": 2, "2": 2}


@pytest.mark.parametrize("fault", ["500", "stream-error", "truncated", "reset-after"])
def test_a_turn_that_fails_ends_its_session(fault: str) -> None:
    """No history has a hole, and the slot begins another session."""
    with serve_in_subprocess("--sessions", "--fault", f"{fault}=0.2") as faulty:
        rows = driven(chats(faulty), Load(concurrency=4, requests=200, sequence=(5, 5)))
        assert faulty.sessions()["lost"] == 0
    failed = rows.chosen(~rows.fine)
    assert len(failed) > 10
    for session, turn in zip(failed.turn("session"), failed.turn("turn"), strict=True):
        assert rows.turn("turn")[rows.turn("session") == session].max() == turn


def test_a_session_goes_on_where_its_connection_was_closed() -> None:
    """A server that closes idle connections is asked on a new one."""
    with serve_in_subprocess("--sessions", "--idle", "0.05") as closing:
        load = Load(concurrency=2, requests=12, sequence=(3, 3), think_time=ThinkTime(low=0.2, high=0.2))
        rows = driven(chats(closing), load)
        seen = closing.sessions()
    assert (rows.outcome == RequestOutcome.OK).all()
    assert seen["lost"] == 0
    assert seen["turns"] == {"3": 4}


def test_a_given_up_request_is_gone_at_the_server_side(server: RunningServer) -> None:
    """Its connection is closed, the others are answered, and no history has a hole."""
    load = Load(concurrency=4, requests=100, sequence=(3, 3), cancel=Cancellation(share=0.3, after=0.02))
    rows = driven(chats(server, max_tokens=400), load)
    given_up = rows.outcome == RequestOutcome.ABANDONED

    assert 10 <= given_up.sum() <= 50
    assert (rows.outcome[~given_up] == RequestOutcome.OK).all()
    assert ((rows.end - rows.sent)[given_up] >= 20_000_000).all()
    assert server.sessions()["lost"] == 0
