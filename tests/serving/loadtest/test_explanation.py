"""A latency is measured level by level, in rounds; delays of a server that is known land in their hops."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.sample_explanations import (
    ALONE,
    LOADED,
    STAMPED_ALONE,
    a_called_result,
    a_served_result,
    a_stamped_result,
    an_explanation,
)

from modeldyno.base.errors import OutOfTime, ProbeUnsupported, RequestError, RunFailed, UnknownName
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Failure, FailureKind, Progressed
from modeldyno.engine.data.outputs import named_arrays
from modeldyno.profiling.request import Request
from modeldyno.serving.load.explanation import ECHO, RunLevel
from modeldyno.serving.loadtest import explanation
from modeldyno.serving.loadtest.explanation import (
    ExplainOptions,
    describe_plan,
    explain_results,
    load_of,
    measure_explanation,
    plan_explanation,
    results_of,
)
from modeldyno.testing.sample_results import a_small_result
from modeldyno.testing.sample_series import a_ladder
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event, Result

DIGITS = str(Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx")
FEED = {"image": np.zeros((1, 1, 8, 8), "float32")}
SCORES = {"scores": np.zeros((1, 10), "float32")}


def a_request(model: str = DIGITS, backend: str | None = None, **settings: Any) -> Request:
    """Return a request."""
    return Request(model=model, backend=backend, settings=settings, plan=Plan())


# --- the plan ----------------------------------------------------------------------------------------


def test_without_a_server_only_the_call_is_measured() -> None:
    """The other levels are missing, with what to do about it."""
    planned = plan_explanation(a_request(), ExplainOptions())
    assert list(planned.jobs) == [RunLevel.IN_PROCESS]
    assert planned.jobs[RunLevel.IN_PROCESS].probes == ("static", "latency", "ops")
    assert planned.jobs[RunLevel.IN_PROCESS].inspection.devices == ("here",)
    assert set(planned.missing) == {RunLevel.ALONE, RunLevel.LOADED}
    assert "`backend=triton`" in planned.missing[RunLevel.LOADED]
    assert describe_plan(planned) == "Measuring in up to 3 rounds: in process"


def test_a_server_that_can_trace_requests_does() -> None:
    """There is no echo to share the time with; unless another knob forbids it, or the user."""
    planned = served_plan(rounds=1, max_time=16.0)
    assert all(planned.jobs[level].config["request_trace"] for level in (RunLevel.ALONE, RunLevel.LOADED))
    assert {job.plan.max_time for job in planned.jobs.values()} == {2.0}
    assert describe_plan(planned) == "Measuring: in process, served alone, under load"
    knobs: list[dict[str, Any]] = [{"compression": "gzip"}, {"request_trace": False}]
    for settings in knobs:
        planned = plan_explanation(a_request(backend="triton", **settings), ExplainOptions())
        assert not planned.jobs[RunLevel.ALONE].config.get("request_trace")
        assert describe_plan(planned).endswith("an echo of the same size")


def test_with_a_server_every_level_and_the_echo_are_measured() -> None:
    """The time is shared out among rounds and probes."""
    planned = plan_explanation(
        a_request(backend="triton", request_trace=False), ExplainOptions(rounds=1, max_time=10.0)
    )
    assert [(level, job.backend) for level, job in planned.jobs.items()] == [
        (RunLevel.IN_PROCESS, "onnxruntime"), (RunLevel.ALONE, "triton"), (RunLevel.LOADED, "triton"),
    ]  # fmt: skip
    assert [str(planned.jobs[level].load) for level in (RunLevel.ALONE, RunLevel.LOADED)] == [
        "concurrency 1", "concurrency 4",
    ]  # fmt: skip
    assert {job.plan.max_time for job in planned.jobs.values()} == {1.0}
    assert planned.missing == {}
    assert describe_plan(planned) == (
        "Measuring: in process, served alone, under load, an echo of the same size"
    )


def test_a_knob_goes_to_each_backend_that_has_it() -> None:
    """One that none has is refused, as by any command."""
    planned = plan_explanation(
        a_request(backend="triton", batch_size=2, threads=1, protocol="grpc"), ExplainOptions()
    )
    called, served = planned.jobs[RunLevel.IN_PROCESS].config, planned.jobs[RunLevel.ALONE].config
    assert called["batch_size"] == served["batch_size"] == 2
    assert "protocol" not in called
    assert served["protocol"] == "grpc"
    assert planned.echo is not None
    assert dict(planned.echo.settings) == {"protocol": "grpc"}
    with pytest.raises(UnknownName, match="nonsense"):
        plan_explanation(a_request(nonsense=1), ExplainOptions())


def test_a_running_server_can_only_be_asked() -> None:
    """There is no call in process, and no echo."""
    planned = plan_explanation(
        replace(a_request("http://127.0.0.1:1#m"), inputs=("x=1x4",)), ExplainOptions()
    )
    assert list(planned.jobs) == [RunLevel.ALONE, RunLevel.LOADED]
    assert set(planned.missing) == {RunLevel.IN_PROCESS, ECHO}
    assert planned.echo is None


def test_one_request_at_a_time_is_alone() -> None:
    """Such a load is not measured twice."""
    planned = plan_explanation(a_request(backend="triton"), ExplainOptions(load=load_of(1, None)))
    assert RunLevel.LOADED not in planned.jobs
    assert "alone" in planned.missing[RunLevel.LOADED]


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"statistic": "p99"}])
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    """In one sentence."""
    with pytest.raises(RequestError):
        ExplainOptions(**wrong)


def test_the_load_is_a_concurrency_or_a_rate() -> None:
    """By default four requests at once."""
    assert load_of(None, None) == Load(concurrency=4)
    assert load_of(2, "100:poisson") == Load(arrivals=Arrivals.POISSON, rate=100.0, concurrency=2)


# --- rounds ------------------------------------------------------------------------------------------


class Runs:
    """Runs jobs by returning samples, and remembers them."""

    def __init__(self) -> None:
        """Let everything succeed."""
        self.jobs: list[Job] = []
        self.answers: dict[str, Callable[[Job], Result]] = {}

    def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
        """Answer a job."""
        self.jobs.append(job)
        watch(Progressed(stage="working"))
        name = self.name_of(job)
        if name in self.answers:
            return self.answers[name](job)
        if name == RunLevel.IN_PROCESS:
            if job.observation.outputs:
                with Path(job.observation.outputs).open("wb") as file:
                    np.savez(file, **named_arrays(FEED, SCORES))  # type: ignore[arg-type]
            return replace(a_called_result(), job=job)
        return replace(a_served_result(LOADED if name == RunLevel.LOADED else ALONE), job=job)

    @staticmethod
    def name_of(job: Job) -> str:
        """Return the level of a job."""
        if job.name == ECHO:
            return ECHO
        if job.load is None:
            return RunLevel.IN_PROCESS
        return RunLevel.ALONE if job.load == Load(concurrency=1) else RunLevel.LOADED

    @property
    def names(self) -> list[str]:
        """What was run, in order."""
        return [str(self.name_of(job)) for job in self.jobs]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Every job is answered here."""
    simulated = Runs()

    class Worker:
        execute = staticmethod(simulated)

    @contextmanager
    def executor(_interrupts: object, limit: object) -> Iterator[Runs]:
        del limit
        yield simulated

    @contextmanager
    def worker(_interrupts: object, _limit: object) -> Iterator[type[Worker]]:
        yield Worker

    monkeypatch.setattr(explanation, "subprocess_executor", executor)
    monkeypatch.setattr(explanation, "open_warm_worker", worker)
    return simulated


def served_plan(**options: Any) -> explanation.ExplainPlan:
    """Return the plan of all levels."""
    return plan_explanation(a_request(backend="triton"), ExplainOptions(**options))


def test_the_order_of_a_round_is_that_of_the_one_before_reversed(runs: Runs) -> None:
    """The first begins with the server, so that one that is not installed is known at once."""
    stages: list[str] = []
    explained = measure_explanation(
        served_plan(rounds=2),
        watch=lambda event: stages.append(event.stage) if isinstance(event, Progressed) else None,
    )
    once = ["served alone", "under load", "in process", "echo"]
    assert runs.names == [*once, *once[::-1]]
    assert stages[0] == "round 1 of 2, served alone: working"
    assert [result.processes for result in explained.results.values()] == [2] * 4
    assert explained.statistic == "mean"


def test_no_echo_is_measured_where_the_server_traces_requests(runs: Runs) -> None:
    """Neither are the outputs that it would return."""
    runs.answers[RunLevel.ALONE] = lambda job: replace(
        a_stamped_result(a_served_result(ALONE), STAMPED_ALONE), job=job
    )
    explained = measure_explanation(served_plan(rounds=2))
    once = ["served alone", "under load", "in process"]
    assert runs.names == [*once, *once[::-1]]
    assert not any(job.observation.outputs for job in runs.jobs)
    assert explained.missing == {}


def test_only_the_first_call_in_process_has_the_analysis_and_the_outputs(runs: Runs) -> None:
    """The result tells the job of every round, without the file, which is gone."""
    explained = measure_explanation(served_plan(rounds=2))
    first, second = (job for job in runs.jobs if runs.name_of(job) == RunLevel.IN_PROCESS)
    assert first.probes == ("static", "latency", "ops", "outputs")
    assert second.probes == ("latency", "ops")
    assert explained.results[RunLevel.IN_PROCESS].job.observation.outputs is None


def test_the_echo_has_the_inputs_and_returns_the_outputs_of_the_model(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is served as the model is."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    answers: list[Any] = []

    def run_echo(job: Job) -> Result:
        path = job.model.locator
        onnx.checker.check_model(onnx.load(path))
        session = runtime.InferenceSession(path)
        answers.append(session.run(None, {name: array + 1 for name, array in FEED.items()}))
        return a_served_result(ALONE)

    monkeypatch.setitem(SCORES, "scores", np.arange(10, dtype="float32").reshape(1, 10))
    runs.answers[ECHO] = run_echo
    measure_explanation(served_plan(rounds=1))
    assert answers[0][0].tolist() == [list(range(10))]


def test_the_time_limit_is_of_all_rounds(runs: Runs) -> None:
    """What would not fit is not measured again; a level for which no time is left is missing."""
    measure_explanation(served_plan(rounds=9, max_time=120.0), clock=lambda: 10.0 * len(runs.jobs))
    assert len(runs.jobs) == 12
    runs.jobs.clear()
    explained = measure_explanation(served_plan(rounds=9, max_time=15.0), clock=lambda: 10.0 * len(runs.jobs))
    assert len(runs.jobs) == 2
    assert explained.missing == dict.fromkeys((RunLevel.IN_PROCESS, ECHO), "no time was left to measure it")


def test_a_level_that_is_cut_off_is_missing(runs: Runs) -> None:
    """The others stand; nothing is explained of nothing."""

    def cut_off(_job: Job) -> Result:
        raise OutOfTime("Nothing could be measured within 5 s.")

    runs.answers[RunLevel.IN_PROCESS] = runs.answers[ECHO] = cut_off
    explained = measure_explanation(served_plan(rounds=2))
    assert set(explained.missing) == {RunLevel.IN_PROCESS, ECHO}
    assert set(explained.results) == {RunLevel.ALONE, RunLevel.LOADED}
    with pytest.raises(OutOfTime):
        measure_explanation(plan_explanation(a_request(), ExplainOptions(rounds=1)))


def test_an_echo_that_cannot_be_served_is_missing(runs: Runs) -> None:
    """Nothing else is lost, and it is not tried again."""

    def refuse(_job: Job) -> Result:
        raise RunFailed("Triton does not take it.")

    runs.answers[ECHO] = refuse
    explained = measure_explanation(served_plan(rounds=2))
    assert explained.missing == {ECHO: "it could not be served: Triton does not take it"}
    assert ECHO not in explained.results
    assert runs.names.count(ECHO) == 1


def test_a_backend_without_operators_is_measured_without_them(runs: Runs) -> None:
    """Its kernels are unknown; later rounds do not ask again."""

    def call(job: Job) -> Result:
        if "ops" in job.probes:
            raise ProbeUnsupported("No operators.", "ops")
        return replace(a_called_result(parts=None), job=job)

    runs.answers[RunLevel.IN_PROCESS] = call
    explained = measure_explanation(plan_explanation(a_request(), ExplainOptions(rounds=2)))
    assert [job.probes for job in runs.jobs] == [
        ("static", "latency", "ops"), ("static", "latency"), ("latency",),
    ]  # fmt: skip
    assert [hop.time for hop in explained.hops if hop.name == "kernels"] == [None]
    assert explained.statistic == "p50"


def test_a_level_that_fails_is_told_and_not_tried_again(runs: Runs) -> None:
    """The other levels are measured."""
    failure = Failure(where="load", kind=FailureKind.SERVER, message="it ended")
    runs.answers[RunLevel.LOADED] = lambda job: a_small_result(job=job, failures=(failure,))
    explained = measure_explanation(served_plan(rounds=2))
    assert explained.failures == {"under load": "load: it ended"}
    assert [level.level for level in explained.levels] == [RunLevel.IN_PROCESS, RunLevel.ALONE]
    assert runs.names.count("under load") == 2  # once more, as it traced


def test_a_server_that_crashes_while_it_traces_is_measured_once_more(runs: Runs) -> None:
    """Triton does so on rare occasions; that is no failure of the level."""
    failure = Failure(where="load", kind=FailureKind.SERVER, message="it was ended by SIGSEGV")
    whole = a_stamped_result(a_served_result(ALONE), STAMPED_ALONE)
    answers = [a_small_result(failures=(failure,)), whole]
    runs.answers[RunLevel.ALONE] = lambda job: replace(answers.pop(0), job=job)
    explained = measure_explanation(served_plan(rounds=1))
    assert runs.names.count("served alone") == 2
    assert explained.failures == {}


def test_nothing_but_a_failure_is_an_error(runs: Runs) -> None:
    """It says what failed."""
    failure = Failure(where="load", kind=FailureKind.OOM, message="out of memory")
    runs.answers[RunLevel.IN_PROCESS] = lambda job: a_small_result(job=job, failures=(failure,))
    with pytest.raises(RunFailed, match="digits failed in load: out of memory"):
        measure_explanation(plan_explanation(a_request(), ExplainOptions(rounds=1)))


def test_a_baseline_of_another_level_is_refused_before_anything_runs(runs: Runs) -> None:
    """A call cannot be compared with a request."""
    with pytest.raises(RequestError, match="measured in process and the other under load"):
        measure_explanation(served_plan(), baseline={RunLevel.IN_PROCESS: a_called_result()})
    assert runs.jobs == []


# --- documents ---------------------------------------------------------------------------------------


def test_results_and_explanations_can_be_explained() -> None:
    """Other documents, and results without a latency, are refused."""
    served = a_served_result(LOADED, 4)
    assert results_of(served) == {"under load": served}
    assert results_of(an_explanation()) == an_explanation().results
    with pytest.raises(RequestError, match="has no latency"):
        results_of(a_small_result())
    with pytest.raises(RequestError, match="Only results and explanations"):
        results_of(a_ladder())


def test_two_results_of_one_level_are_compared() -> None:
    """Those of two levels are refused."""
    before, now = a_served_result(LOADED, 4), a_served_result({**LOADED, "queue": 13.0}, 4)
    explained = explain_results(results_of(now), results_of(before))
    assert explained["queue under load"] == pytest.approx(0.013)
    assert explained.statistic == "mean"
    with pytest.raises(RequestError, match="of the same level"):
        explain_results(results_of(now), results_of(a_called_result()))


# --- a server that is known ---------------------------------------------------------------------------


def explained(url: str, load: Load) -> Any:
    """Measure a server that is known, one round."""
    request = replace(a_request(url), inputs=("x=1x4",), plan=Plan(precision=0.5))
    planned = plan_explanation(request, ExplainOptions(load=load, rounds=1, max_time=10.0))
    return measure_explanation(planned)


def first_that_holds(measure: Callable[[], Any], *claims: Callable[[Any], bool]) -> list[bool]:
    """Check claims of a measurement; what a busy machine disturbs is measured again, up to three times."""
    held: list[bool] = []
    for _ in range(3):
        outcome = measure()
        held = [claim(outcome) for claim in claims]
        if all(held):
            break
    return held


def test_service_and_queue_of_a_known_server_land_in_their_hops() -> None:
    """One worker that takes so long serves one at a time: of three at once, each waits for two."""
    service = 0.02

    def busy(explained: Any) -> float:
        """What the server took of a request in all, which is longer where the machine is busy."""
        return float(explained["server compute"] + explained["server compute under load"])

    with serve_in_subprocess("--service", f"constant:{service}") as running:
        held = first_that_holds(
            lambda: explained(f"http://127.0.0.1:{running.port}#echo", load_of(3, None)),
            lambda explained: explained["server compute"] > 0.99 * service,
            lambda explained: explained["queue"] < 0.2 * service,
            lambda explained: explained["queue under load"] == pytest.approx(2 * busy(explained), rel=0.2),
            lambda explained: explained["wait for the client under load"] < 0.2 * service,
            lambda explained: (
                sum(hop.time.seconds for hop in explained.hops if hop.time)
                == pytest.approx(explained["under load"])
            ),
        )
    assert held == [True] * 5


@pytest.mark.slow  # the test above finds the hops of a known server; tests/core explains each
def test_a_wait_for_the_client_lands_in_its_own_hop() -> None:
    """Of two requests that are due at once, one waits for the only slot while the other is served."""
    with serve_in_subprocess("--service", "constant:0.02") as running:
        held = first_that_holds(
            lambda: explained(f"http://127.0.0.1:{running.port}#echo", load_of(1, "20:burst=2")),
            lambda explained: explained["wait for the client under load"] > 0.008,
            lambda explained: abs(explained["queue under load"]) < 0.004,
        )
    assert held == [True, True]
