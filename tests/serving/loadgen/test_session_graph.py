"""Sessions of agents in virtual time: the order of their requests, their slots, and what a failure ends."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.serving.loadgen.test_load_loop import MILLISECOND, World, records, since

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.serving.loadgen.sequences import Chat
from modeldyno.serving.loadgen.session_graph import longest_chain

if TYPE_CHECKING:
    from modeldyno.engine.interfaces.request_target import Reply
    from modeldyno.serving.load.request_log import Records


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


class Speaker:
    """A client whose answers say which request they are of."""

    def assistant_message(self, reply: Reply) -> bytes:
        """Be a client."""
        return b"<%b>" % reply.body

    def prompt_tokens(self, _: Reply) -> int:
        """Be a client."""
        return -1

    cached_tokens = prompt_tokens


def agents(*links: tuple[int, ...], pauses: tuple[float, ...] = (), sessions: int = 1) -> dict[str, Any]:
    """Give sessions of agents, whose requests say `0`, `1` ..., as arguments of `World.drive`."""
    count = len(links) * sessions
    target = Target(
        host="h", port=1, protocol="openai", transport=Transport.HTTP,
        messages=tuple(b"[%d]" % at for at in range(count)), marks=(1,) * count,
        turn_ends=tuple(1 + len(str(at)) for at in range(count)), links=links * sessions,
        think_times=(pauses or (0.0,) * len(links)) * sessions,
    )  # fmt: skip
    chat = Chat(target=target, client=Speaker())  # type: ignore[arg-type]
    return {"messages": count, "streams": (len(links),) * sessions, "chat": chat}


SPAWNS = (-1,), (0, 0), (-1, 0), (2, 2), (-1, 0), (1, 1, 3, 4)
"""Request 0 is followed by 1, and by the agents 2, 3 and 4; 5 waits for 1 and both agents."""


def times_of(rows: Records, name: str) -> dict[int, float]:
    """Return milliseconds from the start by message."""
    return dict(zip(rows.message.tolist(), since(getattr(rows, name)), strict=True))


def test_a_request_of_an_agent_waits_for_all_before_it_and_its_tool(world: World) -> None:
    """It is due when the last of them has ended, and its pause is over; it has its branch's history."""
    world.answer = lambda call, _: (30 if call.message == 4 else 5, RequestOutcome.OK, 200)
    load_loop = world.drive(
        Load(concurrency=1, requests=6, sequence=(0, 0)),
        **agents(*SPAWNS, pauses=(0.0, 0.002, 0.0, 0.01, 0.0, 0.007)),
    )
    world.run(100)
    block = load_loop.block()
    rows = records(block)

    assert times_of(rows, "due") == {0: 0, 1: 7, 2: 5, 3: 20, 4: 5, 5: 42}
    assert times_of(rows, "sent") == times_of(rows, "due")
    assert dict(zip(rows.message.tolist(), rows.turn("turn").tolist(), strict=True)) == {
        0: 1, 1: 2, 2: 1, 3: 2, 4: 1, 5: 3,
    }  # fmt: skip
    sessions = dict(zip(rows.message.tolist(), rows.turn("session").tolist(), strict=True))
    assert sessions[0] == sessions[1] == sessions[5] != sessions[2] == sessions[3] != sessions[4]
    assert (block.ended, block.sent, block.in_flight) == (True, 6, 0)
    assert {message: text for text, message in world.marks} == {1: "0,<0>,", 3: "2,<2>,", 5: "0,<0>,1,<1>,"}
    assert sorted(world.left) == sorted(set(sessions.values()))


@pytest.mark.parametrize(
    ("broken", "sent"),
    [(0, {0}), (1, {0, 1, 2, 3, 4}), (2, {0, 1, 2, 4}), (4, {0, 1, 2, 3, 4}), (5, {0, 1, 2, 3, 4, 5})],
)
def test_a_request_that_fails_ends_what_waits_for_it(broken: int, sent: set[int], world: World) -> None:
    """What does not goes on, and when all of it has ended the slot begins the next session."""
    world.answer = lambda call, _: (
        5,
        RequestOutcome.SERVER_ERROR if call.message == broken else RequestOutcome.OK,
        200,
    )
    load_loop = world.drive(Load(concurrency=1, requests=30, sequence=(0, 0)), **agents(*SPAWNS, sessions=5))
    world.run(2000)
    rows = records(load_loop.block())

    first = rows.message[rows.message < 6].tolist()
    assert set(first) == sent
    second = rows.due[rows.message == 6]
    assert second.min() >= rows.end[rows.message < 6][: len(sent)].max()
    assert len(set(world.left)) == len(world.left)
    assert set(world.left) >= ({1, 2, 3} if broken else {1})


@pytest.mark.parametrize(
    "load",
    [
        Load(concurrency=3, requests=3000, sequence=(0, 0)),
        Load(concurrency=3, requests=500, sequence=(0, 0), arrivals=Arrivals.SEQUENCES, rate=500.0),
        Load(concurrency=3, requests=3000, sequence=(0, 0), retries=1),
        Load(concurrency=3, requests=3000, sequence=(0, 0), prefill_concurrency=2),
    ],
    ids=str,
)
def test_agents_keep_their_order_and_their_number(load: Load, world: World) -> None:
    """However long answers take and whichever fail: as many sessions are open as may be, and none is lost."""
    drawn = Random(4)
    world.answer = lambda _, __: (
        (drawn.randint(1, 9), RequestOutcome.SERVER_ERROR, 503)
        if drawn.random() < 0.05
        else (drawn.randint(1, 40), RequestOutcome.OK, 200)
    )
    world.first_piece = 1
    pauses = (0.0, 0.002, 0.0, 0.01, 0.0, 0.007)
    load_loop = world.drive(load, **agents(*SPAWNS, pauses=pauses, sessions=1000))
    blocks = []
    for _ in range(400):
        world.run(100)
        blocks.append(load_loop.block())
    rows = records(*blocks)

    assert blocks[-1].ended
    if load.closed:
        assert len(rows) == 3000
    else:
        assert len(set((rows.message // 6).tolist())) == 500
    ends = {at: end for at, end, fine in zip(rows.message, rows.end, rows.fine, strict=True) if fine}
    begin, finish = dict[int, int](), dict[int, int]()
    for at, due, sent, end in zip(rows.message, rows.due, rows.sent, rows.end, strict=True):
        session, number = divmod(int(at), 6)
        waits = [ends[session * 6 + other] for other in SPAWNS[number][1:]]  # all were answered
        if waits:
            assert due == max(waits) + round(pauses[number] * 1000) * MILLISECOND
        begin[session] = min(begin.get(session, sent), sent)
        finish[session] = max(finish.get(session, end), end)
    moments = sorted(begin.values())
    open_at = [sum(begin[s] <= at < finish[s] for s in begin) for at in moments]
    assert max(open_at) == 3
    assert sum(open_at) / len(open_at) > 2.5  # of which each has several requests in flight at times
    # each session that a request was answered of has all requests whose predecessors were answered
    complete = {s for s in begin if all(s * 6 + n in ends for n in range(5))}
    lost = [s for s in complete if s * 6 + 5 not in rows.message]
    assert len(lost) <= 3 * load.closed  # those under way at the last request


def test_forks_have_what_was_said(world: World) -> None:
    """Both of them, and their turns are counted on; the last one keeps the connection."""
    load_loop = world.drive(
        Load(concurrency=1, requests=4, sequence=(0, 0)), **agents((-1,), (0, 0), (0, 0), (1, 1))
    )
    world.run(50)
    rows = records(load_loop.block())

    assert {message: text for text, message in world.marks} == {1: "0,<0>,", 2: "0,<0>,", 3: "0,<0>,1,<1>,"}
    turns, sessions = rows.turn("turn").tolist(), rows.turn("session").tolist()
    assert [turns[at] for at in rows.message.argsort()] == [1, 2, 2, 3]
    assert [sessions[at] for at in rows.message.argsort()] == [1, 2, 1, 2]


def test_sessions_that_ended_give_their_slots_back(world: World) -> None:
    """Each begins when it is due, as there is room."""
    load = Load(concurrency=2, requests=20, sequence=(0, 0), arrivals=Arrivals.SEQUENCES, rate=0.5)
    load_loop = world.drive(load, **agents(*SPAWNS, sessions=20))
    world.run(200_000)
    rows = records(load_loop.block())
    assert len(rows) == 120
    assert (rows.sent - rows.due).max() <= 50 * MILLISECOND


def test_the_limit_is_of_sessions(world: World) -> None:
    """Three begin when they are due, though each has several requests in flight; the fourth waits."""
    world.answer = lambda call, _: (5 if call.message % 6 == 0 else 900, RequestOutcome.OK, 200)
    load = Load(concurrency=3, requests=4, sequence=(0, 0), arrivals=Arrivals.SEQUENCES, rate=20.0)
    load_loop = world.drive(load, **agents(*SPAWNS, sessions=4))
    world.run(10_000)
    rows = records(load_loop.block())
    first = rows.message % 6 == 0
    waits = ((rows.sent - rows.due)[first] / MILLISECOND).tolist()
    assert waits[:3] == [0, 0, 0]
    assert waits[3] > 1000


def test_stopping_leaves_the_sessions_of_agents(world: World) -> None:
    """What is in flight ends, and nothing follows."""
    load_loop = world.drive(Load(concurrency=2, sequence=(0, 0)), **agents(*SPAWNS, sessions=50))
    over: list[int] = []
    load_loop.finished = lambda: over.append(world.now)
    world.run(8)
    sent = world.sent
    load_loop.stop(5.0)
    world.run(100)
    assert (world.sent, len(over)) == (sent, 1)


def test_a_session_lasts_as_long_as_its_longest_chain() -> None:
    """Agents that run beside each other count once."""
    assert longest_chain(SPAWNS) == 4
    assert longest_chain([(-1,)]) == 1
