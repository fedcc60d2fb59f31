"""``modeldyno.sweep``: find the best configuration within bounds, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from modeldyno.base.errors import RequestError
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.progress import showing_progress
from modeldyno.base.stats.units import read_time
from modeldyno.base.yaml_file import FileConfig
from modeldyno.engine.runtime.inline import run_inline
from modeldyno.profiling.api.arrays import with_batches
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.live_functions import check_functions, offered_function, with_functions
from modeldyno.profiling.api.options import (
    FunctionKeywords,
    FunctionOptions,
    OutputKeywords,
    OutputOptions,
    RunKeywords,
    RunOptions,
    take,
)
from modeldyno.profiling.api.profile import check_settings, offered
from modeldyno.profiling.api.settings import Knobs
from modeldyno.stores.lookup import find_study
from modeldyno.sweeps import build
from modeldyno.sweeps.config_export import ExportedConfigurations, check_folder, export_configurations
from modeldyno.sweeps.loop import check_study, run_study
from modeldyno.sweeps.resume import check_resume, rerank_stored, resume_study
from modeldyno.sweeps.schema import KEYS
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.study import Study

if TYPE_CHECKING:
    from modeldyno.base.job.job import Job
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.engine.interfaces.executor import Executor

Aims = str | Sequence[str] | Mapping[str, float]
"""One metric, several, or a mapping from metric to weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalOptions:
    """What is looked for: objectives and bounds."""

    objectives: Aims = ()
    maximize: Aims = ()
    minimize: Aims = ()
    require: str | Sequence[str] = ()
    mode: str | None = None
    latency_budget: float | str | None = None
    min_throughput: float | str | None = None
    rank: str | None = None
    price: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How the space is searched, and how long."""

    strategy: str | None = None
    max_time: float | str | None = None
    max_trials: int | None = None
    curves: int | None = None
    bisect: int | None = None
    certain: float | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierOptions:
    """What is taken over from earlier measurements."""

    resume: str | Path | Study | None = None
    force: bool = False
    reuse: float | str | None = None


class GoalKeywords(TypedDict, total=False):
    """Fields of `GoalOptions`."""

    objectives: Aims
    maximize: Aims
    minimize: Aims
    require: str | Sequence[str]
    mode: str | None
    latency_budget: float | str | None
    min_throughput: float | str | None
    rank: str | None
    price: str | None


class SweepKeywords(Knobs, GoalKeywords, FunctionKeywords, OutputKeywords, RunKeywords, total=False):
    """Keywords of `sweep`: fields of `GoalOptions`, `SearchOptions` and `EarlierOptions`, and knobs."""

    strategy: str | None
    max_time: float | str | None
    max_trials: int | None
    curves: int | None
    bisect: int | None
    certain: float | str | None
    resume: str | Path | Study | None
    force: bool
    reuse: float | str | None


@reword_errors
def sweep(
    model: Any = None,
    *,
    space: str | Sequence[str] | Mapping[str, Any] = (),
    example: Any = None,
    backend: str | None = None,
    inputs: str | Sequence[str] = (),
    probes: str | Sequence[str] = (),
    load: Mapping[str, Any] | None = None,
    plan: Plan | None = None,
    beside: str | Sequence[str] = (),
    name: str | None = None,
    dry_run: bool = False,
    store: bool = True,
    **settings: Unpack[SweepKeywords],
) -> Study:
    """Find the best configuration of a model within bounds, as ``modeldyno sweep`` does.

    Args:
        model: what `profile` takes; a live object is measured inside this process.
        space: knobs to vary: ``{"batch_size": (1, 8, 64), "threads": "1..4"}``, or text as ``--space``
            takes it; the usual knobs if empty.
        objectives: metrics to improve, each in its own direction, optionally with weights:
            ``{"throughput": 10, "latency.p99": 5}``; throughput if no objective is given.
        maximize: metrics to maximize, such as ``"throughput"``.
        minimize: metrics to minimize, such as ``"latency.p99"``.
        require: bounds, such as ``"latency.p99 <= 10ms"``.
        mode: a preset, ``"online"`` or ``"offline"``: maximum throughput of a server.
        latency_budget: seconds, or text such as ``"10ms"``; the same as the bound ``"latency.p99 <= 10ms"``.
        min_throughput: per second; the same as the bound ``"throughput >= 500/s"``.
        rank: ``"best-load"`` ranks configurations at their best load, ``"each-load"`` every load separately.
        price: price of the machine, such as ``"1.20/h"``: every trial then has ``cost``, that of a million
            inferences, and ``token_cost`` if it has tokens, for goals and tables.
        strategy: search strategy: quick (if None), grid, ladder or optuna.
        max_time: time limit in seconds, or text such as ``"10m"``; None: until nothing more can be learned.
        max_trials: maximum number of measurements, including verification.
        curves: number of best configurations to measure at all loads after the search, within the budget.
        bisect: most loads to measure of each of the best configurations between one that holds the bounds and
            one that breaks them, within the budget.
        certain: required confidence that the answer is the best or within 5 % of it, a fraction; 0.95 if
            None.
        example: inputs of a live object, or a ``torch.utils.data.DataLoader``.
        backend: what runs or serves it.
        inputs: shapes or files, as ``--input`` takes them.
        probes: what to measure; what the goal needs if empty.
        pre: function that makes the inputs of a model in process, as for `profile`; times calls end to end.
        post: function that takes its outputs.
        evaluate: metrics of labelled samples, such as accuracy; those of the goal are added.
        data: the labelled samples (.npz), perhaps with ``:`` and the name of the labels; by default `inputs`.
        tolerance: exclude configurations whose outputs for the same inputs are off from those of the default
            by more than this share of their largest value, such as 1e-3, or by output: ``{"boxes": 1e-2}``.
        verify: function that judges the outputs instead, as for `convert`.
        load: the load on a server, such as ``{"concurrency": 8, "duration": 5.0}``.
        plan: time and precision of verification trials; search trials are shorter.
        beside: other models on the same server at the same time, such as ``"b.onnx concurrency=4"``.
        name: name of the model and the study.
        trust: allow files that run code when loaded (in the child process).
        resume: continue a study: its id or name in the store (``""`` is the newest), or a Study; only the
            budget and the goal can change. With another goal it continues as a new study that has all trials
            of the first.
        force: resume even if the model or the machine has changed.
        reuse: age in seconds, or text such as ``"24h"``, up to which measurements of other studies are taken
            where model, machine, software and settings are the same; verification is measured anew.
        dry_run: measure nothing, and return the study without trials: ``study.space`` has its axes.
        store: keep the study in the store, and the Result of each trial before the next starts.
        progress: show progress on standard error after two seconds, in a terminal or a notebook.
        watch: called with every event while it runs.
        settings: knobs of the backend that are not varied, such as ``device="cuda"``.

    Returns:
        The Study; ``modeldyno.sweeps.ranking(study).best`` is its best configuration. After an interruption
        (Ctrl-C), the current trial finishes and the Study so far is returned; a second one ends that trial.

    Raises:
        RequestError: the request is invalid; nothing was measured.
        MissingExtra: an optional package is not installed.
        RunFailed: the first two trials failed.
    """
    goal = take(GoalOptions, settings)
    search = take(SearchOptions, settings)
    functions = take(FunctionOptions, settings)
    output_options = take(OutputOptions, settings)
    run = take(RunOptions, settings)
    earlier = take(EarlierOptions, settings)
    knobs = check_settings(settings)
    if not isinstance(model, str | Path | None) and functions.pre is None:
        example, batches = with_batches(model, example, knobs, goal.mode or "inference")
        knobs = batches if space and _BATCH.isdisjoint(_parse_space(space)) else knobs
    options = {
        **asdict(goal), "strategy": search.strategy,
        "backend": backend, "input": inputs, "probe": probes, "evaluate": functions.evaluate,
        "data": None if functions.data is None else str(functions.data), "name": name, "set": knobs,
        "tolerance": output_options.tolerance, "load": load, "beside": beside,
        "space": _parse_space(space), "plan": _plan_fields(plan),
        "budget": _drop_none(asdict(replace(search, strategy=None))),
    }  # fmt: skip
    tree = _to_tree(options)
    age = None if earlier.reuse is None else read_time(earlier.reuse, "reuse")
    if earlier.resume is not None:
        if model is not None:
            raise RequestError("A resumed study cannot change model; drop it.")
        if dry_run:
            raise RequestError("A resumed study is measured; give one of resume and dry_run.")
        config = FileConfig(tree=tree)
        check_resume(config)
        study = resume_study(config, _find_study(earlier.resume))
        with showing_progress(run.watch, progress=run.progress) as on_event:
            return run_study(study, store=store, watch=on_event, force=earlier.force, reuse=age)[0]
    if model is None:
        raise RequestError("A sweep needs a model, or resume= with the id or name of a study.")
    live = not isinstance(model, str | Path)
    check_functions(functions.pre, functions.post, example, live=live, verify=output_options.verify)
    with ExitStack() as stack:
        judge = stack.enter_context(offered_function(output_options.verify, "verify"))
        tree = tree if judge is None else {**tree, "verify": judge}
        observation = stack.enter_context(
            with_functions(ProbeOptions(), functions.pre, functions.post, example)
        )
        if live:
            offer = offered(
                model, name, example if functions.pre is None else None
            )  # else `pre` is called with it
            ref, own = stack.enter_context(offer)
            tree = {"backend": own, **tree, "model": ref}
        else:
            tree = {**tree, "model": str(model)}
        study, _ = build.build_study(FileConfig(tree=tree), trust=run.trust, observation=observation)
        study = _with_plan(study, plan)
        if dry_run:
            check_study(study)
            return study
        on_event = stack.enter_context(showing_progress(run.watch, progress=run.progress))
        if live:
            return run_study(study, store=store, watch=on_event, rooms=_inline_executor)[0]
        return run_study(study, store=store, watch=on_event, force=earlier.force, reuse=age)[0]


def _inline_executor(job: Job, *, fresh: bool) -> Executor:
    """Run every Job inside this process, which has the live object."""
    del job, fresh
    return run_inline


@reword_errors
def rerank(study: str | Path | Study, **goal: Unpack[GoalKeywords]) -> Study:
    """Rank a study by another goal without measuring, as ``modeldyno sweep --rerank`` does.

    Args:
        study: a Study, a file, or its id or name in the store; ``""`` is the newest.
        objectives: as in `sweep`; what is not given stays as it was.
        maximize: metrics to maximize.
        minimize: metrics to minimize.
        require: bounds, such as ``"latency.p99 <= 10ms"``.
        mode: a preset, ``"online"`` or ``"offline"``.
        latency_budget: seconds, or text such as ``"10ms"``.
        min_throughput: per second.
        rank: ``"best-load"`` or ``"each-load"``.
        price: price of the machine, such as ``"1.20/h"``; what is not given stays as it was.

    Returns:
        The Study under the goal, for `ranking`. It is not stored; ``sweep(resume=..., minimize=...)``
        continues the search by the goal. A trial whose Result has been removed, or that did not measure a
        metric of the goal, is ranked without it.

    Raises:
        RequestError: there is no such study, or the goal is invalid.
    """
    goals = asdict(take(GoalOptions, goal))
    return rerank_stored(_find_study(study), FileConfig(tree=_to_tree(goals)))[0]


@reword_errors
def export_configs(
    study: str | Path | Study, folder: str | Path, *, top: int = 5, overwrite: bool = False
) -> ExportedConfigurations:
    """Write the best configurations for a server, as ``modeldyno sweep --export-configs`` does.

    Args:
        study: a Study, a file, or its id or name in the store; its trials must be stored.
        folder: the directory; each configuration gets a directory in it, with ``config.pbtxt`` and the model.
        top: number of configurations; the default is added.
        overwrite: allow a directory that is not empty.

    Returns:
        The written ``paths``, and a ``note`` about the model beside them.

    Raises:
        RequestError: the directory is not empty, or there is nothing to write.
    """
    stored = _find_study(study)
    check_folder(Path(folder), overwrite=overwrite)
    return export_configurations(stored, ranking(stored), Path(folder), top)


def _to_tree(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options as the tree of a sweep file."""
    return {key: _as_list(value) for key, value in options.items() if value not in (None, (), "", {}, [])}


def _find_study(study: str | Path | Study) -> Study:
    return study if isinstance(study, Study) else find_study(str(study))


_BATCH = frozenset({"batch", "batch_size"})


def _parse_space(space: str | Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Parse the axes by name: text as ``knob=values``, a Python range as the list of its numbers."""
    if not isinstance(space, str | Sequence):
        return {name: _as_list(values) for name, values in space.items()}
    axes: dict[str, Any] = {}
    for text in (space,) if isinstance(space, str) else space:
        name, separator, values = text.partition("=")
        if not separator or not name.strip():
            raise RequestError(f"space takes knob=values, such as batch_size=1,2,4, not '{text}'.")
        if name.strip() in axes:
            raise RequestError(f"space gives {name.strip()} twice; give all its values at once.")
        axes[name.strip()] = values
    return axes


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | range) else value


def _plan_fields(plan: Plan | None) -> dict[str, Any]:
    """Return the fields of a Plan that a sweep file can hold."""
    allowed = KEYS["plan"]["properties"]
    return (
        {}
        if plan is None
        else {k: v for k, v in asdict(plan).items() if k in allowed and v not in (None, ())}
    )


def _with_plan(study: Study, plan: Plan | None) -> Study:
    """Apply the fields of a Plan that a sweep file cannot hold: percentiles and processes."""
    if plan is None:
        return study
    percentiles = tuple(dict.fromkeys((*study.job.plan.percentiles, *plan.percentiles)))
    merged = replace(study.job.plan, percentiles=percentiles, processes=plan.processes)
    return replace(study, job=replace(study.job, plan=merged))


def _drop_none(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
