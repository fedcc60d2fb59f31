from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.system.deadline import answered_by
from modeldyno.base.system.process_tree import list_process_tree
from modeldyno.engine.interfaces.request_target import Target, Tls, Transport
from modeldyno.serving.load.request_log import join_records
from modeldyno.serving.loadgen.driver_pool import run_load_drivers, send_once
from modeldyno.serving.loadgen.tls import TlsError
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.serving.load.request_log import Records
    from modeldyno.serving.loadgen.running_load import LoadEnd, PieceArrivals
    from modeldyno.testing.server import RunningServer


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serve_in_subprocess() as running:
        yield running


def target(port: int, *paths: str, tls: Tls | None = None, host: str = "127.0.0.1") -> Target:
    heads = (f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode() for path in paths or ("/",))
    return Target(
        protocol="http", transport=Transport.HTTP, host=host, port=port, messages=tuple(heads), tls=tls
    )


def driven(target: Target, load: Load, *, wait: float = 20.0) -> tuple[Records, LoadEnd]:
    with run_load_drivers(target, load) as crew:
        deadline = time.monotonic() + wait
        parts = []
        while time.monotonic() < deadline:
            taken = crew.take(0.05)
            parts.append(taken.records)
            if taken.ended:
                break
        ending = crew.stop(5.0)
    return join_records([*parts, ending.records]), ending


def test_several_drivers_send_what_one_would(server: RunningServer) -> None:
    """Requests, messages and slots are shared out, and the records come together."""
    records, ending = driven(
        target(server.port, "/?a", "/?b", "/?c"), Load(concurrency=5, requests=301, drivers=2)
    )
    assert len(records) == 301
    assert set(records.outcome) == {RequestOutcome.OK}
    assert set(records.driver) == {0, 1}
    assert set(np.bincount(records.message)) <= {100, 101}
    assert (np.diff(records.end) >= 0).all()
    assert [usage.opened for usage in ending.usages] == [3, 2]
    assert sum(usage.sent for usage in ending.usages) == 301
    assert all(usage.cpu > 0 and usage.wall > 0 for usage in ending.usages)


def test_the_first_and_the_last_reply_to_each_message_are_kept(server: RunningServer) -> None:
    """So that they can be checked."""
    _, ending = driven(target(server.port, "/?a", "/?b"), Load(concurrency=2, requests=40))
    assert sorted(reply.message for reply in ending.replies) == [0, 0, 1, 1]
    assert {reply.body for reply in ending.replies} == {b"ok"}
    assert {reply.status for reply in ending.replies} == {200}


def test_no_more_slots_are_used_than_there_are(server: RunningServer) -> None:
    """Three drivers of a single slot would be three slots."""
    with run_load_drivers(target(server.port), Load(concurrency=1, drivers=3)) as crew:
        assert len(crew.pids) == 1


def test_a_closed_loop_is_due_as_the_slot_becomes_free(server: RunningServer) -> None:
    """Each request of the only slot is due the instant the one before it ended."""
    records, _ = driven(target(server.port), Load(requests=50))
    assert (records.due[1:] == records.end[:-1]).all()
    assert (records.sent >= records.due).all()
    assert (records.first >= records.sent).all()
    assert (records.end >= records.first).all()


def test_an_open_loop_shows_a_stall_in_latency_and_not_in_service_time() -> None:
    """A server that does nothing for a second: who waited for a turn counts from when it was due."""
    load = Load(arrivals=Arrivals.POISSON, rate=200.0, requests=300, concurrency=4)
    with serve_in_subprocess("--stall", "0.2:1.0") as server:
        records, _ = driven(target(server.port), load)
    latency, service = records.end - records.due, records.end - records.sent
    assert len(records) == 300
    assert np.percentile(latency, 80) > 0.5e9
    assert np.percentile(service, 80) < 0.3e9


def test_the_limit_of_an_open_loop_holds_requests_back_and_says_so() -> None:
    """Two may be on their way; the others are the backlog."""
    load = Load(arrivals=Arrivals.CONSTANT, rate=500.0, concurrency=2)
    with (
        serve_in_subprocess("--service", "constant:0.05", "--workers", "9") as server,
        run_load_drivers(target(server.port), load) as crew,
    ):
        taken = [crew.take(0.1) for _ in range(6)]
    assert max(each.in_flight for each in taken) == 2
    assert taken[-1].backlog > 100
    assert not any(each.ended for each in taken)


def test_stopping_waits_for_what_is_on_its_way_or_cancels_it(server: RunningServer) -> None:
    """With a grace all are answered; without one, the rest is cancelled, and all are counted."""
    hung = target(server.port, "/fault/hang/")
    with run_load_drivers(hung, Load(concurrency=7)) as crew:
        assert crew.take(0.3).in_flight == 7
        ending = crew.stop(0.0)
    assert [RequestOutcome(outcome) for outcome in ending.records.outcome] == [RequestOutcome.CANCELLED] * 7


def test_a_trace_is_replayed_and_ends(tmp_path: Path, server: RunningServer) -> None:
    """Three requests at the times of the file."""
    (tmp_path / "times").write_text("10.0\n10.1\n10.3\n")
    load = Load(arrivals=Arrivals.TRACE, trace=str(tmp_path / "times"))
    records, _ = driven(target(server.port), load)
    assert (np.diff(np.sort(records.due)) / 1e6).tolist() == [100, 200]


def test_a_trace_that_is_not_there_is_refused_before_anything_starts() -> None:
    """In one sentence."""
    load = Load(arrivals=Arrivals.TRACE, trace="/no/such/file")
    with pytest.raises(RequestError, match="Cannot read the trace"), run_load_drivers(target(1), load):
        pass


def test_an_unknown_host_is_refused() -> None:
    """By name."""
    with (
        pytest.raises(RequestError, match=r"host no-such\.invalid cannot be resolved"),
        run_load_drivers(target(1, host="no-such.invalid"), Load()),
    ):
        pass


def test_a_driver_that_dies_is_told(server: RunningServer) -> None:
    """Nobody waits for it."""
    with run_load_drivers(target(server.port), Load()) as crew:
        crew.take(0.1)
        os.kill(crew.pids[0], signal.SIGKILL)
        with pytest.raises(RunFailed, match="died with code -9"):
            crew.take(20.0)


def test_no_driver_outlives_the_one_who_started_it(server: RunningServer, tmp_path: Path) -> None:
    """Killed at once, without a chance to tidy up."""
    script = f"""
import sys, time
from modeldyno.base.job.load_spec import Load
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.serving.loadgen.driver_pool import run_load_drivers
target = Target(protocol="http", transport=Transport.HTTP, host="127.0.0.1", port={server.port},
                messages=(b"GET / HTTP/1.1\\r\\n\\r\\n",))
with run_load_drivers(target, Load(concurrency=2, drivers=2)) as crew:
    print(*crew.pids, flush=True)
    time.sleep(60)
"""
    (tmp_path / "script.py").write_text(script)
    with subprocess.Popen(
        [sys.executable, tmp_path / "script.py"], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert set(pids) <= set(list_process_tree(parent.pid))
        parent.kill()
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert len(pids) == 2


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_leaving_the_block_leaves_no_process(server: RunningServer) -> None:
    """Even without a stop."""
    with run_load_drivers(target(server.port), Load(concurrency=2, drivers=2)) as crew:
        pids = crew.pids
    assert not any(alive(pid) for pid in pids)


def test_one_request_gives_its_reply_whatever_the_status(server: RunningServer) -> None:
    """Health checks want to know."""
    assert send_once(target(server.port)).body == b"ok"
    assert send_once(target(server.port, "/", "/fault/503/"), 1).status == 503


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("truncated", "before its answer was complete"),
        pytest.param("garbage", "not valid in this protocol", marks=pytest.mark.slow),
        pytest.param("reset-before", "was reset", marks=pytest.mark.slow),
    ],
)
def test_one_request_that_fails_says_why(fault: str, message: str, server: RunningServer) -> None:
    """In a phrase, with the server's address."""
    with pytest.raises(OSError, match=f"127.0.0.1:{server.port}.*{message}"):
        send_once(target(server.port, f"/fault/{fault}/"))


def test_one_request_is_not_waited_for_for_ever(server: RunningServer) -> None:
    """A server that hangs, or that is not there."""
    with pytest.raises(TimeoutError, match=r"did not answer within 0\.2 s"):
        send_once(target(server.port, "/fault/hang/"), timeout=0.2)
    with pytest.raises(OSError, match="refused"):
        send_once(target(1))


def test_requests_of_a_block_are_given_up_at_its_time(server: RunningServer) -> None:
    """A server gets half a second in any case; the earlier of two times counts."""
    begin = time.monotonic()
    with answered_by(begin - 1), answered_by(begin + 60), pytest.raises(TimeoutError, match=r"0\.5 s"):
        send_once(target(server.port, "/fault/hang/"))
    assert time.monotonic() - begin < 5


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Give a certificate for "localhost" that is its own authority, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    files = str(folder / "certificate.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-out", files[0], "-keyout", files[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    return files


def test_tls_is_spoken_and_checked(certificate: tuple[str, str]) -> None:
    """With its authority it is trusted, under its name only; without, only if nobody checks."""
    with serve_in_subprocess("--certificate", certificate[0], "--key", certificate[1]) as server:
        trusted = Tls(authority=certificate[0], name="localhost")
        assert send_once(target(server.port, tls=trusted)).body == b"ok"
        records, ending = driven(target(server.port, tls=trusted), Load(concurrency=2, requests=60))
        assert set(records.outcome) == {RequestOutcome.OK}
        assert ending.usages[0].opened == 2
        assert send_once(target(server.port, tls=Tls(verify=False))).body == b"ok"
        records, _ = driven(target(server.port, "/fault/truncated/", tls=trusted), Load(requests=9))
        assert set(records.outcome) <= {RequestOutcome.TRUNCATED, RequestOutcome.RESET}
        for doubtful in (Tls(), Tls(authority=certificate[0], name="other.test")):
            with pytest.raises(OSError, match="certificate"):
                send_once(target(server.port, tls=doubtful))
            records, _ = driven(target(server.port, tls=doubtful), Load(requests=3))
            assert set(records.outcome) == {RequestOutcome.REFUSED}


def test_what_is_wrong_with_tls_says_what_to_write(certificate: tuple[str, str]) -> None:
    """A certificate that is not trusted, or of another name, TLS to a plain port, and none to one of TLS."""
    with serve_in_subprocess("--certificate", certificate[0], "--key", certificate[1]) as server:
        for tls, advice in (
            (Tls(), "write authority=FILE"),
            (Tls(authority=certificate[0]), "write name=NAME"),
            (None, "speaks TLS; write https"),
        ):
            with pytest.raises(TlsError, match=advice) as raised:
                send_once(target(server.port, tls=tls))
            assert not isinstance(raised.value, PermissionError)
    with serve_in_subprocess() as server, pytest.raises(TlsError, match="write http or grpc"):
        send_once(target(server.port, tls=Tls()), timeout=0.5)


@pytest.mark.slow
def test_a_server_that_is_gone_is_not_said_to_speak_tls() -> None:
    """Nor is one that hangs up on everybody."""
    with serve_in_subprocess("--fault", "close-before=1") as server:
        with pytest.raises(OSError, match="closed the connection"):
            send_once(target(server.port))
        port = server.port
    with pytest.raises(OSError, match="refused"):
        send_once(target(port))


def test_tls_files_that_are_not_there_are_refused_by_name() -> None:
    """Before anything starts."""
    with (
        pytest.raises(RequestError, match=r"TLS files /no/such\.pem"),
        run_load_drivers(target(1, tls=Tls(authority="/no/such.pem")), Load()),
    ):
        pass


def test_pieces_of_streamed_answers_are_reported_as_they_come() -> None:
    """By two drivers: as many as in the records, and each first one once.

    An answer takes 0.4 s: most of its pieces are reported before its record is.
    """
    body = b'{"prompt": "hello", "max_tokens": 20, "stream": true}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
    message = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    parts: list[Records] = []
    arrivals: list[PieceArrivals] = []
    early = 0
    with serve_in_subprocess("--service", "constant:0.01", "--workers", "9", "--pace", "0.02") as server:
        streaming = replace(target(server.port), messages=(message,), stream=True)
        with run_load_drivers(streaming, Load(concurrency=4, requests=12, drivers=2)) as crew:
            while not (taken := crew.take(0.05)).ended:
                parts.append(taken.records)
                arrivals += taken.arrivals
                early += sum(each.count for each in taken.arrivals) if not any(map(len, parts)) else 0
            ending = crew.stop(5.0)
    records = join_records([*parts, taken.records, ending.records])
    arrivals += taken.arrivals
    assert records.pieces is not None

    assert sum(each.count for each in arrivals) == records.pieces.times.size == 12 * 20
    assert early > 40
    firsts = np.concatenate([each.first_times for each in arrivals])
    assert sorted(firsts) == sorted(records.pieces.first() - records.due)
    assert all(each.begin <= each.end for each in arrivals)
