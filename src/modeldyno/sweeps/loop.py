"""Run the trials of a study one by one: the default, what the strategy proposes, and verification.

A third of the budget is reserved for verification, because a winner that was not measured again may owe its
rank to selection bias. Only if the budget covers every point of a grid, all are measured, and the rest
verifies; and if nothing needs verification, the search gets the last third as well.
"""

from __future__ import annotations

import math
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import (
    OutOfTime,
    RequestError,
    RunFailed,
    StaleStudy,
    TrustRequired,
    UnknownName,
    Unloadable,
)
from modeldyno.base.job.knob import BATCH_SIZE
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.static_options import StaticOptions
from modeldyno.base.metrics.constraints import Answer
from modeldyno.base.result.cost import with_cost
from modeldyno.base.result.result import Loaded, Progressed
from modeldyno.engine.runtime.interrupts import counted_interrupts
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.engine.runtime.trial_executor import subprocess_executors
from modeldyno.models.interface import Executes, Form
from modeldyno.profiling.consistency_guard import ConsistencyGuard
from modeldyno.profiling.views import brief
from modeldyno.serving.loadtest.live_loads import show_loads
from modeldyno.sweeps.earlier import EarlierTrials
from modeldyno.sweeps.output_checks import OutputComparison, comparing_outputs
from modeldyno.sweeps.point_to_job import check_axes, check_dimensions, job_at_point
from modeldyno.sweeps.study import default_baseline, study_progress, verification
from modeldyno.sweeps.study.bisection import bisected_axis, next_bisection_trial
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.study.study import Trial, TrialPurpose, TrialState
from modeldyno.sweeps.study.trial_effort import trial_job
from modeldyno.sweeps.study.verification import SEARCH_SHARE, TIME_SHARE, next_curve_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event, Result
    from modeldyno.engine.runtime.trial_executor import TrialExecutor
    from modeldyno.stores.interface import Store
    from modeldyno.sweeps.study.search_space import Axis
    from modeldyno.sweeps.study.study import Study, TrialRequest

Step = tuple["Study", "Trial", "Result | None"]
"""The Study with one more trial, that trial, and its Result if anything was run."""
GRID = "grid"
"""The strategy that measures every point."""
BISECTION_START = 3 / 4
"""Share of a search's part of a budget after which loads between two are measured, if they are to be."""
DEFAULT_SHARE = 1 / 4
"""Share of a budget's measurements for loads of the default beyond the first."""
_MAX_FAILED_TRIALS = 2
"""Number of failed trials, before any success, after which a sweep gives up."""


def run_trials(
    study: Study,
    *,
    watch: Callable[[Event], None] = lambda _event: None,
    interrupted: Callable[[], int] = lambda: 0,
    force: bool = False,
    rooms: TrialExecutor | None = None,
    earlier: EarlierTrials | None = None,
) -> Iterator[Step]:
    """Continue a study until its budget is spent or nothing more can be learnt.

    The caller saves each step before it asks for the next, as `save_steps` does; nothing is measured twice. A
    failed trial counts as a trial, and so does an invalid point; the sweep goes on.

    Args:
        study: new, or resumed.
        watch: called with every event; progress of the sweep is the `stage` of Progressed.
        interrupted: how often the user has interrupted: after the first, the current trial is finished and is
            the last; after the second, it is ended and lost.
        force: continue although the model or the hardware has changed.
        rooms: returns the executor of a Job; child processes by default.
        earlier: trials of other studies, which need not be measured again.

    Raises:
        RequestError: the study cannot be run; nothing was measured.
        MissingExtra: an optional package is not installed.
        StaleStudy: the model or the hardware differs from that of the trials so far.
        RunFailed: the first two trials failed.
        OutOfTime: nothing could be measured within the budget.
    """
    started, spent_before, measured_count = monotonic(), study.spent, 0
    most = study.budget.max_time
    limit = TimeLimit.begin(None if most is None else max(0.0, most - study.spent))
    with ExitStack() as stack:
        room = rooms or stack.enter_context(subprocess_executors(interrupted, limit))
        check_study(study, room=room, watch=watch)
        guard = ConsistencyGuard(force=force, watch=watch)
        outputs = stack.enter_context(comparing_outputs(study, room, watch))
        while not interrupted():
            elapsed = spent_before + monotonic() - started
            ask = next_trial(study, elapsed)
            if ask is None:
                return
            if (known := earlier.find(study, ask) if earlier is not None else None) is not None:
                study = study.add(known)
                yield study, known, None
                continue
            label = study_progress.describe_trial(study, ask)
            guard.begin(study, label, study_progress.seconds_left(study, elapsed))
            step = _run_trial(study, ask, room, guard, outputs)
            if step is None:
                return
            study, trial, result = step
            yield step
            measured_count += trial.measured
            if result is not None:
                _stop_if_hopeless(study, result, measured_count)


def save_steps(steps: Iterable[Step], store: Store) -> Iterator[Step]:
    """Save each step in the store before the next one begins."""
    for study, trial, result in steps:
        summary = "" if result is None else brief(result)
        store.add_trial(study, result, headline=study_progress.describe_progress(study), brief=summary)
        yield study, trial, result


# --- before anything is measured -------------------------------------------------------------------


def check_study(
    study: Study, *, room: TrialExecutor | None = None, watch: Callable[[Event], None] = lambda _event: None
) -> None:
    """Check everything that can be checked before measuring; the points of the space are not enumerated.

    The model is inspected, as by `modeldyno inspect`, if an axis is neither a knob nor a load, or if it is a
    function whose batch size is varied.

    Raises:
        RequestError: an axis, a value or the default is invalid, or the strategy cannot search this space.
        UnknownName, TrustRequired, Unloadable: it was inspected, and cannot be loaded.
        MissingExtra: an optional package is not installed.
    """
    if study.job.plan.processes > 1:
        raise RequestError(
            "A sweep verifies its best candidates in fresh processes by itself; leave out processes."
        )
    plugins.require(plugins.strategy(study.strategy).requires, f"strategy '{study.strategy}'")
    unknown = check_axes(study)
    batches = _varied_batches(study)
    if unknown or batches:
        with subprocess_executors(lambda: 0) if room is None else nullcontext(room) as rooms:
            inputs = _inputs_of_model(study.job, rooms, watch)
        if batches and inputs is not None:
            _check_batches(study, batches, inputs)
        if unknown:
            check_dimensions(study, unknown, _free_dimensions([*study.job.inputs, *(inputs or ())]))
    if study.budget.bisect and bisected_axis(study) is None:
        raise RequestError(
            "bisect looks for the largest load within bounds: require one, such as latency.p99 <= 10ms, and "
            "vary one load, such as concurrency=1..64*2; with rank each-load there is none."
        )
    job_at_point(study, study.default)
    if not study.trials:
        plugins.strategy(study.strategy).propose(study)  # raises if it cannot search the space


def _inputs_of_model(
    job: Job, room: TrialExecutor, watch: Callable[[Event], None]
) -> tuple[InputSpec, ...] | None:
    """Inspect the model; return the inputs that it declares, or None if it cannot be loaded.

    Raises:
        UnknownName, TrustRequired, Unloadable: as each trial would.
    """
    loaded: list[Loaded] = []

    def record(event: Event) -> None:
        if isinstance(event, Loaded):
            loaded.append(event)

    watch(Progressed(stage="inspecting the inputs of the model"))
    inspection = replace(
        job, probes=("static",), load=None, inspection=StaticOptions(), observation=ProbeOptions()
    )
    try:
        room(inspection, fresh=True)(inspection, watch=record)
    except (UnknownName, TrustRequired, Unloadable):
        raise
    except RequestError:
        pass  # events arrived before the error; the first trial reports it
    return tuple(spec for event in loaded for spec in event.inputs) if loaded else None


def _free_dimensions(specs: Sequence[InputSpec]) -> frozenset[str] | None:
    """Return the free dimensions of inputs; None if none of them has a declared shape."""
    if not any(spec.shape for spec in specs):
        return None
    return frozenset(name for spec in specs for name in spec.shape or () if isinstance(name, str))


def _varied_batches(study: Study) -> Axis | None:
    """Return the axis of batch sizes of a function that is to be measured; None of other models.

    Files of models have inputs, and may take long to load; their first trial tells.
    """
    named = plugins.loader(study.job.model.scheme).executes is Executes.NAMED
    if study.trials or not named or Form.CALLABLE not in plugins.backend(study.job.backend).accepts:
        return None
    axis = next((axis for axis in study.space.axes if axis.name == BATCH_SIZE.name), None)
    return axis if axis is not None and set(axis.values) != {1} else None


def _check_batches(study: Study, batches: Axis, inputs: Sequence[InputSpec]) -> None:
    """Refuse batch sizes of a model whose inputs have no dimensions.

    Raises:
        RequestError: there is none that a batch could fill.
    """
    if all(spec.shape == () for spec in (*study.job.inputs, *inputs)):
        what = "no input has a dimension" if inputs else "it takes no inputs"
        raise RequestError(f"The axis {batches} has no effect on {study.name}, as {what}; leave it out.")


# --- what next -------------------------------------------------------------------------------------


def next_trial(study: Study, elapsed: float) -> TrialRequest | None:
    """Return what to measure next, after so many seconds; None at the end of the sweep.

    Apart from the time, it is a function of the log: first the default, then the search, which does not see
    verification trials, then loads between two, then verification, and then the curves, which none of them
    sees.
    """
    ask = _next_of_search(study.searched, elapsed)
    if ask is not None:
        return ask
    seconds = elapsed + study_progress.mean_trial_seconds(study.searched)
    return None if _budget_spent(study, seconds, len(study.measured)) else next_curve_trial(study)


def _next_of_search(study: Study, elapsed: float) -> TrialRequest | None:
    """Return what to measure next of the search and its verification; time for curves is left."""
    if study.budget.curves and study.budget.max_time is not None:
        study = replace(study, budget=replace(study.budget, max_time=TIME_SHARE * study.budget.max_time))
    searched = replace(study, trials=tuple(t for t in study.trials if t.stage is not TrialPurpose.VERIFY))
    if _budget_spent(study, elapsed + study_progress.mean_trial_seconds(searched), len(study.measured)):
        return None
    ask = default_baseline.next_baseline_trial(study)
    if ask is not None and not _enough_of_default(study, ask):
        return ask
    share = 1.0 if _covers_grid(study) else SEARCH_SHARE
    bisects = study.budget.bisect and bisected_axis(study) is not None

    def is_reached(part: float) -> bool:
        seconds = searched.spent + study_progress.mean_trial_seconds(searched)
        return _budget_spent(study, seconds, len(searched.measured), part * share, part * SEARCH_SHARE)

    begun = any(trial.stage is TrialPurpose.BISECT for trial in searched.trials)
    reserve_reached = is_reached(BISECTION_START if bisects else 1.0) or begun
    if not reserve_reached and (ask := _propose(searched)) is not None:
        return ask
    if bisects and not is_reached(1.0) and (ask := next_bisection_trial(searched)) is not None:
        return ask
    if _budget_spent(
        study, elapsed + study_progress.mean_trial_seconds(study, verifying=True), len(study.measured)
    ):
        return None
    ask = verification.next_verification_trial(study)
    reserved = reserve_reached and len(searched.trials) == len(study.trials)
    return _propose(searched) if ask is None and reserved else ask  # time was reserved, but nothing needs it


def _propose(searched: Study) -> TrialRequest | None:
    """Ask the strategy for the next point.

    Raises:
        RunFailed: it proposes a point that was skipped as invalid.
    """
    trials = tuple(trial for trial in searched.trials if trial.stage is not TrialPurpose.BISECT)
    ask = plugins.strategy(searched.strategy).propose(replace(searched, trials=trials))
    if ask is not None and key(ask.point) in searched.skipped:
        raise RunFailed(f"The strategy '{searched.strategy}' proposed again a point that cannot be run.")
    return ask


def _budget_spent(
    study: Study, seconds: float, trials: int, of_trials: float = 1.0, of_time: float = 1.0
) -> bool:
    """Return whether a share of the budget is spent after so many trials, or after so many seconds."""
    budget = study.budget
    if budget.max_trials is not None and trials >= math.ceil(of_trials * budget.max_trials):
        return True
    return budget.max_time is not None and seconds > of_time * budget.max_time


def _covers_grid(study: Study) -> bool:
    """Return whether the budget covers every point of a grid search."""
    max_trials = study.budget.max_trials
    return study.strategy == GRID and max_trials is not None and max_trials >= study.space.size


def _enough_of_default(study: Study, ask: TrialRequest) -> bool:
    """Return whether the remaining measurements are for other points, such as all points of a grid."""
    max_trials = study.budget.max_trials
    if max_trials is None:
        return False
    share = max(1, DEFAULT_SHARE * max_trials)
    if _covers_grid(study):
        share = math.inf if study.space.holds(ask.point) else min(share, max_trials - study.space.size)
    return sum(trial.stage is TrialPurpose.DEFAULT for trial in study.measured) >= share


# --- a trial ---------------------------------------------------------------------------------------


def _run_trial(
    study: Study,
    ask: TrialRequest,
    room: TrialExecutor,
    guard: ConsistencyGuard,
    outputs: OutputComparison | None,
) -> Step | None:
    """Run a trial; None if it was interrupted, or the time of the study was up before it gave anything."""
    number, started = len(study.trials) + 1, monotonic()
    try:
        job = trial_job(job_at_point(study, ask.point), study.goal, ask)
        _check_start(study, ask)
        job = job if outputs is None else outputs.of_trial(job)
        result = room(job, fresh=verification.needs_fresh_process(study, ask))(job, watch=guard)
    except OutOfTime:
        if not study.measured:
            raise
        return None
    except (StaleStudy, UnknownName, TrustRequired, Unloadable):
        raise  # the same error would occur at every point
    except RequestError as error:
        if ask.stage in {TrialPurpose.DEFAULT, TrialPurpose.VERIFY}:  # these points must be valid
            raise
        trial = Trial(
            number=number,
            point=ask.point,
            state=TrialState.SKIPPED,
            stage=ask.stage,
            failure=str(error),
            seconds=monotonic() - started,
        )
        return study.add(trial), trial, None
    if result.interrupted:
        return None
    result = result if outputs is None else outputs.judge(result)
    result = replace(with_cost(result, study.goal.price), doubts=(*result.doubts, *guard.doubts))
    trial = Trial.of(result, study.goal, ask, number=number, seconds=monotonic() - started)
    return _with_environment(study, result).add(trial), trial, result


def _check_start(study: Study, ask: TrialRequest) -> None:
    """Refuse to start a server again that failed to start under another load.

    Raises:
        RequestError: it failed.
    """
    configuration = study.configuration(ask.point)
    same_configuration = [
        trial for trial in study.measured if study.configuration(trial.point) == configuration
    ]
    if (
        ask.stage in {TrialPurpose.SEARCH, TrialPurpose.BISECT, TrialPurpose.CURVE}
        and same_configuration
        and all(_failed_to_start(trial) for trial in same_configuration)
    ):
        raise RequestError(f"It did not start under another load either: {same_configuration[0].failure}")


def _failed_to_start(trial: Trial) -> bool:
    """Return whether the server failed to start."""
    return trial.state is TrialState.FAILED and trial.failed_stage == _START_STAGE


_START_STAGE = "open"


def _with_environment(study: Study, result: Result) -> Study:
    """Record the model and environment of the first Result in the study."""
    if study.model is not None or result.model is None:
        return study
    return replace(study, model=result.model, environment=result.environment)


def _stop_if_hopeless(study: Study, result: Result, measured_count: int) -> None:
    """Stop a sweep that cannot succeed.

    Raises:
        RunFailed: the first trials failed, and none succeeded.
        RequestError: a metric of the goal is not measured.
        OutOfTime: the first trial had no time for a metric of the goal.
    """
    done = [trial for trial in study.measured if trial.state is TrialState.DONE]
    if not done and measured_count >= _MAX_FAILED_TRIALS and (failure := result.failure):
        last_line = next((line for line in reversed(failure.log.splitlines()) if line.strip()), "")
        raise RunFailed(
            f"The first {len(study.measured)} trials failed, in {failure.where}: {failure.message}"
            f"{f'; its log ends with: {last_line.strip()}' if last_line else ''}; "
            f"modeldyno show {result.id} has the log."
        )
    if len(done) == 1 and not result.failures:
        for query in study.goal.queries:
            try:
                Answer.to(query, result.measurements)
            except (RunFailed, RequestError) as error:
                if result.withheld(query.metric, query.scope):
                    continue  # withheld of this trial; others may tell it
                if any(doubt.code == "out-of-time" for doubt in result.doubts):
                    raise OutOfTime(
                        f"The time limit of the sweep ended its first trial before {query} was measured; "
                        "give it more time with `max_time`."
                    ) from error
                raise RequestError(
                    f"The goal asks for {query}, which a trial does not measure: {error} "
                    "Else leave it out of the goal."
                ) from error


# --- for a user -------------------------------------------------------------------------------------


def run_study(
    study: Study,
    *,
    store: bool,
    watch: Callable[[Event], None],
    force: bool = False,
    rooms: TrialExecutor | None = None,
    reuse: float | None = None,
) -> tuple[Study, bool]:
    """Run a study to its end or an interruption; return it, and whether it was interrupted.

    The arguments are those of `run_trials`; with `store` the study and the Results are saved. What
    other studies of the last `reuse` seconds have measured in the same way is not measured again.

    Raises:
        RequestError, MissingExtra, StaleStudy, RunFailed: as `loop.run_trials` does.
    """
    with ExitStack() as stack:
        interrupts = stack.enter_context(counted_interrupts())
        live = stack.enter_context(show_loads(enabled=store))
        if reuse is not None and not store:
            raise RequestError("reuse takes measurements from the store, and this sweep has none.")
        if reuse is not None and study.outputs is not None:
            raise RequestError("reuse takes measurements without their outputs; give no tolerance or verify.")
        opened = stack.enter_context(plugins.store()) if store else None
        steps: Iterator[Step] = run_trials(
            study,
            watch=live.follow(watch),
            interrupted=lambda: len(interrupts),
            force=force,
            rooms=rooms,
            earlier=None if opened is None or reuse is None else EarlierTrials.of(study, opened, reuse),
        )
        if opened is not None:
            opened.put_study(study, headline=study_progress.describe_progress(study))
            steps = save_steps(steps, opened)
        for latest, _, result in steps:
            study = latest
            if result is not None:
                live.end(result)
        return study, bool(interrupts)
