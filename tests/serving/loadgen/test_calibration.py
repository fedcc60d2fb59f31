"""A load generator that is calibrated: by processes of its own, with a server that notes what it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import RunFailed
from modeldyno.engine.interfaces.request_target import Reply
from modeldyno.serving.clients.generated_text import text_start
from modeldyno.serving.load.client_error import PieceEvent, Score
from modeldyno.serving.loadgen import calibration
from modeldyno.serving.loadgen.calibration import AnswerForm, calibrate, form_of, playback_server

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.serving.load.client_error import ClientError

MILLI = 1_000_000
STREAMS, PIECES = 8, 20


def a_score(streams: int = STREAMS, pieces: int = PIECES, gap: float = 20) -> Score:
    """Streams that begin one after the other, with a piece of each at equal steps of so many milliseconds."""
    events = [
        PieceEvent(
            int((100 + stream * gap / streams + at * gap) * MILLI), stream, 1, is_last=at == pieces - 1
        )
        for stream in range(streams)
        for at in range(pieces)
    ]
    return Score(sends=(0,) * streams, events=tuple(sorted(events)))


def play(score: Score, *, drivers: int = 1, interrupted: bool = False) -> ClientError | None:
    with playback_server() as server:
        return calibrate(
            server, score, AnswerForm(), protocol="openai", drivers=drivers, limit=30.0,
            interrupted=lambda: interrupted,
        )  # fmt: skip


@pytest.mark.parametrize("drivers", [1, 2])
def test_every_piece_is_compared_with_its_writing(drivers: int) -> None:
    """With one driver process and with several; no piece arrives before it is written."""
    error = play(a_score(), drivers=drivers)
    assert error is not None
    assert len(error.first_token) == STREAMS
    assert len(error.gap) == STREAMS * (PIECES - 1)
    assert len(error.lag) == STREAMS * PIECES
    assert error.first_token.min() > 0
    assert error.lag.min() >= 0


SLOW = """
import sys
from time import perf_counter

if "driver_main" in " ".join(sys.orig_argv):
    from modeldyno.serving.loadgen.event_stream import PieceCounter

    feed = PieceCounter.feed

    def feed_slowly(self, data):
        until = perf_counter() + 0.010
        while perf_counter() < until:
            pass
        return feed(self, data)

    PieceCounter.feed = feed_slowly
"""


def test_a_slow_client_finds_that_it_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten milliseconds for each read: of streams that come at once, the last waits for all the others."""
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    apart = a_score(4, 10, 100)
    together = tuple(event._replace(due=event.due // (100 * MILLI) * 100 * MILLI) for event in apart.events)
    error = play(Score(sends=apart.sends, events=together))
    assert error is not None
    assert error.first_token.max() > 0.009


def test_an_interrupted_calibration_has_no_result() -> None:
    """It ends at once."""
    assert play(a_score(), interrupted=True) is None


def test_a_score_that_takes_longer_than_there_is_time_is_ended() -> None:
    """What came until then counts."""
    score = a_score(2, 4)
    late = (*score.events[:-1], score.events[-1]._replace(due=60_000 * MILLI))
    with playback_server() as server:
        error = calibrate(
            server, Score(sends=score.sends, events=late), AnswerForm(), protocol="openai", drivers=1,
            limit=3.0, interrupted=bool,
        )  # fmt: skip
    assert error is not None
    assert len(error.gap) < 6


def test_a_server_that_died_is_an_error() -> None:
    """And not waited for."""
    with playback_server() as server:
        server._process.kill()
        server._process.wait()
        with pytest.raises(RunFailed, match="did not start"):
            server.begin(a_score(), AnswerForm())


def test_a_server_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is killed."""
    monkeypatch.setattr(calibration, "_PATIENCE", 0.0)
    with playback_server() as server, pytest.raises(RunFailed, match="did not end"):
        server.end()
    assert server._process.poll() is not None


def reply(body: bytes, kind: bytes = b"text/event-stream; charset=utf-8") -> Reply:
    return Reply(
        message=0, status=200, head=b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\nX: 1", body=body
    )


ROLE = b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
PIECE = b'data: {"choices": [{"delta": {"content": "%b"}}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 3}}\n\n'
DONE = b"data: [DONE]\n\n"


def test_answers_have_the_form_of_those_of_the_load() -> None:
    """The usual piece, and all that follows the last one; what has no text is no piece."""
    body = ROLE + PIECE % b"a" + PIECE % b"bb" + PIECE % b"cccc" + USAGE + DONE
    form = form_of([reply(b"", b"text/plain"), reply(ROLE), reply(body)], text_start)
    assert form == AnswerForm(kind="text/event-stream; charset=utf-8", piece=PIECE % b"bb", end=USAGE + DONE)


def test_lines_of_json_have_their_form_too() -> None:
    """A line is a piece."""
    body = b'{"response": "a"}\n{"response": "bb"}\n{"done": true}\n'
    form = form_of([reply(body, b"application/x-ndjson")], lambda data: b"response" in data)
    assert (form.kind, form.end) == ("application/x-ndjson", b'{"done": true}\n')


def test_without_an_answer_that_has_pieces_there_is_a_usual_form() -> None:
    """One whose head says nothing, and one whose events have no text."""
    bare = Reply(message=0, status=200, head=b"HTTP/1.1 200 OK", body=PIECE)
    assert form_of([bare, reply(ROLE)], text_start) == AnswerForm()
    assert text_start(AnswerForm().piece)
