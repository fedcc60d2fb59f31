"""A load on several servers of one model, which take requests in turn."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHORT: dict[str, Any] = {"max_time": 20, "store": False, "progress": False, "inputs": "x=1x4"}


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    """Two servers, of which the second one is slower."""
    arguments = ("--workers", "8", "--service")
    with (
        serve_in_subprocess(*arguments, "constant:0.002") as quick,
        serve_in_subprocess(*arguments, "constant:0.02") as slow,
    ):
        yield quick.port, slow.port


def test_each_of_two_servers_has_half_of_the_requests(ports: tuple[int, int], tmp_path: Path) -> None:
    """With figures of its own, and a word that they differ."""
    path = tmp_path / "requests.jsonl"
    quick, slow = ports
    result = modeldyno.load(
        f"http://127.0.0.1:{quick}#echo",
        replicas=f"http://127.0.0.1:{slow}",
        concurrency=4,
        requests=600,
        records=path,
        **SHORT,
    )
    counts = [result.number("requests", f"server=127.0.0.1:{port}") for port in ports]
    assert sum(filter(None, counts)) == 600
    assert all(count and abs(count - 300) <= 4 for count in counts)
    medians = [result[f"latency.p50.raw@server=127.0.0.1:{port}"] or 0 for port in ports]
    assert medians[0] < 0.01
    assert medians[1] >= 0.02
    assert "servers-differ" in {doubt.code for doubt in result.doubts}
    assert "By server; about: not certified" in str(result)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert {row["server"] for row in rows} == {0, 1}


def test_a_model_beside_is_sent_to_all_servers_as_well(ports: tuple[int, int]) -> None:
    """In turn, too: half of its answers come from the slow one."""
    quick, slow = ports
    result = modeldyno.load(
        f"http://127.0.0.1:{quick}#echo",
        replicas=f"http://127.0.0.1:{slow}",
        beside=(f"http://127.0.0.1:{quick}#echo name=other input=x=1x4",),
        concurrency=2,
        requests=200,
        **SHORT,
    )
    latency = result.find("latency", "other")
    assert latency is not None
    assert isinstance(latency.value, Distribution)
    assert 0.3 < (latency.value.samples() > 0.018).mean() < 0.7


def test_a_session_stays_with_its_server(tmp_path: Path) -> None:
    """Which has its history in its cache."""
    path = tmp_path / "requests.jsonl"
    arguments = ("--sessions", "--prefix-cache", "--workers", "8", "--pace", "0.0005")
    with serve_in_subprocess(*arguments) as one, serve_in_subprocess(*arguments) as other:
        result = modeldyno.load(
            f"http://127.0.0.1:{one.port}/v1#echo",
            replicas=f"http://127.0.0.1:{other.port}/v1",
            concurrency=4,
            sequence=3,
            requests=36,
            records=path,
            endpoint="chat",
            max_tokens=4,
            max_time=20,
            store=False,
            progress=False,
        )
    assert not result.failures
    assert (result["cached_prompt_share@turn=3"] or 0) > 0.3
    servers: dict[int, set[int]] = {}
    for row in map(json.loads, path.read_text("utf-8").splitlines()):
        servers.setdefault(row["session"], set()).add(row["server"])
    assert {len(each) for each in servers.values()} == {1}
    assert set.union(*servers.values()) == {0, 1}


def test_what_is_no_replica_is_refused(ports: tuple[int, int]) -> None:
    """In a sentence that names it."""
    url = f"http://127.0.0.1:{ports[0]}#echo"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
        for replicas, sentence in (
            ("10.0.0.2:8000", "is not the URL of a server"),
            (nobody, "does not answer"),
            (f"http://127.0.0.1:{ports[1]}#other", "is of other, not of echo"),
            (f"grpc://127.0.0.1:{ports[1]}#echo", "is not spoken to in kserve-http"),
            (f"http://127.0.0.1:{ports[1]}#echo@7", "is of version 7"),
            (url, "is there twice"),
            (f"http://127.0.0.1:{ports[1]} http://127.0.0.1:{ports[1]}", "is there twice"),
        ):
            with pytest.raises(RequestError, match=sentence):
                modeldyno.load(url, replicas=replicas, requests=5, **SHORT)


def test_a_replica_that_is_starting_is_waited_for(ports: tuple[int, int]) -> None:
    """As long as the first URL or its own says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    late = (
        "import time, runpy; time.sleep(4); runpy.run_module('modeldyno.testing.server', run_name='__main__')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", late, "--port", str(port)], stdout=subprocess.DEVNULL
    ) as server:
        try:
            result = modeldyno.load(
                f"http://127.0.0.1:{ports[0]}#echo",
                replicas=f"http://127.0.0.1:{port}#,wait=60s",
                requests=5,
                **SHORT,
            )
        finally:
            server.kill()
    assert not result.failures


def test_a_server_that_is_starting_is_waited_for() -> None:
    """As long as its URL says, and no longer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(RequestError, match=r"not ready after 300 ms: .*refused"):
        modeldyno.load(f"http://127.0.0.1:{port}#echo,wait=300ms", requests=5, **SHORT)
    with pytest.raises(RequestError, match="wait=soon"):
        modeldyno.load(f"http://127.0.0.1:{port}#echo,wait=soon", requests=5, **SHORT)
    late = (
        "import time, runpy; time.sleep(1); runpy.run_module('modeldyno.testing.server', run_name='__main__')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", late, "--port", str(port)], stdout=subprocess.DEVNULL
    ) as server:
        try:
            begun = time.monotonic()
            result = modeldyno.load(f"http://127.0.0.1:{port}#echo,wait=60s", requests=5, **SHORT)
        finally:
            server.kill()
    assert time.monotonic() - begun > 1
    assert not result.failures
