"""Regression gates in Python: load a baseline, detect regressions, and measure against a baseline."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from modeldyno.base import codec
from modeldyno.base.errors import RequestError, RunFailed, UndecidedWarning
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.doubt import FEW_PROCESSES
from modeldyno.base.metrics.measurement_plan import LENGTHS
from modeldyno.base.progress import showing_progress
from modeldyno.base.result.slowdown import MOMENTS, explain_slowdown, slowdown_by_others
from modeldyno.base.stats.schedule import PLAN
from modeldyno.base.stats.units import read_time
from modeldyno.comparison.api.compare import size_texts
from modeldyno.comparison.baseline import (
    find_baseline,
    find_result,
    is_checkout,
    measure_checkout,
    possible_names,
)
from modeldyno.comparison.calibrate import BUDGET, SPECIMEN, TAG, check_machine, run_against_itself
from modeldyno.comparison.calibrate import PLAN as CALIBRATION_PLAN
from modeldyno.comparison.change.build import CompareOptions, parse_max_regressions
from modeldyno.comparison.change.comparison import Change
from modeldyno.comparison.change.gate_report import Undecided
from modeldyno.comparison.change.gate_rule import GateRule
from modeldyno.comparison.change.way_of_measuring import CODE as NOT_COMPARED
from modeldyno.comparison.gate import check_result, check_stored, run_gate
from modeldyno.engine.runtime.session import open_run_session
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.profiling.api.error_wording import reference_of, reword_errors
from modeldyno.profiling.api.live_functions import check_functions
from modeldyno.profiling.api.options import (
    DetailKeywords,
    DetailOptions,
    FunctionKeywords,
    FunctionOptions,
    MeasuredOptions,
    RunKeywords,
    RunOptions,
    StoreKeywords,
    StoreOptions,
    take,
)
from modeldyno.profiling.api.profile import (
    as_tuple,
    check_settings,
    parse_evaluation,
    parse_names,
    parse_observation,
    split_plan,
    store_if,
)
from modeldyno.profiling.api.result_dict import Figures
from modeldyno.profiling.api.settings import PlannedKnobs
from modeldyno.profiling.request import Request, make_inspection, parse_function
from modeldyno.profiling.run import judge_result
from modeldyno.stores.catalog import BRANCH

if TYPE_CHECKING:
    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.result.result import Result
    from modeldyno.comparison.calibrate import MachineCheckup
    from modeldyno.comparison.change.gate_report import GateReport


Regression = float | str | Mapping[str, float | str] | None
"""A largest allowed regression: a fraction, text such as ``"5%"``, or a mapping by metric."""


@reword_errors
def load_baseline(source: str | Path) -> Result:
    """Read a baseline: a file, an id or a tag of the store, or ``"@main"`` for the newest of a branch.

    Of a file with several Results, such as a session that `ModelProfiler.export_json` wrote, it is the first
    one that measured latency and throughput.

    Raises:
        RequestError: there is none, or it cannot be read.
    """
    path = Path(source)
    if path.is_file():
        timed = [
            result for result in codec.read_all(path) if result.find("latency") and result.find("throughput")
        ]
        if timed:
            return timed[0]
    return find_baseline(str(source))


class Regressions(list[Change]):
    """Metrics that are worse than in the baseline; empty, and so false, if none is, or if that is undecided.

    To assert that nothing is worse, ask ``.verdict``, which is true only if that was shown.

    Each has its ``query``, ``baseline`` and ``candidate`` in base units, the relative ``difference`` and its
    ``interval``. ``str`` lists them with their figures, and what is undecided.
    """

    def __init__(self, report: GateReport) -> None:
        """Sort the checks by verdict."""
        checked_changes = [(check, check.change) for check in report.checks if check.change is not None]
        super().__init__(change for check, change in checked_changes if check.verdict is Verdict.BROKEN)
        self.verdict = report.verdict
        """Broken if anything is worse, held if everything is shown not to be, else undecided."""
        self.undecided = tuple(
            change for check, change in checked_changes if check.verdict is Verdict.UNDECIDED
        )
        """Metrics that are neither shown to be worse nor shown not to be."""
        self.held = tuple(change for check, change in checked_changes if check.verdict is Verdict.HELD)
        """Metrics that are shown not to be worse."""
        self.not_compared = tuple(doubt.seen for doubt in report.doubts if doubt.code == NOT_COMPARED)
        """Sentences that name the metrics that were measured differently on the two sides."""
        self._texts = {
            verdict: "; ".join(
                f"{check.name} {check.text}".removesuffix(f": {Verdict.UNDECIDED}")
                for check, _ in checked_changes
                if check.verdict is verdict
            )
            for verdict in Verdict
        }

    def __str__(self) -> str:
        broken, undecided = self._texts[Verdict.BROKEN], self._texts[Verdict.UNDECIDED]
        held = " and ".join(str(change.query) for change in self.held)
        parts = (
            broken or ("" if undecided else f"no regression in {held or 'anything'}"),
            undecided and f"undecided: {undecided}",
            *self.not_compared,
        )
        return "; ".join(filter(None, parts))

    def __repr__(self) -> str:
        return f"<Regressions ({self.verdict}): {self}>"


@reword_errors
def detect_regressions(
    baseline: Result | Figures | str | Path,
    current: Result | Figures | str | Path,
    *,
    max_regression: Regression = None,
    metrics: Sequence[str] = (),
    force: bool = False,
) -> Regressions:
    """Return the metrics that are worse in one result than in another; an empty list if none is.

    The two were measured at different times, so a change within the drift of a machine or within the
    variation between processes is no regression, and what could be that drift is not held either. Both
    are estimated from the processes of the two results and from the model's history in the store. If they
    leave it undecided, and `current` is what `profile` of a `ModelProfiler` returned for a path or a
    reference, in fewer than five processes, the model is measured again in five, which are judged. `gate`
    decides smaller changes, as it measures both in turns.

    Args:
        baseline: the reference: a Result, the return value of a `ModelProfiler`, a file, an id or a tag.
        current: what is judged, likewise.
        max_regression: largest allowed regression: ``0.05``, ``"5%"``, or by metric, ``{"latency": 0.1}``.
        metrics: metrics that must not get worse; by default latency and memory.
        force: judge even if the hardware or the inputs differ.

    Returns:
        A list of changes; ``.undecided``, ``.held`` and ``.verdict`` have the rest. If nothing is worse and
        something is undecided, it emits an `UndecidedWarning`.

    Raises:
        RequestError: the hardware differs, or a metric was measured in neither.
        RunFailed: the model failed when one of them was measured.
    """
    before, after = (_resolve_result(document) for document in (baseline, current))
    criteria = _criteria(metrics, max_regression, force=force)
    regressions = Regressions(check_stored(before, after, criteria))
    if regressions.verdict is Verdict.UNDECIDED and (repeated := _measure_again(current, after)):
        after = repeated
        regressions = Regressions(check_stored(before, after, criteria))
    if regressions.verdict is Verdict.UNDECIDED:
        text = f"Whether {after.name} is worse than its baseline is {str(regressions).rstrip('.')}."
        warnings.warn(
            UndecidedWarning(f"{text} {_how_to_decide(before, after, regressions.undecided)}"), stacklevel=3
        )
    return regressions


def _measure_again(current: Result | Figures | str | Path, measured: Result) -> Result | None:
    """Measure a profiler's model in enough processes; None if it cannot be, or is no longer the same."""
    if not isinstance(current, Figures) or current.measure_again is None:
        return None
    if measured.processes >= FEW_PROCESSES:
        return None
    result = current.measure_again(FEW_PROCESSES)
    if result is None or result.failures or result.interrupted:
        return None
    digests = [one.model.digest if one.model else None for one in (measured, result)]
    return result if digests[0] == digests[1] else None


def _how_to_decide(before: Result, after: Result, undecided: Sequence[Change]) -> str:
    slowed = [slowdown_by_others(side, change.query) for side in (before, after) for change in undecided]
    why = explain_slowdown(max(slowed, default=1.0), "one side")
    if why is not None and max(slowed) > 1 + MOMENTS:
        return f"{why[0].upper()}{why[1:]}; measure both again while the machine has nothing else to do."
    few = [
        side
        for side, result in (("the baseline", before), ("the current one", after))
        if result.processes < FEW_PROCESSES
    ]
    if not few:
        return "To decide it, use modeldyno.gate, which runs both in turns."
    which = "both" if len(few) == len((before, after)) else few[0]
    return (
        f"So few processes do not show the variation between processes; measure {which} in five, with "
        "ModelProfiler(..., processes=5) or modeldyno profile --processes 5."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What is judged of a candidate, and by which rule."""

    max_regression: Regression = None
    metrics: str | Sequence[str] = ()
    force: bool = False
    undecided: str | None = None


class GateKeywords(PlannedKnobs, DetailKeywords, FunctionKeywords, RunKeywords, StoreKeywords, total=False):
    """Keywords of `gate`: fields of `GateOptions` and what `profile` takes."""

    max_regression: Regression
    metrics: str | Sequence[str]
    force: bool
    undecided: str | None


@reword_errors
def gate(
    model: str | Path,
    baseline: Result | str | Path,
    *,
    backend: str | None = None,
    inputs: str | Sequence[str | InputSpec] = (),
    probes: str | Sequence[str] | None = None,
    mode: str = "inference",
    optimizer: str | None = None,
    require: str | Sequence[str] = (),
    budget: float | str = 600.0,
    plan: Plan | None = None,
    beside: str | Sequence[str] = (),
    name: str | None = None,
    save_as_baseline: str | None = None,
    **settings: Unpack[GateKeywords],
) -> GateReport:
    """Measure a model against a baseline, as ``modeldyno profile --baseline`` does.

    Args:
        model: a path or a reference, which runs in fresh processes.
        baseline: a Result, a file, an id or a tag of the store, ``"@main"``; or a directory with another
            checkout of the model, which is measured as well.
        backend: what runs it; by default the one for the model's format.
        inputs: shapes or files, as ``--input`` takes them.
        probes: what to measure; by default as `profile` does.
        mode: ``"inference"`` for calls, ``"train"`` for training steps.
        optimizer: optimizer of the training steps.
        layers: as for `profile`, as are the parameters up to `data`.
        prompt: prompt length in tokens.
        generate: tokens to generate.
        trace: a file for a trace of a few calls.
        outputs: a file for the outputs of one call.
        pre: function that makes the inputs, ``"file.py:name"``.
        post: function that gets the outputs, likewise.
        evaluate: metrics of labelled samples.
        data: the labelled samples.
        require: bounds, such as ``"latency.p99 <= 50ms"``.
        percentiles: percentiles to measure until certified, such as ``"p99"``.
        max_regression: largest allowed regression: ``0.05``, ``"5%"``, or by metric, ``{"latency": 0.1}``.
        metrics: metrics that must not get worse; by default latency and memory.
        budget: time after which no further round begins, in seconds or as text such as ``"10m"``; a part of
            it is kept to confirm a regression.
        force: judge even if the hardware or the inputs differ.
        undecided: what an undecided verdict counts as, ``"pass"`` or ``"fail"``, in ``.outcome`` and in what
            ``.save("junit.xml")`` writes; by default neither.
        plan: time and precision of each process; by default at most five seconds per probe, or as long as the
            baseline was measured if that is not run again.
        beside: other models on the same server at the same time.
        name: name of the model in the results.
        trust: allow files that run code when loaded (in the child process).
        save_as_baseline: a branch, such as ``"main"``: keep the Result as its baseline if it passes.
        store: keep the Result in the store; if the store cannot be written, it warns.
        tags: names by which `read` and the command line find it again.
        progress: show progress on standard error after two seconds, in a terminal or a notebook.
        watch: called with every event.
        settings: the backend's knobs, such as ``batch_size=8``, and fields of `plan`, such as
            ``max_time=5``, in seconds or as text such as ``"10m"``.

    Returns:
        The report: ``.verdict`` is held, broken or undecided, ``.checks`` has each check, ``.result`` is the
        measured Result.

    Raises:
        RequestError: the request is invalid, or the hardware differs.
    """
    details = take(DetailOptions, settings)
    functions = take(FunctionOptions, settings)
    judged = take(GateOptions, settings)
    run, kept = take(RunOptions, settings), take(StoreOptions, settings)
    budget = read_time(budget, "budget")
    limit = TimeLimit.begin(budget, "budget")
    as_long = plan is None and not any(name in settings for name in LENGTHS)
    plan, knobs = split_plan(plan or PLAN, settings)
    if save_as_baseline and not kept.store:
        raise RequestError("A baseline is kept in the store; drop store=False.")
    check_functions(functions.pre, functions.post, None, live=False)
    request = Request(
        model=reference_of(model),
        backend=backend,
        settings=knobs,
        inputs=as_tuple(inputs, "inputs"),
        probes=() if probes is None else parse_names(probes, "probes"),
        require=as_tuple(require, "require"),
        plan=plan,
        inspection=make_inspection(mode=mode, optimizer=optimizer, modules=False),
        observation=replace(
            parse_observation(details),
            **parse_evaluation(functions.evaluate, functions.data),
            preprocess=parse_function(functions.pre, "pre"),  # type: ignore[arg-type]  # no function: checked
            postprocess=parse_function(functions.post, "post"),  # type: ignore[arg-type]
        ),
        name=name,
        trust=run.trust,
        beside=as_tuple(beside, "beside"),
    )
    policy = _read_undecided(judged.undecided)
    criteria = _criteria(judged.metrics, judged.max_regression, force=judged.force)
    resolved = request.resolve()
    job = resolved.job
    before = baseline if is_checkout(baseline) else _resolve_result(baseline, *possible_names(job))
    with (
        showing_progress(run.watch, progress=run.progress) as on_event,
        open_run_session(on_event, limit) as bench,
    ):
        measured = measure_checkout(before, job, bench) if isinstance(before, str | Path) else before
        report = run_gate(measured, job, criteria, GateRule(), bench, max_time=budget, as_long=as_long)
    outcome = judge_result(report.result, resolved.constraints)
    report = replace(report.with_bounds(outcome.judgements), result=outcome.result, undecided=policy)
    branch = BRANCH + save_as_baseline.removeprefix(BRANCH) if save_as_baseline else None
    passed = report.verdict is Verdict.HELD and not report.result.failures
    tags = (*as_tuple(kept.tags, "tags"), *((branch,) if branch and passed else ()))
    store_if(report.result, condition=kept.store, tags=tags)
    return report


def _read_undecided(word: str | None) -> Undecided | None:
    """Read what an undecided verdict counts as.

    Raises:
        RequestError: it is neither of the two.
    """
    if word is None:
        return None
    if word not in [*Undecided]:
        raise RequestError(f"`undecided` is {word!r}; give 'pass' or 'fail', or nothing for neither.")
    return Undecided(word)


@reword_errors
def check(
    result: Result | Figures | str | Path,
    *,
    require: str | Sequence[str] = (),
    baseline: Result | Figures | str | Path | None = None,
    max_regression: Regression = None,
    metrics: str | Sequence[str] = (),
    force: bool = False,
    undecided: str | None = None,
) -> GateReport:
    """Check a saved Result against bounds and a baseline without measuring, as ``modeldyno check`` does.

    Args:
        result: a Result, the return value of a `ModelProfiler`, a file, an id or a tag.
        require: bounds, such as ``"latency.p99 <= 50ms"``.
        baseline: the reference, likewise, or ``"@main"``.
        max_regression: largest allowed regression: ``0.05``, ``"5%"``, or by metric, ``{"latency": 0.1}``.
        metrics: metrics that must not get worse; by default latency and memory.
        force: judge even if the hardware or the inputs differ.
        undecided: what an undecided verdict counts as, ``"pass"`` or ``"fail"``, in ``.outcome`` and in what
            ``.save("junit.xml")`` writes; by default neither.

    Returns:
        The report: ``.verdict`` is held, broken or undecided, ``.checks`` has each check,
        ``.save("junit.xml")`` or ``.sarif`` or ``.md`` writes it, and `comment` posts it.

    Raises:
        RequestError: there is nothing to check, or the hardware differs.
        RunFailed: the model failed when one of them was measured.
    """
    if baseline is None and (metrics or max_regression is not None):
        raise RequestError("metrics and max_regression need a baseline to compare with; give baseline=.")
    criteria = _criteria(metrics, max_regression, force=force)
    candidate = find_result(str(result)) if isinstance(result, str | Path) else _resolve_result(result)
    constraints = tuple(map(candidate.read_bound, as_tuple(require, "require")))
    before = None if baseline is None else _resolve_result(baseline, candidate.name)
    report = check_result(candidate, constraints, criteria, before)
    return replace(report, undecided=_read_undecided(undecided))


@reword_errors
def doctor(
    model: str | Path | None = None,
    *,
    budget: float | str = BUDGET,
    max_regression: Regression = None,
    backend: str | None = None,
    inputs: str | Sequence[str | InputSpec] = (),
    name: str | None = None,
    **settings: Unpack[MeasuredOptions],
) -> MachineCheckup:
    """Measure how often a gate would be wrong on this machine, as ``modeldyno doctor`` does.

    Args:
        model: a path or a reference, which runs against itself in fresh processes; by default a small
            built-in network.
        budget: time of a gate, in seconds or as text, in which at least twelve processes must fit.
        max_regression: largest allowed regression: ``0.05``, ``"5%"``, or by metric, ``{"latency": 0.1}``.
        backend: what runs it; by default the one for the model's format.
        inputs: shapes or files, as ``--input`` takes them.
        name: name of the model in the results.
        trust: allow files that run code when loaded (in the child process).
        store: keep the Result with the tag ``doctor``, so that a gate quotes its figures.
        tags: further tags.
        progress: show progress on standard error after two seconds, in a terminal or a notebook.
        watch: called with every event.
        settings: the backend's knobs, such as ``batch_size=8``.

    Returns:
        The checkup: ``.sentence`` is the verdict, ``.calibration`` has the false alarms and the smallest
        slowdown that is detected (a fraction), ``.improvements`` what to change on the machine.

    Raises:
        RequestError: the request is invalid.
        RunFailed: the model failed, or there were too few processes.
    """
    run, kept = take(RunOptions, settings), take(StoreOptions, settings)
    budget = read_time(budget, "budget")
    limit = TimeLimit.begin(budget, "budget")
    knobs = check_settings(settings)
    smallest = parse_max_regressions(size_texts(max_regression))
    job = Request(
        model=SPECIMEN if model is None else reference_of(model),
        backend=backend,
        settings=knobs,
        inputs=as_tuple(inputs, "inputs"),
        probes=("latency",),
        plan=CALIBRATION_PLAN,
        name=name,
        trust=run.trust,
    ).job()
    with (
        showing_progress(run.watch, progress=run.progress) as on_event,
        open_run_session(on_event, limit) as bench,
    ):
        result = run_against_itself(job, bench, budget=budget)
    store_if(result, condition=kept.store, tags=(*as_tuple(kept.tags, "tags"), TAG))
    return check_machine(result, smallest=smallest)


def _resolve_result(source: Result | Figures | str | Path, *names: str) -> Result:
    """Return the Result of a document, an id or Figures.

    Raises:
        RequestError: there is none.
        RunFailed: the model failed.
    """
    result = find_baseline(str(source), *names) if isinstance(source, str | Path) else source
    if isinstance(result, Figures):
        if result.result is None:
            raise RunFailed(f"Nothing was measured that could be compared: {result.failure}")
        result = result.result
    if failure := result.failure:
        raise RunFailed(f"{result.name} failed in {failure.where}: {failure.message.rstrip('.')}.")
    return result


def _criteria(metrics: str | Sequence[str], max_regression: Regression, *, force: bool) -> CompareOptions:
    """Return what a gate judges."""
    smallest = parse_max_regressions(size_texts(max_regression))
    return CompareOptions(metrics=as_tuple(metrics, "metrics"), smallest=smallest, force=force)
