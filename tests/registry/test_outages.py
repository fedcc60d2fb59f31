"""Outages of the store and of the place of models' files are waited for, in virtual and in real time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.postgres import free_port, postgres_programs, postgres_server
from tests.support.worker_machine import Machine, on

import modeldyno
from modeldyno.base import plugins
from modeldyno.base.errors import StoreError, StoreUnavailable
from modeldyno.base.job.version_name import SOURCE
from modeldyno.registry import execute
from modeldyno.registry.figures import current_figures
from modeldyno.registry.outages import LONGEST_PAUSE, OutagePatience, patient_store, pause_after
from modeldyno.registry.records.policy import Policy
from modeldyno.registry.records.records import TaskState
from modeldyno.registry.register import located as located_as_it_is

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.registry.interface import Registry

__all__ = ["on"]

ROOT = Path(__file__).parents[2]


def test_pauses_grow_to_a_minute() -> None:
    assert [pause_after(tries) for tries in (1, 2, 3, 6, 7, 8, 1000)] == [1, 2, 4, 32, 60, 60, 60]


@dataclass
class Away:
    """A registry whose server is away for some seconds; it stands for its store, too."""

    until: float
    now: float = 0.0
    sentences: list[str] = field(default_factory=list)
    calls: int = 0

    @property
    def registry(self) -> Away:
        return self

    @property
    def place(self) -> str:
        return "here"

    def double(self, number: int, *, more: int = 0) -> int:
        self.calls += 1
        if self.now < self.until:
            raise StoreUnavailable("The store is away.")
        return 2 * number + more

    def fails(self) -> None:
        raise StoreError("The store is damaged.")

    def pause(self, seconds: float, _interrupts: object) -> None:
        self.now += seconds

    def patient(self, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
        monkeypatch.setattr("modeldyno.registry.outages.monotonic", lambda: self.now)
        options: dict[str, Any] = {"pause": self.pause, "tell": self.sentences.append, "interrupts": ()}
        return patient_store(self, OutagePatience(**options | changes))  # type: ignore[arg-type]


class TestPatientStore:
    def test_a_call_is_repeated_until_it_answers_and_two_sentences_say_so(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        away = Away(until=300.0)
        store = away.patient(monkeypatch)

        assert store.registry.double(4, more=1) == 9
        assert store.place == "here"
        assert 300 <= away.now <= 300 + LONGEST_PAUSE
        assert away.calls < 15
        assert away.sentences == [
            "The store is away. It is waited for.",
            f"The store answers again, after {away.now:.0f} s.",
        ]

    def test_its_patience_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        away = Away(until=300.0)
        with pytest.raises(StoreUnavailable):
            away.patient(monkeypatch, most=60.0).double(4)
        assert 60 <= away.now < 120

    def test_an_interrupted_call_waits_no_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        away = Away(until=300.0)
        with pytest.raises(StoreUnavailable):
            away.patient(monkeypatch, interrupts=("SIGINT",)).double(4)
        assert away.now == 0

    def test_what_does_not_pass_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        away = Away(until=300.0)
        with pytest.raises(StoreError, match="damaged"):
            away.patient(monkeypatch).fails()
        assert away.now == 0


def away_until(end: float, monkeypatch: pytest.MonkeyPatch, seen: list[float]) -> Callable[[Machine], None]:
    """Let the place of models' files be away until a time; note when it is tried in vain."""

    def prepare(machine: Machine) -> None:
        def located(what: Any, registry: Registry) -> Any:
            if machine.now < end:
                seen.append(machine.now)
                raise StoreUnavailable("net.onnx of net/1 cannot be fetched from s3://models: refused.")
            return located_as_it_is(what, registry)

        monkeypatch.setattr("modeldyno.registry.execute.located", located)

    return prepare


def test_no_task_fails_as_the_files_of_its_model_cannot_be_fetched(
    on: Callable[..., Machine], registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Away for ten minutes: tried with growing pauses, told once, and all is done in order afterwards."""
    seen: list[float] = []
    machine = on(prepare=away_until(600.0, monkeypatch, seen))

    assert len(seen) < 20
    assert 600 < machine.figures()[0] < 600 + LONGEST_PAUSE + 20
    assert len(current_figures(registry, "net")) == 6
    assert [(each.outcome.state, each.task.attempts) for _, each in machine.done] == [(TaskState.DONE, 1)] * 6
    assert not [
        event for event in registry.events(newest=1000) if event.kind in {"task.failed", "task.deferred"}
    ]
    first, last = machine.sentences
    assert first == "net.onnx of net/1 cannot be fetched from s3://models: refused. It is waited for."
    assert last.startswith("The models' files can be reached again, after ")


def test_a_worker_with_once_waits_a_minute_for_files(
    on: Callable[..., Machine], registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then its tasks are queued as before, and say why."""
    machine = on(prepare=away_until(1e9, monkeypatch, []), patience=60.0)

    assert machine.reason.startswith("files could not be reached for a minute: net.onnx of net/1 cannot be")
    assert 60 < machine.now < 200
    assert {task.state for task in registry.tasks(model="net")} == {TaskState.QUEUED}
    assert all("s3://models: refused" in task.why for task in registry.tasks(model="net"))


def test_one_model_that_cannot_be_fetched_stops_no_other(
    on: Callable[..., Machine], registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks come after all others, each time."""

    def prepare(machine: Machine) -> None:
        forbidden = [task.id for task in registry.tasks(model="net")][:2]

        def measure(task: Any, registry: Registry, device: str, **watch: Any) -> Any:
            if task.id in forbidden and machine.now < 100:
                raise StoreUnavailable("net.onnx of net/1 cannot be fetched: forbidden.")
            return real(task, registry, device, **watch)

        real = execute.measure
        monkeypatch.setattr(execute, "measure", measure)

    machine = on(prepare=prepare)

    assert [each.task.measure.settings["batch_size"] for _, each in machine.done if each.task.measure] == [
        3, 4, 5, 6, 1, 2,
    ]  # fmt: skip
    assert machine.figures()[3] < 40


def test_a_finish_whose_answer_was_lost_counts_once(
    on: Callable[..., Machine], registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server commits, and goes away before it can say so."""
    finish = type(registry).finish
    lost: list[bool] = []

    def interrupted(self: Any, *words: Any) -> bool:
        held = finish(self, *words)
        if len(lost) < 3:
            lost.append(held)
            raise StoreUnavailable("The connection was lost.")
        return held

    monkeypatch.setattr(type(registry), "finish", interrupted)
    machine = on()

    assert len(lost) == 3
    assert [each.lost for _, each in machine.done] == [False] * 6
    events = [event.detail["task"] for event in registry.events(newest=1000) if event.kind == "task.done"]
    assert len(events) == len(set(events)) == 6
    assert {figure.recipe for figure in current_figures(registry, "net")} == {SOURCE}


def a_queue(count: int) -> None:
    """Register a real model, and queue short measurements of it."""
    brief = Policy(name="brief", convert=(), batch_sizes=tuple(range(1, count + 1)), max_time=0.5)
    with plugins.store() as store:
        store.registry.put_policy(brief, "me")
    modeldyno.registry.add(ROOT / "examples" / "digits" / "digits.onnx", policy="brief")


@contextmanager
def a_worker(log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker that disregards others; what it says is in the log."""
    command = [sys.executable, "-m", "modeldyno", "worker", "--idle-cpu", "100%"]
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, cwd=ROOT)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.engine
def test_a_worker_survives_a_restart_of_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped while a model is measured, for longer than that takes; nothing is lost or done twice."""
    if postgres_programs() is None:
        pytest.skip("needs PostgreSQL: apt install postgresql")
    log = tmp_path / "log"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with postgres_server() as server:
        monkeypatch.setenv("MODELDYNO_STORE", server.url)
        a_queue(6)
        with a_worker(log) as worker:
            wait_for(lambda: log.read_text().count("digits/1 source") == 2)
            server.stop()
            time.sleep(8.0)
            assert worker.poll() is None
            server.start()
            wait_for(lambda: not modeldyno.registry.tasks())
            wait_for(lambda: log.read_text().count("digits/1 source") == 6)
        assert worker.returncode == 0
        events = [e for e in modeldyno.registry.history("digits", limit=100) if e.kind.startswith("task.")]
        tasks = modeldyno.registry.tasks("digits", ended=True, limit=100)
    assert [event.kind for event in events] == ["task.done"] * 6
    assert {(task.state, task.attempts) for task in tasks} == {(TaskState.DONE, 1)}
    text = log.read_text()
    assert text.count("It is waited for.") == text.count("The store answers again") == 1
    assert "Traceback" not in text


@pytest.mark.slow
def test_a_worker_survives_an_outage_of_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No task has failed when it is back."""
    moto, boto = pytest.importorskip("moto.server"), pytest.importorskip("botocore.session")
    pytest.importorskip("s3fs")
    log = tmp_path / "log"
    port = free_port()
    for name, text in {
        "XDG_DATA_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "MODELDYNO_STORE": f"sqlite:///{tmp_path}/store.db", "MODELDYNO_WEIGHTS": "s3://models/weights",
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, text)
    server = moto.ThreadedMotoServer("127.0.0.1", port)
    server.start()
    try:
        boto.get_session().create_client("s3").create_bucket(Bucket="models")
        a_queue(3)
    finally:
        server.stop()
    with a_worker(log) as worker:
        wait_for(lambda: "It is waited for." in log.read_text())
        time.sleep(5.0)
        assert worker.poll() is None
        server = moto.ThreadedMotoServer("127.0.0.1", port)
        server.start()
        try:
            wait_for(lambda: not modeldyno.registry.tasks())
        finally:
            server.stop()
    tasks = modeldyno.registry.tasks("digits", ended=True, limit=100)
    assert [(task.state, task.attempts) for task in tasks] == [(TaskState.DONE, 1)] * 3
    text = log.read_text()
    assert text.count("It is waited for.") == text.count("The models' files can be reached again") == 1
