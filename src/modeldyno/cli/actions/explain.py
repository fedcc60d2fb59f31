"""What ``modeldyno explain`` does."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.progress import Progress
from modeldyno.base.views.text import format_rough_duration
from modeldyno.cli.actions.options import request_from_options
from modeldyno.cli.actions.output_options import OutputTargets, report_hint
from modeldyno.profiling.resolve_model import names_model
from modeldyno.profiling.run import FAILED, INTERRUPTED, OK, JudgedResult
from modeldyno.profiling.views import ViewOptions
from modeldyno.serving.codec import explanation as codec_explanation
from modeldyno.serving.load.explanation import ECHO
from modeldyno.serving.loadtest.explanation import (
    ExplainOptions,
    describe_plan,
    explain_results,
    load_of,
    measure_explanation,
    plan_explanation,
    results_of,
)
from modeldyno.serving.views import explanation as view
from modeldyno.stores.lookup import find_any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.result.result import Result
    from modeldyno.serving.load.explanation import Explanation


def run(**options: Any) -> int:
    """Explain a model, a result or two, and report it; return the exit code."""
    targets = OutputTargets.of(options, of_results=False)
    model, candidate = options["model"], options["candidate"]
    measured = names_model(model)
    if measured and candidate is not None:
        raise RequestError(
            f"'{model}' is a model; give two results, or one model and --baseline to compare with a result."
        )
    if candidate is not None and options["baseline"] is not None:
        raise RequestError("The baseline is given twice: as the first result, and as --baseline; drop one.")
    baseline = {} if options["baseline"] is None else results_of(find_any(options["baseline"]))
    if measured:
        explanation = _measure(options, targets, baseline)
    else:
        results = results_of(find_any(model))
        if candidate is not None:
            baseline, results = results, results_of(find_any(candidate))
        explanation = explain_results(results, baseline, statistic=options["statistic"])
    problem = targets.write_both(explanation, codec_explanation.encode(explanation))
    blocks = view.blocks(explanation, ViewOptions(verbose=options["verbose"]))
    kept = measured and targets.store and not options["quiet"]
    targets.print_report(
        islice(blocks, 1 if options["quiet"] else None),
        hints=[report_hint(explanation, "explained.html")] if kept else [],
        problem=problem,
    )
    return INTERRUPTED if explanation.interrupted else FAILED if explanation.failures else OK


def _measure(options: Mapping[str, Any], targets: OutputTargets, baseline: dict[str, Result]) -> Explanation:
    planned = plan_explanation(
        request_from_options(options, plan=Plan()),
        ExplainOptions(
            load=load_of(options["concurrency"], options["rate"]),
            rounds=options["rounds"],
            max_time=options["max_time"],
            statistic=options["statistic"],
        ),
    )
    with Progress(quiet=options["quiet"]) as progress:
        longest = format_rough_duration(options["max_time"])
        progress.announce(f"{describe_plan(planned)}, within {longest} (--max-time).")
        explanation = measure_explanation(planned, watch=progress.watch, baseline=baseline)
    for name, result in explanation.results.items():
        if name != ECHO:
            targets.store_only(JudgedResult(result=result))
    targets.store_conclusion(explanation)
    return explanation
