"""``modeldyno.optimize``: a model in its best form that is still the model."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from modeldyno.base.progress import showing_progress
from modeldyno.base.stats.units import read_time
from modeldyno.comparison.optimize import MAX_TIME, OptimizeOptions
from modeldyno.comparison.optimize import optimize as run_optimization
from modeldyno.conversion.request import ConversionRequest
from modeldyno.engine.runtime.inline import run_inline
from modeldyno.engine.runtime.session import open_run_session
from modeldyno.profiling.api.arrays import with_batches
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.live_functions import check_functions, offered_function
from modeldyno.profiling.api.options import OutputKeywords, OutputOptions, RunKeywords, RunOptions, take
from modeldyno.profiling.api.profile import as_tuple, offered, parse_names, store_conclusion_if, store_if

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.comparison.change.choice import Optimized


class OptimizeKeywords(OutputKeywords, RunKeywords, total=False):
    """Keywords of `optimize`."""


@reword_errors
def optimize(
    model: Any,
    example: Any = None,
    *,
    to: str | Sequence[str] = "all",
    int8: bool = False,
    fp16: bool = False,
    prefer: str | Sequence[str] = (),
    batch_size: int | None = None,
    output: str | Path | None = None,
    inputs: str | Sequence[str | InputSpec] = (),
    data: str | Path | None = None,
    max_time: float | str = MAX_TIME,
    name: str | None = None,
    store: bool = True,
    **options: Unpack[OptimizeKeywords],
) -> Optimized:
    """Convert a model and package its best form that is still the model, as ``modeldyno optimize`` does.

    Args:
        model: a reference, or a live object: a ``torch.nn.Module``, a model of Keras, or an estimator.
        example: inputs of a live object: an array, a tuple of them, or a dict by name.
        to: forms to try, such as ``"onnx,openvino"``, or ``"all"`` that the model can become here.
        int8: also try the form with int8 weights of each form that has one.
        fp16: also try the form in half precision of each form that has one.
        prefer: preferences, the first that can be met decides: a metric (``"latency.p50"``, the default), one
            with bounds (``"throughput if latency.p99 <= 10ms"``), or a form (``"openvino"``). If all are
            forms, they are made in this order until one is still the model, and nothing is measured.
        batch_size: samples of each call that is measured.
        output: the package (.zip); by default one in the working directory, named for the model.
        inputs: shapes or files, as ``--input`` takes them.
        data: real samples (.npz, .npy, .jsonl) to compare with.
        tolerance: how far outputs may be off, as for `convert`.
        verify: function that judges the outputs instead, as for `convert`.
        max_time: time that the forms are measured for, in seconds or as text such as ``"3m"``.
        name: name of the model.
        trust: allow files that run code when loaded.
        store: keep the Conversion and the Comparison in the store.
        progress: show progress on standard error after two seconds, in a terminal or a notebook.
        watch: called with every event while it runs.

    Returns:
        The choice: ``.form``, ``.path`` of the package, ``.conversion`` and ``.comparison``.
        ``modeldyno.open_model(optimized.path)`` calls it; ``.as_module(module)`` of that stands in for a
        torch module.

    Raises:
        RequestError: the request is wrong; nothing was measured.
    """
    judged = take(OutputOptions, options)
    run = take(RunOptions, options)
    live = not isinstance(model, str | Path)
    check_functions(None, None, None, live=live, verify=judged.verify)
    with ExitStack() as stack:
        reference, backend = str(model), ""
        if live:
            arrays, _ = with_batches(model, example, {}, mode="inference")
            reference, backend = stack.enter_context(offered(model, name, arrays))
        request = ConversionRequest(
            model=reference,
            to=parse_names(to, "to"),
            int8=int8,
            fp16=fp16,
            inputs=as_tuple(inputs, "inputs"),
            data=data,
            tolerance=judged.tolerance,
            verify=stack.enter_context(offered_function(judged.verify, "verify")),
            name=name,
            trust=run.trust,
        )
        how = OptimizeOptions(
            prefer=(prefer,) if isinstance(prefer, str) else tuple(prefer),
            batch_size=batch_size,
            max_time=read_time(max_time, "max_time"),
            output=output,
        )
        on_event = stack.enter_context(showing_progress(run.watch, progress=run.progress))
        session = stack.enter_context(open_run_session(on_event))
        if live:
            session = replace(session, execute=partial(run_inline), together=None)
        optimized = run_optimization(request, how, session, backend=backend)
    store_conclusion_if(optimized.conversion, condition=store)
    if optimized.comparison is not None:
        for measured in optimized.comparison.results:
            store_if(measured, condition=store)
        store_conclusion_if(optimized.comparison, condition=store)
    return optimized
