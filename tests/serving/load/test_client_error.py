"""What a client itself adds to the times of streamed answers, from what both sides noted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.serving.load.test_load_analysis import MILLI, SECOND, records, window

from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.doubt import CODES
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.metrics.metric import METRICS
from modeldyno.serving.load import client_error
from modeldyno.serving.load.client_error import ClientError, PieceEvent, Score, compare, make_score

STREAM = Load(concurrency=2)


def streams(
    starts: list[int], pieces: int, gap: float, *, first: float = 5, driver: list[int] | int = 0
) -> Any:
    """Answers in milliseconds: when each is asked for, and pieces of it at equal steps."""
    times = tuple(tuple(int((start + first + at * gap) * MILLI) for at in range(pieces)) for start in starts)
    service = [each[-1] - start * MILLI for each, start in zip(times, starts, strict=True)]
    return records([start * MILLI for start in starts], service, pieces=times, driver=driver)


def by_answer(score: Score) -> list[list[tuple[int, int]]]:
    """Of each answer when it is written to, in milliseconds from the first of all, and with how many."""
    zero = min(event.due for event in score.events)
    return [
        [
            (round((event.due - zero) / MILLI), event.pieces)
            for event in score.events
            if event.answer == number and event.pieces
        ]
        for number in range(len(score.sends))
    ]


def test_the_end_of_a_load_is_played_as_it_was() -> None:
    """An answer that had begun goes on from its first piece in the moment, and the next one follows it."""
    log = streams([0, 500, 1000, 1500], 100, 4.8)
    score = make_score(window(log, STREAM, 2.0), 0.7)
    assert score is not None
    first, *_, last = by_answer(score)
    assert first[:2] == [(0, 1), (5, 1)]
    assert last[-1][0] == pytest.approx(675, abs=15)
    assert 0.7 < score.seconds < 0.9, "with the time in which connections are opened"
    assert 80 < sum(count for answer in by_answer(score) for _, count in answer) < 142
    assert score.sends[0] == 0
    assert score.warmup == pytest.approx((0.07 + 0.1) * SECOND, rel=0.1)


def test_what_goes_on_after_the_moment_ends_when_nothing_counts() -> None:
    """Its last write has no piece; an answer that ended in the moment ends with its last piece."""
    score = make_score(window(streams([0], 200, 10), STREAM, 1.0), 0.4)
    assert score is not None
    assert score.events[-1].pieces == 0
    assert score.events[-1].is_last
    ended = make_score(window(streams([0], 60, 10), STREAM, 1.0), 1.0)
    assert ended is not None
    assert ended.events[-1].pieces == 1
    assert ended.events[-1].is_last


def test_pieces_that_were_handled_back_to_back_are_written_together() -> None:
    """A client that reads the tokens of a step one after the other has them all at once; drivers apart."""
    step = [(0, 20), (1, 20), (2, 20)]
    times = tuple(tuple(number * MILLI // 50 + at * 20 * MILLI for at in range(1, 40)) for number, _ in step)
    log = records([0, 0, 0], SECOND, pieces=times, driver=[0, 0, 1])
    score = make_score(window(log, STREAM, 0.9), 0.5)
    assert score is not None
    dues = sorted({event.due for event in score.events if event.pieces})
    apart = np.round(np.diff(dues) / MILLI, 2).tolist()
    assert apart.count(0.04) > 10, "two of one driver at once, that of the other 40 us later"
    assert apart.count(0.02) < 5, "but where an answer was cut"


def test_a_busy_client_is_taken_to_need_as_long_for_a_piece_as_it_did() -> None:
    """At half a core and 100 pieces a second these are 5 ms, and pieces 4 ms apart came at once."""
    times = tuple(tuple((at * 20 + 4 * number) * MILLI for at in range(1, 100)) for number in range(2))
    log = records([0, 0], 2 * SECOND, pieces=times)
    busy, idle = (make_score(window(log, STREAM, 2.0, clients=(cores,)), 1.0) for cores in (0.5, 0.001))
    assert busy is not None
    assert idle is not None
    assert len({event.due for event in busy.events}) < len({event.due for event in idle.events}) / 1.5


def test_a_load_of_few_pieces_is_played_faster_unless_its_client_is_busy() -> None:
    """Ten seconds of a piece every 50 ms are 200 pieces."""
    log = streams([0], 199, 50, first=1)
    idle, busy = (make_score(window(log, STREAM, 10.0, clients=(cores,)), 1.0) for cores in (0.01, 0.5))
    assert idle is not None
    assert busy is not None
    assert sum(event.pieces for event in idle.events) > 5 * sum(event.pieces for event in busy.events) > 0


def test_answers_are_cut_where_there_are_few_first_tokens() -> None:
    """A part keeps ten writes or more, and is asked for in the pause before it."""
    score = make_score(window(streams([0], 900, 1.1), STREAM, 1.0), 1.0)
    assert score is not None
    parts = by_answer(score)
    assert 30 < len(parts) < 60
    assert all(len(part) >= 10 for part in parts[:-1])
    zero = min(event.due for event in score.events)
    for send, before, after in zip(score.sends[1:], parts, parts[1:], strict=False):
        sent_at = (send - zero) / MILLI
        assert before[-1][0] < sent_at < after[0][0]
        assert after[0][0] - before[-1][0] >= 5


def test_several_pieces_of_one_read_are_one_write() -> None:
    """They had one time, and so have no gap."""
    times = (100 * MILLI, 100 * MILLI, 100 * MILLI, 905 * MILLI)
    log = records([0, 0], SECOND, pieces=(times, (MILLI,)))
    score = make_score(window(log, STREAM, 1.0), 0.95)
    assert score is not None
    assert [event.pieces for event in score.events if event.pieces] == [3, 1], "and the other came before"


def test_without_pieces_nothing_is_played() -> None:
    """Answers that came whole, and streams of which none came in the last moment."""
    assert make_score(window(records([0], SECOND), STREAM), 1.0) is None
    many = tuple(range(1, 4001))
    early = records([0, 0], MILLI, pieces=(many, many))
    assert make_score(window(early, STREAM), 0.1) is None


SCORE = Score(
    sends=(0, 0, 5),
    events=(
        PieceEvent(10, 0, 1, is_last=False),
        PieceEvent(20, 1, 1, is_last=False),
        PieceEvent(30, 0, 2, is_last=False),
        PieceEvent(40, 1, 1, is_last=True),
        PieceEvent(50, 0, 1, is_last=True),
        PieceEvent(60, 2, 1, is_last=True),
    ),
    warmup=15,
)


def test_the_error_is_what_the_client_has_beyond_the_writing() -> None:
    """Of first tokens the delay, of gaps the distance, of spans that of the whole; of the warm-up nothing."""
    log = records([0, 0], 1, message=[1, 0], pieces=((1021, 1045), (1012, 1033, 1033, 1052)))
    written = (1010, 1020, 1031, 1040, 1050, 0)
    error = compare(log, SCORE, 1000, written)
    assert (error.first_token * 1e9).round().tolist() == [1], "that of the other answer came in the warm-up"
    assert (error.gap * 1e9).round().tolist() == [4, 0, 0]
    assert (error.span * 1e9).round().tolist() == [4, 0]
    assert (error.lag * 1e9).round().tolist() == [0, 0, 1, 0, 0]


def test_what_waited_for_its_request_is_not_the_servers_lag() -> None:
    """The time of its writing counts all the same."""
    log = records([0], 1, message=[1], pieces=((1030, 1045),))
    error = compare(log, SCORE, 1000, (0, -1028, 0, 1040, 0, 0))
    assert (error.first_token * 1e9).round().tolist() == [2]
    assert (error.lag * 1e9).round().tolist() == [0]


def test_answers_that_did_not_come_have_no_error() -> None:
    """Nothing is measured of them, and a log without pieces has none at all."""
    whole = compare(records([0], 1, message=[2]), SCORE, 0, (1, 1, 1, 1, 1, 1))
    assert not whole.first_token.size
    error = compare(records([0], 1, message=[2], pieces=((),)), SCORE, 0, (1, 1, 1, 1, 1, 1))
    assert not error.first_token.size
    assert not error.gap.size
    assert [each.metric for each in client_error.measurements(error)] == [client_error.LAG]


def an_error(first: float, gap: float, span: float = 0.0) -> ClientError:
    return ClientError(
        first_token=np.full(100, first), gap=np.full(100, gap), span=np.full(100, span), lag=np.zeros(1)
    )


def test_what_was_found_is_measured() -> None:
    """Each under a metric of the table."""
    by_metric = {each.metric: each.value for each in client_error.measurements(an_error(0.001, 0.002))}
    metrics = {client_error.FIRST_TOKEN, client_error.GAP, client_error.LAG}
    assert by_metric.keys() == metrics <= METRICS.keys()
    gap = by_metric[client_error.GAP]
    assert isinstance(gap, Distribution)
    assert gap.statistic("p99") == pytest.approx(0.002)


def doubted(error: ClientError, times: dict[str, float], *, tokens: float = 11, void: str = "") -> str:
    """Say what is doubted of times, all of whose samples are equal."""
    figures = {metric: Distribution.of(np.full(100, seconds), void=void) for metric, seconds in times.items()}
    all_doubts = list(client_error.doubts(figures, error, tokens))
    assert {doubt.code for doubt in all_doubts} <= CODES.keys()
    return all_doubts[0].seen if all_doubts else ""


def test_a_figure_below_twice_the_clients_error_is_doubted() -> None:
    """The worst with both figures, the others by name."""
    times = {"time_to_first_token": 0.0019, "inter_chunk_latency": 0.010}
    assert doubted(an_error(0.001, 0.001), times) == (
        "time_to_first_token.p50 is 1.9 ms, of which the client itself may be 1.0 ms; so are "
        "time_to_first_token.p90, time_to_first_token.p99"
    )
    assert not doubted(an_error(0.0009, 0.001), times)
    assert not doubted(an_error(0.001, 0.001), times, void="saturated"), "it has no value anyway"
    assert not doubted(an_error(0.001, 0.001), {"request_rate": 0.001})


def test_one_gap_has_one_name() -> None:
    """Where each piece is a token, its gaps are doubted as those of tokens."""
    both = {"inter_token_latency": 0.001, "inter_chunk_latency": 0.001}
    assert "chunk" not in doubted(an_error(0.0, 0.001), both)
    assert "chunk" in doubted(an_error(0.0, 0.001), {"inter_chunk_latency": 0.001})


def test_a_mean_gap_has_its_share_of_the_error_of_a_span() -> None:
    """Over ten gaps a tenth; of answers whose tokens are not counted all of it."""
    time = {"time_per_output_token": 0.001}
    assert not doubted(an_error(0.0, 0.001, span=0.004), time)
    assert "time_per_output_token.p50" in doubted(an_error(0.0, 0.001, span=0.006), time)
    assert doubted(an_error(0.0, 0.001, span=0.004), time, tokens=0)


def test_a_single_doubted_figure_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And two of them in the singular."""
    monkeypatch.setattr(client_error, "_JUDGED", ("p50",))
    error = an_error(0.001, 0.001)
    assert doubted(error, {"time_to_first_token": 0.001}).endswith("may be 1.0 ms")
    two = doubted(error, {"time_to_first_token": 0.001, "inter_token_latency": 0.0015})
    assert two.endswith("; so is inter_token_latency.p50")


def test_pieces_that_came_together_are_not_doubted() -> None:
    """A gap of zero is no figure of a gap."""
    assert not doubted(an_error(0.0, 0.001), {"inter_chunk_latency": 0.0})


def test_a_failed_calibration_says_why() -> None:
    """And how to do without."""
    doubt = client_error.uncalibrated("a process died")
    assert doubt.seen.endswith("was not measured: a process died")
    assert doubt.code in CODES
