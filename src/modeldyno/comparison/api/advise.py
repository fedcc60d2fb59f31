"""``modeldyno.advise`` and ``modeldyno.trend``: the commands as functions."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import Query
from modeldyno.base.progress import showing_progress
from modeldyno.base.result.cost import Price
from modeldyno.base.stats.units import read_time
from modeldyno.comparison import advise as comparison_advise
from modeldyno.comparison import history
from modeldyno.comparison.change.comparison import SMALLEST_EFFECT
from modeldyno.comparison.change.trend import LONGEST
from modeldyno.engine.runtime.inline import run_inline
from modeldyno.engine.runtime.session import open_run_session
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.options import RunKeywords, RunOptions, take
from modeldyno.profiling.api.profile import as_tuple, check_settings, offered, parse_evaluation
from modeldyno.profiling.api.settings import Knobs
from modeldyno.profiling.request import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.comparison.change.advice import Advice
    from modeldyno.comparison.change.trend import Trend

_PLAN = Plan(max_time=2.0, min_time=0.3)


class AdviseKeywords(Knobs, RunKeywords, total=False):
    """Keywords of `advise`."""


@reword_errors
def advise(
    model: Any,
    example: Any = None,
    *,
    metric: str = "throughput",
    max_time: float | str = comparison_advise.MAX_TIME,
    tolerance: float = comparison_advise.TOLERANCE,
    findings_only: bool = False,
    price: str | None = None,
    backend: str | None = None,
    inputs: Sequence[str | InputSpec] = (),
    evaluate: str | Sequence[str] = (),
    data: str | Path | None = None,
    plan: Plan | None = None,
    name: str | None = None,
    **settings: Unpack[AdviseKeywords],
) -> Advice:
    """Try optimizations of a model, as ``modeldyno advise`` does.

    Args:
        model: a reference (``"m.onnx"``, ``"torch:file.py:factory"``), which runs in fresh processes, or a
            live object, which runs inside this one.
        example: inputs of a live object.
        metric: what to improve: ``"throughput"``, ``"latency.p50"``, or ``"cost"`` with a price.
        max_time: time for all of it, loading included, in seconds or as text such as ``"10m"``.
        tolerance: largest accepted difference of the outputs, relative to the largest output.
        findings_only: try only what the findings suggest, not the usual settings of the backend.
        price: price of the machine, such as ``"1.20/h"``, for what a million inferences cost.
        backend: what runs it; by default the one for the model's format.
        inputs: shapes or files, as ``--input`` takes them.
        evaluate: metrics of labelled samples, as for `profile`, that the best setting is compared in.
        data: the labelled samples (.npz), perhaps with ``:`` and the name of the labels; by default `inputs`.
        plan: time and precision of each process.
        name: name of the model in the results.
        trust: allow files that run code when loaded (in the child process).
        progress: show progress on standard error after two seconds, in a terminal or a notebook.
        watch: called with every event.
        settings: the knobs of the baseline, such as ``batch_size=8``.

    Returns:
        The Advice: ``advice.best_finalist`` is the best setting or None, ``advice.tried`` all settings tried,
        and ``advice.command`` the command to type.

    Raises:
        RequestError: the request is invalid.
        RunFailed: the unchanged model fails.
        OutOfTime: nothing could be measured within `max_time`.
    """
    run = take(RunOptions, settings)
    max_time = read_time(max_time, "max_time")
    limit = TimeLimit.begin(max_time)
    knobs = check_settings(settings)
    options = comparison_advise.AdviseOptions(
        query=Query.parse(metric), max_time=max_time, tolerance=tolerance, space=not findings_only,
        price=None if price is None else Price.parse(price),
    )  # fmt: skip
    live = not isinstance(model, str | Path)
    with ExitStack() as stack:
        ref, own = stack.enter_context(offered(model, name, example)) if live else (str(model), None)
        request = Request(
            model=ref,
            backend=backend or own,
            settings=knobs,
            inputs=as_tuple(inputs, "inputs"),
            observation=ProbeOptions(**parse_evaluation(evaluate, data)),
            plan=plan or _PLAN,
            name=name,
            trust=run.trust,
        )
        on_event = stack.enter_context(showing_progress(run.watch, progress=run.progress))
        bench = stack.enter_context(open_run_session(on_event, limit))
        if live:
            bench = replace(bench, execute=partial(run_inline, limit=limit), together=None)
        return list(comparison_advise.advise(request.job(), options, bench))[-1]


@reword_errors
def trend(
    model: str,
    *,
    metric: str | None = None,
    backend: str | None = None,
    limit: int = LONGEST,
    smallest: float = SMALLEST_EFFECT,
    **settings: Unpack[Knobs],
) -> Trend:
    """Find levels and steps in the stored results of a model, as ``modeldyno trend`` does.

    Args:
        model: its name in the store.
        metric: a query, such as ``"latency.p99"``; by default the typical latency.
        backend: only results of this backend.
        limit: number of newest results to use.
        smallest: relative change that matters.
        settings: only results with these knobs.

    Returns:
        The Trend; ``trend.regressions`` are the regressions that persist.

    Raises:
        RequestError: the store has no such results.
    """
    return history.trend_of(
        model,
        metric=metric,
        backend=backend,
        settings=check_settings(settings),
        limit=limit,
        smallest=smallest,
    )
