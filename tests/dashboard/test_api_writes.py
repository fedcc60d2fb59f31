"""What scripts change over the API, asked through HTTP as they do."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn
from tests.dashboard.conftest import fill_registry

from modeldyno.base import plugins
from modeldyno.base.job.version_name import VersionName
from modeldyno.dashboard.access import AccessRole, AccessTokens
from modeldyno.dashboard.app import make_app
from modeldyno.dashboard.server import listen
from modeldyno.registry.records.records import TaskState
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_series import a_ladder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.stores.interface import Store

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
READER, OPERATOR = "r" * 24, "o" * 24
TOKENS = AccessTokens(roles=((READER, AccessRole.READER), (OPERATOR, AccessRole.OPERATOR)))
WRITES: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/models", {"files": {"file": ("x.onnx", b"")}}),
    ("PATCH", "/models/digits/1", {"json": {"task": "x"}}),
    ("POST", "/models/digits/1/measure", {"json": {}}),
    ("POST", "/models/digits/1/measurements", {"json": {"document": "x"}}),
    ("DELETE", "/models/digits/1/measurements/x", {}),
    ("DELETE", "/models/digits/1", {}),
)


@contextmanager
def served(store: Store, tokens: AccessTokens | None) -> Iterator[httpx.Client]:
    """Serve the dashboard of a store at a port of its own."""
    with listen(0) as listener:
        port = listener.getsockname()[1]
        app = make_app(store, port, tokens=tokens)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.005)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Give a store with two versions of a model."""
    with plugins.store(f"sqlite:///{tmp_path_factory.mktemp('api')}/store.db") as opened:
        fill_registry(opened)
        yield opened


@pytest.fixture(scope="module")
def client(store: Store) -> Iterator[httpx.Client]:
    """Ask as an operator."""
    with served(store, TOKENS) as opened:
        opened.headers["authorization"] = f"Bearer {OPERATOR}"
        yield opened


def test_a_model_is_registered_measured_described_and_removed(store: Store, client: httpx.Client) -> None:
    """Each as the command line does it: the version, its queued tasks and its events are in the store."""
    words = {
        "name": "seven",
        "version": "7",
        "task": "digits",
        "metric": '{"acc": "76%"}',
        "labels": '{"team": "vision"}',
        "inputs": '[{"name": "x", "shape": [-1, 64], "dtype": "TYPE_FP32"}]',
        "convert": "no",
    }
    sent = client.post("/models", files={"file": ("digits.onnx", DIGITS.read_bytes())}, data=words)
    assert sent.status_code == 201, sent.text
    version = sent.json()["version"]
    assert (version["model"], version["number"], version["task"]) == ("seven", 7, "digits")
    assert version["metrics"] == {"acc": 0.76}
    assert version["labels"] == {"team": "vision"}
    assert version["measured_with"][0]["shape"] == ["batch", 64]
    registry = store.registry
    queued = registry.tasks(states=(TaskState.QUEUED,), model="seven")
    assert sent.json()["queued"] == len(queued) > 0
    assert {task.recipe for task in queued} == {"source"}

    here = registry.targets()[0]
    measured = client.post("/models/seven/7/measure", json={"batch_size": 5, "target": here.id})
    assert measured.status_code == 202
    assert measured.json()["new"] is True
    labels = {task.id: task.label for task in registry.tasks(states=(TaskState.QUEUED,), model="seven")}
    first = measured.json()["task"]["id"]
    assert labels[first] == "seven/7 source: batch 5"
    again = client.post("/models/seven/7/measure", json={"batch_size": 5, "target": here.name})
    assert (again.json()["new"], again.json()["task"]["id"]) == (False, first)

    changed = client.patch("/models/seven/7", json={"dataset": "MNIST", "metrics": {"f1": 0.5}})
    assert changed.status_code == 200
    assert changed.json()["metrics"] == {"acc": 0.76, "f1": 0.5}
    assert client.get("/models/seven/7").json()["version"]["dataset"] == "MNIST"

    registry.move_alias("seven", "champion", 7, "ada")
    removed = client.delete("/models/seven/7")
    assert removed.status_code == 200
    assert removed.json()["aliases"] == ["champion"]
    assert client.delete("/models/seven/7").status_code == 404
    assert "seven" not in [entry.name for entry in registry.models()]


def test_measurements_are_attached_to_a_version_and_detached(store: Store, client: httpx.Client) -> None:
    """By the id of a stored document; the version lists them, with where they were measured."""
    store.put(a_result(id="1" * 12, created="2031-01-01"), headline="quick")
    store.put_conclusion(replace(a_ladder(), id="2" * 12, created="2032-01-01"), headline="knee")
    place = {"host": "far", "device": "cuda:0", "engine": "triton", "batch_size": 8}
    for document in ("1" * 12, "2" * 12):
        sent = client.post("/models/digits/1/measurements", json={"document": document, **place})
        assert (sent.status_code, sent.json()["replaced"]) == (201, []), sent.text
    assert sent.json()["attached"]["at"] == place

    listed = client.get("/models/digits/1").json()["measurements"]
    assert [(one["document"], one["kind"], one["at"]) for one in listed[:2]] == [
        ("2" * 12, "ladder", place),
        ("1" * 12, "result", place),
    ]
    replaced = client.post(
        "/models/digits/1/measurements", json={"document": "1" * 12, **place, "replace": True}
    )
    assert replaced.json()["replaced"] == ["2" * 12]
    gone = client.delete("/models/digits/1/measurements/1111")
    assert (gone.status_code, gone.json()["document"]) == (200, "1" * 12)
    again = client.delete("/models/digits/1/measurements/1111")
    assert (again.status_code, again.json()["error"][:29]) == (400, "'1111' is not attached to dig")
    unknown = client.post("/models/digits/1/measurements", json={"document": "f" * 12})
    assert (unknown.status_code, "no result whose id" in unknown.json()["error"]) == (400, True)
    store.remove("1" * 12)
    store.remove_conclusion("2" * 12)


def test_without_an_operators_token_nothing_is_changed(store: Store, client: httpx.Client) -> None:
    """A sentence says what is needed: 401 without a token or with a wrong one, 403 with a reader's."""
    before = store.change_mark()
    for method, path, body in WRITES:
        for header, status in (("", 401), ("Bearer x", 401), (f"Basic {OPERATOR}", 401)):
            answer = client.request(method, path, headers={"authorization": header}, **body)
            assert answer.status_code == status
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer TOKEN" in answer.json()["error"]
        answer = client.request(method, path, headers={"authorization": f"Bearer {READER}"}, **body)
        assert answer.status_code == 403
        assert answer.json()["error"] == "A reader changes nothing; use an operator's token."
    assert store.change_mark() == before


def test_a_browser_that_is_logged_in_does_not_write_by_its_cookie(client: httpx.Client) -> None:
    """A page of another origin could make it do so; the forms have tokens of their own."""
    base = str(client.base_url).removesuffix("/api/v1/")
    with httpx.Client(base_url=base) as browser:
        assert browser.post("/login", data={"access": OPERATOR, "next": "/"}).status_code == 303
        assert browser.get("/api/v1/home").status_code == 200
        assert browser.delete("/api/v1/models/digits/1").status_code == 401


def test_without_tokens_the_api_only_reads(store: Store) -> None:
    """Whoever is logged in on this machine may look; what is missing to change something is said."""
    before = store.change_mark()
    with served(store, None) as anybody:
        assert anybody.get("/models").status_code == 200
        for method, path, body in WRITES:
            answer = anybody.request(method, path, headers={"authorization": f"Bearer {OPERATOR}"}, **body)
            assert answer.status_code == 403
            assert "modeldyno ui --token-file FILE" in answer.json()["error"]
    assert store.change_mark() == before


@pytest.mark.parametrize(
    ("call", "body", "status", "says"),
    [
        ("POST /models", {"data": {"name": "x"}}, 413, "multipart/form-data with a file"),
        ("POST /models", {"files": {"file": ("", b"")}}, 400, "No file was sent."),
        ("POST /models", {"files": {"file": ("x.pt", b"x")}}, 400, "modeldyno registry add MODEL"),
        ("POST /models", {"files": {"file": ("x.onnx", b"x")}}, 400, "x.onnx"),
        (
            "POST /models", {"files": {"file": ("x.onnx", b"x")}, "data": {"trust": "yes"}}, 400,
            "'trust' is not taken here",
        ),
        (
            "POST /models", {"files": {"file": ("x.onnx", b"x")}, "data": {"weight": "/etc/passwd"}}, 400,
            "'model' is not taken here",
        ),
        (
            "POST /models", {"files": {"file": ("x.onnx", b"x")}, "data": {"metrics": "0.76"}}, 400,
            "metrics is a table",
        ),
        (
            "POST /models", {"files": {"file": ("x.onnx", b"x")}, "data": {"tsk": "x"}}, 400,
            "did you mean 'task'?",
        ),
        ("PATCH /models/digits/1", {"json": {}}, 400, "Nothing is to be changed"),
        ("PATCH /models/digits/1", {"json": {"tasks": "x"}}, 400, "did you mean 'task'?"),
        ("PATCH /models/digits/1", {"json": {"metrics": {"a": "x"}}}, 400, "Expected `float`"),
        ("PATCH /models/digits/1", {"json": {"policy": "none"}}, 400, "policy"),
        ("PATCH /models/digits/1", {"content": b"{"}, 400, "The body does not fit"),
        ("PATCH /models/digits/1", {"content": b"[" * 9_000}, 400, "The body does not fit"),
        ("PATCH /models/digits/1", {"content": b"x" * 65_000}, 413, "not JSON, or too long"),
        ("PATCH /models/digits/9", {"json": {"task": "x"}}, 404, "digits has no version 9"),
        ("PATCH /models/digits/newest", {"json": {"task": "x"}}, 404, "names no registered model"),
        ("DELETE /models/nothing/1", {}, 404, "nothing"),
        ("POST /models/digits/1/measure", {"json": {"target": "mars"}}, 400, "no target 'mars'"),
        ("POST /models/digits/1/measure", {"json": {}}, 400, "There are several targets; name one"),
        (
            "POST /models/digits/1/measure", {"json": {"target": "here", "batch_size": 0}}, 400,
            "A batch has 1 to",
        ),
        ("PUT /models/digits/1", {"json": {}}, 405, "cannot be asked for in that way"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_a_sentence(
    store: Store, client: httpx.Client, call: str, body: Any, status: int, says: str
) -> None:
    """And nothing is written."""
    before = store.change_mark()

    answer = client.request(*call.split(" "), **body)

    assert (answer.status_code, says in answer.json()["error"]) == (status, True), answer.text
    assert store.change_mark() == before


def test_a_number_that_no_document_holds_is_refused(store: Store, client: httpx.Client) -> None:
    """It would make the version unreadable."""
    answer = client.patch("/models/digits/1", content=b'{"metrics": {"acc": 1e999}}')

    assert answer.status_code == 400
    assert store.registry.version(VersionName(model="digits", number=1)).metrics == {"accuracy": 0.97}


def test_each_operation_is_described(client: httpx.Client) -> None:
    """With its body, its answer, and that it needs a token."""
    described = client.get("/openapi.json").json()
    assert described["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    text = json.dumps(described)
    for method, path, _ in WRITES:
        whole = f"/api/v1{path.replace('digits/1', '{name}/{version}').replace('s/x', 's/{document}')}"
        operation = described["paths"][whole][method.lower()]
        assert operation["security"] == [{"token": []}]
        assert {"401", "403"} <= operation["responses"].keys()
        assert operation["summary"]
        assert ("requestBody" in operation) is (method != "DELETE")
    for name in (
        "ModelToRegister",
        "VersionChanges",
        "VersionToMeasure",
        "QueuedTask",
        "AttachedMeasurement",
    ):
        assert f'"#/components/schemas/{name}"' in text
        assert name in described["components"]["schemas"]
