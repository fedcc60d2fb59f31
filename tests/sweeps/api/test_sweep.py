"""``modeldyno.sweep``: the words of the command line as a function."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import modeldyno
from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.result.result import FailureKind
from modeldyno.sweeps import codec as codec_study
from modeldyno.sweeps import loop
from modeldyno.sweeps.study.study import Budget, TrialPurpose, TrialState
from modeldyno.sweeps.study.trial_effort import LONGEST
from modeldyno.testing.sample_studies import SimulatedTrials

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.result.result import Event

pytestmark = pytest.mark.usefixtures("brief_measurements")
DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
QUICK = modeldyno.Plan(max_time=0.3, min_time=0.02, min_runs=5, precision=0.5)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a separate store."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path / 'store.db'}")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> SimulatedTrials:
    """Replace the measurement of trials by a simulation."""
    made = SimulatedTrials(rate=lambda point: 100.0 * float(point.get("batch_size", 1)))
    monkeypatch.setattr(loop, "subprocess_executors", lambda _interrupted, _limit: nullcontext(made))
    return made


@pytest.mark.slow  # tests/sweeps/test_killed.py sweeps one in processes
def test_a_real_model_is_swept() -> None:
    """A sweep measures the default, what is asked for, and the best again, each in a process of its own."""
    pytest.importorskip("onnxruntime")
    study = modeldyno.sweep(
        DIGITS, space={"batch_size": (1, 64)}, max_trials=5, plan=QUICK, graph_optimization="basic"
    )

    assert {trial.stage for trial in study.trials} >= {TrialPurpose.DEFAULT, TrialPurpose.VERIFY}
    assert {trial.state for trial in study.trials} == {TrialState.DONE}
    assert study.model is not None
    assert modeldyno.sweeps.ranking(study).best is not None
    assert modeldyno.read(study.id[:6]) == study
    results = [modeldyno.read(trial.result, modeldyno.Result) for trial in study.trials]
    assert {result.job.config["graph_optimization"] for result in results} == {"basic"}
    assert len({result.id for result in results}) == len(study.trials)


def test_a_live_object_is_swept_here() -> None:
    """An object is measured inside this process, and says so."""
    study = modeldyno.sweep(
        lambda x: x * 2.0, example=np.ones((4, 8), np.float32), space={"batch_size": [1, 2]}, plan=QUICK,
        max_trials=2, store=False,
    )  # fmt: skip

    assert {trial.state for trial in study.trials} == {TrialState.DONE}
    assert all("not-isolated" in trial.doubts for trial in study.trials)
    with pytest.raises(
        RequestError, match="was of a live object, which is gone with its process or its call"
    ):
        modeldyno.sweep(resume=study, max_trials=4)


def test_a_study_of_a_live_object_names_no_command_that_needs_it(tmp_path: Path) -> None:
    """No other process has the object."""
    study = modeldyno.sweep(
        lambda x: x * 2.0, example=np.ones((4, 8)), space={"batch_size": [1, 2]}, plan=QUICK, max_trials=1
    )
    study.save(tmp_path / "page.html")
    text = " ".join(str(study).split())

    assert "sweep it again with more time, max_time=: a study of a live object cannot be continued" in text
    assert "--resume" not in text
    assert "modeldyno sweep" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def _module_and_loader() -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    samples = data.TensorDataset(torch.randn(8, 16), torch.zeros(8))
    return torch.nn.Linear(16, 4).eval(), data.DataLoader(samples, batch_size=4)


async def double(x: Any) -> Any:
    """Wait, and return a multiple."""
    await asyncio.sleep(0.001)
    return x * 2.0


LIVE_MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "module": _module_and_loader,
    "coroutine": lambda: (double, np.ones((4, 8), np.float32)),
}


@pytest.mark.parametrize("kind", LIVE_MODELS)
def test_modules_with_a_loader_and_coroutines_are_swept(kind: str) -> None:
    """The batches of a loader are split and repeated for other sizes, as an example is."""
    model, example = LIVE_MODELS[kind]()
    study = modeldyno.sweep(
        model, example=example, space={"batch_size": [1, 8]}, plan=QUICK, max_trials=2, store=False,
        progress=False,
    )  # fmt: skip

    assert {trial.state for trial in study.trials} == {TrialState.DONE}
    assert {trial.point["batch_size"] for trial in study.trials} == {1, 8}


@pytest.mark.parametrize("verb", ["profile", "sweep", "advise", "explain", "inspect", "compare"])
def test_a_pair_of_a_model_and_its_inputs_is_answered_by_how_to_give_it(verb: str) -> None:
    pair = (double, np.ones(3))
    with pytest.raises(
        RequestError, match="begins with a function; give the model alone, and its inputs as ex"
    ):
        getattr(modeldyno, verb)(pair, *([pair] if verb == "compare" else []))


def test_spaces_in_all_their_forms(bench: SimulatedTrials) -> None:
    """Axes are given by name, with tuples, ranges and text, or as on the command line."""
    forms: tuple[Any, ...] = (
        {"batch_size": (1, 2, 4), "threads": "1..2"},
        {"batch_size": [1, 2, 4], "threads": range(1, 3)},
        ["batch_size=1..4*2", "threads=1,2"],
    )
    spaces = [modeldyno.sweep(DIGITS, space=space, max_trials=1, store=False).space for space in forms]

    assert spaces[0] == spaces[1] == spaces[2]
    assert spaces[0].size == 6
    assert len(bench.jobs) == 3


def test_a_plan_is_that_of_verification(bench: SimulatedTrials) -> None:
    """Verification uses the Plan, including its percentiles; search trials are shorter."""
    plan = modeldyno.Plan(max_time=12.0, percentiles=("p99",), min_runs=7)
    modeldyno.sweep(DIGITS, space="batch_size=1,2", plan=plan, require="latency.p90 <= 1s", store=False)
    plans = {fresh: job.plan for fresh, job in bench.jobs}

    assert plans[False].max_time == LONGEST
    assert 3.0 <= plans[True].max_time <= 12.0
    assert {*plans[True].percentiles} == {"p90", "p99"}
    assert (plans[False].min_runs, plans[True].min_runs) == (30, 7)


def test_a_study_is_resumed_with_another_budget(bench: SimulatedTrials) -> None:
    """A study is resumed from the store or from a Study, and nothing is measured twice."""
    begun = modeldyno.sweep(DIGITS, space="batch_size=1,2,4", max_trials=2)
    assert modeldyno.read("digits") == begun
    further = modeldyno.sweep(resume=begun.id[:8], max_trials=4)
    ended = modeldyno.sweep(resume=further, max_trials=6)

    assert further.trials[:2] == begun.trials
    assert ended.trials[:4] == further.trials
    assert ended.budget == Budget(max_trials=6)
    assert len(bench.jobs) == len(ended.trials) <= 6
    assert modeldyno.read(begun.id) == ended


def test_a_study_is_resumed_with_another_goal(bench: SimulatedTrials) -> None:
    """It goes on as a new study that has all trials of the first, which stays as it is."""
    begun = modeldyno.sweep(DIGITS, space="batch_size=1,2,4", max_trials=2)
    further = modeldyno.sweep(resume=begun, minimize="latency.p50", max_trials=4)

    assert further.id != begun.id
    assert [trial.point for trial in further.trials[:2]] == [trial.point for trial in begun.trials]
    assert str(further.goal.objectives[0].query) == "latency.p50"
    assert len(bench.jobs) == len(further.trials)
    assert modeldyno.read(begun.id) == begun


def test_a_study_is_ranked_by_another_goal_without_measuring(bench: SimulatedTrials) -> None:
    """What is not named stays as it was; the stored study keeps its goal."""
    study = modeldyno.sweep(DIGITS, space="batch_size=1,2,4", max_trials=3, require="throughput >= 1/s")
    measured = len(bench.jobs)
    ranked = modeldyno.sweeps.rerank(study.id[:8], minimize="latency.p50")

    assert len(bench.jobs) == measured
    assert [str(aim.query) for aim in ranked.goal.objectives] == ["latency.p50"]
    assert ranked.goal.constraints == study.goal.constraints
    assert modeldyno.read(study.id) == study
    assert modeldyno.sweeps.rerank(study) == study
    with pytest.raises(RequestError, match="no metric 'speed'"):
        modeldyno.sweeps.rerank(study, maximize="speed")


def test_a_dry_run_measures_and_stores_nothing(bench: SimulatedTrials) -> None:
    """It returns the study without trials, and refuses what the sweep would refuse."""
    study = modeldyno.sweep(DIGITS, space="batch_size=1,2,4", dry_run=True)

    assert study.space.size == 3
    assert (study.trials, bench.jobs) == ((), [])
    assert modeldyno.store.list() == ()


def test_configurations_without_files_are_not_exported(bench: SimulatedTrials, tmp_path: Path) -> None:
    """A backend within a process has none, and a directory that is not empty is refused."""
    study = modeldyno.sweep(DIGITS, space="batch_size=1,2", max_trials=1)

    assert len(bench.jobs) == 1
    with pytest.raises(RequestError, match="There are no files to export"):
        modeldyno.sweeps.export_configs(study, tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(RequestError, match="is not empty"):
        modeldyno.sweeps.export_configs(study, tmp_path / "full")


def test_a_study_is_read_from_a_file(bench: SimulatedTrials, tmp_path: Path) -> None:
    """A file that holds a study is read like one from the store."""
    study = modeldyno.sweep(DIGITS, space="batch_size=1,2", max_trials=1, store=False)
    (tmp_path / "study.json").write_bytes(codec_study.encode(study))

    assert modeldyno.read(tmp_path / "study.json") == study
    assert repr(study) == f"<Study {study.id} of digits: 1 trial of 1 point>"
    assert len(bench.jobs) == 1


def test_an_interruption_gives_the_study_so_far(bench: SimulatedTrials) -> None:
    """After Ctrl-C, the returned and the stored study have all finished trials."""
    import signal

    def watch(_event: Event) -> None:
        if len(bench.jobs) == 2:
            signal.raise_signal(signal.SIGINT)
            bench.jobs.append(bench.jobs[-1])

    study = modeldyno.sweep(DIGITS, space="batch_size=1,2,4", watch=watch)

    assert len(study.trials) == 2
    assert modeldyno.read(study.id) == study


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "A sweep needs a model"),
        ({"model": DIGITS, "space": "batch_size"}, "space takes knob=values"),
        ({"model": DIGITS, "space": ["batch_size=1", "batch_size=2"]}, "gives batch_size twice"),
        ({"model": DIGITS, "space": "batch_size=0,1"}, "takes a whole number from 1"),
        ({"model": DIGITS, "space": "batch_size=1,2", "maximize": "speed"}, "no metric 'speed'"),
        ({"model": DIGITS, "space": "batch_size=1,2", "max_runs": 5}, "max_runs is part of the plan"),
        (
            {"model": DIGITS, "space": "batch_size=1,2", "plan": modeldyno.Plan(processes=3)},
            "leave out processes",
        ),
        ({"model": DIGITS, "resume": "abc"}, "cannot change model"),
        ({"resume": "abc", "dry_run": True}, "give one of resume and dry_run"),
        ({"resume": "abc", "backend": "torch"}, "A resumed study cannot change backend"),
        ({"resume": "abc", "maximize": "throughput"}, "no study whose id begins with 'abc'"),
        ({"resume": "abc"}, "no study whose id begins with 'abc'"),
    ],
)
def test_what_is_wrong_is_told_in_the_words_of_python(options: dict[str, Any], message: str) -> None:
    """A request that cannot be carried out is refused in one sentence before anything is measured."""
    with pytest.raises(RequestError, match=message) as caught:
        modeldyno.sweep(**options)

    assert "--" not in str(caught.value)


def test_a_sweep_without_hope_raises(bench: SimulatedTrials) -> None:
    """If no trial runs, the cause is raised; the trials are stored."""
    bench.fails = lambda _point: FailureKind.CRASH
    with pytest.raises(RunFailed, match="The first 2 trials failed, in load: it took too much"):
        modeldyno.sweep(DIGITS, space="batch_size=1,2", name="hopeless")

    assert len(modeldyno.read("hopeless", modeldyno.Study).trials) == 2
