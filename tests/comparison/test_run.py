"""Running baseline and candidates in turns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.fake_comparisons import SimulatedRuns, a_side

from modeldyno.base.errors import InputRefused, OutOfTime, RequestError, RunFailed
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.result.result import Failure, FailureKind, Progressed
from modeldyno.base.stats.schedule import RoundSchedule
from modeldyno.comparison.change.build import CompareOptions
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.run import (
    any_failed,
    build_comparison,
    describe_rounds,
    evaluate_once,
    is_decided,
    run_rounds,
)
from modeldyno.engine.runtime.events import INTERRUPTED
from modeldyno.engine.runtime.session import RunSession
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event, Result
    from modeldyno.comparison.change.comparison import Comparison

LATENCY = CompareOptions(metrics=("latency",))


def run(
    track: SimulatedRuns, *jobs: Job, turns: RoundSchedule | None = None, criteria: CompareOptions = LATENCY
) -> list[Comparison]:
    """Run sides in turns; return the comparison after each test."""
    return list(
        run_rounds(jobs, turns or RoundSchedule(side_count=len(jobs)), criteria, RunSession(execute=track))
    )


def test_a_clear_difference_is_found_at_the_first_look() -> None:
    """Rounds end as soon as there is a verdict; their order is recorded."""
    track = SimulatedRuns()

    (compared,) = run(track, a_side("a"), a_side("b", 1.2e-3))

    assert compared.contrasts[0].outcome is ChangeVerdict.WORSE
    assert compared.sequence == (0, 1, 1, 0, 0, 1, 1, 0, 0, 1)
    assert [job.name for job in track.jobs] == list("abbaabbaab")
    assert compared.order == "alternating"
    assert compared.level == pytest.approx(1 - 0.05 / 3)
    assert compared.baseline.processes == compared.contrasts[0].candidate.processes == 5
    assert compared.baseline.job.plan.processes == 5
    assert compared.contrasts[0].doubts == ()


def test_rounds_are_added_while_it_is_undecided() -> None:
    """A difference within the noise needs more rounds, up to a maximum."""
    compared = run(
        SimulatedRuns(noise=0.2),
        a_side("a"),
        a_side("b", 1.04e-3),
        turns=RoundSchedule(side_count=2, first=3, most=12),
    )

    assert [len(comparison.sequence) for comparison in compared] == [6, 12, 24]
    assert not any(map(is_decided, compared[:-1]))


def test_the_time_ends_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the rounds that fit are run, also before the first test, but at least one."""
    now = [0.0]
    monkeypatch.setattr("modeldyno.comparison.run.monotonic", lambda: now[0])

    def rounds(max_time: float, *, block: bool = False) -> list[int]:
        noisy = SimulatedRuns(noise=0.2, hook=lambda _job: now.__setitem__(0, now[0] + 5.0))
        turns = RoundSchedule(side_count=2, first=4, most=64, max_time=max_time, block=block)
        compared = run(noisy, a_side("a"), a_side("b", 1.04e-3), turns=turns)
        return [len(comparison.sequence) // 2 for comparison in compared]

    assert rounds(60.0) == [4, 6]
    assert rounds(30.0) == [3]
    assert rounds(1.0) == [1]
    assert rounds(30.0, block=True) == [3]


def test_a_round_that_is_cut_off_is_left_out() -> None:
    """The comparison is of the rounds before it; without one, nothing was measured."""

    def cut_off_after(runs: int) -> list[Comparison]:
        track = SimulatedRuns(noise=0.2)

        def execute(job: Job, *, watch: Callable[[Event], None]) -> Result:
            if len(track.jobs) >= runs:
                raise OutOfTime("Nothing could be measured.")
            return track(job, watch=watch)

        turns = RoundSchedule(side_count=2, first=4, most=64, max_time=60.0)
        return list(
            run_rounds([a_side("a"), a_side("b", 1.04e-3)], turns, LATENCY, RunSession(execute=execute))
        )

    assert [len(comparison.sequence) for comparison in cut_off_after(5)] == [4]
    with pytest.raises(OutOfTime):
        cut_off_after(1)


@pytest.mark.parametrize("block", [False, True])
def test_a_model_is_analysed_in_the_first_round_only(*, block: bool) -> None:
    """Every process would tell the same; what it told stands beside the times of all."""
    jobs: list[Job] = []
    noisy = SimulatedRuns(hook=jobs.append)
    operands = [replace(a_side(name), probes=("static", "latency")) for name in "ab"]
    turns = RoundSchedule(side_count=2, first=3, most=3, block=block)
    (compared,) = run(noisy, *operands, turns=turns)

    for name in "ab":
        assert [job.probes for job in jobs if job.name == name] == [
            ("static", "latency"),
            *[("latency",)] * 2,
        ]
    assert [result.processes for result in compared.results] == [3, 3]


def test_a_block_design_runs_one_side_after_the_other() -> None:
    """The order says so; its processes are not paired."""
    turns = RoundSchedule(side_count=2, first=3, most=3, block=True)

    (compared,) = run(SimulatedRuns(), a_side("a"), a_side("b", 1.2e-3), turns=turns)

    assert (compared.order, compared.sequence) == ("block", (0, 0, 0, 1, 1, 1))
    assert "paired" not in compared.contrasts[0].changes[0].why


def test_several_candidates_are_each_compared_with_the_baseline() -> None:
    """In the same rounds."""
    (compared,) = run(SimulatedRuns(), a_side("a"), a_side("b", 1.2e-3), a_side("c", 0.8e-3))

    assert [side.outcome for side in compared.contrasts] == [ChangeVerdict.WORSE, ChangeVerdict.BETTER]
    assert compared.sequence[:6] == (0, 1, 2, 2, 1, 0)


def test_equal_models_are_the_same() -> None:
    """Their difference is certainly within the threshold."""
    (compared,) = run(SimulatedRuns(), a_side("a"), a_side("b"))

    assert compared.contrasts[0].outcome is ChangeVerdict.SAME


def test_a_failure_ends_it() -> None:
    """A failure is not repeated; the comparison has it, and the rounds so far."""
    failure = Failure(where="load", kind=FailureKind.OOM, message="too large")
    track = SimulatedRuns(failing=failure)

    (compared,) = run(track, a_side("a"), a_side("broken"), criteria=CompareOptions())

    assert any_failed(compared)
    assert [job.name for job in track.jobs] == ["a", "broken"]
    assert compared.contrasts[0].candidate.failures == (failure,)


def test_a_baseline_that_fails_is_told_at_once() -> None:
    """There is nothing to compare with; the message says what happened."""
    track = SimulatedRuns(failing=Failure(where="load", kind=FailureKind.OOM, message="too large."))

    with pytest.raises(RunFailed, match=r"^broken failed in load: too large\.$"):
        run(track, a_side("broken"), a_side("b"))


def test_a_model_that_refuses_the_input_of_all_is_named_with_how_each_gets_its_own() -> None:
    """The input goes to every model; the error says which one refuses it, and how to part them."""
    inputs = (InputSpec(name="x", shape=(1, 8)),)
    jobs = [replace(a_side(name), inputs=inputs) for name in ("a", "b")]

    def refuse(job: Job) -> None:
        if job.name == "b":
            raise InputRefused("There is no input 'x'; known: z.")

    with pytest.raises(
        InputRefused, match=rf"^{jobs[1].model.locator}: .*z; give each .* with `baseline_inputs` and "
    ):
        run(SimulatedRuns(hook=refuse), *jobs)
    with pytest.raises(InputRefused, match="give each model its own"):
        evaluate_once(jobs, RunSession(execute=SimulatedRuns(hook=refuse)))


def test_a_baseline_that_fails_on_the_input_of_all_is_told_how_each_gets_its_own() -> None:
    """A model that declares no shapes refuses an input only when it is called."""
    failure = Failure(where="first call", kind=FailureKind.ERROR, message="expected 4 dimensions")
    jobs = [replace(a_side(name), inputs=(InputSpec(name="x", shape=(1, 8)),)) for name in ("broken", "b")]

    with pytest.raises(RunFailed, match="dimensions; give each model its own with `baseline_inputs`"):
        run(SimulatedRuns(failing=failure), *jobs)


def test_progress_says_which_run_it_is() -> None:
    """Round and side precede the run's own stage."""
    events: list[Event] = []
    jobs = (a_side("a"), a_side("b", 1.2e-3), a_side("c", 1.2e-3))

    list(
        run_rounds(
            jobs,
            RoundSchedule(side_count=3, first=1, most=1),
            LATENCY,
            RunSession(execute=SimulatedRuns(), watch=events.append),
        )
    )

    stages = [event.stage for event in events if isinstance(event, Progressed)]
    assert stages[0] == "round 1 of 1, baseline: latency: steady"
    assert stages[2] == "round 1 of 1, candidate 2: latency: steady"


@pytest.mark.parametrize(
    ("first", "most", "max_time", "text"),
    [(5, 20, None, "5 to 20"), (5, 20, 60.0, "up to 20"), (3, 3, None, "3"), (1, 1, 60.0, "1")],
)
def test_a_number_of_rounds_that_time_may_cut_is_no_promise(
    first: int, most: int, max_time: float | None, text: str
) -> None:
    """With a time limit fewer rounds than the first look takes may be run, so only the most are named."""
    assert describe_rounds(RoundSchedule(side_count=2, first=first, most=most, max_time=max_time)) == text


def test_other_events_are_passed_on() -> None:
    """Only progress events are changed."""
    events: list[Event] = []

    def doubting(job: Job, *, watch: object) -> object:
        assert callable(watch)
        watch(INTERRUPTED)
        return SimulatedRuns()(job, watch=lambda _event: None)

    list(run_rounds(
        (a_side("a"), a_side("b")), RoundSchedule(side_count=2, first=1, most=1), LATENCY,
        RunSession(execute=doubting, watch=events.append),  # type: ignore[arg-type]
    ))  # fmt: skip

    assert INTERRUPTED in events


@pytest.mark.parametrize(("after", "made"), [(1, 0), (3, 1)])
def test_an_interruption_ends_it_with_what_there_is(after: int, made: int) -> None:
    """The current run is the last; unless each side was run, there is nothing to compare."""
    count: list[Job] = []
    track = SimulatedRuns(hook=count.append)

    compared = list(run_rounds(
        (a_side("a"), a_side("b", 1.2e-3)), RoundSchedule(side_count=2), LATENCY,
        RunSession(execute=track, interrupted=lambda: int(len(count) >= after)),
    ))  # fmt: skip

    assert len(compared) == made
    assert len(track.jobs) == after
    if made:
        assert any(doubt.code == "interrupted" for doubt in compared[0].baseline.doubts)


def test_stored_results_are_compared_as_they_are() -> None:
    """They were not run in turns, which is a doubt."""
    compared = build_comparison([a_result(), a_result(id="ba9876543210")], CompareOptions())

    assert (compared.order, compared.sequence, compared.level) == ("stored", (), 0.95)
    assert "not-in-turns" in [doubt.code for doubt in compared.contrasts[0].doubts]


def test_a_question_that_nothing_answers_is_refused() -> None:
    """It is refused after the first rounds, when the measured metrics are known."""
    with pytest.raises(RequestError, match="Neither of the two has energy"):
        run(SimulatedRuns(), a_side("a"), a_side("b"), criteria=CompareOptions(metrics=("energy",)))
