"""What ``modeldyno doctor`` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.cli.actions.printing import ignore_broken_pipe, print_blocks
from modeldyno.cli.actions.progress import Progress
from modeldyno.comparison.calibrate import (
    FEWEST_PROCESSES,
    PLAN,
    SPECIMEN,
    TAG,
    check_machine,
    run_against_itself,
)
from modeldyno.core.comparison.build import parse_max_regressions
from modeldyno.profiling import request
from modeldyno.profiling.run import JudgedResult
from modeldyno.runtime.session import open_run_session
from modeldyno.runtime.time_limit import TimeLimit
from modeldyno.views.text import format_rough_duration

if TYPE_CHECKING:
    import click


def run(ctx: click.Context, options: dict[str, Any]) -> None:
    """Run a model against itself, and report how often a gate errs here."""
    limit = TimeLimit.begin(options["budget"], "budget")
    smallest = parse_max_regressions(options["regressions"])
    job = request.Request(
        model=options["model"] or SPECIMEN,
        backend=options["backend"],
        settings=request.parse_settings(options["settings"]),
        inputs=options["inputs"],
        probes=("latency",),
        plan=PLAN,
        name=options["name"],
        trust=options["trust"],
    ).job()
    options["tags"] = (*options["tags"], TAG)
    targets = OutputTargets.of(options)
    with Progress(quiet=options["quiet"]) as progress, open_run_session(progress.watch, limit) as bench:
        progress.announce(
            f"Running it against itself for {format_rough_duration(options['budget'])} (--budget), in "
            f"{FEWEST_PROCESSES} processes or more."
        )
        result = run_against_itself(job, bench, budget=options["budget"])
    problem = targets.keep(JudgedResult(result=result))
    checkup = check_machine(result, smallest=smallest)
    if not targets.silent:
        head, *rest = checkup.blocks()
        with ignore_broken_pipe():
            print_blocks(head, *([] if options["quiet"] else rest))
            targets.print_saved(problem)
    if problem is not None:
        raise problem
    ctx.exit(0)
