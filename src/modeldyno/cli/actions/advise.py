"""What ``modeldyno advise`` does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from modeldyno.base import codec
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.metric import Query
from modeldyno.base.progress import Progress
from modeldyno.base.views.text import format_rough_duration
from modeldyno.cli.actions import options as cli_options
from modeldyno.cli.actions.output_options import OutputTargets, first_error
from modeldyno.comparison.advise import AdviseOptions, advise
from modeldyno.comparison.views.advice import advice, sentence
from modeldyno.engine.runtime.session import open_run_session
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.profiling.run import INTERRUPTED, OK
from modeldyno.serving.loadtest.replicas import CostOptions

if TYPE_CHECKING:
    from modeldyno.base.job.job import Job
    from modeldyno.comparison.change.advice import Advice


def run(**options: Any) -> int:
    """Try optimizations of a model, and report them; return the exit code."""
    limit = TimeLimit.begin(options["max_time"])
    advise_options = AdviseOptions(
        query=Query.parse(options["metric"]),
        max_time=options["max_time"],
        tolerance=options["tolerance"],
        space=not options["findings_only"],
        price=CostOptions.parse(None, options["price"]).price,
    )
    model_request = cli_options.request_from_options(
        options,
        plan=cli_options.plan_from_options({**options, "max_time": options["run_time"]}),
        observation=ProbeOptions(**cli_options.evaluation_from_options(options)),
    )
    targets = OutputTargets(json=options["json_path"], store=False)
    result, interrupted = _run_advice(model_request.job(), advise_options, limit, quiet=options["quiet"])
    problem = first_error(partial(targets.write, codec.encode_document(result)))
    headline = sentence(result) if options["quiet"] else ""
    targets.print_report(advice(result), headline, problem=problem)
    if interrupted and not targets.silent:
        click.echo("Interrupted; these are the measurements so far.")
    return INTERRUPTED if interrupted else OK


def _run_advice(
    job: Job, advise_options: AdviseOptions, limit: TimeLimit | None, *, quiet: bool
) -> tuple[Advice, bool]:
    """Return the final Advice, and whether it was interrupted."""
    result: Advice | None = None
    with Progress(quiet=quiet) as progress, open_run_session(progress.watch, limit) as bench:
        progress.announce(
            f"Trying optimizations, within {format_rough_duration(advise_options.max_time)} (--max-time)."
        )
        for result in advise(job, advise_options, bench):  # noqa: B007 - the last one is final
            pass
    assert result is not None
    return result, bool(bench.interrupted())
