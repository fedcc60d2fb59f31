"""Calibrates the load generator: plays a moment of a load again, with a server that notes what it writes.

The drivers are as many as the load had, started in the same way, and read answers like those of the load by
the same protocol. The server is a process of its own, on this machine.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from array import array
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import RunFailed
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.serving.load.client_error import compare
from modeldyno.serving.load.request_log import join_records
from modeldyno.serving.loadgen.driver_pool import run_load_drivers
from modeldyno.serving.loadgen.event_stream import LineDecoder, PieceCounter, decoder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.engine.interfaces.request_target import Reply
    from modeldyno.serving.load.client_error import ClientError, Score
    from modeldyno.serving.loadgen.event_stream import TextStart

_WAIT = 0.1
"""Seconds between two looks at whether it was interrupted."""
_PATIENCE = 2.0
"""Seconds beyond the score for which its last pieces are awaited."""
_HOST = "127.0.0.1"
_KIND = re.compile(rb"(?im)^content-type:[ \t]*([^\r\n]*)")
_EVENT, _LINE = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r)", re.DOTALL), re.compile(rb"[^\n]*\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """What the answers look like that are played."""

    kind: str = "text/event-stream"
    """Type of the content."""
    piece: bytes = b'data: {"choices": [{"index": 0, "delta": {"content": " word"}}]}\n\n'
    end: bytes = b"data: [DONE]\n\n"
    """What follows the last piece."""


def form_of(replies: Sequence[Reply], text_start: TextStart | None) -> AnswerForm:
    """Return the form of the first answer that has pieces: its usual piece, and what ends it.

    Args:
        replies: answers of the load.
        text_start: returns where something generated begins in the data of an event; None: all data is.
    """
    for reply in replies:
        kind = _KIND.search(reply.head)
        make = decoder_of(kind[1]) if kind is not None else None
        if kind is None or make is None:
            continue
        counter, blocks = PieceCounter(make(), text_start), (_LINE if make is LineDecoder else _EVENT)
        parts = [(part, counter.feed(part)) for part in blocks.findall(reply.body)]
        pieces = sorted((part for part, count in parts if count), key=len)
        if pieces:
            last = max(at for at, (_, count) in enumerate(parts) if count)
            return AnswerForm(
                kind=kind[1].decode("latin-1"),
                piece=pieces[len(pieces) // 2],
                end=b"".join(part for part, _ in parts[last + 1 :]),
            )
    return AnswerForm()


class PlaybackServer:
    """The server of a calibration, which waits for a score."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def begin(self, score: Score, form: AnswerForm) -> int:
        """Have it wait for the first request of a score; return its port. Raises RunFailed if it has died."""
        fields = {
            "kind": form.kind,
            "piece": form.piece.decode("latin-1"),
            "end": form.end.decode("latin-1"),
            "events": score.events,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(fields).encode() + b"\n")
            self._process.stdin.flush()
        if not (port := self._process.stdout.readline()):
            raise RunFailed("The server of the calibration did not start.")
        return int(port)

    def end(self) -> tuple[int, array[int]]:
        """End it; return when the first request came, and when each event was written, as `compare` takes it.

        Raises RunFailed if it does not end.
        """
        try:
            noted, _ = self._process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            raise RunFailed("The server of the calibration did not end.") from None
        begin, *written = array("q", noted)
        return begin, array("q", written)


@contextmanager
def playback_server() -> Iterator[PlaybackServer]:
    """Start the server of a calibration, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "modeldyno.serving.loadgen.calibration_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield PlaybackServer(process)
        finally:
            process.kill()


def calibrate(
    server: PlaybackServer,
    score: Score,
    form: AnswerForm,
    *,
    protocol: str,
    drivers: int,
    limit: float,
    interrupted: Callable[[], bool],
) -> ClientError | None:
    """Play a score; return the client's error in it, None if that was interrupted.

    Args:
        server: plays it.
        score: what is played.
        form: of its answers.
        protocol: name of the client that reads them.
        drivers: number of driver processes.
        limit: seconds after which it ends, whatever has been played.
        interrupted: whether to stop.

    Raises:
        RunFailed: drivers or server did not start, or died.
        OSError: a process cannot be started.
    """
    until = monotonic() + limit
    port = server.begin(score, form)
    target = Target(
        protocol=protocol,
        transport=Transport.HTTP,
        host=_HOST,
        port=port,
        messages=tuple(
            b"GET /%d HTTP/1.1\r\nHost: %b\r\n\r\n" % (number, _HOST.encode())
            for number in range(len(score.sends))
        ),
        stream=True,
    )
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as trace:
        trace.writelines(f"{send / 1e9:.9f}\n" for send in score.sends)
        trace.flush()
        load = Load(arrivals=Arrivals.TRACE, trace=trace.name, drivers=drivers)
        parts = []
        with run_load_drivers(target, load) as driven:
            until = min(until, monotonic() + score.seconds + _PATIENCE)
            ended = False
            while not ended and monotonic() < until:
                progress = driven.take(min(_WAIT, max(0.0, until - monotonic())))
                parts.append(progress.records)
                ended = progress.ended
                if interrupted():
                    return None
            parts.append(driven.stop(0.0).records)
    begin, written = server.end()
    return compare(join_records(parts), score, begin, written)
