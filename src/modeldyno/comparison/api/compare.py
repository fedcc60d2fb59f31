"""``modeldyno.compare``: the command as a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.knob import KnobValue
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.progress import showing_progress
from modeldyno.base.result.result import Result
from modeldyno.base.stats.schedule import FEWEST_ROUNDS, MOST_ROUNDS, PLAN, QUICK, RoundSchedule
from modeldyno.base.stats.units import read_time
from modeldyno.comparison.change.build import CompareOptions, parse_smallest_effects
from modeldyno.comparison.change.comparison import Comparison
from modeldyno.comparison.explain import run_comparison
from modeldyno.comparison.operands import resolve_operands
from modeldyno.comparison.run import build_comparison
from modeldyno.conversion.request import make_output_check
from modeldyno.engine.runtime.inline import run_inline
from modeldyno.engine.runtime.session import open_run_session
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.profiling.api.arrays import labelled_file, with_batches
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.live_functions import check_functions, offered_function, with_functions
from modeldyno.profiling.api.options import (
    FunctionKeywords,
    FunctionOptions,
    OutputKeywords,
    OutputOptions,
    RunKeywords,
    RunOptions,
    StoreKeywords,
    StoreOptions,
    take,
)
from modeldyno.profiling.api.profile import (
    as_tuple,
    check_settings,
    offered,
    parse_evaluation,
    store_conclusion_if,
    store_if,
)
from modeldyno.profiling.api.settings import Knobs
from modeldyno.profiling.request import Request, make_inspection
from modeldyno.sweeps.study.study import Study

if TYPE_CHECKING:
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.comparison.operands import Operand


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """Which changes are judged, and how large one must be."""

    metrics: Sequence[str] = ()
    smallest: float | str | Mapping[str, float | str] = field(default_factory=dict)
    why: bool = True
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SideOptions:
    """What one of the sides has alone."""

    baseline_settings: Mapping[str, KnobValue] | None = None
    candidate_settings: Mapping[str, KnobValue] | None = None
    baseline_inputs: Sequence[str | InputSpec] = ()
    candidate_inputs: Sequence[str | InputSpec] = ()

    def settings(self, index: int) -> Mapping[str, KnobValue]:
        """Return the knobs of a side by its number; the baseline is 0."""
        return (self.candidate_settings if index else self.baseline_settings) or {}

    def inputs(self, index: int) -> tuple[str | InputSpec, ...]:
        """Return the inputs of a side by its number."""
        if index:
            return as_tuple(self.candidate_inputs, "candidate_inputs")
        return as_tuple(self.baseline_inputs, "baseline_inputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOptions:
    """How many rounds are run, and in which order."""

    min_rounds: int = FEWEST_ROUNDS
    max_rounds: int = MOST_ROUNDS
    block: bool = False


class CompareKeywords(Knobs, FunctionKeywords, OutputKeywords, RunKeywords, StoreKeywords, total=False):
    """Keywords of `compare`: fields of `ChangeOptions`, `SideOptions` and `RoundOptions`, and knobs."""

    metrics: Sequence[str]
    smallest: float | str | Mapping[str, float | str]
    why: bool
    force: bool
    baseline_settings: Mapping[str, KnobValue] | None
    candidate_settings: Mapping[str, KnobValue] | None
    baseline_inputs: Sequence[str | InputSpec]
    candidate_inputs: Sequence[str | InputSpec]
    min_rounds: int
    max_rounds: int
    block: bool


@reword_errors
def compare(
    baseline: Any,
    candidate: Any,
    *more: Any,
    example: Any = None,
    backend: str | None = None,
    inputs: Sequence[str | InputSpec] = (),
    probes: Sequence[str] = (),
    mode: str = "inference",
    optimizer: str | None = None,
    max_time: float | str | None = 600.0,
    quick: bool = False,
    run: bool = False,
    plan: Plan | None = None,
    percentiles: str | Sequence[str] = (),
    **settings: Unpack[CompareKeywords],
) -> Comparison:
    """Compare candidates with a baseline, as ``modeldyno compare`` does.

    Args:
        baseline: a model (a path, a reference, or a live object, which runs inside this process), or
            measurements: a Result, a Study (which stands for its best configuration), a file, an id or tag.
        candidate: likewise; both are models, or both are measurements.
        more: further candidates, each compared with the baseline.
        example: inputs of live objects, or a ``torch.utils.data.DataLoader``.
        backend: what runs the models.
        inputs: shapes or files, as ``--input`` takes them.
        probes: what to measure; the same as `profile` if empty.
        pre: function that makes the inputs of each model, as for `profile`; its calls are timed end to end.
        post: function that takes the outputs of each.
        mode: ``"inference"`` for calls, ``"train"`` for training steps.
        optimizer: optimizer of the training steps.
        evaluate: metrics of labelled samples, as for `profile`; each model answers them once.
        data: the labelled samples (.npz), perhaps with ``:`` and the name of the labels, by default `inputs`;
            for live models also batches (inputs, labels), such as a DataLoader, which are read once.
        tolerance: how far the outputs of a candidate may be off from the baseline's for the same inputs: a
            share of their largest value, such as 1e-3, or by output, ``{"boxes": 1e-2}``. A candidate beyond
            it is worse. Without it, more than 0.01 is a doubt.
        verify: function that judges the outputs instead, as for `convert`.
        metrics: metrics to judge, such as ``("latency.p99", "throughput")``.
        smallest: smallest change that matters: ``0.05`` or ``"5%"``, or by metric, ``{"latency": "5%"}``.
        baseline_settings: knobs of the baseline only.
        candidate_settings: knobs of the candidates only.
        baseline_inputs: shapes or files for the baseline only.
        candidate_inputs: shapes or files for the candidates only.
        min_rounds: rounds before the first verdict; a round runs a fresh process of each.
        max_rounds: maximum rounds while a verdict is undecided.
        max_time: time for all of it, loading and the search for causes included, in seconds or as text such
            as ``"10m"``.
        quick: answer within ten seconds, or after a round: few rounds, short ones, no causes; it stands for
            `min_rounds`, `max_rounds`, `max_time`, `why`, and for `probes` and `plan` if they are not given.
        block: run all processes of one side before those of the next, not in turns.
        why: compare outputs, and layers and operators where something has changed.
        run: measure the jobs of given results again, in turns.
        force: compare even if the hardware differs.
        plan: time and precision of each process; by default at most five seconds per probe.
        percentiles: percentiles to measure until certified, such as ``"p99"``.
        trust: allow files that run code when loaded (in the child process).
        store: keep what was measured, the Results and the Comparison, in the store; if the store cannot be
            written, it warns.
        tags: names by which `read` and the command line find the Results again.
        progress: show progress on standard error after two seconds, in a terminal or a notebook.
        watch: called with every event while it runs.
        settings: knobs of the backend for both sides, such as ``batch_size=8``.

    Returns:
        The Comparison; ``compared.contrasts[0].outcome`` is the verdict, ``.changes`` has every metric.

    Raises:
        RequestError: the request is invalid, or the hardware differs.
        RunFailed: it was interrupted before anything could be compared.
        OutOfTime: nothing could be measured within `max_time`.
    """
    functions = take(FunctionOptions, settings)
    apart = take(SideOptions, settings)
    rounds = take(RoundOptions, settings)
    judged = take(ChangeOptions, settings)
    output_options = take(OutputOptions, settings)
    run_options = take(RunOptions, settings)
    kept = take(StoreOptions, settings)
    if quick:
        rounds = replace(rounds, min_rounds=QUICK.min_rounds, max_rounds=QUICK.max_rounds)
        judged, max_time = replace(judged, why=QUICK.why), QUICK.max_time
        plan, probes = plan or QUICK.plan, probes or QUICK.probes
    max_time = None if max_time is None else read_time(max_time, "max_time")
    limit = TimeLimit.begin(QUICK.longest if quick else max_time)
    knobs = check_settings(settings)
    evaluations: Any = functions.evaluate  # it may be of another type than it is declared
    if any(map(callable, evaluations if isinstance(evaluations, tuple | list) else (evaluations,))):
        raise RequestError(
            "compare judges metrics that it knows, such as 'accuracy'; evaluate each model by a function "
            "with profile(evaluate=function, data=loader)."
        )
    criteria = CompareOptions(
        metrics=as_tuple(judged.metrics, "metrics"),
        smallest=parse_smallest_effects(size_texts(judged.smallest)),
        force=judged.force,
        why=judged.why,
    )
    all_operands = (baseline, candidate, *more)
    if not (functions.data is None or isinstance(functions.data, str | Path)) and all(
        isinstance(s, str | Path) for s in all_operands
    ):
        raise RequestError("Batches evaluate live models; of references, give data= a .npz file.")
    models = [side for side in all_operands if not isinstance(side, Result | Study | Comparison)]
    live_models = [model for model in models if not isinstance(model, str | Path)]
    check_functions(
        functions.pre,
        functions.post,
        example,
        live=len(live_models) == len(models),
        verify=output_options.verify,
    )
    if live_models and functions.pre is None:
        example, knobs = with_batches(live_models[0], example, knobs, mode)
    shared = Request(
        model="",
        backend=backend,
        settings={},
        inputs=as_tuple(inputs, "inputs"),
        probes=as_tuple(probes, "probes"),
        percentiles=as_tuple(percentiles, "percentiles"),
        plan=plan or PLAN,
        inspection=make_inspection(mode=mode, optimizer=optimizer, modules=False),
        trust=run_options.trust,
    )
    with ExitStack() as stack:
        judge = stack.enter_context(offered_function(output_options.verify, "verify"))
        criteria = replace(criteria, outputs=make_output_check(output_options.tolerance, judge))
        evaluation = parse_evaluation(functions.evaluate, stack.enter_context(labelled_file(functions.data)))
        observation = stack.enter_context(
            with_functions(ProbeOptions(**evaluation), functions.pre, functions.post, example)
        )
        shared = replace(shared, observation=observation)
        example = example if functions.pre is None else None  # it is what `pre` is called with
        requests = [
            _resolve_side(
                side,
                replace(
                    shared,
                    settings={**knobs, **apart.settings(index)},
                    inputs=(*shared.inputs, *apart.inputs(index)),
                ),
                example,
                stack,
            )
            for index, side in enumerate(all_operands)
        ]
        operands = resolve_operands(requests, run=run)
        results = [side for side in operands if isinstance(side, Result)]
        if results:
            return build_comparison(results, criteria)
        jobs = [side for side in operands if not isinstance(side, Result)]
        turns = RoundSchedule(
            side_count=len(jobs),
            first=min(rounds.min_rounds, rounds.max_rounds),
            most=rounds.max_rounds,
            max_time=max_time,
            block=rounds.block,
        )
        on_event = stack.enter_context(showing_progress(run_options.watch, progress=run_options.progress))
        bench = stack.enter_context(open_run_session(on_event, limit))
        live = any(job.model.live for job in jobs)
        result = run_comparison(
            jobs,
            turns,
            criteria,
            replace(bench, execute=partial(run_inline, limit=limit), together=None) if live else bench,
        )
    if result is None:
        raise RunFailed("It was interrupted before anything could be compared.")
    for measured in result.results:
        store_if(measured, condition=kept.store, tags=kept.tags)
    store_conclusion_if(result, condition=kept.store)
    return result


def _resolve_side(side: Any, shared: Request, example: Any, stack: ExitStack) -> Operand:
    """Resolve a side: a document is returned as it is, a model as a Request with its reference."""
    if isinstance(side, Result | Study | Comparison):
        return side
    if isinstance(side, str | Path):
        return replace(shared, model=str(side))
    ref, own = stack.enter_context(offered(side, example=example))
    return replace(shared, model=ref, backend=shared.backend or own)


def size_texts(sizes: float | str | Mapping[str, float | str] | None) -> tuple[str, ...]:
    """Return sizes of changes as the command line takes them: one for all metrics, or one per metric."""
    if isinstance(sizes, Mapping):
        return tuple(f"{name}={size}" if name else str(size) for name, size in sizes.items())
    return () if sizes is None else (str(sizes),)
