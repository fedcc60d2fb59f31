"""What ``modeldyno optimize`` does."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from modeldyno.base.progress import Progress
from modeldyno.cli.actions.compare import store_comparison
from modeldyno.cli.actions.options import split_list
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.comparison.optimize import OptimizeOptions, optimize
from modeldyno.comparison.views.optimized import blocks, headline
from modeldyno.conversion.request import ConversionRequest
from modeldyno.engine.runtime.session import open_run_session
from modeldyno.profiling.run import BROKEN, INTERRUPTED, OK

_OF_CONVERSION = frozenset(
    {"model", "int8", "fp16", "inputs", "data", "tolerance", "verify", "name", "trust"}
)


def run(**options: Any) -> int:
    """Optimize a model and report the choice; return the exit code."""
    request = ConversionRequest(
        to=split_list(options["to"]), **{name: options[name] for name in _OF_CONVERSION}
    )
    values = {field.name: options[field.name] for field in fields(OptimizeOptions)}
    targets = OutputTargets(store=not options["no_store"])
    with Progress(quiet=options["quiet"]) as progress, open_run_session(progress.watch) as session:
        optimized = optimize(request, OptimizeOptions(**values), session)
    targets.store_conclusion(optimized.conversion)
    if optimized.comparison is not None:
        store_comparison(optimized.comparison, targets)
    targets.print_report(blocks(optimized), headline(optimized) if options["quiet"] else "")
    if session.interrupted():
        return INTERRUPTED
    return OK if optimized.form else BROKEN
