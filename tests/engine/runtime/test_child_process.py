from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest
from tests.support import faulty_models

from modeldyno.base.errors import RequestError, TrustRequired
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Event, FailureKind, Progressed, Result
from modeldyno.engine.environment import machine
from modeldyno.engine.runtime.child_process import subprocess_executor

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK = {"min_time": 0.05, "min_runs": 5, "max_time": 3.0, "precision": 0.5}
LIMIT = 512 << 20


def job(name: str, **plan: object) -> Job:
    settings = {**QUICK, "timeout": 60.0, "memory_limit": LIMIT, **plan}
    return Job(
        model=ModelRef(scheme="call", locator=f"{faulty_models.__file__}:{name}"),
        backend="python",
        probes=("latency",),
        plan=Plan(**settings),  # type: ignore[arg-type]
    )


def run(name: str, **plan: object) -> Result:
    with subprocess_executor() as execute:
        return execute(job(name, **plan), watch=lambda _event: None)


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Environment entry by which every process started by the test is recognised."""
    word = uuid.uuid4().hex
    monkeypatch.setenv("MODELDYNO_TEST_MARK", word)
    return word


def alive(mark: str) -> list[int]:
    return [pid for pid, environ in _environments() if mark.encode() in environ and pid != os.getpid()]


def left(mark: str, patience: float = 5.0) -> list[int]:
    """Return the processes still alive after a moment, which a killed process takes to end."""
    deadline = time.monotonic() + patience
    while alive(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive(mark)


def _environments() -> Iterator[tuple[int, bytes]]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            yield int(path.parent.name), path.read_bytes()
        except OSError:
            continue


EXPECTED = {
    "segfault": FailureKind.CRASH,
    "abort": FailureKind.CRASH,
    "eat_memory": FailureKind.OOM,
    "hang": FailureKind.TIMEOUT,
    "stop_itself": FailureKind.TIMEOUT,
    "leave": FailureKind.EXIT,
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("each", [1, pytest.param(100, marks=pytest.mark.slow)])
def test_every_death_of_a_child_is_a_typed_failure_and_leaves_nothing_behind(mark: str, each: int) -> None:
    """Children that crash, abort, exhaust memory, hang or exit give one Failure each, and leave no orphan."""
    names = [name for name in EXPECTED for _ in range(each)]
    limits = {name: 5.0 for name, kind in EXPECTED.items() if kind is FailureKind.TIMEOUT}
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: run(n, timeout=limits.get(n, 120.0)), names))

    kinds = [(name, [f.kind for f in result.failures]) for name, result in zip(names, results, strict=True)]

    assert [(name, [EXPECTED[name]]) for name in names] == kinds
    assert {name: results[names.index(name)].failures[0].message for name in limits} == {
        "hang": "it was still running after 5 s",
        "stop_itself": "it was still stopped by a signal after 5 s",
    }
    assert left(mark) == []


def test_memory_that_is_not_mapped_counts() -> None:
    """A file without a disk takes memory that is in no process's resident size."""
    failure = run("fill_memory_without_mapping", timeout=60.0).failures[0]

    assert failure.kind is FailureKind.OOM
    assert "more than the limit of 512.0 MiB" in failure.message


def test_a_failure_says_where_it_was_and_shows_the_end_of_the_log() -> None:
    """A segfault in the first call is reported with the stage and the stack printed by faulthandler."""
    failure = run("segfault").failures[0]

    assert failure.where == "first call"
    assert "SIGSEGV" in failure.message
    assert "Segmentation fault" in failure.log


def test_an_exception_of_the_model_is_a_failure_in_one_line() -> None:
    """An exception of the model is reported by type and first line; the rest is in the log."""
    failure = run("raise_error").failures[0]
    line = faulty_models.raise_error.__code__.co_firstlineno + 2

    assert failure.kind is FailureKind.ERROR
    assert failure.message == f"ValueError: shapes (8, 128) and (64, 8) do not fit (faulty_models.py:{line})"
    assert "at layer 3" in failure.log


RAISED = {
    "raise_interrupt": "KeyboardInterrupt",
    "raise_cancellation": "CancelledError: given up",
    "raise_end_of_generator": "GeneratorExit",
}


@pytest.mark.parametrize(
    "name",
    [
        "raise_interrupt",
        *(pytest.param(n, marks=pytest.mark.slow) for n in RAISED if n != "raise_interrupt"),
    ],
)
def test_what_a_model_raises_that_is_no_error_is_told_all_the_same(name: str) -> None:
    """It is reported as neither a signal nor an exit of the process, and the log has no traceback of ours."""
    failure = run(name).failures[0]

    assert (failure.where, failure.kind) == ("first call", FailureKind.ERROR)
    assert failure.message.startswith(RAISED[name])
    assert "Traceback" not in failure.log


def test_a_model_that_spoils_os_is_measured_as_far_as_can_be() -> None:
    """The child saves the functions of os that it needs before the model is loaded."""
    result = run("spoil_os", max_runs=5)

    assert [failure.kind for failure in result.failures] == [FailureKind.ERROR]
    assert result.failures[0].message.startswith("OSError: there is no system")
    assert "Traceback" not in result.failures[0].log


def test_a_model_that_spoils_python_is_told_as_that() -> None:
    """Our own code no longer works; the message blames the model, and names no line of ours."""
    failure = run("spoil_builtins").failures[0]

    assert failure.kind is FailureKind.CRASH
    assert failure.message.startswith("it changed what Python itself needs")
    assert "Traceback" not in failure.log


def test_a_full_device_is_out_of_memory() -> None:
    """A framework's out-of-memory error is classified as such."""
    assert FailureKind.OOM is run("raise_memory_error").failures[0].kind


def test_nan_in_the_output_is_an_invalid_output() -> None:
    """A model that returns NaN is measured, and flagged."""
    result = run("return_nan")

    assert FailureKind.INVALID_OUTPUT in {failure.kind for failure in result.failures}


def test_what_a_model_leaves_behind_is_ended(mark: str) -> None:
    """A process that the model started does not outlive the run."""
    result = run("leave_a_child_behind", max_runs=5, memory_limit=8 << 30)

    assert result.failures == ()
    assert left(mark) == []


def test_a_model_that_forks_neither_hangs_the_run_nor_blinds_the_witness(mark: str) -> None:
    """Forks hold every pipe open; the run ends when the model's own process reports its end."""
    began = time.monotonic()
    result = run("fork_a_sleeper", max_runs=5, memory_limit=8 << 30)

    assert result.failures == ()
    assert time.monotonic() - began < 30
    assert "unwatched" not in {doubt.code for doubt in result.doubts}
    assert left(mark) == []


@pytest.mark.slow  # as what forks twice does
def test_what_leaves_the_group_is_ended_too(mark: str) -> None:
    """A process in a separate session does not outlive the run either."""
    run("leave_a_session_behind", max_runs=5, memory_limit=8 << 30)

    assert left(mark) == []


@pytest.mark.parametrize("name", ["orphan_a_session", "orphan_a_session_and_crash"])
def test_what_forks_twice_is_ended_too(mark: str, name: str) -> None:
    """A double fork does not outlive the run, even if its parent crashed at once."""
    run(name, max_runs=5, memory_limit=8 << 30)

    assert left(mark) == []


KILLED = {
    "die_by_kill": "another process killed it (SIGKILL); no lack of memory was observed",
    "use_up_processor_time": "it used up its CPU time limit (SIGKILL",
    "use_up_processor_time_softly": "it used up its CPU time limit (SIGXCPU",
}


@pytest.mark.parametrize(
    "name",
    [
        "die_by_kill",
        "use_up_processor_time",
        pytest.param("use_up_processor_time_softly", marks=pytest.mark.slow),
    ],
)
def test_a_kill_is_told_with_the_cause_that_there_is_evidence_for(name: str) -> None:
    """Kills by another process or by a CPU time limit are not reported as lack of memory."""
    failure = run(name).failures[0]

    assert failure.kind is FailureKind.KILLED
    assert KILLED[name] in failure.message


@pytest.mark.parametrize("name", ["close_all_files", "become_another_program"])
def test_a_model_that_cuts_us_off_is_told_as_that(mark: str, name: str) -> None:
    """The log contains neither a traceback of a side process nor a path of ours."""
    failure = run(name).failures[0]

    assert failure.kind is FailureKind.CRASH
    assert failure.message.startswith("it closed the pipe for its measurements")
    assert failure.log == ""
    assert left(mark) == []


def test_a_call_that_returns_twice_is_doubted(mark: str) -> None:
    """The fork ends as soon as it returns to our code, and the measurement goes on."""
    result = run("return_twice", memory_limit=8 << 30)

    assert [d.code for d in result.doubts if d.code in {"forked", "unwatched"}] == ["forked"]
    assert result.failures == ()
    assert left(mark) == []


def test_free_memory_is_the_limit_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is the free memory less a reserve, and the message says so."""
    monkeypatch.setattr(machine, "free_memory", lambda: LIMIT + int(0.05 * machine.memory_limit()))
    failure = run("eat_memory", memory_limit=None).failures[0]

    assert failure.kind is FailureKind.OOM
    assert "the memory free when it started, less a reserve" in failure.message


GUARDED = """
import os, signal, sys, time
from pathlib import Path
from modeldyno.serving.servers.server_process import Launch, run_server
launch = Launch(
    name="fake", command=lambda _folder, _ports: [sys.executable, "-c", "import time; time.sleep(600)"],
    ports={}, ready=lambda _ports: True, grace=0.5,
)
def served():
    with run_server(launch) as server:
        Path(__file__).with_name("place").write_text(server.folder)
        time.sleep(1)  # whoever watches our family sees the guard
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_guard_of_a_server_removes_what_is_left(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that is killed while it runs a server leaves neither the server nor its directory."""
    monkeypatch.setenv("MODELDYNO_ENGINES", str(tmp_path / "engines"))
    (tmp_path / "guarded.py").write_text(GUARDED)
    served = replace(job("none"), model=ModelRef(scheme="call", locator=f"{tmp_path / 'guarded.py'}:served"))
    with subprocess_executor() as execute:
        result = execute(served, watch=lambda _event: None)
    assert [failure.kind for failure in result.failures] == [FailureKind.KILLED]
    assert left(mark) == []
    assert not Path((tmp_path / "place").read_text()).exists()


def test_cores_that_are_not_there_are_a_wrong_request() -> None:
    """The message lists the allowed cores."""
    with subprocess_executor() as execute, pytest.raises(RequestError, match="Cannot pin to the cores 4095"):
        execute(job("sleep_briefly", pin=(4095,)), watch=lambda _event: None)


def test_an_interruption_before_the_child_is_ready_is_no_crash() -> None:
    """Ctrl-C right after the start ends the run cleanly."""
    with subprocess_executor() as execute:
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        result = execute(job("sleep_briefly", min_time=30.0, max_time=60.0), watch=lambda _e: None)

    assert result.failures == ()
    assert "interrupted" in {doubt.code for doubt in result.doubts}


def test_a_model_that_prints_much_does_not_block() -> None:
    """A flood on standard output is read, and its end kept."""
    result = run("print_much", max_runs=20)

    assert result.failures == ()
    assert result.find("latency") is not None


def test_what_a_model_does_at_the_end_of_its_process_is_done(tmp_path: Path) -> None:
    """Exit handlers run, also after one that fails, although the interpreter is not torn down."""
    path, written = tmp_path / "model.py", tmp_path / "seen"
    path.write_text(
        "import atexit, pathlib\n"
        f"atexit.register(pathlib.Path({str(written)!r}).write_text, 'done')\n"
        "atexit.register(lambda: 1 / 0)\n"
        "def call():\n"
        "    return 1\n"
    )
    exiting_job = replace(job("sleep"), model=ModelRef(scheme="call", locator=f"{path}:call"))
    with subprocess_executor() as execute:
        result = execute(exiting_job, watch=lambda _event: None)

    assert result.failures == ()
    assert written.read_text() == "done"


@pytest.mark.slow
def test_the_parent_sleeps_while_it_waits() -> None:
    """While a child hangs for seconds, the parent uses less than 2 % of a core, though others are busy."""
    hung: list[tuple[float, float]] = []  # the start of a child costs more, and more on a busy machine

    def watch(event: Event) -> None:
        if isinstance(event, Progressed) and event.stage == "first call":
            hung.append((time.thread_time(), time.monotonic()))

    with subprocess_executor() as execute:
        result = execute(job("hang", timeout=3.0), watch=watch)
    spent, elapsed = time.thread_time() - hung[0][0], time.monotonic() - hung[0][1]

    assert FailureKind.TIMEOUT is result.failures[0].kind
    assert spent < 0.02 * elapsed


def test_a_wrong_request_found_by_the_child_raises_in_the_parent() -> None:
    """A request that the child refuses raises the same exception in the parent."""
    wrong = Job(model=ModelRef(scheme="onnx", locator="no-such-file.onnx"), backend="onnxruntime")
    with subprocess_executor() as execute, pytest.raises(RequestError, match="no-such-file"):
        execute(wrong, watch=lambda _event: None)


@pytest.mark.slow  # as a wrong request is
def test_trust_is_asked_for_in_the_parent(tmp_path: Path) -> None:
    """A TorchScript archive without --trust is refused as such, although only the child opened it."""
    path = tmp_path / "m.pt"
    with ZipFile(path, "w") as archive:
        for member in ("m/data.pkl", "m/constants.pkl", "m/code/__torch__.py", "m/version"):
            archive.writestr(member, b"")
    wrong = Job(model=ModelRef(scheme="torchscript", locator=str(path)), backend="torch")
    with subprocess_executor() as execute, pytest.raises(TrustRequired):
        execute(wrong, watch=lambda _event: None)


def _interrupted(times: int, name: str) -> Result:
    """Send the main thread Ctrl-C once measuring goes on, and again on later progress."""
    sent = 0

    def watch(event: Event) -> None:
        nonlocal sent
        measuring = isinstance(event, Measurement) and event.metric == "latency"
        if measuring and sent < times:
            sent += 1
            signal.raise_signal(signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    with subprocess_executor() as execute:
        return execute(job(name, min_time=60.0, max_time=100.0, timeout=100.0), watch=watch)


def test_one_interruption_finishes_and_saves() -> None:
    """After one Ctrl-C the child finishes its measurement, and the Result says so."""
    result = _interrupted(1, "sleep_briefly")
    latency = result.find("latency")

    assert latency is not None
    assert isinstance(latency.value, Distribution)
    assert "it was cut off" not in latency.value.unmet
    assert "interrupted" in {doubt.code for doubt in result.doubts}
    assert result.failures == ()


def test_two_interruptions_stop_and_still_save() -> None:
    """After a second Ctrl-C the child is ended at once; what it had reported is kept."""
    result = _interrupted(2, "sleep_briefly")

    assert result.find("latency") is not None
    assert "interrupted" in {doubt.code for doubt in result.doubts}
    assert result.failures == ()


def test_nothing_survives_the_death_of_the_parent(mark: str) -> None:
    """When the parent is killed with -9, its child and the side process die too."""
    code = (
        "from modeldyno.base.job.job import Job; from modeldyno.base.job.model_ref import ModelRef;"
        "from modeldyno.engine.runtime.child_process import subprocess_executor\n"
        "with subprocess_executor() as execute:\n"
        f"    execute(Job(model=ModelRef(scheme='call', locator='{faulty_models.__file__}:hang'),"
        " backend='python', probes=('latency',)), watch=lambda e: print(e, flush=True))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    for line in parent.stdout:
        if b"first call" in line:
            break
    assert len(alive(mark)) >= 2

    parent.kill()
    parent.wait()
    parent.stdout.close()

    assert left(mark) == []


def test_progress_reaches_the_watcher() -> None:
    """The watcher receives the stages in order."""
    stages: list[str] = []

    def watch(event: Event) -> None:
        if isinstance(event, Progressed) and event.stage not in stages:
            stages.append(event.stage)

    with subprocess_executor() as execute:
        execute(job("sleep_briefly"), watch=watch)

    assert stages[:6] == ["import", "load", "inputs", "open", "first call", "latency"]
