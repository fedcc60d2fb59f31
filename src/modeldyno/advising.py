"""A model, its findings, and what comes of trying them: each in turns with the model as it is."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import machine, outputs, plugins
from modeldyno.core.advice import (
    Advice,
    Candidate,
    Tried,
    best,
    candidates,
    combinations,
    helped,
    promising,
    with_outputs,
)
from modeldyno.core.bottleneck import bottleneck
from modeldyno.core.contrast import Question, contrast
from modeldyno.core.finding import Case
from modeldyno.core.findings import findings
from modeldyno.core.inspection import HERE, Mode
from modeldyno.core.job import Job
from modeldyno.core.metric import Query
from modeldyno.core.result import Event, Progressed
from modeldyno.core.space import parse_axis
from modeldyno.core.turns import Turns
from modeldyno.errors import ModelDynoError, RequestError, RunFailed
from modeldyno.ports import Executor, HasSpace
from modeldyno.rounds import in_turns
from modeldyno.run import serves
from modeldyno.views.findings import typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.comparison import Contrast
    from modeldyno.core.result import Result
    from modeldyno.core.space import Axis

TOLERANCE = 0.01
"""Largest difference of outputs, relative to their largest element, up to which settings are combined."""
MAX_TIME = 180.0
_LOOKS = (("static", "ops", "layers"), ("static", "ops"), ("static",), ())
"""Probes beside the timed ones: those of the first line that the backend bears are taken."""
_TIMED = ("latency", "throughput")
_ROUNDS, _FINAL, _FEWEST = 5, 7, 3
"""Rounds of the candidates, of the finalists, and fewest that are worth making."""
_SHARE = 0.6
"""Part of the time that candidates may take; the rest is for the finalists."""
_BESIDE = "latency.p50"
_PATIENCE = 60.0
"""Seconds that any first look may take, loading and compiling included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What advice is asked for."""

    query: Query
    max_time: float = MAX_TIME
    """Seconds in all; the baseline is looked at in any case."""
    tolerance: float = TOLERANCE
    space: bool = True
    """Whether what is usual for the backend's knobs is tried beside what findings suggest."""


@dataclass(slots=True, kw_only=True)
class _Trial:
    """One session of trying; it counts its runs, for what the next would take."""

    job: Job
    wish: Wish
    execute: Executor
    watch: Callable[[Event], None]
    interrupted: Callable[[], int]
    folder: Path
    begun: float = field(default_factory=time.monotonic)
    runs: int = 0

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.begun

    def left(self, share: float = 1.0) -> float:
        """Seconds of this part of the time that are left."""
        return share * self.wish.max_time - self.spent

    @property
    def patience(self) -> float:
        """Seconds after which a first look is given up: one candidate is not to take the time of all."""
        return max(_PATIENCE, self.wish.max_time / 3)

    def counted(self, job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
        """Run a Job."""
        self.runs += 1
        return self.execute(job, watch=watch)

    def of(self, candidate: Candidate) -> Job:
        """Give the Job with what is to be tried."""
        return self.job.at(candidate.settings)

    def labelled(self, label: str) -> Callable[[Event], None]:
        """Say with each progress what it is about."""

        def told(event: Event) -> None:
            if isinstance(event, Progressed):
                self.watch(replace(event, stage=f"{label}: {event.stage}"))
            else:
                self.watch(event)

        return told

    def look(self, job: Job, name: str, label: str, probes: tuple[str, ...] = ()) -> Result:
        """Run a Job once, and keep what it returned."""
        looking = replace(
            job,
            probes=(*probes, *_TIMED, "outputs"),
            plan=replace(job.plan, timeout=job.plan.timeout or self.patience),
            observation=replace(job.observation, outputs=str(self.folder / f"{name}.npz")),
        )
        found = self.counted(looking, watch=self.labelled(label))
        kept = tuple(each for each in found.artifacts if not each.path.startswith(str(self.folder)))
        return replace(found, job=replace(found.job, observation=job.observation), artifacts=kept)


def advise(
    job: Job,
    wish: Wish,
    *,
    execute: Executor,
    watch: Callable[[Event], None] = lambda _event: None,
    interrupted: Callable[[], int] = lambda: 0,
) -> Iterator[Advice]:
    """Try what may help; give the Advice so far after each stage, the last one being the answer.

    The baseline is looked at, and findings made of it. Each candidate is run once, which shows whether it
    runs and what it does to the outputs; those not far worse are measured in turns with the baseline.
    What helped is combined and measured anew, so that the best of several is not quoted for its luck.

    Args:
        job: the baseline.
        wish: what to improve, and how long.
        execute: what runs a Job, in a process of its own.
        watch: told of every event.
        interrupted: how often the user has interrupted; what was measured by then is kept.

    Raises:
        RequestError: the model cannot be tried so, or the metric is none to improve.
        RunFailed: the baseline failed.
    """
    _check(job, wish)
    with tempfile.TemporaryDirectory() as folder:
        trial = _Trial(
            job=replace(job, plan=replace(job.plan, processes=1)),
            wish=wish,
            execute=execute,
            watch=watch,
            interrupted=interrupted,
            folder=Path(folder),
        )
        yield from _tried(trial)


def _tried(trial: _Trial) -> Iterator[Advice]:
    advice = _looked(trial)
    yield advice
    every = candidates(advice.findings, _axes(trial), advice.baseline, trial.wish.query.metric)
    looked, left_out = _first_looks(trial, advice.baseline, every)
    advice = replace(advice, tried=looked, left_out=left_out)
    yield advice
    measured = _in_turns(trial, promising(looked), _ROUNDS, trial.left(_SHARE))
    advice = replace(advice, tried=_merged(looked, measured))
    yield advice
    finalists = combinations(helped(advice.tried, trial.wish.tolerance))
    if not finalists or trial.interrupted():
        return
    finals = _finals(trial, advice, finalists)
    chosen = best(finals, trial.wish.tolerance)
    told = "" if chosen is None else _command(trial, advice, chosen.candidate)
    yield replace(advice, finals=finals, best=chosen, command=told)


def _check(job: Job, wish: Wish) -> None:
    if serves(job.backend):
        raise RequestError(
            "modeldyno advise runs a model in a process; for a server see what modeldyno show RESULT "
            "--findings suggests, and try it with modeldyno sweep."
        )
    if job.inspection.mode is Mode.TRAIN:
        raise RequestError("modeldyno advise times calls, and no training steps; leave --mode train away.")
    if wish.query.metric not in {"latency", *_TIMED[1:], "batch_rate"}:
        raise RequestError(
            f"{wish.query} is not what advise can improve; give --metric throughput, or latency.p50."
        )


def _command(trial: _Trial, advice: Advice, candidate: Candidate) -> str:
    return typed(advice.baseline, trial.of(candidate), plugins.backend(trial.job.backend).knobs)


# --- the stages ------------------------------------------------------------------------------------


def _looked(trial: _Trial) -> Advice:
    """Look at the baseline with as many probes as it bears.

    Raises:
        RunFailed: it failed.
    """
    job = replace(trial.job, inspection=replace(trial.job.inspection, devices=(HERE,), modules=True))
    for probes in _LOOKS:
        try:
            found = trial.look(job, "baseline", "baseline", probes)
            break
        except RequestError:
            if not probes:
                raise
    if found.failures:
        failure = found.failures[0]
        raise RunFailed(f"The model failed in {failure.where}: {failure.message}")
    knobs = plugins.backend(job.backend).knobs
    baseline = replace(found, job=trial.job)
    return Advice(
        id=secrets.token_hex(6),
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        query=trial.wish.query,
        tolerance=trial.wish.tolerance,
        baseline=baseline,
        bottleneck=bottleneck(Case(result=baseline, knobs={knob.name: knob for knob in knobs})),
        findings=findings(baseline, knobs),
    )


def _axes(trial: _Trial) -> tuple[Axis, ...]:
    """Give the axes that the backend finds worth a look."""
    backend = plugins.backend(trial.job.backend)
    if not trial.wish.space or not isinstance(backend, HasSpace):
        return ()
    cores = len(trial.job.plan.pin) or int(machine.cpu_quota()) or 1
    return tuple(parse_axis(text.replace("{cores}", str(cores))) for text in backend.space)


def _first_looks(
    trial: _Trial, baseline: Result, every: tuple[Candidate, ...]
) -> tuple[tuple[Tried, ...], tuple[Candidate, ...]]:
    """Run each candidate once, as many as a half of the candidates' time allows; give the others, too."""
    looked: list[Tried] = []
    for number, candidate in enumerate(every):
        if trial.interrupted() or (looked and trial.left(_SHARE / 2) <= 0):
            return tuple(looked), every[number:]
        label = f"candidate {number + 1} of {len(every)}"
        looked.append(_first_look(trial, baseline, candidate, str(number), label))
    return tuple(looked), ()


def _first_look(trial: _Trial, baseline: Result, candidate: Candidate, name: str, label: str) -> Tried:
    try:
        found = trial.look(trial.of(candidate), name, label)
    except ModelDynoError as error:  # a setting that this model or this machine does not bear
        return Tried(candidate=candidate, failure=str(error))
    if found.failures:
        return Tried(candidate=candidate, failure=found.failures[0].message)
    tried = _judged(Tried(candidate=candidate), baseline, found, _question(trial.wish))
    return _compared(tried, trial.folder / "baseline.npz", trial.folder / f"{name}.npz")


def _question(wish: Wish) -> Question:
    metrics = tuple(dict.fromkeys((str(wish.query), _BESIDE)))
    return Question(metrics=metrics, why=False)


def _judged(tried: Tried, baseline: Result, found: Result, question: Question) -> Tried:
    """Compare one run with one; it decides nothing."""
    first, *others = contrast(baseline, found, question).changes
    return replace(tried, change=first, beside=tuple(others))


def _compared(tried: Tried, baseline: Path, candidate: Path) -> Tried:
    """Hold the outputs against those of the baseline; another batch has others."""
    if "batch_size" in tried.candidate.settings:
        return with_outputs(tried, (), "another batch is fed")
    with suppress(OSError):
        try:
            (_, first), (_, second) = outputs.load(baseline), outputs.load(candidate)
            return with_outputs(tried, outputs.agreement(first, second))
        except ValueError as error:
            return with_outputs(tried, (), str(error))
    return with_outputs(tried, (), "the outputs were not kept")


def _in_turns(trial: _Trial, chosen: Sequence[Tried], rounds: int, seconds: float) -> tuple[Tried, ...]:
    """Measure candidates in rounds beside the baseline; of too many for the time the first are taken.

    Args:
        trial: the session.
        chosen: the best first.
        rounds: at most.
        seconds: that they may take; the fewest rounds of one candidate are made in any case.
    """
    each = trial.spent / trial.runs
    few = chosen[: max(1, int(seconds / each / _FEWEST) - 1)]
    sides = 1 + len(few)
    made = min(rounds, max(_FEWEST, int(seconds / each / sides)))
    if not few or trial.interrupted():
        return ()
    jobs = [
        replace(trial.of(candidate), probes=_TIMED) for candidate in (_NOTHING, *(t.candidate for t in few))
    ]
    turns = Turns(sides=sides, first=made, most=made)
    looks = tuple(
        in_turns(
            jobs,
            turns,
            _question(trial.wish),
            execute=trial.counted,
            watch=trial.watch,
            interrupted=trial.interrupted,
        )
    )
    if not looks:
        return ()
    found = looks[-1]
    return tuple(
        _with_changes(tried, contrast, found.baseline.processes)
        for tried, contrast in zip(few, found.contrasts, strict=True)
    )


_NOTHING = Candidate(codes=(), settings={})


def _with_changes(tried: Tried, found: Contrast, rounds: int) -> Tried:
    failures = found.candidate.failures
    if failures:
        return replace(tried, failure=failures[0].message)
    first, *others = found.changes
    return replace(tried, change=first, beside=tuple(others), rounds=rounds)


def _merged(looked: Sequence[Tried], measured: Sequence[Tried]) -> tuple[Tried, ...]:
    """Put what was measured in turns in the place of the first look."""
    better = {id(tried.candidate): tried for tried in measured}
    return tuple(better.get(id(tried.candidate), tried) for tried in looked)


def _finals(trial: _Trial, advice: Advice, finalists: Sequence[Candidate]) -> tuple[Tried, ...]:
    """Measure the finalists anew; a combination is looked at once before."""
    known = {id(tried.candidate): tried for tried in advice.tried}
    ready = [
        known.get(id(candidate))
        or _first_look(trial, advice.baseline, candidate, "combination", "combination")
        for candidate in finalists
    ]
    running = [replace(tried, rounds=0) for tried in ready if not tried.failure]
    measured = _in_turns(trial, running, _FINAL, trial.left())
    return (*measured, *(tried for tried in ready if tried.failure))
