"""The ground-truth server behaves as configured, and its ledger agrees with its behaviour.

A busy machine makes it slower than asked for, never quicker: times have lower bounds only.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from time import monotonic_ns
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import grpc
import numpy as np
import pytest

import modeldyno
from modeldyno.base.errors import RunFailed
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.system.process_tree import start_ticks
from modeldyno.engine.interfaces.request_target import Endpoint, Reply, Target, Transport
from modeldyno.serving.clients import tensorflow, tensorflow_grpc
from modeldyno.testing import server_tensorflow_grpc
from modeldyno.testing.server import RunningServer, _argument_parser, serve_in_subprocess
from modeldyno.testing.server_faults import FAULTS
from modeldyno.testing.server_queue import Workers
from modeldyno.testing.server_text import IMAGE_TOKENS
from modeldyno.testing.service_model import Durations, Service

if TYPE_CHECKING:
    from collections.abc import Iterator

MS = 1_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server that answers at once."""
    with serve_in_subprocess("--slow", "0.001", "--pace", "0.002") as running:
        yield running


def test_the_first_requests_wait_for_no_draw() -> None:
    """The first service times are drawn, and numpy imported, before the server listens."""
    drawn: list[int] = []

    def draw(_rng: object, number: int) -> Any:
        drawn.append(number)
        return np.full(number, 0.001)

    Workers(service=Service(durations=Durations(draw=draw, mean=0.001, deviation=0.0)), alarm=MagicMock())

    assert len(drawn) == 1


def ask(
    running: RunningServer, path: str, body: bytes | dict[str, Any] | None = None, **headers: str
) -> http.client.HTTPResponse:
    """Send one request on its own connection; return after the answer has been read."""
    connection = http.client.HTTPConnection(running.host, running.port, timeout=60)
    sent = json.dumps(body).encode() if isinstance(body, dict) else body
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET" if body is None else "POST", path, sent, names)
    answer = connection.getresponse()
    answer.text = answer.read()  # type: ignore[attr-defined]
    connection.close()
    return answer


def read(
    running: RunningServer, path: str, body: bytes | dict[str, Any] | None = None, **headers: str
) -> Any:
    """Send one request and decode its JSON answer."""
    return json.loads(ask(running, path, body, **headers).text)  # type: ignore[attr-defined]


def loaded(running: RunningServer, requests: int, at_once: int, path: str = "/") -> None:
    """Send requests from several threads."""
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda n: ask(running, path, X_Id=str(n)), range(requests)))


def most_at_once(begin: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> int:
    """Return how many intervals overlap at most; touching intervals do not overlap."""
    moments = np.concatenate([end, begin])
    steps = np.concatenate([-np.ones(len(end)), np.ones(len(begin))])
    return int(np.cumsum(steps[np.argsort(moments, kind="stable")]).max())


def test_workers_take_requests_in_turn_and_never_too_quickly() -> None:
    """Two workers serve at most two requests at once, in order of arrival, each for at least its time."""
    with serve_in_subprocess("--service", "constant:0.005", "--workers", "2") as running:
        loaded(running, 24, 6)
        truth = running.truth()
    assert len(truth) == 24
    assert sorted(truth.id) == list(range(24))
    assert (truth.end - truth.start >= 5 * MS).all()
    assert (truth.start >= truth.arrival).all()
    assert most_at_once(truth.start, truth.end) == 2
    order = np.argsort(truth.arrival, kind="stable")
    assert (np.diff(truth.start[order]) >= 0).all()


def test_the_ledger_is_within_what_the_client_saw(server: RunningServer) -> None:
    """A request arrives after it was sent, and its answer is written before it was read."""
    server.forget()
    before = monotonic_ns()
    ask(server, "/", X_Id="7")
    after = monotonic_ns()
    truth = server.truth()
    assert truth.id.tolist() == [7]
    assert before < truth.arrival[0] <= truth.start[0] <= truth.end[0] < after
    as_json = json.loads(server.get("/truth"))
    assert as_json["end"] == truth.end.tolist()


def test_a_distribution_is_really_waited_for() -> None:
    """The served times are the drawn ones plus the machine's overhead; the same seed gives the same ones."""
    service_times = []
    for _ in range(2):
        with serve_in_subprocess("--service", "exponential:0.003", "--seed", "4") as running:
            loaded(running, 20, 1)
            truth = running.truth()
            service_times.append((truth.end - truth.start) / 1e9)
    drawn = np.random.default_rng(4).exponential(0.003, 4096)[:20]
    for times in service_times:
        assert (times >= drawn - 1e-8).all()
        assert (times - drawn).min() < 0.010


def test_a_batch_is_served_together() -> None:
    """Waiting requests share a call, up to the largest batch, and end together."""
    with serve_in_subprocess(
        "--service", "constant:0.02", "--batch", "4", "--delay", "0.01", "--each", "0.001"
    ) as running:
        loaded(running, 32, 8)
        truth, counters = running.truth(), running.counters()
    assert 1 < truth.batch.max() <= 4
    for start in np.unique(truth.start):
        members = truth.start == start
        assert (truth.batch[members] == members.sum()).all()
        assert (truth.end - truth.start)[members].min() >= (20 + members.sum() - 1) * MS
    sizes = {event["batch_size"]: event["compute_infer"]["count"] for event in counters["batch_stats"]}
    assert sum(size * count for size, count in sizes.items()) == 32
    assert counters["execution_count"] == len(np.unique(truth.start)) == sum(sizes.values())


def test_the_counters_are_the_sums_of_the_ledger() -> None:
    """Queue and compute times in Triton's format are sums over the requests."""
    with serve_in_subprocess("--service", "constant:0.002") as running:
        loaded(running, 20, 4)
        truth, counters = running.truth(), running.counters()
    stages = {name: stage["ns"] for name, stage in counters["inference_stats"].items()}
    assert counters["inference_stats"]["success"]["count"] == counters["inference_count"] == 20
    assert stages["success"] == (truth.end - truth.arrival).sum()
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    assert sum(stages[part] for part in parts) == stages["success"]
    waited = (truth.start - truth.arrival).sum()
    assert stages["queue"] + stages["compute_input"] == waited


@pytest.mark.parametrize("status", ["429", "503"])
def test_beyond_the_limit_a_request_is_refused(status: str) -> None:
    """While one request is served and another waits, a third is refused at once."""
    with serve_in_subprocess("--service", "constant:0.25", "--limit", "1", "--full", status) as running:
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda _: ask(running, "/").status, range(10)))
        faults = running.truth().faults()
    assert answers.count(200) >= 2
    refused = len(answers) - answers.count(200)
    assert refused >= 1
    assert faults == {status: refused}


def test_nothing_is_begun_in_a_stall() -> None:
    """Requests that arrive during a stall begin after it; stalls count from the first request."""
    with serve_in_subprocess("--stall", "0:0.4") as running:
        loaded(running, 8, 4)
        truth = running.truth()
    first, last = truth.arrival.min(), truth.arrival.min() + 400 * MS
    inside = (truth.arrival >= first) & (truth.arrival < last)
    assert inside.any()
    assert (truth.start[inside] >= last - 1000).all()
    assert (truth.end[inside] >= truth.start[inside]).all()


# -- protocols ----------------------------------------------------------------------------------------


def test_kserve_echoes_in_json_and_in_binary(server: RunningServer) -> None:
    """An input is returned as the output y, in the requested form."""
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, 3]}
    received = read(server, "/v2/models/echo/infer", {"inputs": [tensor | {"data": [1, 2, 3.5]}], "id": "a"})
    assert received["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3.5]}]
    assert received["id"] == "a"
    block = struct.pack("<3f", 1, 2, 3.5)
    head = json.dumps(
        {
            "inputs": [tensor | {"parameters": {"binary_data_size": 12}}],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        }
    ).encode()
    length = {"Inference_Header_Content_Length": str(len(head))}
    answer: Any = ask(server, "/v2/models/echo/infer", head + block, **length)
    size = int(answer.headers["Inference-Header-Content-Length"])
    assert json.loads(answer.text[:size])["outputs"][0]["parameters"] == {"binary_data_size": 12}
    assert answer.text[size:] == block
    plain = head.replace(b', "parameters": {"binary_data": true}', b"")
    received = read(
        server,
        "/v2/models/echo/infer",
        plain + block,
        Inference_Header_Content_Length=str(len(plain)),
    )
    assert received["outputs"][0]["data"] == [1, 2, 3.5]
    mixed = {
        "inputs": [tensor | {"data": [1, 2, 3.5]}],
        "parameters": {"binary_data_output": True},
    }
    answer = ask(server, "/v2/models/echo/infer", mixed)
    assert answer.text.endswith(block)


def test_what_is_no_request_is_said_to_be_none(server: RunningServer) -> None:
    """A malformed body and an unknown path have their statuses, and the server goes on."""
    assert ask(server, "/v2/models/echo/infer", b"{").status == 400
    assert ask(server, "/v2/models/echo/infer", {"inputs": [{}]}).status == 400
    assert ask(server, "/nowhere").status == 404
    assert ask(server, "/fault/none-such/").status == 400
    assert ask(server, "/").status == 200


def test_a_server_tells_of_itself(server: RunningServer) -> None:
    """It reports its health and the model's inputs."""
    for path in ("/v2/health/ready", "/v2/health/live", "/v2/models/echo/ready", "/ping"):
        assert ask(server, path).status == 200
    assert read(server, "/v2/models/echo")["inputs"][0]["name"] == "x"
    assert read(server, "/v1/models")["data"][0]["id"] == "echo"


def test_torchserve_and_tensorflow_echo(server: RunningServer) -> None:
    """Both return their input."""
    assert ask(server, "/predictions/echo", b"abc").text == b"abc"  # type: ignore[attr-defined]
    assert read(server, "/v1/models/echo:predict", {"instances": [[1.0]]}) == {"predictions": [[1.0]]}
    assert read(server, "/v1/models/echo:predict", {"inputs": [[1.0]]}) == {"outputs": [[1.0]]}


def test_tensorflow_serving_describes_its_model(server: RunningServer) -> None:
    """The status and the signatures read as those of TensorFlow Serving do, with and without a version."""
    for path in ("/v1/models/echo", "/v1/models/echo/versions/1"):
        (version,) = read(server, path)["model_version_status"]
        assert (version["version"], version["state"]) == ("1", "AVAILABLE")
        metadata = read(server, f"{path}/metadata")
        assert metadata["model_spec"] == {"name": "echo", "signature_name": "", "version": "1"}
        inputs = tensorflow.signature_inputs(metadata["metadata"]["signature_def"]["signature_def"], "")
        assert inputs == (InputSpec(name="x", dtype="float32", shape=("batch", "x_dim1")),)
    assert read(server, "/v1/models/echo/versions/1:predict", {"instances": [1]}) == {"predictions": [1]}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (
            "/v1/models/other:predict",
            {"instances": [1]},
            404,
            "Servable not found for request: Latest(other)",
        ),
        ("/v1/models/echo/versions/2:predict", {"instances": [1]}, 404, "Specific(echo, 2)"),
        ("/v1/models/other", None, 404, "Could not find any versions of model other"),
        ("/v1/models/other/metadata", None, 404, "Servable not found for request: Latest(other)"),
        ("/v1/models/echo:predict", {"rows": [1]}, 400, "Missing 'inputs' or 'instances' key"),
        ("/v1/models/echo:predict", b"{", 400, "cannot be read"),
        ("/v1/models/echo:predict", {"inputs": [1], "signature_name": "s"}, 400, '"s" not found'),
    ],
)
def test_tensorflow_serving_refuses_in_its_own_words(
    server: RunningServer, path: str, body: Any, status: int, message: str
) -> None:
    """Unknown models, versions and signatures, and requests without data."""
    answer = ask(server, path, body)

    assert answer.status == status
    assert message in json.loads(answer.text)["error"]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def grpc_server() -> Iterator[RunningServer]:
    """A server that speaks gRPC, too, and takes 20 ms for a request."""
    with serve_in_subprocess("--grpc", "0", "--service", "constant:0.02") as running:
        yield running


def test_grpc_requests_wait_in_the_same_queue(grpc_server: RunningServer) -> None:
    """Predict echoes, takes as long as the service, and is in the ledger with its id."""
    grpc_server.forget()
    reply = send_grpc(grpc_server, predict_target(grpc_server), ("x-id", "7"))
    truth = grpc_server.truth()

    assert tensorflow_grpc.arrays(reply)["y"].tolist() == [[1.0, 2.0]]
    assert truth.id.tolist() == [7]
    assert truth.end[0] - truth.arrival[0] >= 20 * MS
    assert grpc_server.counters()["inference_count"] >= 1


def test_grpc_describes_its_model(grpc_server: RunningServer) -> None:
    """The client reads the inputs of the signature from GetModelMetadata, and the status says available."""
    endpoint = Endpoint(host=grpc_server.host, port=grpc_server.grpc_port or 0, model="echo")
    reply = send_grpc(grpc_server, tensorflow_grpc.described(endpoint))
    status = Target(
        protocol="", transport=Transport.GRPC, host="", port=0, messages=(b"\x0a\x06\x0a\x04echo",),
        method=server_tensorflow_grpc.STATUS,
    )  # fmt: skip

    assert tensorflow_grpc.recognised(reply) is not None
    assert tensorflow_grpc.inputs(reply, endpoint) == (
        InputSpec(name="x", dtype="float32", shape=("batch", "x_dim1")),
    )
    assert send_grpc(grpc_server, status).body.startswith(b"\x0a\x06\x08\x01\x10\x1e")  # version 1, state 30


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"model": "other"}, "Servable not found for request: Latest(other)"),
        ({"version": "2"}, "Specific(echo, 2)"),
    ],
)
def test_grpc_refuses_in_its_own_words(
    grpc_server: RunningServer, model: dict[str, str], message: str
) -> None:
    """Unknown models and versions are NOT_FOUND."""
    with pytest.raises(grpc.RpcError) as refused:
        send_grpc(grpc_server, predict_target(grpc_server, **model))

    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert message in refused.value.details()


def test_a_load_over_grpc_is_what_the_server_saw(grpc_server: RunningServer) -> None:
    """As many requests as the ledger has, none quicker than the service."""
    grpc_server.forget()
    url = f"grpc://{grpc_server.host}:{grpc_server.grpc_port}#echo"
    result = modeldyno.load(url, inputs=["x=1x4"], concurrency=1, requests=20, store=False, progress=False)

    assert (result["latency.min"] or 0.0) >= 0.020
    assert len(grpc_server.truth()) >= 20


def send_grpc(running: RunningServer, target: Target, *metadata: tuple[str, str]) -> Reply:
    """Send the first message of a target; return the reply, or raise grpc.RpcError."""
    with grpc.insecure_channel(f"{running.host}:{running.grpc_port}") as channel:
        call = channel.unary_unary(target.method)
        return Reply(
            message=0, status=0, head=b"", body=call(target.messages[0], metadata=metadata, timeout=30)
        )


def predict_target(running: RunningServer, model: str = "echo", version: str = "") -> Target:
    """Return a Predict of one matrix."""
    endpoint = Endpoint(host=running.host, port=running.grpc_port or 0, model=model, version=version)
    return tensorflow_grpc.target([{"x": np.array([[1.0, 2.0]], "float32")}], endpoint)


def events(text: bytes) -> list[Any]:
    """Return the contents of server-sent events."""
    received = [event.removeprefix("data: ") for event in text.decode().split("\n\n") if event]
    return [item if item == "[DONE]" else json.loads(item) for item in received]


@pytest.mark.parametrize(("path", "text"), [("/v1/chat/completions", "delta"), ("/v1/completions", "text")])
def test_a_stream_keeps_its_pace(server: RunningServer, path: str, text: str) -> None:
    """Ten tokens come in ten pieces, the last nine paces after the first, with the usage at the end."""
    server.forget()
    request = {"prompt": "a b", "messages": [], "max_tokens": 10, "stream": True}
    answer: Any = ask(server, path, request | {"stream_options": {"include_usage": True}})
    received = events(answer.text)
    assert received[-1] == "[DONE]"
    assert received[-2]["usage"]["completion_tokens"] == 10
    text_events = [event for event in received[:10] if "word" in str(event["choices"][0][text])]
    assert len(text_events) == 10
    truth = server.truth()
    assert truth.end[0] - truth.start[0] >= 9 * 2 * MS
    assert truth.start[0] <= truth.first[0] < truth.end[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [("/v1/responses", "response.output_text.delta"), ("/v1/messages", "content_block_delta")],
)
def test_a_stream_of_typed_events_keeps_its_pace(server: RunningServer, path: str, text: str) -> None:
    """What comes before the text comes at once, and the usage is in one of the last events."""
    server.forget()
    messages = [{"role": "user", "content": "a b"}]
    limits = {"max_tokens": 10, "max_output_tokens": 10}
    answer: Any = ask(server, path, {"messages": messages, "input": messages, "stream": True, **limits})
    received = [
        json.loads(event.partition("data: ")[2]) for event in answer.text.decode().split("\n\n") if event
    ]
    kinds = [event["type"] for event in received]
    assert kinds.count(text) == 10
    first = kinds.index(text)
    assert first > 1
    assert kinds[first : first + 10] == [text] * 10
    assert '"output_tokens": 10' in json.dumps(received[-2:])
    truth = server.truth()
    assert truth.end[0] - truth.start[0] >= 9 * 2 * MS


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("/v1/chat/completions", "prompt_tokens"),
        ("/v1/responses", "input_tokens"),
        ("/v1/messages", "input_tokens"),
    ],
)
def test_an_image_in_a_prompt_counts_as_many_tokens(server: RunningServer, path: str, count: str) -> None:
    """Whichever form it has; what is no image is refused."""
    url = "data:image/png;base64,iVBORw0KGgo="
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    for image in (
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "input_image", "image_url": url},
        {"type": "image", "source": source},
    ):
        messages = [{"role": "user", "content": [{"type": "text", "text": "a b c"}, image]}]
        reply = read(server, path, {"messages": messages, "input": messages, "system": "d e"})
        assert reply["usage"][count] == 3 + 2 + IMAGE_TOKENS
    messages = [
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}
    ]
    refused: Any = ask(server, path, {"messages": messages, "input": messages})
    assert b"neither a PNG nor a JPEG" in refused.text


@pytest.mark.parametrize("service", ["constant:0", "constant:0.002"])
def test_a_stream_without_a_pace_keeps_its_order(service: str) -> None:
    """Pieces due at once are sent in order, after the head."""
    with serve_in_subprocess("--pace", "0", "--service", service) as running:
        for _ in range(3):
            answer: Any = ask(running, "/v1/completions", {"prompt": "a", "max_tokens": 5, "stream": True})
            received = events(answer.text)
            assert received[-1] == "[DONE]"
            assert [event["choices"][0]["text"] for event in received[:-1]] == [" word"] * 5 + [""]


def test_a_piece_may_hold_several_tokens() -> None:
    """Five tokens two at a time are three pieces; without a stream they are one answer."""
    with serve_in_subprocess("--together", "2") as running:
        answer: Any = ask(running, "/v1/completions", {"prompt": "a", "max_tokens": 5, "stream": True})
        texts = [event["choices"][0]["text"] for event in events(answer.text)[:-1]]
        assert texts == [" word word", " word word", " word", ""]
        reply = read(running, "/v1/completions", {"prompt": "a", "max_tokens": 5})
        assert reply["choices"][0]["text"] == " word" * 5
        assert reply["usage"]["completion_tokens"] == 5


# -- faults -------------------------------------------------------------------------------------------

_REQUEST = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n%b\r\nbody"


def heard(running: RunningServer, path: bytes, headers: bytes = b"", until: bytes = b"") -> tuple[bytes, str]:
    """Send one request; return what arrives, and how it ends: ``closed``, ``reset`` or ``open``.

    Where the words `until` have come, an end is waited for a moment only.
    """
    with socket.create_connection((running.host, running.port), timeout=30) as connection:
        connection.sendall(_REQUEST % (path, headers))
        received = b""
        try:
            while data := connection.recv(65536):
                received += data
                if until and until in received:
                    connection.settimeout(0.1)
        except TimeoutError:
            return received, "open"
        except ConnectionResetError:
            return received, "reset"
        return received, "closed"


WHOLE = b"Content-Length: 4\r\n\r\nbody"


@pytest.mark.parametrize(
    ("fault", "ending", "there", "missing"),
    [
        ("429", "open", b"HTTP/1.1 429 ", b"200"),
        ("503", "open", b"HTTP/1.1 503 ", b"200"),
        ("429-later", "open", b"Retry-After: 1\r\n", b"200"),
        ("503-later", "open", b"Retry-After: Wed, 01 Jan 2020 00:00:01 GMT\r\n", b"200"),
        ("500", "open", b"HTTP/1.1 500 ", b"200"),
        ("400", "open", b"HTTP/1.1 400 ", b"200"),
        ("reset-before", "reset", b"", b"HTTP"),
        ("reset-after", "reset", b"", b"body"),
        ("close-before", "closed", b"", b"HTTP"),
        ("truncated", "closed", b"Content-Length: 4\r\n\r\nbo", b"body"),
        ("slow", "open", WHOLE, b"?"),
        ("long", "open", WHOLE + b"more than was said", b"?"),
        ("garbage", "open", b"HTTQ", b"HTTP/1.1 200"),
        ("bad-chunk", "open", b"not hexadecimal", b"body"),
        ("close-after", "closed", WHOLE, b"?"),
        ("stream-error", "open", b'"error"', b"body"),
    ],
)
def test_each_fault_is_what_it_is_called(
    server: RunningServer, fault: str, ending: str, there: bytes, missing: bytes
) -> None:
    """Requested by path or header, the fault occurs on the wire as described."""
    requests = [(b"/fault/%b/predictions/echo" % fault.encode(), b"")]
    requests += [(b"/predictions/echo", b"X-Fault: %b\r\n" % fault.encode())]
    for path, headers in requests:
        received, how = heard(server, path, headers, there if ending == "open" else b"")
        assert how == ending
        assert there in received
        assert missing not in received


def test_a_hanging_request_is_never_answered(server: RunningServer) -> None:
    """Nothing arrives, and others are served meanwhile."""
    with socket.create_connection((server.host, server.port), timeout=0.3) as connection:
        connection.sendall(_REQUEST % (b"/fault/hang/", b""))
        assert ask(server, "/").status == 200
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_faults_come_in_the_shares_asked_for() -> None:
    """Of 400 requests about a quarter meet each of two faults, and the ledger counts them."""
    with serve_in_subprocess("--fault", "503=0.25", "--fault", "500=0.25") as running:
        connection = http.client.HTTPConnection(running.host, running.port, timeout=60)
        statuses = []
        for _ in range(400):
            connection.request("GET", "/")
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
        connection.close()
        assert {str(status): statuses.count(status) for status in (503, 500)} == running.truth().faults()
    assert 60 < statuses.count(503) < 140
    assert 60 < statuses.count(500) < 140


def test_an_idle_connection_is_closed_early() -> None:
    """The server closes a connection that is idle after an answer."""
    with serve_in_subprocess("--idle", "0.05") as running:
        received, how = heard(running, b"/")
    assert received.endswith(b"ok")
    assert how == "closed"


def test_every_fault_is_tried_here() -> None:
    """The tests above cover every fault."""
    mark = test_each_fault_is_what_it_is_called.pytestmark[0]  # type: ignore[attr-defined]
    assert {row[0] for row in mark.args[1]} | {"hang"} == set(FAULTS)


def test_requests_may_come_in_pieces_and_together(server: RunningServer) -> None:
    """A request byte by byte is read; two that come at once are answered one after the other."""
    with socket.create_connection((server.host, server.port), timeout=60) as connection:
        for byte in _REQUEST % (b"/predictions/echo", b""):
            connection.sendall(bytes([byte]))
        assert connection.recv(65536).endswith(WHOLE)
        connection.sendall(2 * (_REQUEST % (b"/predictions/echo", b"")))
        received = b""
        while received.count(b"body") < 2:
            received += connection.recv(65536)
        assert received.count(b"HTTP/1.1 200 OK") == 2


def test_a_server_ends_with_its_context() -> None:
    """No process is left."""
    with serve_in_subprocess() as running:
        born = start_ticks(running.pid)
        assert born
    assert start_ticks(running.pid) != born


def test_a_server_of_the_command_line_outlives_its_shell() -> None:
    """Started in the background by a shell that ends, it serves on, until a signal ends it."""
    command = f"{sys.executable} -m modeldyno.testing.server & echo $!"
    with subprocess.Popen(["/bin/sh", "-c", command], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        pid, port = int(shell.stdout.readline()), int(shell.stdout.readline())
        try:
            assert shell.wait() == 0
            assert ask(RunningServer(port=port, pid=pid), "/").status == 200
        finally:
            os.kill(pid, signal.SIGTERM)
        shell.stdout.read()  # comes to its end when nobody has it open any more


def test_a_server_ends_when_its_time_is_over() -> None:
    """It prints its port, serves for the given time, and exits cleanly."""
    command = [sys.executable, "-m", "modeldyno.testing.server", "--seconds", "0.1"]
    ended = subprocess.run(command, capture_output=True, check=True, timeout=120)
    assert ended.stdout.strip().isdigit()


def test_a_server_whose_parent_is_gone_does_not_begin() -> None:
    """It prints no port if its parent is another process than the given one."""
    command = [sys.executable, "-m", "modeldyno.testing.server", "--parent", "1"]
    assert subprocess.run(command, capture_output=True, check=True, timeout=120).stdout == b""


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--service", "expo:1"), "did you mean 'exponential'"),
        (("--service", "recorded:/no/such/file"), "No such file"),
        (("--stall", "3"), "AT:SECONDS"),
        (("--fault", "hung=1"), "did you mean 'hang'"),
        (("--fault", "hang"), "has no share"),
    ],
)
def test_a_wrong_argument_is_told_in_a_sentence(
    arguments: tuple[str, str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line says what is wrong, and no server starts."""
    with pytest.raises(SystemExit):
        _argument_parser().parse_args(arguments)
    assert word in capsys.readouterr().err.splitlines()[-1]


def test_a_server_that_does_not_start_is_no_server() -> None:
    """The caller gets the error."""
    with pytest.raises(RunFailed, match="did not start"), serve_in_subprocess("--stall", "x"):
        pass
