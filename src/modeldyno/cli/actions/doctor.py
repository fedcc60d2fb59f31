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
from modeldyno.core.report.blocks import Notice, Severity
from modeldyno.option_spelling import spell_for_command_line
from modeldyno.profiling import request
from modeldyno.profiling.run import JudgedResult
from modeldyno.runtime.session import open_run_session
from modeldyno.views.text import format_rough_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click

    from modeldyno.comparison.calibrate import MachineCheckup
    from modeldyno.core.report.blocks import Block


def run(ctx: click.Context, options: dict[str, Any]) -> None:
    """Run a model against itself, and report how often a gate errs here."""
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
    with Progress(quiet=options["quiet"]) as progress, open_run_session(progress.watch) as bench:
        progress.announce(
            f"Running it against itself for {format_rough_duration(options['budget'])} (--budget), in "
            f"at least {FEWEST_PROCESSES} processes."
        )
        result = run_against_itself(job, bench, budget=options["budget"])
    problem = targets.keep(JudgedResult(result=result))
    checkup = check_machine(result, smallest=smallest)
    if not targets.silent:
        head = Notice(severity=Severity.VERDICT, text=checkup.sentence)
        with ignore_broken_pipe():
            print_blocks(head, *([] if options["quiet"] else _blocks(checkup)))
            targets.told(problem)
    if problem is not None:
        raise problem
    ctx.exit(0)


def _blocks(checkup: MachineCheckup) -> Iterator[Block]:
    calibrated = checkup.calibration
    passing = (
        "no candidate as good as its baseline passes within the budget"
        if calibrated.through is None
        else f"a candidate as good as its baseline passed after {calibrated.through:.0f} rounds (median)"
    )
    yield Notice(
        severity=Severity.NOTE,
        text=f"{passing}; {calibrated.undecided / calibrated.comparisons:.1%} of such gates stay undecided; "
        f"{calibrated.margin / calibrated.comparisons:.1%} pass a slowdown as large as allowed",
    )
    changes = checkup.improvements
    for change in changes:
        seen, advice = spell_for_command_line(change.seen), spell_for_command_line(change.advice)
        yield Notice(severity=Severity.DOUBT, code=change.code, text=seen, advice=advice)
    if not changes:
        yield Notice(severity=Severity.NOTE, text="no change to this machine is advised")
