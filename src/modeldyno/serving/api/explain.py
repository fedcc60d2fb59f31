"""``modeldyno.explain``: the command as a function."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.progress import showing_progress
from modeldyno.base.result.result import Result
from modeldyno.base.stats.units import read_time
from modeldyno.engine.runtime.inline import run_inline
from modeldyno.profiling.api.arrays import with_batches
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.options import MeasuredOptions, RunOptions, StoreOptions, take
from modeldyno.profiling.api.profile import as_tuple, check_settings, offered, store_conclusion_if, store_if
from modeldyno.profiling.request import Request
from modeldyno.profiling.resolve_model import names_model
from modeldyno.serving.load.explanation import ECHO, Explanation
from modeldyno.serving.loadtest.explanation import (
    MAX_TIME,
    ROUNDS,
    ExplainOptions,
    explain_results,
    load_of,
    measure_explanation,
    plan_explanation,
    results_of,
)
from modeldyno.stores.lookup import find_any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.input_spec import InputSpec


@reword_errors
def explain(
    model: Any,
    candidate: Result | Explanation | str | Path | None = None,
    *,
    example: Any = None,
    baseline: Result | Explanation | str | Path | None = None,
    backend: str | None = None,
    inputs: Sequence[str | InputSpec] = (),
    concurrency: int | None = None,
    rate: float | str | None = None,
    statistic: str | None = None,
    rounds: int = ROUNDS,
    max_time: float | str = MAX_TIME,
    name: str | None = None,
    **settings: Unpack[MeasuredOptions],
) -> Explanation:
    """Explain a latency hop by hop, as ``modeldyno explain`` does.

    Args:
        model: a path, a reference, a live object (of which the call in this process is explained), the URL of
            a running server; or what was measured before: a Result, an Explanation, a file, an id or a tag.
        candidate: what was measured after `model`, to explain what changed; `model` must be such, too.
        example: inputs of a live object, or a ``torch.utils.data.DataLoader``.
        baseline: what was measured before, to compare a model with that is measured now.
        backend: what serves the model, such as ``"triton"``; if None, only the call in process is explained.
        inputs: shapes or files, as ``--input`` takes them.
        concurrency: concurrent requests of the load, in a closed loop; 4 by default. With a rate, their
            maximum.
        rate: requests per second of the load, in an open loop: a number, or text such as ``"100:poisson"``.
        statistic: ``"mean"`` or ``"p50"``; if None, the median of calls and the mean of requests, as a server
            tells means: of requests the median has a rest that the mean lacks.
        rounds: rounds in which everything is measured once.
        max_time: time for all of it, in seconds or as text such as ``"10m"``; what does not fit is left out.
        name: name of the model in the results.
        trust: allow files that run code when loaded (in the child process).
        store: keep the Results and the Explanation in the store; if the store cannot be written, it warns.
        tags: names by which `read` and the command line find the Results again.
        progress: show progress on standard error after two seconds, in a terminal or a notebook.
        watch: called with every event while it runs.
        settings: knobs, such as ``batch_size=8``; each goes to the backends that have it.

    Returns:
        The Explanation: ``.hops`` are the parts, ``explained["framework"]`` and ``explained["under load"]``
        are seconds, ``.whole`` is the latency that is explained.

    Raises:
        RequestError: the request is invalid; nothing was measured.
        MissingExtra: the server is not installed.
        RunFailed: nothing was measured.
    """
    run, kept = take(RunOptions, settings), take(StoreOptions, settings)
    knobs = check_settings(settings)
    is_document = isinstance(model, Result | Explanation) or (
        isinstance(model, str | Path) and not names_model(str(model))
    )
    if not is_document and candidate is not None:
        raise RequestError(
            "A candidate is compared with what was measured before; give a model and baseline=."
        )
    if candidate is not None and baseline is not None:
        raise RequestError("The baseline is given twice: as the first result, and as baseline=; drop one.")
    before = {} if baseline is None else _results(baseline)
    if is_document:
        results = _results(model)
        if candidate is not None:
            before, results = results, _results(candidate)
        return explain_results(results, before, statistic=statistic)
    with ExitStack() as stack:
        live = not isinstance(model, str | Path)
        if live:
            example, knobs = with_batches(model, example, knobs, mode="inference")
        reference, own = stack.enter_context(offered(model, name, example)) if live else (str(model), None)
        planned = plan_explanation(
            Request(
                model=reference,
                backend=backend or own,
                settings=knobs,
                inputs=as_tuple(inputs, "inputs"),
                plan=Plan(),
                name=name,
                trust=run.trust,
            ),
            ExplainOptions(
                load=load_of(concurrency, None if rate is None else str(rate)),
                rounds=rounds,
                max_time=read_time(max_time, "max_time"),
                statistic=statistic,
            ),
        )
        on_event = stack.enter_context(showing_progress(run.watch, progress=run.progress))
        explanation = measure_explanation(
            planned, watch=on_event, execute=run_inline if live else None, baseline=before
        )
    for level, result in explanation.results.items():
        if level != ECHO:
            store_if(result, condition=kept.store, tags=kept.tags)
    store_conclusion_if(explanation, condition=kept.store)
    return explanation


def _results(document: Result | Explanation | str | Path) -> dict[str, Result]:
    return results_of(find_any(str(document)) if isinstance(document, str | Path) else document)
