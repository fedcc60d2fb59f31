"""What ``modeldyno worker`` does."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from modeldyno.base.identity import new_identity
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.stats.sanitize import clean
from modeldyno.base.stats.units import SECONDS, check_time_limit, parse_quantity
from modeldyno.base.views.text import format_rough_duration, format_utc
from modeldyno.engine.environment.idle import IdleRule
from modeldyno.profiling.run import OK, UNDECIDED
from modeldyno.registry.ray_cluster import run_on_ray
from modeldyno.registry.records.policy import Window
from modeldyno.registry.records.records import TaskState
from modeldyno.registry.targets import named_device
from modeldyno.registry.webhooks import read_hooks
from modeldyno.registry.worker import TaskDone, WorkerOptions, run_worker
from modeldyno.registry.worker_process import ALL, check_ray_device, run_on_each_device, worker_device

if TYPE_CHECKING:
    from modeldyno.registry.records.records import Task


def run(**options: Any) -> int:
    """Work until interrupted; return the exit code: undecided if something kept it from what is left."""
    worker_options = WorkerOptions(
        device=worker_device(options["device"]),
        target_name=options["name"],
        once=options["once"],
        until_done=options["until_done"],
        windows=tuple(map(Window.parse, options["windows"])),
        never_on=tuple(map(named_device, options["never_on"])),
        hooks=read_hooks(options["hooks"]),
        poll=check_time_limit(parse_quantity(options["poll"], SECONDS), "--poll"),
        idle=IdleRule.parse(
            cpu=options["idle_cpu"],
            utilization=options["idle_utilization"],
            memory=options["idle_memory"],
            period=options["idle_for"],
        ),
    )
    if options["ray"] is not None:
        check_ray_device(options["device"])
        run_on_ray(
            options["ray"], worker_options, done=_print_outcome, tell=lambda text: click.echo(clean(text))
        )
        return OK
    if not worker_options.once:
        _print_header(options["device"], until_done=options["until_done"])
    if options["device"] == ALL:
        return run_on_each_device(worker_options, work)
    return work(worker_options)


def _print_header(device: str, *, until_done: bool) -> None:
    """Say what a worker does and how it ends; a log has several workers, so it says which one this is."""
    ends = "Ctrl-C ends it" if sys.stdin.isatty() else f"SIGINT or SIGTERM to process {os.getpid()} ends it"
    if until_done:
        ends = f"it ends when nothing is left for the next ten minutes; before that, {ends}"
    since = "" if sys.stdin.isatty() else f"{format_utc(new_identity()['created'])[:16]} UTC: "
    click.echo(f"{since}Waiting for tasks for {device}; {ends}.", err=True)


def work(options: WorkerOptions) -> int:
    """Do tasks, a line for each when it begins and when it has ended; return the exit code."""
    why = run_worker(
        options, begin=_print_beginning, done=_print_outcome, tell=lambda text: click.echo(clean(text))
    )
    if not why:
        return OK
    click.echo(clean(f"The rest stays queued, as {why}"), err=True)
    return UNDECIDED


def _print_beginning(task: Task) -> None:
    if sys.stderr.isatty():
        click.echo(clean(f"... {task.label}"), err=True)


def _print_outcome(done: TaskDone) -> None:
    outcome = done.outcome
    if done.lost:
        text = "lost: another worker has it"
    elif outcome.state is TaskState.DEFERRED:
        again = f"; again in {format_rough_duration(outcome.again_in)}" if outcome.again_in else ""
        text = f"put off: {spell_for_command_line(outcome.why)}{again}"
    elif outcome.variant is not None:
        text = outcome.variant.sentence
    elif outcome.state is TaskState.FAILED:
        text = f"failed: {spell_for_command_line(outcome.why)}"
    else:
        text = outcome.headline + (f"; doubtful: {outcome.why}" if outcome.why else "")
    click.echo(clean(f"{done.task.label}: {text} ({done.seconds:.0f} s)"))
