"""Explaining a comparison: agreement of outputs, and causes of a change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support.fake_clock import replace_monotonic
from tests.support.fake_comparisons import SimulatedRuns, a_side

from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.result.result import Artifact, Progressed
from modeldyno.base.result.trace_data import Layer, TraceReport
from modeldyno.base.stats.schedule import RoundSchedule
from modeldyno.comparison.change.build import CompareOptions
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.explain import run_comparison
from modeldyno.engine.data import outputs
from modeldyno.engine.runtime.session import RunSession

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy import ndarray

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event, Result
    from modeldyno.comparison.change.comparison import Comparison

GIVEN = np.ones((8, 4), np.float32)


class Looked(SimulatedRuns):
    """Simulates Jobs; writes inputs and outputs if they are requested."""

    def __init__(
        self, returned: dict[str, Any], inputs: dict[str, ndarray] | None = None, *, bears: str = ""
    ) -> None:
        super().__init__()
        self.returned, self.inputs, self.bears = returned, inputs or {}, bears.split()

    def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
        """Return the Result of a run, timed or watched."""
        result = super().__call__(job, watch=watch)
        if job.observation.outputs is None:
            return result
        if not {*self.bears, "static", "outputs"} >= set(job.probes):
            raise RequestError("The backend gives none.")
        name = job.name or ""
        fed = {"x": np.load(job.inputs[0].source)} if job.inputs and job.inputs[0].source else None
        returned = self.returned[name]
        with Path(job.observation.outputs).open("wb") as file:
            arrays = outputs.named_arrays(fed or {"x": self.inputs.get(name, GIVEN)}, {"y": returned})
            np.savez(file, **arrays)  # type: ignore[arg-type]
        artifact = Artifact(name="outputs", path=job.observation.outputs, digest="")
        own = Measurement(
            metric="self_time",
            value=Distribution.of([float(job.config["microseconds"]) * 1e-6] * 3),
            scope="fc",
        )
        layers = TraceReport(layers=(Layer(path="", kind="Net"), Layer(path="fc", kind="Linear")))
        if "layers" not in job.probes:
            return replace(result, artifacts=(artifact,))
        return replace(
            result, artifacts=(artifact,), activity=layers, measurements=(*result.measurements, own)
        )


def run(track: SimulatedRuns, *jobs: Job, why: bool = True) -> Comparison:
    """Compare two sides in one round."""
    compared = run_comparison(
        [replace(job, inputs=()) for job in jobs],
        RoundSchedule(side_count=len(jobs), first=5, most=5),
        CompareOptions(metrics=("latency",), why=why),
        RunSession(execute=track),
    )
    assert compared is not None
    return compared


SLOWER = (a_side("a"), a_side("b", 1.2e-3))
EQUAL = {"a": GIVEN, "b": GIVEN}


def test_what_moved_is_explained_by_layers() -> None:
    """Each side is run once more, with the probes that its backend supports."""
    track = Looked(EQUAL, bears="layers ops")

    compared = run(track, *SLOWER)

    (cause,) = compared.contrasts[0].causes
    assert (cause.by, [part.scope for part in cause.parts]) == ("layers", ["fc"])
    assert cause.total == pytest.approx(2e-4, rel=0.02)
    assert [job.name for job in track.jobs[10:]] == ["a", "a", "b", "b", "a"]
    assert "layers" in track.jobs[-1].probes
    assert compared.contrasts[0].candidate.artifacts == ()
    assert compared.contrasts[0].outcome is ChangeVerdict.WORSE


def test_equal_outputs_are_told_to_agree() -> None:
    """Outputs that are bitwise equal agree."""
    (agreement,) = run(Looked(EQUAL), *SLOWER).contrasts[0].outputs

    assert (agreement.output, agreement.largest) == ("y", 0.0)
    assert agreement.cosine == pytest.approx(1.0)


def test_what_did_not_move_is_not_watched() -> None:
    """Outputs are compared anyway."""
    track = Looked(EQUAL, bears="layers ops memory")

    compared = run(track, a_side("a"), a_side("b"))

    assert track.jobs[-1].probes == ("outputs",)
    assert compared.contrasts[0].outputs
    assert compared.contrasts[0].causes == ()


def test_outputs_that_differ_much_are_doubted() -> None:
    """The doubt has the largest difference and the cosine."""
    compared = run(Looked({"a": GIVEN, "b": -GIVEN}), *SLOWER).contrasts[0]

    assert compared.outputs[0].cosine == pytest.approx(-1.0)
    assert [doubt.code for doubt in compared.doubts] == ["unlike-outputs"]
    assert "differs by 2 of the largest value (cosine -1.0000)" in compared.doubts[0].seen


def test_outputs_of_another_shape_are_doubted() -> None:
    """The doubt says that they cannot be compared."""
    compared = run(Looked({"a": GIVEN, "b": GIVEN[:4]}), *SLOWER).contrasts[0]

    assert compared.outputs == ()
    assert "'y' is 8 x 4 in one, and 4 x 4 in the other" in compared.doubts[0].seen


def test_a_candidate_is_fed_what_the_baseline_was() -> None:
    """If its own inputs have other values, such as those of an example, it is called once more."""
    track = Looked(EQUAL, {"b": 2 * GIVEN})

    compared = run(track, *SLOWER).contrasts[0]

    assert compared.outputs
    assert compared.doubts == ()
    assert track.jobs[-1].config["batch_size"] == 8
    assert track.jobs[-1].inputs[0].name == "x"


def test_the_function_before_a_model_makes_its_inputs_in_the_second_run_too() -> None:
    """A candidate that is called once more with the inputs of the baseline itself has none."""
    track = Looked(EQUAL, {"b": 2 * GIVEN})
    before = ProbeOptions(preprocess="stages.py:clean")

    compared = run(track, *(replace(side, observation=before) for side in SLOWER)).contrasts[0]

    assert compared.outputs
    *watched, last = track.jobs[10:]
    assert {job.observation.preprocess for job in watched} == {"stages.py:clean"}
    assert last.observation.preprocess is None


@pytest.mark.parametrize("array", [np.ones((4, 4), np.float32), np.full((8, 4), 2.0)])
def test_what_takes_other_inputs_is_not_held_against_the_baseline(array: ndarray) -> None:
    """Its outputs belong to other inputs."""
    compared = run(Looked(EQUAL, {"b": array}), *SLOWER).contrasts[0]

    assert compared.outputs == ()
    assert "their inputs differ in number, shape or dtype" in compared.doubts[0].seen


def test_a_backend_that_cannot_be_watched_is_left_alone() -> None:
    """The verdict stays; nothing is added."""

    def unwatched(job: Job, *, watch: Callable[[Event], None]) -> Result:
        if job.observation.outputs is not None:
            raise RequestError("The backend gives none.")
        return SimulatedRuns()(job, watch=watch)

    compared = run(unwatched, *SLOWER)  # type: ignore[arg-type]

    assert compared.contrasts[0].outputs == ()
    assert compared.contrasts[0].outcome is ChangeVerdict.WORSE


@pytest.mark.parametrize(
    "job",
    [
        replace(a_side("b"), backend="triton", load=Load()),
        replace(a_side("b"), inspection=StaticOptions(mode=Mode.TRAIN)),
    ],
)
def test_servers_and_training_are_not_looked_at(job: Job) -> None:
    """Their calls have no outputs and layers to watch."""
    track = Looked(EQUAL)

    run(track, a_side("a"), job)

    assert len(track.jobs) == 10


def test_nobody_asks_why() -> None:
    """Nothing more is run."""
    track = Looked(EQUAL)

    assert run(track, *SLOWER, why=False).contrasts[0].outputs == ()
    assert len(track.jobs) == 10


def test_what_was_interrupted_is_not_looked_at() -> None:
    """There is no comparison if nothing was finished."""
    count: list[Job] = []

    bench = RunSession(execute=SimulatedRuns(hook=count.append), interrupted=lambda: len(count))
    compared = run_comparison(SLOWER, RoundSchedule(side_count=2), CompareOptions(), bench)

    assert compared is None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the clock by one that only the test advances."""
    now = [0.0]
    replace_monotonic(monkeypatch, lambda: now[0])
    return now


class Slow(Looked):
    """Each run takes ten seconds, and each watched run forty."""

    def __init__(self, now: list[float]) -> None:
        super().__init__(EQUAL, bears="layers ops memory")
        self.now = now

    def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
        """Advance the clock by the time of a run."""
        self.now[0] += 40.0 if "memory" in job.probes else 30.0 if "layers" in job.probes else 10.0
        return super().__call__(job, watch=watch)


@pytest.mark.parametrize(
    ("limit", "check_count", "unexplained"),
    [
        (400.0, 4, False),
        (250.0, 2, False),
        (175.0, 2, False),
        (150.0, 2, True),
        (80.0, 2, True),
        (60.0, 0, True),
    ],
)
def test_the_time_is_for_all_that_is_done(
    clock: list[float], limit: float, check_count: int, unexplained: bool
) -> None:
    """Depending on the time, models are watched twice, once, with fewer probes, or not; a doubt says so."""
    track = Slow(clock)
    turns = RoundSchedule(side_count=2, first=5, most=5, max_time=limit)

    compared = run_comparison(SLOWER, turns, CompareOptions(metrics=("latency",)), RunSession(execute=track))

    assert compared is not None
    looked = [job for job in track.jobs if job.observation.outputs]
    assert clock[0] <= limit
    assert len(looked) == check_count
    assert all(job.plan.timeout is not None and job.plan.timeout <= limit for job in looked)
    (contrast,) = compared.contrasts
    assert [
        "compare the outputs" in doubt.seen for doubt in contrast.doubts if doubt.code == "unexplained"
    ] == ([not contrast.outputs] if unexplained else [])
    assert bool(contrast.causes) is not unexplained


def test_a_single_round_may_take_all_the_time(clock: list[float]) -> None:
    """It is run in any case; then not even the outputs are compared."""
    track = Slow(clock)
    turns = RoundSchedule(side_count=2, first=5, most=5, max_time=15.0)

    compared = run_comparison(SLOWER, turns, CompareOptions(metrics=("latency",)), RunSession(execute=track))

    assert compared is not None
    assert compared.sequence == (0, 1)
    assert len(track.jobs) == 2
    (doubt,) = compared.contrasts[0].doubts
    assert doubt.code == "unexplained"
    assert doubt.seen == "no time was left to compare the outputs, or to find where the changes come from"


@pytest.mark.parametrize(("limit", "longest"), [(1.0, 0.3), (18.0, 1.0), (600.0, 20.0), (None, 20.0)])
def test_no_run_is_planned_longer_than_the_time_allows(
    clock: list[float], limit: float | None, longest: float
) -> None:
    """The timing probes share what the starts of three rounds leave; the first round is run in any case."""
    track = Slow(clock)
    turns = RoundSchedule(side_count=2, first=5, most=5, max_time=limit)
    run_comparison(SLOWER, turns, CompareOptions(metrics=("latency",), why=False), RunSession(execute=track))

    assert {job.plan.max_time for job in track.jobs} == {longest}
    assert all(job.plan.min_time <= longest for job in track.jobs)


def test_without_a_limit_everything_is_looked_at(clock: list[float]) -> None:
    """Everything is explained, however long it takes."""
    track = Slow(clock)

    compared = run_comparison(
        SLOWER,
        RoundSchedule(side_count=2, first=5, most=5),
        CompareOptions(metrics=("latency",)),
        RunSession(execute=track),
    )

    assert compared is not None
    assert compared.contrasts[0].causes
    assert track.jobs[-1].plan.timeout is None


def test_progress_says_that_causes_are_looked_for() -> None:
    """Progress names the side."""
    events: list[Event] = []

    run_comparison(
        SLOWER,
        RoundSchedule(side_count=2, first=1, most=1),
        CompareOptions(metrics=("latency",)),
        RunSession(execute=Looked(EQUAL), watch=events.append),
    )

    stages = [event.stage for event in events if isinstance(event, Progressed)]
    assert stages[-1] == "looking for causes, 2 of 2, candidate: latency: steady"
