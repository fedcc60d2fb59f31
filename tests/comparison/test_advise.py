"""Advice for a model whose speed is determined by its settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support.fake_clock import replace_monotonic

from modeldyno.base.errors import MissingExtra, OutOfTime, RequestError, RunFailed
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, SampleScores, pack
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.cost import Price
from modeldyno.base.result.result import Environment, Event, Failure, FailureKind, Progressed, Result
from modeldyno.base.result.static_data import Operator, StaticReport
from modeldyno.base.stats.statistics import share_interval
from modeldyno.comparison.advise import AdviseOptions, advise
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.views.advice import sentence
from modeldyno.engine.data.outputs import named_arrays
from modeldyno.engine.runtime.session import RunSession
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.comparison.change.advice import Advice

RATE = Query.parse("throughput")
JOB = Job(
    model=ModelRef(scheme="torch", locator="net.py:make"),
    backend="torch",
    config={"device": "auto", "compile": "off", "channels_last": False, "inference_mode": True},
)


@dataclass
class Machine:
    """Simulates Jobs: a knob makes a call faster, or fails, or changes the outputs."""

    gains: dict[tuple[str, object], float] = field(default_factory=dict)
    broken: dict[tuple[str, object], Exception | str] = field(default_factory=dict)
    errors: dict[tuple[str, object], float] = field(default_factory=dict)
    unlike: frozenset[tuple[str, object]] = frozenset()
    static: bool = True
    largest: int = 1 << 30
    """Larger batches run out of memory."""
    analysed: float = 0.0
    """Bytes that each sample takes by an analysis; 0 if there is none."""
    jobs: list[Job] = field(default_factory=list)

    def __call__(self, job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
        """Return a Result with a little noise."""
        self.jobs.append(job)
        watch(Progressed(stage="latency: steady"))
        if "layers" in job.probes and not self.static:
            raise RequestError("this backend cannot be watched")
        point = set(job.config.items()) & {*self.gains, *self.broken, *self.errors, *self.unlike}
        failures: tuple[Failure, ...] = ()
        for key in point & self.broken.keys():
            wrong = self.broken[key]
            if isinstance(wrong, Exception):
                raise wrong
            failures = (Failure(where="open", kind=FailureKind.ERROR, message=wrong),)
        if int(job.config.get("batch_size", 1)) > self.largest:
            failures = (Failure(where="first call", kind=FailureKind.OOM, message="it took 9 GiB"),)
        seconds = 0.001 / prod(self.gains.get(key, 1.0) for key in point)
        seconds *= 1 + 0.002 * ((7 * len(self.jobs)) % 5 - 2)
        if job.probes == ("evaluation",):
            return a_small_result(job=job, measurements=(_accuracy(lost=40 if point else 0),))
        if job.observation.outputs:
            error = sum(self.errors.get(key, 0.0) for key in point)
            batch = int(job.config.get("batch_size", 1))
            values = np.array([[1.0, 1.0 - error, 0.5]] * batch)
            shaped = values[:, :2] if point & self.unlike else values
            np.savez(job.observation.outputs, **named_arrays({"x": np.arange(batch)}, {"y": shaped}))  # type: ignore[arg-type]
        return a_small_result(
            job=job,
            failures=failures,
            measurements=self._analysis(job)
            if failures
            else _measured(seconds, int(job.config.get("batch_size", 1))),
            outline=StaticReport(
                sizes={"batch": 1}, operators=(Operator(kind="aten.addmm", calls=9, macs=1000),)
            ),
            environment=Environment(hardware={"cpu_quota": 2.0}),
        )

    def _analysis(self, job: Job) -> tuple[Measurement, ...]:
        if not self.analysed or "static" not in job.probes:
            return ()
        return (Measurement(metric="memory_peak", value=self.analysed * int(job.config["batch_size"])),)


def _accuracy(lost: int) -> Measurement:
    """Make the accuracy of 1,000 samples that are answered right, but for the first `lost`."""
    low, high = share_interval(1000 - lost, 1000)
    scores = SampleScores(data="d", values=pack(np.arange(1000) >= lost))
    return Measurement(
        metric="accuracy", value=1 - lost / 1000, interval=Interval(low=low, high=high), scores=scores
    )


def _measured(seconds: float, batch: int) -> tuple[Measurement, ...]:
    rate = 1 / seconds
    around = Interval(low=0.999 * rate, high=1.001 * rate)
    return (
        Measurement(metric="latency", value=Distribution.of([seconds * batch] * 40)),
        Measurement(metric="throughput", value=rate, interval=around, runs=(rate,)),
        Measurement(metric="macs", value=1000),
        Measurement(metric="weight_bytes", value=4000),
        Measurement(metric="weight_bytes", value=4000, scope="float32"),
    )


@pytest.fixture(autouse=True)
def _cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modeldyno.engine.environment.machine.cpu_quota", lambda: 2.0)


def advised(machine: Machine, wish: AdviseOptions | None = None, job: Job = JOB) -> list[Advice]:
    return list(advise(job, wish or AdviseOptions(query=RATE, max_time=1e4), RunSession(execute=machine)))


def outcomes(advice: Advice) -> dict[str, ChangeVerdict]:
    return {
        "+".join(f"{n}={v}" for n, v in tried.candidate.settings.items()): tried.outcome
        for tried in advice.tried
        if not tried.failure
    }


def test_the_best_setting_is_compared_on_labelled_samples() -> None:
    """The baseline and the best setting are evaluated once each, and the sentence says what that costs."""
    machine = Machine(gains={("compile", "default"): 1.5})
    job = replace(JOB, observation=ProbeOptions(evaluate=("accuracy",), data="test.npz"))
    best = advised(machine, job=job)[-1]

    assert best.best is not None
    assert sum(run.probes == ("evaluation",) for run in machine.jobs) == 2
    (change,) = best.best.answers
    assert change.outcome is ChangeVerdict.WORSE
    assert sentence(best).endswith("; on labelled samples accuracy 4.0 points lower (2.7 to 5.2).")
    assert "--evaluate accuracy" in best.command


def test_what_helps_is_found_combined_and_measured_again() -> None:
    """Two settings that help are best combined, and the command has both."""
    machine = Machine(gains={("compile", "default"): 1.5, ("threads", 1): 1.2, ("threads", 2): 1.1})
    latest = advised(machine)[-1]

    outcome_by_code = outcomes(latest)
    assert outcome_by_code["compile=default"] is ChangeVerdict.BETTER
    assert outcome_by_code["threads=1"] is ChangeVerdict.BETTER
    assert latest.best is not None
    assert latest.best.candidate.settings["compile"] == "default"
    assert latest.best.candidate.settings["threads"] == 1
    assert latest.best.rounds >= 3
    assert latest.best.error == 0.0
    assert "--set compile=default" in latest.command
    assert "--set threads=1" in latest.command
    assert "device" not in latest.command
    assert {tuple(t.candidate.settings) for t in latest.finals} >= {tuple(latest.best.candidate.settings)}


def test_what_does_not_help_is_told_too() -> None:
    """Nothing is advised unless it is certainly better."""
    latest = advised(Machine(gains={("compile", "default"): 0.8}))[-1]

    outcome_by_code = outcomes(latest)
    assert outcome_by_code["compile=default"] is ChangeVerdict.WORSE
    assert outcome_by_code["threads=2"] is ChangeVerdict.SAME
    assert latest.best is None
    assert latest.command == ""
    assert latest.finals == ()


def test_what_fails_is_told_and_the_others_go_on() -> None:
    """A missing package, a wrong setting and a crash give a message each."""
    machine = Machine(
        gains={("threads", 1): 1.3},
        broken={
            ("compile", "default"): "no compiler",
            ("precision", "bf16"): MissingExtra("there is no torchao"),
        },
    )
    latest = advised(machine)[-1]

    failures = {tried.failure for tried in latest.tried if tried.failure}
    assert failures == {"no compiler", "there is no torchao"}
    assert latest.best is not None
    assert latest.best.candidate.settings == {"threads": 1}


def test_what_changes_the_outputs_is_not_combined() -> None:
    """Unless the tolerance allows it."""
    machine = Machine(
        gains={("precision", "bf16"): 2.0, ("threads", 1): 1.2}, errors={("precision", "bf16"): 0.05}
    )
    strict = advised(machine)[-1]
    assert strict.best is not None
    assert strict.best.candidate.settings == {"threads": 1}
    (narrow,) = [t for t in strict.tried if t.candidate.settings == {"precision": "bf16"}]
    assert narrow.outcome is ChangeVerdict.BETTER
    assert narrow.error == pytest.approx(0.05)

    loose = advised(machine, AdviseOptions(query=RATE, max_time=1e4, tolerance=0.1))[-1]
    assert loose.best is not None
    assert loose.best.candidate.settings["precision"] == "bf16"


def test_outputs_that_cannot_be_compared_are_told() -> None:
    """Other shapes are not compared; of another batch size, the samples in both are."""
    machine = Machine(unlike=frozenset({("precision", "bf16")}))
    latest = advised(machine)[-1]
    why = {tuple(t.candidate.settings.items()): t.unlike for t in latest.tried}
    assert why[("precision", "bf16"),].startswith("the output 'y'")
    assert why[("batch_size", 2),] == ""
    assert all(t.outputs and not t.error for t in latest.tried if "batch_size" in t.candidate.settings)


def test_a_larger_batch_is_tried_for_a_rate_only() -> None:
    """For latency it is no candidate."""
    machine = Machine()
    assert any("batch_size" in t.candidate.settings for t in advised(machine)[-1].tried)
    wish = AdviseOptions(query=Query.parse("latency.p50"), max_time=1e4)
    assert not any("batch_size" in t.candidate.settings for t in advised(machine, wish)[-1].tried)


def test_findings_alone_leave_the_usual_space_out() -> None:
    """Only the findings' suggestions are tried."""
    latest = advised(Machine(), AdviseOptions(query=RATE, max_time=1e4, space=False))[-1]
    codes = {code for tried in latest.tried for code in tried.candidate.codes}
    assert codes <= {finding.code for finding in latest.findings}


def test_without_time_the_model_is_run_once_and_all_that_was_not_tried_is_named() -> None:
    """No candidate is started after the time limit."""
    machine = Machine()
    latest = advised(machine, AdviseOptions(query=RATE, max_time=0.0))[-1]
    assert len(machine.jobs) == 1
    assert latest.tried == ()
    assert latest.left_out


def test_a_limit_that_leaves_no_time_for_the_metric_is_named_as_the_cause() -> None:
    """The probe ran, but too late to measure."""

    def execute(job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
        del watch
        return a_small_result(job=job, measurements=_measured(0.001, 1)[:1])

    session = RunSession(execute=execute, limit=TimeLimit(seconds=1.0, end=0.0))
    with pytest.raises(OutOfTime, match=r"within 1 s: after .* give more time"):
        list(advise(JOB, AdviseOptions(query=RATE, max_time=1.0), session))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the clock by one that only the test advances."""
    now = [0.0]
    replace_monotonic(monkeypatch, lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("limit", "tried", "in_turns", "confirmed"),
    [
        (1.0, 0, 0, 0),
        (40.0, 4, 0, 0),
        (90.0, 8, 0, 0),
        (120.0, 6, 0, 1),
        (300.0, 10, 3, 1),
        (900.0, 10, 10, 1),
    ],
)
def test_the_time_is_spent_on_several_candidates_and_not_exceeded(
    clock: list[float], limit: float, tried: int, in_turns: int, confirmed: int
) -> None:
    """Each run of this model takes eight seconds, and each watched run half a minute."""
    machine = Machine(gains={("threads", 1): 1.2})

    def execute(job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
        clock[0] += 32.0 if "layers" in job.probes else 12.0 if "static" in job.probes else 8.0
        return machine(job, watch=watch)

    latest = list(advise(JOB, AdviseOptions(query=RATE, max_time=limit), RunSession(execute=execute)))[-1]

    assert clock[0] <= max(limit, 8.0)
    assert len(latest.tried) == tried
    assert sum(candidate.rounds > 0 for candidate in latest.tried) == in_turns
    assert len(latest.finals) == confirmed


def test_a_candidate_that_the_end_of_the_time_cut_off_was_not_tried(clock: list[float]) -> None:
    """It did not fail; there was no time left for it."""
    machine = Machine(broken={("threads", 1): "it was still running", ("compile", "default"): "no compiler"})

    def execute(job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
        clock[0] += 1e4 if job.config.get("threads") == 1 else 1.0
        return machine(job, watch=watch)

    latest = list(advise(JOB, AdviseOptions(query=RATE, max_time=1e3), RunSession(execute=execute)))[-1]

    assert not any(tried.candidate.settings == {"threads": 1} for tried in latest.tried)
    assert any(candidate.settings == {"threads": 1} for candidate in latest.left_out)


def test_a_backend_that_cannot_be_watched_is_looked_at_without() -> None:
    """It is inspected without the unsupported probes."""
    machine = Machine(static=False)
    assert advised(machine)[-1].tried
    assert machine.jobs[0].probes == ("latency", "throughput", "outputs")
    assert "layers" in machine.jobs[1].probes
    assert "layers" not in machine.jobs[2].probes


def test_a_baseline_that_fails_is_an_error() -> None:
    """There is nothing to compare with."""
    with pytest.raises(RunFailed, match="The model failed in open: it burst"):
        advised(Machine(broken={("compile", "off"): "it burst"}))


def test_a_batch_that_runs_out_of_memory_is_halved_until_one_fits() -> None:
    """The error names it; a batch that a given shape fixes cannot be halved."""
    job = replace(JOB, config={**JOB.config, "batch_size": 64})
    with pytest.raises(
        RunFailed, match="took 9 GiB; a batch of 16 fits, as a trial showed: take batch_size=16"
    ):
        advised(Machine(largest=20), job=job)

    shaped = replace(job, inputs=(InputSpec(name="x", shape=(64, 3), dtype="float32"),))
    for other, machine in ((shaped, Machine(largest=20)), (job, Machine(largest=0))):
        with pytest.raises(RunFailed, match=r"took 9 GiB$"):
            advised(machine, job=other)


def test_an_analysis_says_how_small_a_batch_is_tried_next() -> None:
    """Of 1 MB a sample, 900 kB are left for 1,000 samples of 1 GB: no halving through 32,000 and 16,000."""
    plan = replace(JOB.plan, memory_limit=10**9)
    job = replace(JOB, config={**JOB.config, "batch_size": 6_000}, probes=("static", "latency"), plan=plan)
    machine = Machine(largest=1_000, analysed=1e6)
    with pytest.raises(RunFailed, match="a batch of 900 fits, as a trial showed: take batch_size=900"):
        advised(machine, job=job)

    assert [each.config["batch_size"] for each in machine.jobs] == [6_000, 3_000, 900]


def test_a_batch_that_did_not_fit_when_time_ended_is_told(clock: list[float]) -> None:
    """The smallest one that was tried, and what shows more."""
    machine = Machine(largest=1)

    def execute(job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
        clock[0] += 400.0
        return machine(job, watch=watch)

    job = replace(JOB, config={**JOB.config, "batch_size": 64})
    with pytest.raises(RunFailed, match="a batch of 16 does not fit either, and more time shows which does"):
        list(advise(job, AdviseOptions(query=RATE, max_time=1e3), RunSession(execute=execute)))


def test_a_baseline_that_is_refused_is_refused() -> None:
    """The message says why."""
    with pytest.raises(RequestError, match="no such input"):
        advised(Machine(broken={("compile", "off"): RequestError("no such input")}))


def test_an_interruption_keeps_what_was_measured() -> None:
    """Advice ends after the current run."""
    machine = Machine()
    bench = RunSession(execute=machine, interrupted=lambda: int(len(machine.jobs) > 3))
    latest = list(advise(JOB, AdviseOptions(query=RATE), bench))[-1]
    assert len(machine.jobs) == 4
    assert len(latest.tried) == 2
    assert not latest.left_out  # which is what there was no time for
    assert latest.best is None


def test_a_candidate_is_given_up_and_the_baseline_is_waited_for() -> None:
    """A slow candidate must not take all the time, but the baseline is required."""
    machine = Machine()
    advised(machine, AdviseOptions(query=RATE, max_time=300.0))
    baseline, watched, candidate = (job.plan.timeout for job in machine.jobs[:3])
    assert (baseline, candidate) == (None, 100.0)
    assert watched is not None
    assert watched <= 300.0


def test_progress_names_what_is_at_work() -> None:
    """The baseline, and each candidate by its number."""
    stages: list[str] = []

    def watch(event: Event) -> None:
        if isinstance(event, Progressed):
            stages.append(event.stage)

    list(advise(JOB, AdviseOptions(query=RATE, max_time=1e4), RunSession(execute=Machine(), watch=watch)))
    assert stages[0] == "baseline: latency: steady"
    assert any(stage.startswith("candidate 1 of ") for stage in stages)
    assert any(stage.startswith("round 1 of up to 5") for stage in stages)


def test_files_of_outputs_do_not_stay(tmp_path: Path) -> None:
    """They are compared and removed."""
    machine = Machine()
    advised(machine)
    written = [Path(job.observation.outputs) for job in machine.jobs if job.observation.outputs]
    assert written
    assert not any(path.exists() for path in written)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("job", "wish", "message"),
    [
        (replace(JOB, backend="triton"), AdviseOptions(query=RATE), "runs a model within a process"),
        (
            replace(JOB, inspection=StaticOptions(mode=Mode.TRAIN)),
            AdviseOptions(query=RATE),
            "not training steps",
        ),
        (JOB, AdviseOptions(query=Query.parse("weight_bytes")), "is not a metric that advise can improve"),
        (JOB, AdviseOptions(query=Query.parse("cost")), "cost needs the price of the machine"),
    ],
)
def test_what_cannot_be_tried_is_refused(job: Job, wish: AdviseOptions, message: str) -> None:
    """With one message, before anything runs."""
    machine = Machine()
    with pytest.raises(RequestError, match=message):
        advised(machine, wish, job)
    assert machine.jobs == []


def test_the_cost_of_inferences_is_improved_and_told() -> None:
    """As a metric of its own it falls as the rate rises; with another one it is told beside it."""
    cheaper = AdviseOptions(query=Query.parse("cost"), max_time=1e4, price=Price(per_hour=3.6))
    for wish in (cheaper, replace(cheaper, query=RATE)):
        best = advised(Machine(gains={("compile", "default"): 1.25}), wish)[-1].best
        assert best is not None
        assert best.candidate.settings == {"compile": "default"}
        assert best.change is not None
        changes = (best.change, *best.beside)
        (cost,) = [change for change in changes if change.query.metric == "cost"]
        assert cost.difference == pytest.approx(1 / 1.25 - 1, abs=0.01)
        assert cost.baseline == pytest.approx(1.0, rel=0.01)
