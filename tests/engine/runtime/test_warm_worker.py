from __future__ import annotations

import signal
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.stand_ins import use_plugin

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import parse_input
from modeldyno.base.job.job import Job
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement import Measurement, observed_number
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Event, FailureKind, Result, fold
from modeldyno.base.system.process_tree import list_process_tree, tree_memory
from modeldyno.engine.environment import machine
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.engine.interfaces.session import RequestSession
from modeldyno.engine.runtime import engine as runtime_engine
from modeldyno.engine.runtime import session_setup, warm_worker
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.runtime.events import empty_result
from modeldyno.engine.runtime.warm_worker import open_warm_worker, warm_executor
from modeldyno.models.interface import Form
from modeldyno.testing.fakes import a_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.executor import Executor
    from modeldyno.engine.interfaces.probe import ProbeContext
    from modeldyno.models.interface import Model

QUICK = Plan(min_time=0.02, min_runs=5, max_time=2.0, precision=0.5)
SOURCE = '''
import os, pathlib, time
here = pathlib.Path(__file__).parent
with open(here / "loaded", "a") as file:
    file.write(f"{os.getpid()}\\n")

def answer():
    """Die or raise where a file of that name lies beside."""
    if (here / "die").exists():
        os.abort()
    if (here / "fail").exists():
        raise ValueError("asked to fail")
    time.sleep(0.002)
'''


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A callable whose module records each process that loads it."""
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    return path


def job(model: Path, slots: int = 1, **changes: Any) -> Job:
    settings: dict[str, Any] = {
        "model": ModelRef(scheme="call", locator=f"{model}:answer"),
        "backend": "python",
        "probes": ("latency",),
        "plan": QUICK,
        "load": Load(concurrency=slots),
    }
    return Job(**settings | changes)


def execute(executor: Executor, job: Job) -> Result:
    return executor(job, watch=lambda _event: None)


def loads(model: Path) -> list[str]:
    """Return the processes that loaded the model, in order."""
    return (model.parent / "loaded").read_text().split()


def measured(result: Result) -> set[str]:
    return {item.metric for item in result.measurements}


def test_one_loading_serves_many_loads(model: Path) -> None:
    """Jobs that differ only in load and Plan run in one process, with a Result each."""
    with warm_executor() as executor:
        results = [execute(executor, job(model, slots)) for slots in (1, 2, 4)]
        results.append(execute(executor, job(model, plan=replace(QUICK, min_runs=7))))

    assert len(loads(model)) == 1
    assert [result.failures for result in results] == [()] * 4
    assert [result.job.load and result.job.load.slots for result in results] == [1, 2, 4, 1]
    assert len({result.id for result in results}) == 4
    assert all({"latency", "load_time", "first_call"} <= measured(result) for result in results)
    assert all(result.model is not None and result.environment.hardware for result in results)


@pytest.mark.slow
def test_what_a_warm_child_holds_is_no_want_of_memory(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open model that holds more than the free memory may be measured again."""
    longer = replace(QUICK, min_time=0.5)
    with open_warm_worker() as house:
        execute(house.execute, job(model))
        assert house.child is not None
        held = tree_memory(list_process_tree(house.child.process.process.pid)[1:])
        reserve = int(0.05 * machine.memory_limit())
        monkeypatch.setattr(machine, "free_memory", lambda: reserve + held // 2)
        again = execute(house.execute, job(model, plan=longer))

    assert again.failures == ()
    assert len(loads(model)) == 1


def test_what_differs_otherwise_is_loaded_afresh(model: Path) -> None:
    """Another seed is another Job: it gets a new process with another payload."""
    with warm_executor() as executor:
        for seed in (0, 0, 1):
            execute(executor, job(model, plan=replace(QUICK, seed=seed)))

    assert len(set(loads(model))) == 2


def test_a_server_within_the_process_is_not_started_twice_in_it() -> None:
    """Jobs with other knobs get another process, although a server of its own would only be restarted."""
    jobs = [job(Path("fake.py"), backend="triton", config={"launch": how}) for how in ("local", "in-process")]
    jobs += [replace(each, config={**each.config, "instances": 2}) for each in jobs]
    local, within, other_local, other_within = map(warm_worker._shared_part, jobs)

    assert local == other_local
    assert within != other_within
    assert within == warm_worker._shared_part(replace(jobs[1], load=Load(concurrency=8)))


@pytest.mark.slow
def test_the_isolated_executor_keeps_nothing(model: Path) -> None:
    """With it, two equal Jobs are two processes."""
    with subprocess_executor() as executor:
        for _ in range(2):
            execute(executor, job(model))

    assert len(set(loads(model))) == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [("die", FailureKind.CRASH), pytest.param("fail", FailureKind.ERROR, marks=pytest.mark.slow)],
)
def test_after_a_failure_comes_a_fresh_child(model: Path, name: str, kind: FailureKind) -> None:
    """A crash or an exception is reported, and the child not used again."""
    with warm_executor() as executor:
        fine = execute(executor, job(model))
        (model.parent / name).touch()
        wrong = execute(executor, job(model, 2))
        (model.parent / name).unlink()
        again = execute(executor, job(model, 4))

    assert (fine.failures, again.failures) == ((), ())
    assert [failure.kind for failure in wrong.failures] == [kind]
    assert wrong.find("load_time") is not None
    assert len(loads(model)) == 2


def test_a_wrong_request_is_raised_here(model: Path) -> None:
    """An invalid Job raises, and the next one runs."""
    with warm_executor() as executor:
        with pytest.raises(RequestError, match="needs a session of a model behind a server"):
            execute(executor, job(model, probes=("load",)))
        assert execute(executor, job(model)).failures == ()


def test_nothing_is_left_behind(model: Path) -> None:
    """The child is gone once the executor is closed, whatever its Jobs did."""
    with warm_executor() as executor:
        execute(executor, job(model))
        (pid,) = loads(model)
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


def test_an_interruption_is_told(model: Path) -> None:
    """After Ctrl-C the Job ends early, and its Result says so."""

    def watch(_event: Event) -> None:
        if not stream:
            stream.append(True)
            signal.raise_signal(signal.SIGINT)

    stream: list[bool] = []
    with warm_executor() as executor:
        result = executor(job(model, plan=replace(QUICK, min_time=30.0, max_time=60.0)), watch=watch)

    assert "interrupted" in {item.code for item in result.doubts}
    assert result.failures == ()


# --- a server, within this process ------------------------------------------------------------------


@dataclass
class Served(RequestSession):
    """A backend whose session is a server's, and a probe that sends to it; both record what happens."""

    read: int = 0
    opened: int = 0
    closed: int = 0
    loads: list[Load | None] = field(default_factory=list)
    broken: bool = False
    requires: tuple[str, ...] = ()
    accepts: frozenset[str] = frozenset({Form.CALLABLE})
    serves: bool = True
    pid: int | None = None
    needs: type = RequestSession
    pass_: Pass = Pass.TIMED

    @contextmanager
    def open(self, _model: object, _config: object) -> Iterator[Served]:
        """Start the server, and stop it."""
        self.opened += 1
        try:
            yield self
        finally:
            self.closed += 1

    def target(self, feeds: Any) -> Target:
        """Return empty messages."""
        return Target(
            protocol="fake", transport=Transport.HTTP, host="127.0.0.1", port=1, messages=(b"",) * len(feeds)
        )

    def arrays(self, _output: object) -> dict[str, Any]:
        """Return an answer."""
        return {"y": np.ones(1)}

    def measure(self, subject: ProbeContext, _plan: Plan) -> Iterator[Measurement]:
        """Record the load, and yield its rate."""
        self.loads.append(subject.load)
        yield observed_number("request_rate", 10.0 * (subject.load.slots or 0 if subject.load else 0))
        if self.broken:
            raise ConnectionResetError("the server is gone")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """Replace the plugins by a fake of a served model."""
    fake = Served()

    def load(*_ref: object, **_how: object) -> Model:
        fake.read += 1
        return a_model()

    loader = SimpleNamespace(backend=Form.CALLABLE, requires=(), load=load)
    use_plugin(monkeypatch, "loader", loader)
    use_plugin(monkeypatch, "backend", fake)
    use_plugin(monkeypatch, "probe", fake)
    monkeypatch.setattr(
        session_setup, "_prepare_calls", lambda _session, _payload, _patience: iter((lambda: None,))
    )
    return fake


def carried_out(slots: int, kept: runtime_engine.OpenSession | None, **config: KnobValue) -> Result:
    server_job = job(Path("fake.py"), slots, probes=("load",), inputs=(parse_input("x=1x4"),), config=config)
    stream = runtime_engine.events(
        server_job, interrupted=lambda: False, watch=lambda _event: None, warm=kept
    )
    return fold(empty_result(server_job), stream)


def test_a_server_stays_up_between_loads(served: Served) -> None:
    """One server serves each load in turn, and is stopped at the end."""
    with runtime_engine.OpenSession() as kept:
        results = [carried_out(slots, kept) for slots in (1, 8)]
        assert (served.opened, served.closed) == (1, 0)

    assert served.closed == 1
    assert [load and load.slots for load in served.loads] == [1, 8]
    assert [result["request_rate"] for result in results] == [10.0, 80.0]
    assert all({"load_time", "first_call"} <= measured(result) for result in results)


def test_another_configuration_is_another_server(served: Served) -> None:
    """The model stays loaded; the previous server is stopped, and the current one reused."""
    with runtime_engine.OpenSession() as kept:
        results = [carried_out(1, kept, instances=n) for n in (1, 2, 2, 1)]
        assert (served.opened, served.closed) == (3, 2)

    assert (served.read, served.closed) == (1, 3)
    assert all({"load_time", "first_call"} <= measured(result) for result in results)
    assert [len(result.measurements) for result in results] == [len(results[0].measurements)] * 4


def test_what_is_closed_is_opened_by_the_next_run(served: Served) -> None:
    """Asking for a fresh server of the same configuration closes the current one."""
    with runtime_engine.OpenSession() as kept:
        kept.close()  # nothing is open yet
        carried_out(1, kept)
        kept.close()
        assert (served.opened, served.closed) == (1, 1)
        assert carried_out(1, kept).failures == ()

    assert (served.opened, served.closed, served.read) == (2, 2, 1)


def test_a_server_that_broke_is_stopped_at_once(served: Served) -> None:
    """Measurements are kept, the failure reported, and the next load gets another server."""
    with runtime_engine.OpenSession() as kept:
        carried_out(1, kept)
        served.broken = True
        failed = carried_out(2, kept)
        assert (served.opened, served.closed) == (1, 1)
        served.broken = False
        carried_out(4, kept)

    assert failed.failures[0].where == "load"
    assert failed["request_rate"] == 20.0
    assert (served.opened, served.closed) == (2, 2)


def test_without_a_warm_place_each_run_opens_and_closes(served: Served) -> None:
    """Without a warm state, a run closes what it opens."""
    carried_out(1, None)
    carried_out(2, None)

    assert (served.opened, served.closed) == (2, 2)
