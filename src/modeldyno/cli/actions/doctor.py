"""What ``modeldyno doctor`` does."""

from __future__ import annotations

from itertools import islice
from typing import Any

from modeldyno.base.progress import Progress
from modeldyno.base.views.text import format_rough_duration
from modeldyno.cli.actions.options import request_from_options
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.comparison.calibrate import (
    FEWEST_PROCESSES,
    PLAN,
    SPECIMEN,
    TAG,
    check_machine,
    run_against_itself,
)
from modeldyno.comparison.change.build import parse_max_regressions
from modeldyno.engine.runtime.session import open_run_session
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.profiling.run import JudgedResult


def run(**options: Any) -> None:
    """Run a model against itself, and report how often a gate errs here."""
    limit = TimeLimit.begin(options["budget"], "budget")
    smallest = parse_max_regressions(options["regressions"])
    job = request_from_options(
        options, model=options["model"] or SPECIMEN, probes=("latency",), plan=PLAN
    ).job()
    targets = OutputTargets.of({**options, "tags": (*options["tags"], TAG)})
    with Progress(quiet=options["quiet"]) as progress, open_run_session(progress.watch, limit) as bench:
        progress.announce(
            f"Running it against itself for {format_rough_duration(options['budget'])} (--budget), in "
            f"{FEWEST_PROCESSES} processes or more."
        )
        result = run_against_itself(job, bench, budget=options["budget"])
    problem = targets.keep(JudgedResult(result=result))
    checkup = check_machine(result, smallest=smallest)
    targets.print_report(islice(checkup.blocks(), 1 if options["quiet"] else None), problem=problem)
