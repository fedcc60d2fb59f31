"""The loop in virtual time: a clock, a timer and a server that are the test's own."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.serving.load.test_request_log import times_of_pieces

from modeldyno.base.job.cancellation import Cancellation
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.job.think_time import ThinkTime
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import BrokenStream
from modeldyno.serving.load.request_log import join_records
from modeldyno.serving.loadgen import load_loop as drive
from modeldyno.serving.loadgen import record_frames
from modeldyno.serving.loadgen.arrivals import LoadShare
from modeldyno.serving.loadgen.load_loop import LoadLoop
from modeldyno.serving.loadgen.sequences import OpenSequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.engine.interfaces.request_target import Reply
    from modeldyno.serving.load.request_log import Records
    from modeldyno.serving.loadgen.record_frames import RecordBlock
    from modeldyno.serving.loadgen.request import Call, OpenSequence
    from modeldyno.serving.loadgen.sequences import Chat

MILLISECOND = 1_000_000
START = 10**9
Answer = tuple[int, RequestOutcome, int]
"""Milliseconds that a request takes, how it ends, and its status; the fake server's choice."""


def mark(number: int, *, first: bool, last: bool) -> bytes:
    """Write a mark that can be read: ``[3]`` is a sequence of one request."""
    return b"%s%d%s" % (b"[" if first else b"", number, b"]" if last else b"")


class World:
    """Time, the event loop, the timer and the server, in one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START
        self.opened = self.tardiness = self.sent = 0
        self.dropped: list[Call] = []
        self.marks: list[tuple[str, int]] = []
        self.left: list[int] = []
        self.answer: Callable[[Call, int], Answer | None] = lambda _call, _number: (5, RequestOutcome.OK, 200)
        self.first_piece: int | None = None
        """Milliseconds until an answer begins; None: it comes whole."""
        self._numbers = count()
        self._order = count()
        self._later: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._timer: list[int] = []
        self._held: dict[Call, int] = {}
        monkeypatch.setattr(drive, "monotonic_ns", lambda: self.now)

    def drive(
        self,
        load: Load,
        *,
        share: LoadShare | None = None,
        messages: int = 1,
        streams: tuple[int, ...] = (),
        chat: Chat | None = None,
        count_tokens: Callable[[Reply], int] | None = None,
    ) -> LoadLoop:
        """Give a load that this world's clock drives."""
        made = LoadLoop(load, share or LoadShare(), messages, self)  # type: ignore[arg-type]
        if load.sequence is not None:
            made.sequences = OpenSequences(
                load, share or LoadShare(), streams or (messages,), mark, first=0, seed=0, chat=chat
            )
        made.carrier = made.timer = self  # type: ignore[assignment]
        made.count_tokens = count_tokens
        self._drive = made
        made.start(START)
        return made

    def call_later(self, delay: float, then: Callable[..., None], *arguments: Any) -> World:
        """Be an event loop."""
        moment = self.now + round(delay * 1e9)
        heapq.heappush(self._later, (moment, next(self._order), then, arguments))
        return self

    def call_soon(self, then: Callable[..., None]) -> World:
        """Be an event loop."""
        return self.call_later(0, then)

    def cancel(self) -> None:
        """Be a handle; the only ones that are cancelled are retries, which check."""
        self._later = [each for each in self._later if each[2].__name__ != "_resend"]

    def set(self, when: int) -> None:
        """Be a timer, as late as the test says."""
        self._timer = [max(when, self.now) + self.tardiness]

    def send(self, call: Call, now: int) -> None:
        """Be a carrier, whose server answers as the test says; None: never."""
        call.sent, call.carrier = now, self  # type: ignore[assignment]
        if call.mark:
            self.marks.append((call.mark.decode(), call.message))
        number = next(self._numbers)
        self.sent = number + 1
        answer = self.answer(call, number)
        if answer is not None:
            self._held[call] = call.sent
            if self.first_piece is not None:
                self.call_later(self.first_piece / 1000, self._begin, call, now)
            self.call_later(answer[0] / 1000, self._end, call, now, answer)

    def _begin(self, call: Call, sent: int) -> None:
        if self._held.get(call) == sent:
            call.pieces.append(self.now)
            if call.begun is not None:
                call.begun(call)

    def _end(self, call: Call, sent: int, answer: Answer) -> None:
        if self._held.get(call) != sent:
            return
        del self._held[call]
        _, outcome, status = answer
        raw = (
            None
            if outcome in {RequestOutcome.REFUSED, RequestOutcome.RESET}
            else (status, b"head", b"%d" % call.message)
        )
        self._drive.done(call, outcome, self.now, raw)

    def leave(self, sequence: OpenSequence) -> None:
        """Be a carrier."""
        self.left.append(sequence.number)

    def drop(self, call: Call) -> None:
        """Be a carrier."""
        self._held.pop(call, None)
        self.dropped.append(call)

    def run(self, milliseconds: float) -> None:
        """Let time pass."""
        until = self.now + round(milliseconds * MILLISECOND)
        while True:
            moments = [each[0] for each in self._later[:1]] + self._timer
            if not moments or min(moments) > until:
                break
            self.now = max(self.now, min(moments))
            if self._timer and self._timer[0] <= self.now:
                self._timer = []
                self._drive.ring()
            else:
                _, _, then, arguments = heapq.heappop(self._later)
                then(*arguments)
        self.now = until


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def records(*blocks: RecordBlock) -> Records:
    return join_records(
        [record_frames.decode_rows(block.rows, block.times, 0, block.turns) for block in blocks]
    )


def since(column: Any) -> list[float]:
    """Give milliseconds since the start."""
    return [(each - START) / MILLISECOND for each in column.tolist()]


def test_a_closed_loop_sends_as_a_slot_becomes_free(world: World) -> None:
    """Two slots, 5 ms a request: 8 in 20 ms, due when the one before it ended."""
    driven = world.drive(Load(concurrency=2), messages=3)
    world.run(20)
    block = driven.block()
    rows = records(block)
    assert since(rows.due) == since(rows.sent) == [0, 0, 5, 5, 10, 10, 15, 15]
    assert since(rows.end) == [5, 5, 10, 10, 15, 15, 20, 20]
    assert rows.message.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert (block.in_flight, block.backlog, block.ended, block.sent) == (2, 0, False, 10)


def test_a_slot_that_fails_again_and_again_pauses(world: World) -> None:
    """After three failures in a row: 1, 2, 4 ms and so on, at most 50; an answer makes it quick again."""
    driven = world.drive(Load(concurrency=1))
    world.answer = lambda _call, number: (
        0,
        RequestOutcome.OK if number in {0, 7} else RequestOutcome.SERVER_ERROR,
        500,
    )
    world.run(20)
    dues = [round(each) for each in since(records(driven.block()).due)]
    assert dues == [0, 0, 0, 0, 0, 1, 3, 7, 7, 7, 7, 7, 8, 10, 14]
    world.run(1000)
    assert driven.block().sent < 40


def test_a_server_that_never_answers_well_gets_few_requests_from_each_slot(world: World) -> None:
    """Twenty in a second and no more, until one is answered well."""
    driven = world.drive(Load(concurrency=64))
    world.answer = lambda *_: (0, RequestOutcome.CLIENT_ERROR, 404)
    world.run(99)
    assert driven.block().sent == 2 * 64


def test_an_open_loop_sends_what_is_due_however_the_server_fails(world: World) -> None:
    """The rate is the user's."""
    driven = world.drive(Load(arrivals=Arrivals.CONSTANT, rate=1000))
    world.answer = lambda *_: (0, RequestOutcome.SERVER_ERROR, 500)
    world.run(100)
    assert driven.block().sent == pytest.approx(100, abs=2)


def test_slots_begin_one_after_the_other_over_the_ramp(world: World) -> None:
    """Four in 20 ms."""
    driven = world.drive(Load(concurrency=4, ramp=0.02))
    world.answer = lambda *_: (100, RequestOutcome.OK, 200)
    world.run(100)
    assert since(records(driven.block()).due) == [0]
    world.run(15)
    assert since(records(driven.block()).due) == [5, 10, 15]


def test_so_many_requests_are_sent_and_no_more(world: World) -> None:
    """And then it has ended, once all are answered."""
    driven = world.drive(Load(concurrency=3, requests=7))
    world.run(14)
    before = driven.block()
    world.run(2)
    after = driven.block()
    assert (len(records(before, after)), before.ended, after.ended) == (7, False, True)
    assert after.sent == 7


def test_an_open_loop_sends_when_it_is_due_whatever_the_server_does(world: World) -> None:
    """A server that takes 30 ms, a request each 10 ms: three are on their way."""
    driven = world.drive(Load(arrivals=Arrivals.CONSTANT, rate=100.0))
    world.answer = lambda *_: (30, RequestOutcome.OK, 200)
    world.run(85)
    block = driven.block()
    assert since(records(block).sent) == since(records(block).due) == [0, 10, 20, 30, 40, 50]
    assert (block.in_flight, block.backlog, block.ended) == (3, 0, False)


def test_those_beyond_the_limit_wait_in_line_and_count_from_when_they_were_due(world: World) -> None:
    """One at a time, 30 ms each, due each 10 ms."""
    driven = world.drive(Load(arrivals=Arrivals.CONSTANT, rate=100.0, concurrency=1))
    world.answer = lambda *_: (30, RequestOutcome.OK, 200)
    world.run(95)
    block = driven.block()
    assert since(records(block).due) == [0, 10, 20]
    assert since(records(block).sent) == [0, 30, 60]
    assert (block.in_flight, block.backlog) == (1, 6)


def test_a_late_timer_sends_all_that_is_due_and_shows_the_lag(world: World) -> None:
    """The machine slept: nothing is left out, nothing is sent early."""
    driven = world.drive(Load(arrivals=Arrivals.CONSTANT, rate=1000.0, requests=200))
    world.now += 500 * MILLISECOND
    world.run(10)
    rows = records(driven.block())
    assert len(rows) == 200
    assert set(since(rows.sent)) == {500}
    assert since(rows.due) == [float(index) for index in range(200)]


def test_a_request_without_an_answer_is_given_up_at_its_timeout(world: World) -> None:
    """Within a beat of it; its slot goes on after a rest."""
    driven = world.drive(Load(timeout=0.1))
    world.answer = lambda _call, number: None if number == 0 else (5, RequestOutcome.OK, 200)
    world.run(180)
    rows = records(driven.block())
    assert RequestOutcome(rows.outcome[0]) is RequestOutcome.TIMEOUT
    assert 100 <= since(rows.end)[0] <= 125
    assert len(world.dropped) == 1
    assert {RequestOutcome(each) for each in rows.outcome[1:]} == {RequestOutcome.OK}


def test_a_slot_rests_where_no_connection_could_be_made(world: World) -> None:
    """It is free again after the rest, and due then."""
    driven = world.drive(Load())
    world.answer = lambda *_: (1, RequestOutcome.REFUSED, 0)
    world.run(160)
    rows = records(driven.block())
    assert since(rows.due) == [0, 51, 102, 153]


def test_retries_are_made_where_they_may_help_and_counted(world: World) -> None:
    """Twice reset, then answered: one record, due when it first was, sent when it last was."""
    driven = world.drive(Load(retries=2, requests=1))
    world.answer = lambda _call, number: (5, RequestOutcome.OK if number == 2 else RequestOutcome.RESET, 200)
    world.run(40)
    block = driven.block()
    rows = records(block)
    assert (since(rows.due), since(rows.sent), since(rows.end)) == ([0], [10], [15])
    assert rows.retries.tolist() == [2]
    assert (block.sent, block.ended) == (3, True)


@pytest.mark.parametrize("outcome", [RequestOutcome.SERVER_ERROR, RequestOutcome.MALFORMED])
def test_an_answer_is_an_answer_and_not_retried(outcome: RequestOutcome, world: World) -> None:
    """The server has worked for it."""
    driven = world.drive(Load(retries=3, requests=1))
    world.answer = lambda *_: (5, outcome, 500)
    world.run(30)
    rows = records(driven.block())
    assert rows.retries.tolist() == [0]
    assert [RequestOutcome(each) for each in rows.outcome] == [outcome]


def test_a_retry_that_rests_can_be_given_up(world: World) -> None:
    """Neither sent again nor lost, when the load ends meanwhile."""
    driven = world.drive(Load(retries=3))
    world.answer = lambda *_: (1, RequestOutcome.REFUSED, 0)
    world.run(20)
    driven.stop(0.0)
    world.run(100)
    block = driven.block()
    assert [RequestOutcome(each) for each in records(block).outcome] == [RequestOutcome.CANCELLED]
    assert block.sent == 1
    assert not world.dropped


def test_a_timer_that_comes_late_shows_before_and_after(world: World) -> None:
    """What is due is told as not sent until the timer rings, and then as sent late."""
    world.tardiness = 30 * MILLISECOND
    driven = world.drive(Load(arrivals=Arrivals.CONSTANT, rate=1000.0, requests=200))
    world.run(20)
    block = driven.block()
    assert (block.sent, block.backlog, block.in_flight) == (0, 21, 0)
    world.run(100)
    block = driven.block()
    rows = records(block)
    assert block.sent + block.backlog == 121
    assert block.backlog > 0
    lag = (rows.sent - rows.due) / MILLISECOND
    assert lag.max() == 30
    assert lag.mean() > 10
    world.run(500)
    assert (driven.block().backlog, driven.block().sent) == (0, 200)


def test_what_is_late_when_it_is_stopped_is_told_and_never_sent(world: World) -> None:
    """However long ago that was; before its start nothing is due."""
    world.tardiness = 300 * MILLISECOND
    idle = LoadLoop(Load(arrivals=Arrivals.POISSON, rate=1000.0), LoadShare(), 1, world)  # type: ignore[arg-type]
    idle.carrier = world
    assert idle.block().backlog == 0
    driven = world.drive(Load(arrivals=Arrivals.CONSTANT, rate=1000.0))
    world.run(50)
    driven.stop(0.0)
    world.run(600)
    block = driven.block()
    assert (block.sent, block.backlog, len(records(block))) == (0, 51, 0)


@pytest.mark.parametrize(
    ("grace", "outcome", "end"), [(1.0, RequestOutcome.OK, 60), (0.02, RequestOutcome.CANCELLED, 40)]
)
def test_stopping_waits_as_long_as_it_is_told(
    grace: float, outcome: RequestOutcome, end: float, world: World
) -> None:
    """And sends no more, not even what waits in line; it tells how much that was."""
    over: list[int] = []
    driven = world.drive(Load(arrivals=Arrivals.CONSTANT, rate=1000.0, concurrency=1))
    driven.finished = lambda: over.append(world.now)
    world.answer = lambda *_: (60, RequestOutcome.OK, 200)
    world.run(10)
    driven.stop(grace)
    driven.stop(grace)
    world.run(200)
    block = driven.block()
    rows = records(block)
    assert [RequestOutcome(each) for each in rows.outcome] == [outcome]
    assert since(rows.end)[0] == pytest.approx(end, abs=21)
    assert (len(over), block.backlog, block.sent) == (1, 10, 1)


def test_the_first_and_last_answers_are_kept_and_the_first_of_each_fault(world: World) -> None:
    """Enough to check outputs, and to see what a server complains of."""
    driven = world.drive(Load(requests=12), messages=2)
    world.answer = lambda _call, number: (
        (5, RequestOutcome.SERVER_ERROR, 500 + number % 2)
        if number in {2, 3, 4}
        else (5, RequestOutcome.OK, 200)
    )
    world.run(100)
    kept: list[tuple[int, Reply]] = [*driven.answers()]
    fine = [((end - START) // MILLISECOND, reply.message) for end, reply in kept if reply.status == 200]
    assert sorted(fine) == [(5, 0), (10, 1), (55, 0), (60, 1)]
    assert len(fine) == len(kept)
    assert sorted(reply.status for _, reply in driven.faults()) == [500, 501]


def test_replies_are_kept_up_to_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are larger are recorded and thrown away."""
    monkeypatch.setattr(drive, "KEPT", 10)
    driven = world.drive(Load(requests=4), messages=4)

    def answer(call: Call, _number: int) -> Answer:
        call.received = 6
        return 5, RequestOutcome.OK, 200

    world.answer = answer
    world.run(100)
    assert len([*driven.answers()]) == 1
    assert len(records(driven.block())) == 4


def test_the_pieces_and_tokens_of_a_stream_are_recorded(world: World) -> None:
    """Those of which the server tells nothing are -1."""
    driven = world.drive(Load(requests=3), messages=3)

    def tokens(reply: Reply) -> int:
        return -1 if reply.message == 1 else 7

    def answer(call: Call, number: int) -> Answer:
        call.pieces = [START + piece for piece in range(number)]
        return 5, RequestOutcome.OK, 200

    driven.count_tokens = tokens
    world.answer = answer
    world.run(100)
    rows = records(driven.block())
    assert rows.tokens.tolist() == [7, -1, 7]
    assert times_of_pieces(rows) == [(), (START,), (START, START + 1)]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BrokenStream(RequestOutcome.SERVER_ERROR, "out of memory"), RequestOutcome.SERVER_ERROR),
        (BrokenStream(RequestOutcome.TRUNCATED, "it lacks its end"), RequestOutcome.TRUNCATED),
        (ValueError("it is no JSON"), RequestOutcome.MALFORMED),
    ],
)
def test_a_stream_that_is_none_is_a_failure_whatever_its_status(
    error: ValueError, outcome: RequestOutcome, world: World
) -> None:
    """What its client says of it is how the request ended; the reply is kept for its words."""
    driven = world.drive(Load(requests=3), messages=3)

    def tokens(reply: Reply) -> int:
        if reply.message == 1:
            raise error
        return 7

    driven.count_tokens = tokens
    world.run(100)
    rows = records(driven.block())
    assert [RequestOutcome(each) for each in rows.outcome] == [RequestOutcome.OK, outcome, RequestOutcome.OK]
    assert rows.tokens.tolist() == [7, -1, 7]
    assert [reply.message for _, reply in driven.faults()] == [1]
    assert 1 not in {reply.message for _, reply in driven.answers()}


def test_the_next_request_does_not_wait_for_the_tokens_of_an_answer(world: World) -> None:
    """Answers that end together are all followed before any is counted, and recorded in their order."""
    sent: list[int] = []

    def tokens(reply: Reply) -> int:
        sent.append(world.sent)
        return reply.message

    driven = world.drive(Load(concurrency=64), messages=64, count_tokens=tokens)
    world.run(5)
    assert sent == [128] * 64
    rows = records(driven.block())
    assert rows.message.tolist() == rows.tokens.tolist() == [*range(64)]
    assert (rows.end == START + 5 * MILLISECOND).all()


def test_a_block_has_all_answers_before_it(world: World) -> None:
    """Those whose tokens were not counted yet as well."""
    driven = world.drive(Load(concurrency=9), messages=9, count_tokens=lambda _: 7)
    world.run(4)
    for call in [*driven._in_flight]:
        driven.done(call, RequestOutcome.OK, world.now, (200, b"head", b""))
    assert driven.uncounted == 9
    assert records(driven.block()).tokens.tolist() == [7] * 9
    assert driven.uncounted == 0


def test_after_a_broken_stream_a_slot_waits_to_know_its_outcome(world: World) -> None:
    """So that a server that breaks each is not flooded: slots pause."""

    def tokens(_: Reply) -> int:
        raise BrokenStream(RequestOutcome.TRUNCATED, "it lacks its end")

    driven = world.drive(Load(concurrency=8), count_tokens=tokens)
    world.run(1000)
    rows = records(driven.block())
    assert (rows.outcome == RequestOutcome.TRUNCATED).all()
    assert len(rows) < 8 * 1000 / 5 / 4


def test_a_stream_without_its_end_is_asked_for_again_where_retries_are(world: World) -> None:
    """As any answer that was cut; the pieces of the try that failed are forgotten."""
    driven = world.drive(Load(requests=1, retries=1))
    tries: list[int] = []

    def tokens(_: Reply) -> int:
        tries.append(1)
        if len(tries) == 1:
            raise BrokenStream(RequestOutcome.TRUNCATED, "it lacks its end")
        return 3

    def answer(call: Call, number: int) -> Answer:
        call.pieces = [START + number]
        return 5, RequestOutcome.OK, 200

    driven.count_tokens = tokens
    world.answer = answer
    world.run(100)
    rows = records(driven.block())
    assert rows.retries.tolist() == [1]
    assert rows.tokens.tolist() == [3]
    assert times_of_pieces(rows) == [(START + 1,)]


def test_drivers_share_requests_slots_and_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them make up the whole."""
    load = Load(concurrency=3, requests=9)
    parts = []
    for index in (0, 1):
        driven = World(monkeypatch)
        half = driven.drive(load, share=LoadShare(index=index, of=2), messages=3)
        driven.run(100)
        parts.append(records(half.block()))
    assert [len(part) for part in parts] == [5, 4]
    assert np.bincount(join_records(parts).message).tolist() == [3, 3, 3]
    assert [int((part.due == START).sum()) for part in parts] == [2, 1]


def test_a_slot_has_one_sequence_after_the_other(world: World) -> None:
    """Each begins with the first message; two slots have two of them."""
    world.drive(Load(concurrency=2, sequence=(3, 3)), messages=2)
    world.run(16)

    assert world.marks == [
        ("[1", 0), ("[2", 0), ("1", 1), ("2", 1), ("1]", 0), ("2]", 0), ("[3", 0), ("[4", 0),
    ]  # fmt: skip


def test_sequences_at_a_rate_take_turns(world: World) -> None:
    """As many are open as the limit says, however quick the server is."""
    world.drive(Load(arrivals=Arrivals.CONSTANT, rate=100.0, concurrency=3, sequence=(2, 2)))
    world.run(65)

    assert [text for text, _ in world.marks] == ["[1", "[2", "[3", "1]", "[4", "2]", "[5"]


def test_sequences_that_arrive_send_their_requests_one_after_the_other(world: World) -> None:
    """A new one begins whenever one is due, whatever the others do; those that follow are due at an end."""
    load_loop = world.drive(Load(arrivals=Arrivals.SEQUENCES, rate=100.0, sequence=(3, 3)))
    world.run(1000)
    load_loop.stop(1.0)
    world.run(100)
    rows = records(load_loop.block())
    starts = np.array([text.startswith("[") for text, _ in world.marks])

    assert 70 <= starts.sum() <= 130  # 100 in a second, give or take three standard deviations
    assert len(rows) == len(world.marks)
    assert starts.sum() == pytest.approx(len(world.marks) / 3, abs=2)
    assert np.isin(rows.due, rows.end).sum() == pytest.approx((~starts).sum(), abs=2)


def test_the_limit_of_arriving_sequences_is_how_many_are_open(world: World) -> None:
    """A sequence that is due waits until another has ended; its waiting counts."""
    load_loop = world.drive(Load(arrivals=Arrivals.SEQUENCES, rate=100.0, concurrency=1, sequence=(4, 4)))
    world.run(400)

    texts = [text for text, _ in world.marks]
    assert texts[:9] == ["[1", "1", "1", "1]", "[2", "2", "2", "2]", "[3"]
    rows = records(load_loop.block())
    assert (rows.sent - rows.due).max() > 100 * MILLISECOND


def test_an_arriving_sequence_that_failed_is_left(world: World) -> None:
    """Nothing follows its failed request, and the next one that is due begins."""
    world.answer = lambda _call, number: (
        1,
        RequestOutcome.SERVER_ERROR if number == 1 else RequestOutcome.OK,
        200,
    )
    world.drive(Load(arrivals=Arrivals.SEQUENCES, rate=10.0, concurrency=1, sequence=(3, 3)))
    world.run(1000)

    assert [text for text, _ in world.marks][:5] == ["[1", "1", "[2", "2", "2]"]


def test_a_failed_request_ends_its_sequence_here(world: World) -> None:
    """The server may have lost its state: the slot begins another one."""
    world.answer = lambda _call, number: (
        5,
        RequestOutcome.SERVER_ERROR if number == 1 else RequestOutcome.OK,
        200,
    )
    world.drive(Load(concurrency=1, sequence=(4, 4)))
    world.run(16)

    assert [text for text, _ in world.marks] == ["[1", "1", "[2", "2"]


def test_a_retried_request_keeps_its_place(world: World) -> None:
    """It is sent again as it was."""
    world.answer = lambda _call, number: (5, RequestOutcome.RESET if number == 1 else RequestOutcome.OK, 200)
    world.drive(Load(concurrency=1, sequence=(3, 3), retries=1))
    world.run(16)

    assert [text for text, _ in world.marks] == ["[1", "1", "1", "1]"]


def test_a_stopped_load_ends_its_sequences(world: World) -> None:
    """Open ones get a last request each, the idle and those under way; the load is over when all are."""
    load_loop = world.drive(Load(arrivals=Arrivals.CONSTANT, rate=100.0, concurrency=2, sequence=(9, 9)))
    over: list[int] = []
    load_loop.finished = lambda: over.append(world.now)
    world.run(12)
    load_loop.stop(5.0)
    world.run(100)

    assert [text for text, _ in world.marks] == ["[1", "[2", "1]", "2]"]
    assert over


def test_streams_of_data_are_sequences(world: World) -> None:
    """A sequence takes the next stream, from its beginning and as long as it is."""
    world.drive(Load(concurrency=1, sequence=(0, 0)), messages=3, streams=(2, 1))
    world.run(21)

    assert world.marks == [("[1", 0), ("1]", 1), ("[2]", 2), ("[3", 0), ("3]", 1)]


def test_drivers_share_ids_and_streams(world: World) -> None:
    """Every second id, and every second stream."""
    world.drive(
        Load(concurrency=2, sequence=(0, 0)), share=LoadShare(index=1, of=2), messages=3, streams=(2, 1)
    )
    world.run(6)

    assert world.marks == [("[2]", 2), ("[4]", 2)]


def thinking(seconds: float) -> ThinkTime:
    return ThinkTime(low=seconds, high=seconds)


def test_a_request_is_due_after_its_user_has_thought(world: World) -> None:
    """After the answer before it; the first of a sequence at once, and what is sent late counts as late."""
    load_loop = world.drive(Load(concurrency=1, sequence=(2, 2), think_time=thinking(0.02)))
    world.tardiness = 2 * MILLISECOND
    world.run(60)
    rows = records(block := load_loop.block())

    assert since(rows.due) == [0, 25, 32, 57][: len(rows)]
    assert since(rows.sent) == [0, 27, 32, 59][: len(rows)]
    assert rows.turn("turn").tolist() == [1, 2, 1][: len(rows)]
    assert (rows.turn("think_time") / MILLISECOND).tolist() == [0, 20, 0][: len(rows)]
    assert (len(rows), block.ended) == (3, False)


def test_slots_whose_users_think_send_nothing(world: World) -> None:
    """Nothing is in flight, and the load goes on."""
    load_loop = world.drive(Load(concurrency=3, sequence=(4, 4), think_time=thinking(0.05)))
    world.run(30)
    block = load_loop.block()
    assert (block.in_flight, block.backlog, block.ended, block.sent) == (0, 0, False, 3)
    world.run(30)
    assert [text for text, _ in world.marks] == ["[1", "[2", "[3", "1", "2", "3"]


def test_arriving_sequences_that_think_are_open(world: World) -> None:
    """The limit counts them: a further sequence waits until one has ended."""
    load_loop = world.drive(
        Load(
            arrivals=Arrivals.SEQUENCES, rate=100.0, concurrency=2, sequence=(2, 2), think_time=thinking(0.1)
        )
    )
    world.run(400)
    opened = [text for text, _ in world.marks]
    for at in range(len(opened)):
        assert sum(t.startswith("[") for t in opened[:at]) - sum(t.endswith("]") for t in opened[:at]) <= 2
    rows = records(load_loop.block())
    assert (rows.turn("think_time")[rows.turn("turn") == 2] == 100 * MILLISECOND).all()
    assert {2, 1} == set(rows.turn("turn").tolist())


def test_a_stopped_load_awaits_no_thought(world: World) -> None:
    """Sequences of a stateful model get their last request at once, so that the server does not wait."""
    load_loop = world.drive(Load(concurrency=2, sequence=(9, 9), think_time=thinking(5.0)))
    over: list[int] = []
    load_loop.finished = lambda: over.append(world.now)
    world.run(12)
    load_loop.stop(5.0)
    world.run(100)
    assert [text for text, _ in world.marks] == ["[1", "[2", "1]", "2]"]
    assert over
    assert world.left == [1, 2]


def test_so_many_requests_are_sent_though_users_think(world: World) -> None:
    """And no more, and then the load has ended."""
    load_loop = world.drive(Load(concurrency=2, requests=5, sequence=(4, 4), think_time=thinking(0.01)))
    world.run(500)
    block = load_loop.block()
    assert (block.sent, block.ended) == (5, True)


def test_a_failed_request_is_followed_by_no_thought(world: World) -> None:
    """Its sequence is left, and the slot begins another one."""
    world.answer = lambda _call, number: (
        5,
        RequestOutcome.SERVER_ERROR if number == 1 else RequestOutcome.OK,
        200,
    )
    world.drive(Load(concurrency=1, sequence=(3, 3), think_time=thinking(0.01)))
    world.run(40)
    assert [text for text, _ in world.marks] == ["[1", "1", "[2", "2"]


def waiting_for_a_first_piece(sent: Any, end: Any, *, first: float) -> int:
    """Return the most requests at once that had been sent and whose answers had not begun."""
    begun = np.minimum(sent + first * MILLISECOND, end)
    return int(max(((sent <= at) & (begun > at)).sum() for at in sent.tolist()))


@pytest.mark.parametrize(
    "load",
    [
        Load(concurrency=8, prefill_concurrency=2),
        Load(concurrency=8, prefill_concurrency=2, sequence=(3, 3)),
        Load(
            concurrency=8, prefill_concurrency=2, sequence=(3, 3), think_time=ThinkTime(low=0.01, high=0.01)
        ),
        Load(arrivals=Arrivals.POISSON, rate=300.0, prefill_concurrency=2),
        Load(
            arrivals=Arrivals.BURST, burst=8, rate=200.0, concurrency=6, prefill_concurrency=2, requests=300
        ),
        Load(concurrency=8, prefill_concurrency=2, retries=2, cancel=Cancellation(share=0.1, after=0.004)),
    ],
    ids=str,
)
def test_no_more_requests_than_asked_for_wait_for_a_first_piece(world: World, load: Load) -> None:
    """Of a server that begins to answer after 5 ms, one in nine fails; the others wait, which is latency."""
    world.answer = lambda _, number: (
        (3, RequestOutcome.REJECTED, 503) if number % 9 == 4 else (20, RequestOutcome.OK, 200)
    )
    world.first_piece = 5
    load_loop = world.drive(load, messages=9)
    world.run(2000)
    load_loop.stop(1.0)
    world.run(1100)
    block = load_loop.block()
    rows = records(block)
    in_time = rows.due < START + 2000 * MILLISECOND  # the last of each sequence are sent at the end

    assert waiting_for_a_first_piece(rows.sent[in_time], rows.end[in_time], first=5) == 2
    assert in_time.sum() >= 300 - 9
    lag = (rows.sent - rows.due) / MILLISECOND
    assert lag.max() > 2
    assert block.in_flight == 0


def test_a_request_on_another_connection_still_is_before_its_first_token(world: World) -> None:
    """As where a server closed the first one while it was idle: nobody waits for ever."""

    def answer(call: Call, _number: int) -> Answer:
        sent = call.sent
        call.reset()
        call.sent = sent
        return 20, RequestOutcome.OK, 200

    world.answer, world.first_piece = answer, 5
    load_loop = world.drive(Load(concurrency=4, prefill_concurrency=1))
    world.run(1000)
    rows = records(load_loop.block())
    assert len(rows) > 100
    assert waiting_for_a_first_piece(rows.sent, rows.end, first=5) == 1


def test_what_waits_for_its_prefill_at_the_end_is_not_sent(world: World) -> None:
    """And is counted as due; a server that never begins holds back all others."""
    world.answer = lambda *_: None
    load_loop = world.drive(Load(concurrency=8, prefill_concurrency=3, sequence=(2, 2)))
    world.run(100)
    assert (load_loop.block().in_flight, load_loop.block().backlog) == (3, 5)
    load_loop.stop(0.1)
    world.run(200)
    block = load_loop.block()
    assert (block.in_flight, block.backlog) == (0, 5)
    assert (records(load_loop.block()).outcome == RequestOutcome.CANCELLED).all()


def test_a_retry_that_waits_for_its_prefill_at_the_end_is_recorded(world: World) -> None:
    """It was sent once, so that it has an outcome; `backlog` counts what was never sent."""

    def answer(call: Call, _number: int) -> Answer | None:
        return (3, RequestOutcome.REJECTED, 503) if call.message == 0 and not call.retries else None

    world.answer = answer
    load_loop = world.drive(Load(concurrency=2, prefill_concurrency=1, retries=2), messages=2)
    world.run(2000)
    assert (load_loop.block().in_flight, load_loop.block().backlog) == (1, 0)
    load_loop.stop(0.1)
    world.run(200)
    rows = records(load_loop.block())
    assert sorted(rows.retries.tolist()) == [0, 1]
    assert (rows.outcome == RequestOutcome.CANCELLED).all()


def cancelling(share: float, after: float = 0.02) -> Cancellation:
    return Cancellation(share=share, after=after)


def test_a_share_of_the_requests_is_given_up(world: World) -> None:
    """So long after they were sent, as an outcome of their own; the slot goes on at once."""
    load_loop = world.drive(Load(concurrency=4, cancel=cancelling(0.25)))
    world.answer = lambda *_: (50, RequestOutcome.OK, 200)
    world.run(5000)
    rows = records(load_loop.block())
    given_up = rows.outcome == RequestOutcome.ABANDONED

    assert 0.2 < given_up.mean() < 0.3
    assert (rows.outcome[~given_up] == RequestOutcome.OK).all()
    assert set(((rows.end - rows.sent)[given_up] / MILLISECOND).tolist()) == {20}
    assert len(world.dropped) == given_up.sum()
    assert np.isin(rows.end[given_up][:-8], rows.due).all()


def test_what_is_answered_before_is_not_given_up(world: World) -> None:
    """Whatever was drawn, and the next request of the slot is not taken for it."""
    load_loop = world.drive(Load(concurrency=1, cancel=cancelling(0.9)))
    world.answer = lambda *_: (19, RequestOutcome.OK, 200)
    world.run(1000)
    assert (records(load_loop.block()).outcome == RequestOutcome.OK).all()
    assert not world.dropped


def test_the_same_seed_gives_up_the_same_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the order in which they are sent, at a rate, too."""
    outcomes = []
    for _ in range(2):
        each = World(monkeypatch)
        load_loop = each.drive(Load(arrivals=Arrivals.CONSTANT, rate=100.0, cancel=cancelling(0.3)))
        each.answer = lambda *_: (50, RequestOutcome.OK, 200)
        each.run(1000)
        rows = records(load_loop.block())
        outcomes.append(rows.outcome[rows.due.argsort()].tolist()[:90])
    assert outcomes[0] == outcomes[1]
    assert RequestOutcome.ABANDONED in outcomes[0]


def test_a_turn_that_is_given_up_ends_its_sequence(world: World) -> None:
    """There is no answer to go on from."""
    load_loop = world.drive(Load(concurrency=1, sequence=(3, 3), cancel=cancelling(0.3)))
    world.answer = lambda *_: (50, RequestOutcome.OK, 200)
    world.run(3000)
    rows = records(load_loop.block())
    for session in set(rows.turn("session")[rows.outcome == RequestOutcome.ABANDONED].tolist()):
        outcomes = rows.outcome[rows.turn("session") == session]
        assert (outcomes[:-1] == RequestOutcome.OK).all()


class Unconnected(World):
    """A world in which a request has no connection for a while."""

    def send(self, call: Call, now: int) -> None:
        """Be a carrier."""
        super().send(call, now)
        call.carrier = None
        self.call_later(0.05, self._connect, call)

    def _connect(self, call: Call) -> None:
        call.sent, call.carrier = self.now, self  # type: ignore[assignment]


def test_a_request_is_given_up_so_long_after_it_was_really_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits for a connection was not sent."""
    world = Unconnected(monkeypatch)
    load_loop = world.drive(Load(concurrency=1, requests=1, cancel=cancelling(0.999)))
    world.answer = lambda *_: None
    world.run(200)
    rows = records(load_loop.block())
    assert rows.outcome.tolist() == [RequestOutcome.ABANDONED]
    assert since(rows.sent) == [50]
    assert since(rows.end) == pytest.approx([70], abs=20)


def test_pieces_of_answers_in_flight_are_counted_as_they_come(world: World) -> None:
    """In each block how many there are, and how long the first ones took that are new: each of these once."""
    driven = world.drive(Load(concurrency=2))
    world.answer = lambda *_: (1000, RequestOutcome.OK, 200)
    driven.streamed = True
    world.run(100)
    first, second = driven._in_flight
    first.pieces = [START + 30 * MILLISECOND, START + 60 * MILLISECOND]
    one = driven.block()
    world.run(100)
    first.pieces.append(START + 130 * MILLISECOND)
    second.pieces = [START + 150 * MILLISECOND]
    two = driven.block()

    assert [block.pieces for block in (one, two)] == [2, 4]
    times = [np.frombuffer(block.first_times, "<i8") / MILLISECOND for block in (one, two)]
    assert [each.tolist() for each in times] == [[30], [150]]


def test_pieces_of_answers_that_come_whole_are_not_looked_at(world: World) -> None:
    """A load of many requests in flight does nothing for what it does not have."""
    driven = world.drive(Load(concurrency=2))
    world.answer = lambda *_: (1000, RequestOutcome.OK, 200)
    world.run(100)
    next(iter(driven._in_flight)).pieces = [START + 1]

    assert (driven.block().pieces, driven.block().first_times) == (0, b"")
