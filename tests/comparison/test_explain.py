"""The second look: outputs held against each other, and what explains a change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.comparison.explain import carried_out
from modeldyno.core.comparison.build import Question
from modeldyno.core.comparison.comparison import Outcome
from modeldyno.core.comparison.schedule import Turns
from modeldyno.core.metrics.measurement import Distribution, Measurement
from modeldyno.core.result.result import Artifact, Progressed
from modeldyno.core.result.trace_data import Activity, Layer
from modeldyno.core.spec.load_spec import Load
from modeldyno.core.spec.static_options import Inspection, Mode
from modeldyno.data import outputs
from modeldyno.errors import RequestError
from modeldyno.runtime.session import Campaign
from modeldyno.testing.comparisons import Track, a_side

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy import ndarray

    from modeldyno.core.comparison.comparison import Comparison
    from modeldyno.core.result.result import Event, Result
    from modeldyno.core.spec.job import Job

GIVEN = np.ones((8, 4), np.float32)


class Looked(Track):
    """Runs Jobs; where it is asked for outputs, writes what was given and returned."""

    def __init__(
        self, returned: dict[str, Any], given: dict[str, ndarray] | None = None, *, bears: str = ""
    ) -> None:
        super().__init__()
        self.returned, self.given, self.bears = returned, given or {}, bears.split()

    def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
        """Give the Result of a run, or of a look."""
        result = super().__call__(job, watch=watch)
        if job.observation.outputs is None:
            return result
        if not {*self.bears, "static", "outputs"} >= set(job.probes):
            raise RequestError("The backend gives none.")
        name = job.name or ""
        fed = {"x": np.load(job.inputs[0].source)} if job.inputs and job.inputs[0].source else None
        returned = self.returned[name]
        with Path(job.observation.outputs).open("wb") as file:
            np.savez(file, **outputs.arrays(fed or {"x": self.given.get(name, GIVEN)}, {"y": returned}))  # type: ignore[arg-type]
        kept = Artifact(name="outputs", path=job.observation.outputs, digest="")
        own = Measurement(
            metric="self_time",
            value=Distribution.of([float(job.config["microseconds"]) * 1e-6] * 3),
            scope="fc",
        )
        layers = Activity(layers=(Layer(path="", kind="Net"), Layer(path="fc", kind="Linear")))
        if "layers" not in job.probes:
            return replace(result, artifacts=(kept,))
        return replace(result, artifacts=(kept,), activity=layers, measurements=(*result.measurements, own))


def run(track: Track, *jobs: Job, why: bool = True) -> Comparison:
    """Compare two, one round."""
    found = carried_out(
        [replace(job, inputs=()) for job in jobs],
        Turns(sides=len(jobs), first=5, most=5),
        Question(metrics=("latency",), why=why),
        Campaign(execute=track),
    )
    assert found is not None
    return found


SLOWER = (a_side("a"), a_side("b", 1.2e-3))
EQUAL = {"a": GIVEN, "b": GIVEN}


def test_what_moved_is_explained_by_layers() -> None:
    """Each side is run once more, by the probes that its backend bears."""
    track = Looked(EQUAL, bears="layers ops")

    found = run(track, *SLOWER)

    (cause,) = found.contrasts[0].causes
    assert (cause.by, [part.scope for part in cause.parts]) == ("layers", ["fc"])
    assert cause.total == pytest.approx(2e-4, rel=0.02)
    assert [job.name for job in track.jobs[10:]] == ["a", "a", "b", "b", "a"]
    assert "layers" in track.jobs[-1].probes
    assert found.contrasts[0].candidate.artifacts == ()
    assert found.contrasts[0].outcome is Outcome.WORSE


def test_equal_outputs_are_told_to_agree() -> None:
    """To the last digit."""
    (agreement,) = run(Looked(EQUAL), *SLOWER).contrasts[0].outputs

    assert (agreement.output, agreement.largest) == ("y", 0.0)
    assert agreement.cosine == pytest.approx(1.0)


def test_what_did_not_move_is_not_watched() -> None:
    """The outputs are held against each other all the same."""
    track = Looked(EQUAL, bears="layers ops memory")

    found = run(track, a_side("a"), a_side("b"))

    assert track.jobs[-1].probes == ("outputs",)
    assert found.contrasts[0].outputs
    assert found.contrasts[0].causes == ()


def test_outputs_that_differ_much_are_doubted() -> None:
    """The largest difference and the cosine are told."""
    found = run(Looked({"a": GIVEN, "b": -GIVEN}), *SLOWER).contrasts[0]

    assert found.outputs[0].cosine == pytest.approx(-1.0)
    assert [doubt.code for doubt in found.doubts] == ["unlike-outputs"]
    assert "differs by 2 of the largest value (cosine -1.0000)" in found.doubts[0].seen


def test_outputs_of_another_shape_are_doubted() -> None:
    """They cannot be held against each other."""
    found = run(Looked({"a": GIVEN, "b": GIVEN[:4]}), *SLOWER).contrasts[0]

    assert found.outputs == ()
    assert "'y' is 8 x 4 in one, and 4 x 4 in the other" in found.doubts[0].seen


def test_a_candidate_is_fed_what_the_baseline_was() -> None:
    """Where its own inputs have other values, as those of an example have, it is called once more."""
    track = Looked(EQUAL, {"b": 2 * GIVEN})

    found = run(track, *SLOWER).contrasts[0]

    assert found.outputs
    assert found.doubts == ()
    assert track.jobs[-1].config["batch_size"] == 8
    assert track.jobs[-1].inputs[0].name == "x"


@pytest.mark.parametrize("given", [np.ones((4, 4), np.float32), np.full((8, 4), 2.0)])
def test_what_takes_other_inputs_is_not_held_against_the_baseline(given: ndarray) -> None:
    """Its outputs are answers to another question."""
    found = run(Looked(EQUAL, {"b": given}), *SLOWER).contrasts[0]

    assert found.outputs == ()
    assert "their inputs differ in number, shape or dtype" in found.doubts[0].seen


def test_a_backend_that_cannot_be_watched_is_left_alone() -> None:
    """The verdict stands; nothing is added."""

    def unwatched(job: Job, *, watch: Callable[[Event], None]) -> Result:
        if job.observation.outputs is not None:
            raise RequestError("The backend gives none.")
        return Track()(job, watch=watch)

    found = run(unwatched, *SLOWER)  # type: ignore[arg-type]

    assert found.contrasts[0].outputs == ()
    assert found.contrasts[0].outcome is Outcome.WORSE


@pytest.mark.parametrize(
    "job",
    [
        replace(a_side("b"), backend="triton", load=Load()),
        replace(a_side("b"), inspection=Inspection(mode=Mode.TRAIN)),
    ],
)
def test_servers_and_training_are_not_looked_at(job: Job) -> None:
    """Neither has a call whose outputs and layers could be watched."""
    track = Looked(EQUAL)

    run(track, a_side("a"), job)

    assert len(track.jobs) == 10


def test_nobody_asks_why() -> None:
    """Then nothing more is run."""
    track = Looked(EQUAL)

    assert run(track, *SLOWER, why=False).contrasts[0].outputs == ()
    assert len(track.jobs) == 10


def test_what_was_interrupted_is_not_looked_at() -> None:
    """Nor is there a comparison where nothing was finished."""
    count: list[Job] = []

    bench = Campaign(execute=Track(hook=count.append), interrupted=lambda: len(count))
    found = carried_out(SLOWER, Turns(sides=2), Question(), bench)

    assert found is None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still, but for who sets it."""
    now = [0.0]
    monkeypatch.setattr("modeldyno.comparison.explain.time.monotonic", lambda: now[0])
    return now


class Slow(Looked):
    """Each run takes ten seconds, and each look at layers forty."""

    def __init__(self, now: list[float]) -> None:
        super().__init__(EQUAL, bears="layers ops memory")
        self.now = now

    def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
        """Take the time of a run, or of a look."""
        self.now[0] += 40.0 if "memory" in job.probes else 30.0 if "layers" in job.probes else 10.0
        return super().__call__(job, watch=watch)


@pytest.mark.parametrize(
    ("limit", "looks", "unexplained"),
    [(400.0, 4, False), (250.0, 2, False), (175.0, 2, False), (150.0, 2, True), (60.0, 2, True)],
)
def test_the_time_is_for_all_that_is_done(
    clock: list[float], limit: float, looks: int, unexplained: bool
) -> None:
    """Causes are watched twice, once, by less, or not at all; what was not looked for is doubted."""
    track = Slow(clock)
    turns = Turns(sides=2, first=5, most=5, max_time=limit)

    found = carried_out(SLOWER, turns, Question(metrics=("latency",)), Campaign(execute=track))

    assert found is not None
    looked = [job for job in track.jobs if job.observation.outputs]
    assert clock[0] <= limit
    assert len(looked) == looks
    assert all(job.plan.timeout is not None and job.plan.timeout <= limit for job in looked)
    assert ("unexplained" in {doubt.code for doubt in found.contrasts[0].doubts}) is unexplained
    assert bool(found.contrasts[0].causes) is not unexplained


def test_a_single_round_may_take_all_the_time(clock: list[float]) -> None:
    """It is made in any case; then not even the outputs are looked at."""
    track = Slow(clock)
    turns = Turns(sides=2, first=5, most=5, max_time=15.0)

    found = carried_out(SLOWER, turns, Question(metrics=("latency",)), Campaign(execute=track))

    assert found is not None
    assert found.sequence == (0, 1)
    assert len(track.jobs) == 2
    assert [doubt.code for doubt in found.contrasts[0].doubts] == ["unexplained"]


@pytest.mark.parametrize(("limit", "longest"), [(1.0, 0.3), (18.0, 1.0), (600.0, 20.0), (None, 20.0)])
def test_no_run_is_planned_longer_than_the_time_allows(
    clock: list[float], limit: float | None, longest: float
) -> None:
    """Its probes share the time of three rounds, which a verdict takes; the first is made in any case."""
    track = Slow(clock)
    turns = Turns(sides=2, first=5, most=5, max_time=limit)
    carried_out(SLOWER, turns, Question(metrics=("latency",), why=False), Campaign(execute=track))

    assert {len(job.probes) for job in track.jobs} == {3}
    assert {job.plan.max_time for job in track.jobs} == {longest}
    assert all(job.plan.min_time <= longest for job in track.jobs)


def test_without_a_limit_everything_is_looked_at(clock: list[float]) -> None:
    """However long it takes."""
    track = Slow(clock)

    found = carried_out(
        SLOWER, Turns(sides=2, first=5, most=5), Question(metrics=("latency",)), Campaign(execute=track)
    )

    assert found is not None
    assert found.contrasts[0].causes
    assert track.jobs[-1].plan.timeout is None


def test_progress_says_that_causes_are_looked_for() -> None:
    """By side."""
    seen: list[Event] = []

    carried_out(
        SLOWER,
        Turns(sides=2, first=1, most=1),
        Question(metrics=("latency",)),
        Campaign(execute=Looked(EQUAL), watch=seen.append),
    )

    stages = [event.stage for event in seen if isinstance(event, Progressed)]
    assert stages[-1] == "looking for causes, 2 of 2, candidate: latency: steady"
