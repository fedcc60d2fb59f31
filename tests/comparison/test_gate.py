"""The measuring gate, on an executor that simulates run times."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base import codec, plugins
from modeldyno.base.errors import OutOfTime, RequestError, RunFailed, UndecidedWarning
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelIdentity, ModelRef
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.result.result import Environment, Result, merge
from modeldyno.base.stats.schedule import PLAN
from modeldyno.comparison.baseline import find_baseline, is_checkout, locate_in_checkout, measure_checkout
from modeldyno.comparison.change.build import CompareOptions
from modeldyno.comparison.change.gate_rule import GateRule
from modeldyno.comparison.gate import check_stored, rerunnable_baseline, run_gate
from modeldyno.comparison.views.gate import sentence
from modeldyno.compat import detect_regressions
from modeldyno.engine.runtime.events import INTERRUPTED
from modeldyno.engine.runtime.session import RunSession
from modeldyno.testing.sample_results import a_failed_result, a_job, a_small_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event

OLD, NEW = a_job("old"), a_job("new")
HARDWARE = Environment(hardware={"cpu": "a test processor"}, software={"python": "3.11"})


def a_run(job: Job, median: float, **changes: object) -> Result:
    """Return the Result of one process."""
    name = job.model.locator.rpartition("/")[2].removesuffix(".onnx")
    samples = median * (1 + np.random.default_rng(7).permutation(np.linspace(-0.01, 0.01, 41)))
    result = a_small_result(
        job=replace(job, plan=replace(job.plan, processes=1)),
        model=ModelIdentity(name=name, digest=f"sha256:{name}", framework="onnx"),
        environment=HARDWARE,
        measurements=(Measurement(metric="latency", value=Distribution.of(samples)),),
    )
    return replace(result, **changes)  # type: ignore[arg-type]


def stored(job: Job = OLD, median: float = 1.0, processes: int = 5) -> Result:
    """Return a stored baseline."""
    return merge([a_run(job, median * (1 + 0.004 * (n % 3 - 1))) for n in range(processes)])


class Machine:
    """Simulates Jobs: each takes a given time, with a little noise."""

    def __init__(self, **medians: float) -> None:
        self.medians = medians
        self.ran: list[str] = []
        self.spread = count()

    def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
        """Run a Job."""
        del watch
        name = job.model.locator.rpartition("/")[2].removesuffix(".onnx")
        self.ran.append(name)
        return a_run(job, self.medians[name] * (1 + 0.004 * (next(self.spread) % 5 - 2)))


def test_what_is_as_before_is_let_through_in_turns() -> None:
    """Baseline and candidate alternate; the Results are pooled over the rounds."""
    machine = Machine(old=1.0, new=1.0)
    report = run_gate(stored(), NEW, CompareOptions(), GateRule(), RunSession(execute=machine))
    assert report.verdict is Verdict.HELD
    assert machine.ran == ["old", "new", "new", "old", "old", "new", "new", "old", "old", "new"]
    assert report.result.processes == 5
    assert "run again in turns: 5 rounds" in report.notes[0]


def test_a_slowdown_fails_after_a_second_run() -> None:
    """Ten rounds: five to detect it, and five to confirm it."""
    machine = Machine(old=1.0, new=1.1)
    report = run_gate(stored(), NEW, CompareOptions(), GateRule(), RunSession(execute=machine))
    assert report.verdict is Verdict.BROKEN
    assert len(machine.ran) == 20
    assert [check.name for check in report.of(Verdict.BROKEN)] == ["latency.p50"]


def test_a_slow_machine_is_not_the_models_fault() -> None:
    """The stored figures are not used if the baseline can be run again."""
    report = run_gate(
        stored(median=0.5), NEW, CompareOptions(), GateRule(), RunSession(execute=Machine(old=1.0, new=1.0))
    )
    assert report.verdict is Verdict.HELD


def test_the_same_job_is_not_its_own_baseline() -> None:
    """If only the file's content has changed, the candidate is run alone, and a note says so."""
    assert rerunnable_baseline(stored(NEW), NEW) is None
    machine = Machine(new=1.0)
    report = run_gate(stored(NEW), NEW, CompareOptions(), GateRule(), RunSession(execute=machine))
    assert report.verdict is Verdict.HELD
    assert set(machine.ran) == {"new"}
    assert "not run again, because the same command now runs the candidate" in report.notes[0]
    assert "not-in-turns" in {doubt.code for doubt in report.doubts}


def test_a_candidate_that_is_run_alone_is_measured_as_long_as_its_baseline() -> None:
    """Unless its length is asked for; so its extremes can be compared with those of the baseline."""
    plans = []

    def execute(job: Job, *, watch: Callable[[Event], None]) -> Result:
        plans.append(job.plan)
        return Machine(new=1.0)(job, watch=watch)

    long = replace(NEW, plan=replace(NEW.plan, max_time=12.0, min_time=2.0))
    for as_long in (True, False):
        run_gate(
            stored(long), NEW, CompareOptions(), GateRule(), RunSession(execute=execute), as_long=as_long
        )
        assert {plan.max_time for plan in plans} == {12.0 if as_long else NEW.plan.max_time}
        plans.clear()


def test_other_probes_do_not_make_it_another_model() -> None:
    """The baseline's job, with the probes and the length of the candidate, would run the candidate."""
    other = replace(NEW, probes=("latency", "layers"), plan=replace(NEW.plan, max_time=1.0), name="x")
    assert rerunnable_baseline(stored(NEW), other) is None
    rival = rerunnable_baseline(stored(OLD), other)
    assert rival is not None
    assert (rival.model, rival.probes, rival.plan.max_time) == (OLD.model, other.probes, 1.0)


def with_memory(result: Result, size: float) -> Result:
    """Add the memory of each process to a Result."""
    one_run = Distribution.of(np.array([0.0, size]))
    sizes = Distribution(runs=one_run.runs * result.processes)
    memory = Measurement(metric="process_memory", value=sizes)
    return replace(result, measurements=(*result.measurements, memory))


def test_memory_that_was_measured_differently_is_named_and_not_compared() -> None:
    """A process in which other probes ran holds other memory; that fails no gate, stored or measured."""
    before = with_memory(stored(replace(NEW, probes=("latency",))), 8 * 2**20)
    after = replace(NEW, probes=("latency", "throughput"))

    def execute(job: Job, *, watch: Callable[[Event], None]) -> Result:
        return with_memory(Machine(new=1.0)(job, watch=watch), 12 * 2**20)

    measured = run_gate(before, after, CompareOptions(), GateRule(), RunSession(execute=execute))
    judged = check_stored(before, with_memory(stored(after), 12 * 2**20), CompareOptions())
    for report in (measured, judged):
        assert report.verdict is Verdict.HELD
        assert [check.name for check in report.checks] == ["latency.p50"]
        assert "not compared: process_memory.max, measured differently" in report.doubts[0].seen

    only = CompareOptions(metrics=("process_memory.max",))
    undecided = run_gate(before, after, only, GateRule(), RunSession(execute=execute))
    assert undecided.verdict is Verdict.UNDECIDED
    assert "nothing was measured in the same way" in sentence(undecided)


@pytest.mark.parametrize("cost", [1.0, 5.0, 9.0])
def test_time_is_kept_to_confirm_a_regression(cost: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slowdown of 30 % fails within a minute, however many rounds fit into it."""
    clock = count_seconds(monkeypatch)

    def execute(job: Job, *, watch: Callable[[Event], None]) -> Result:
        clock.append(cost / 2)
        return Machine(old=1.0, new=1.3)(job, watch=watch)

    report = run_gate(stored(), NEW, CompareOptions(), GateRule(), RunSession(execute=execute), max_time=60.0)
    assert report.verdict is Verdict.BROKEN
    assert sum(clock) <= 60.0


def test_a_short_gate_measures_less_of_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a look and its confirmation fit, whatever the plan allows."""
    clock, plans = count_seconds(monkeypatch), []

    def execute(job: Job, *, watch: Callable[[Event], None]) -> Result:
        plans.append(job.plan)
        clock.append(len(job.probes) * job.plan.max_time)
        return Machine(old=1.0, new=1.3)(job, watch=watch)

    report = run_gate(stored(), NEW, CompareOptions(), GateRule(), RunSession(execute=execute), max_time=60.0)
    assert report.verdict is Verdict.BROKEN
    assert len({plan.max_time for plan in plans}) == 1
    assert sum(clock) <= 60.0


def test_three_minutes_are_enough_rounds_on_a_machine_that_is_not_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where each process needs all of its time and a second more, an open verdict has 16 rounds."""
    clock = count_seconds(monkeypatch)
    source = np.random.default_rng(5)

    def execute(job: Job, *, watch: Callable[[Event], None]) -> Result:
        del watch
        clock.append(1.0 + len(job.probes) * job.plan.max_time)
        return a_run(job, float(np.exp(0.3 * source.standard_normal())))

    job = replace(NEW, probes=("latency", "throughput"), plan=PLAN)
    report = run_gate(
        stored(), job, CompareOptions(), GateRule(), RunSession(execute=execute), max_time=180.0
    )
    assert report.verdict is Verdict.UNDECIDED
    assert report.result.processes >= GateRule().enough
    assert sum(clock) <= 180.0


@pytest.mark.parametrize(
    ("slowdown", "allowed"),
    [(0.05, {Verdict.UNDECIDED}), (0.1, {Verdict.UNDECIDED, Verdict.BROKEN}), (0.2, {Verdict.BROKEN})],
)
@pytest.mark.parametrize("door", ["tag", "file", "id"])
def test_an_edited_file_never_passes_against_a_stored_baseline_if_it_is_slower(
    door: str, slowdown: float, allowed: set[Verdict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone it fails beyond what a machine varies by; below, it is undecided, measured or judged."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    before, path = stored(NEW), tmp_path / "baseline.json"
    codec.write(path, codec.encode(before))
    with plugins.store() as store:
        store.put(before, headline="")
        store.tag(before.id, add=["@main"])
    baseline = find_baseline({"tag": "@main", "file": str(path), "id": before.id}[door], "new")
    machine = Machine(new=1.0 + slowdown)
    edited = replace(stored(NEW, 1.0 + slowdown), id="edited")
    measured = run_gate(baseline, NEW, CompareOptions(), GateRule(), RunSession(execute=machine))
    assert {measured.verdict, check_stored(baseline, edited, CompareOptions()).verdict} <= allowed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndecidedWarning)
        assert detect_regressions(baseline, edited).verdict in allowed


def count_seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let the clock of the gate be the sum of a list."""
    spent: list[float] = []
    monkeypatch.setattr("modeldyno.comparison.gate.monotonic", lambda: sum(spent))
    return spent


def test_another_checkout_is_found_by_the_path_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file there; a name of a module is none, and a file that is missing is said."""
    for folder in ("mine/src", "base/src"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "net.py").touch()
    (tmp_path / "mine" / "new.py").touch()
    monkeypatch.chdir(tmp_path / "mine")
    base = tmp_path / "base"
    assert locate_in_checkout(base, "src/net.py:forward") == f"{base}/src/net.py:forward"
    assert locate_in_checkout(base, str(Path("src/net.py").resolve())) == f"{base}/src/net.py"
    with pytest.raises(RequestError, match="names no file"):
        locate_in_checkout(base, "package.module:forward")
    with pytest.raises(RequestError, match=r"has no new\.py"):
        locate_in_checkout(base, "new.py:forward")
    with pytest.raises(RequestError, match=r"has no \.\./base"):
        locate_in_checkout(base, "../base/src/net.py")
    assert [is_checkout(word) for word in ("../base", base, "base", "@main", 1)] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_another_checkout_is_measured_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first, short run tells what it is; what is judged is run in turns with the candidate."""
    (tmp_path / "old.onnx").touch()
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "old.onnx").touch()
    monkeypatch.chdir(tmp_path)
    job = replace(OLD, model=replace(OLD.model, locator="old.onnx"))
    machine = Machine(old=1.0)
    session = RunSession(execute=machine)
    baseline = measure_checkout("./base", job, session)
    report = run_gate(baseline, job, CompareOptions(), GateRule(), session)
    assert (baseline.processes, baseline.job.plan.max_time) == (1, 1.0)
    assert report.verdict is Verdict.HELD
    assert "run again in turns" in report.notes[0]

    def fail(job: Job, *, watch: Callable[[Event], None]) -> Result:
        del job, watch
        return a_failed_result()

    with pytest.raises(RunFailed, match=r"The baseline in \./base failed in load"):
        measure_checkout("./base", job, RunSession(execute=fail))


@pytest.mark.parametrize(("factor", "verdict"), [(1.06, Verdict.UNDECIDED), (1.3, Verdict.BROKEN)])
def test_alone_only_what_exceeds_the_machine_fails(factor: float, verdict: Verdict) -> None:
    """Variation between occasions on the machine is no regression of the model."""
    report = run_gate(stored(NEW), NEW, CompareOptions(), GateRule(), RunSession(execute=Machine(new=factor)))
    assert report.verdict is verdict


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"model": ModelIdentity(name="old", digest="sha256:other", framework="onnx")},
            "model has changed",
        ),
        (
            {"environment": replace(HARDWARE, software={"python": "3.12"})},
            "software has changed",
        ),
        ({"failures": a_failed_result().failures}, "its model failed in load"),
    ],
)
def test_what_is_no_longer_the_baseline_is_not_run_as_it(change: dict[str, object], why: str) -> None:
    """The stored baseline is used, and the note says why."""

    class Changed(Machine):
        def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
            result = super().__call__(job, watch=watch)
            return replace(result, **change) if result.name == "old" else result  # type: ignore[arg-type]

    machine = Changed(old=1.0, new=1.0)
    report = run_gate(stored(), NEW, CompareOptions(), GateRule(), RunSession(execute=machine))
    assert machine.ran.count("old") == 1
    assert why in report.notes[0]


def test_a_baseline_whose_job_is_refused_is_taken_as_it_is() -> None:
    """Such as a model whose file is gone."""

    class Gone(Machine):
        def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
            if "old" in job.model.locator:
                raise RequestError("There is no file models/old.onnx.")
            return super().__call__(job, watch=watch)

    report = run_gate(stored(), NEW, CompareOptions(), GateRule(), RunSession(execute=Gone(new=1.0)))
    assert report.verdict is Verdict.HELD
    assert "because there is no file models/old.onnx: 8 processes" in report.notes[0]


def test_a_candidate_that_fails_or_is_refused_ends_the_gate() -> None:
    """A failure is a check; a wrong request is an error."""

    class Fails(Machine):
        def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
            result = super().__call__(job, watch=watch)
            return replace(result, failures=a_failed_result().failures) if result.name == "new" else result

    report = run_gate(
        stored(), NEW, CompareOptions(), GateRule(), RunSession(execute=Fails(old=1.0, new=1.0))
    )
    assert report.verdict is Verdict.BROKEN
    assert report.checks[0].kind == "failure"

    def refuse(job: Job, *, watch: Callable[[Event], None]) -> Result:
        del job, watch
        raise RequestError("No such knob.")

    with pytest.raises(RequestError, match="No such knob"):
        run_gate(stored(NEW), NEW, CompareOptions(), GateRule(), RunSession(execute=refuse))


def test_time_and_interruptions_end_the_rounds() -> None:
    """Completed rounds are judged; a single round decides nothing here."""
    machine = Machine(old=1.0, new=1.0)
    report = run_gate(stored(), NEW, CompareOptions(), GateRule(), RunSession(execute=machine), max_time=0.0)
    assert (report.verdict, len(machine.ran)) == (Verdict.UNDECIDED, 2)

    def interrupted(job: Job, *, watch: Callable[[Event], None]) -> Result:
        del watch
        return replace(a_run(job, 1.0), doubts=(INTERRUPTED,))

    with pytest.raises(RequestError, match="Nothing was measured"):
        run_gate(stored(), NEW, CompareOptions(), GateRule(), RunSession(execute=interrupted))


def test_a_round_that_the_budget_cuts_off_is_no_round() -> None:
    """The rounds before it are judged; without one there is nothing to judge."""
    machine = Machine(old=1.0, new=1.0)

    def cut_off_after(runs: int) -> RunSession:
        def execute(job: Job, *, watch: Callable[[Event], None]) -> Result:
            if len(machine.ran) >= runs:
                raise OutOfTime("Nothing could be measured.")
            return machine(job, watch=watch)

        return RunSession(execute=execute)

    report = run_gate(stored(), NEW, CompareOptions(), GateRule(), cut_off_after(5))
    assert report.verdict is Verdict.UNDECIDED
    assert report.result.processes == 2
    with pytest.raises(OutOfTime):
        run_gate(stored(), NEW, CompareOptions(), GateRule(), cut_off_after(0))


@pytest.mark.parametrize(("after", "rounds"), [(3, 1), (4, 2), (6, 3), (7, 3), (8, 4), (11, 5)])
def test_a_round_that_was_cut_short_is_no_round(after: int, rounds: int) -> None:
    """Only complete rounds count, in pairs, whichever side ran; the headline says so."""
    machine = Machine(old=1.0, new=1.3)
    bench = RunSession(execute=machine, interrupted=lambda: int(len(machine.ran) >= after))

    report = run_gate(stored(median=2.0), NEW, CompareOptions(), GateRule(), bench)

    assert report.result.processes == report.baseline.processes == rounds  # type: ignore[union-attr]
    assert "run again in turns" in report.notes[0]
    assert report.verdict is Verdict.UNDECIDED
    assert sentence(report).startswith(f"Interrupted after {rounds} round")


@pytest.mark.parametrize(("metric", "message"), [("foo", "foo"), ("cpu_utilization", "no better direction")])
def test_what_cannot_be_judged_is_refused_before_anything_is_run(metric: str, message: str) -> None:
    """An unknown metric, and one without a better direction."""
    machine = Machine(old=1.0, new=1.0)
    with pytest.raises(RequestError, match=message):
        run_gate(stored(), NEW, CompareOptions(metrics=(metric,)), GateRule(), RunSession(execute=machine))
    assert machine.ran == []


def test_unlike_hardware_is_refused_unless_forced() -> None:
    """It is refused after one round; a baseline that is run again here has the same hardware."""
    other = replace(stored(), environment=replace(HARDWARE, hardware={"cpu": "another"}))
    with pytest.raises(RequestError, match="unlike hardware"):
        check_stored(other, stored(NEW), CompareOptions())
    machine = Machine(new=1.0, old=1.0)
    with pytest.raises(RequestError, match="unlike hardware"):
        run_gate(replace(other, job=NEW), NEW, CompareOptions(), GateRule(), RunSession(execute=machine))
    assert machine.ran == ["new"]
    assert (
        run_gate(other, NEW, CompareOptions(), GateRule(), RunSession(execute=machine)).verdict
        is Verdict.HELD
    )
    assert check_stored(other, stored(NEW), CompareOptions(force=True)).verdict is Verdict.HELD


def test_other_work_is_refused_unless_forced() -> None:
    """A call of 32 samples is no slower version of a call of one; the message names both shapes."""
    fed, wider = ((InputSpec(name="x", shape=(n, 4), dtype="float32"),) for n in (1, 32))
    one = replace(stored(), inputs=fed)
    other = replace(stored(NEW), inputs=wider)
    with pytest.raises(RequestError, match=r"had different inputs \(1x4 and 32x4\)"):
        check_stored(one, other, CompareOptions())
    assert check_stored(one, other, CompareOptions(force=True)).verdict is Verdict.HELD
    assert check_stored(one, replace(other, inputs=fed), CompareOptions()).verdict is Verdict.HELD
    machine = Machine(new=1.0, old=1.0)
    with pytest.raises(RequestError, match="had different inputs"):
        run_gate(
            one,
            NEW,
            CompareOptions(),
            GateRule(),
            RunSession(
                execute=lambda job, *, watch: replace(
                    machine(job, watch=watch), inputs=wider if job == replace(NEW, plan=job.plan) else fed
                )
            ),
        )
    assert len(machine.ran) == 2


def test_stored_results_are_judged_without_measuring() -> None:
    """Twice as slow is broken, a little slower is undecided, the same is held."""
    verdicts = [check_stored(stored(), stored(NEW, m), CompareOptions()).verdict for m in (2.0, 1.05, 1.0)]
    assert verdicts == [Verdict.BROKEN, Verdict.UNDECIDED, Verdict.HELD]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with baselines of two models for a branch."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    with plugins.store() as opened:
        for number, job in enumerate((OLD, NEW, NEW)):
            result = replace(
                stored(job), id=f"{number}" * 12, created=f"2026-01-0{number + 1}T00:00:00+00:00"
            )
            opened.put(result, headline="")
            opened.tag(result.id, add=["@main", *(["@dev"] if number == 0 else [])])


@pytest.mark.parametrize("word", ["nets.py:make", "onnx:absent.onnx"])
def test_a_model_is_not_taken_for_a_result(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says how to measure it."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")

    with pytest.raises(RequestError, match=rf"'{word}' is a model, .*modeldyno profile {word} --json"):
        find_baseline(word)


@pytest.mark.usefixtures("store")
def test_a_branch_names_the_newest_baseline_of_the_model() -> None:
    """Among several models the name decides; a single one is used whatever its name."""
    assert find_baseline("@main", "new").id == "2" * 12
    assert find_baseline("@main", "old").id == "0" * 12
    assert find_baseline("@dev", "whatever").id == "0" * 12
    assert find_baseline("000000").id == "0" * 12
    with pytest.raises(RequestError, match="baselines of new, old, but none of other"):
        find_baseline("@main", "other")
    with pytest.raises(RequestError, match=r"no baseline @gone; save one with .*--save-as-baseline gone"):
        find_baseline("@gone", "new")


def test_a_reference_may_hold_a_colon() -> None:
    """Code models are the same job if only their names differ."""
    job = replace(NEW, model=ModelRef(scheme="torch", locator="nets.py:make"))
    assert rerunnable_baseline(stored(job), replace(job, name="other")) is None
    assert rerunnable_baseline(stored(job), NEW) is not None
