"""What ``modeldyno run JOBS.yaml`` does: the jobs of a file, one after the other, and a table at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from modeldyno.base.errors import ModelDynoError, RequestError, UnknownName
from modeldyno.base.report.blocks import Table, make_table, shorten
from modeldyno.cli import COMMANDS, cli, print_error, run_command
from modeldyno.cli.job_file import expand_job_file, takes_job_files
from modeldyno.profiling.job_file import COMMAND, FileJob, read_jobs

_INTERRUPTED, _TERMINATED = 130, 143
_STATES = {0: "done", 1: "broken", 5: "undecided", 2: "refused", 3: "lacks an extra", 4: "failed"}
"""Exit code to what it means of a job."""
_SEVERITY = (_TERMINATED, _INTERRUPTED, 4, 3, 2, 1, 5, 0)
"""Exit codes, the worst first: that of all jobs is the worst of any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJob:
    """A job that was run."""

    job: FileJob
    code: int
    made: Sequence[Any]
    """Its documents."""


def run(address: str, typed: Sequence[str], folder: str | None) -> NoReturn:
    """Run the jobs of a file and print a table of them; exit with the worst code of any."""
    jobs = read_jobs(address)
    check_jobs(jobs, typed)
    if folder is not None:
        if "--json" in typed or folder == "-":
            raise RequestError("--json before the file names a directory, with a document for each job.")
        Path(folder).mkdir(parents=True, exist_ok=True)
    finished: list[FinishedJob] = []
    for job in jobs:
        click.echo(f"{_title(job, jobs)}\n")
        finished.append(_run_job(job, (*typed, *_json_option(job, folder))))
        click.echo("")
        if finished[-1].code in {_INTERRUPTED, _TERMINATED}:
            click.echo(f"Interrupted at job {job.number}; to go on: modeldyno run {job.address}-")
            break
    if len(jobs) > 1:
        from modeldyno.cli.actions.printing import print_blocks  # only several need a table

        print_blocks(table_of_jobs(finished))
    sys.exit(min((job.code for job in finished), key=_SEVERITY.index))


def check_jobs(jobs: Sequence[FileJob], typed: Sequence[str]) -> None:
    """Parse the command line of every job, so that mistakes are found before the first is run.

    Raises:
        RequestError: the file has a mistake; it names the line.
        click.UsageError: an option that was typed is none of the job's command.
    """
    for job in jobs:
        with job.config.at(COMMAND):
            if not job.command:
                raise RequestError(
                    f"Job {job.number} of {job.config.origin} does not say its command; add command: profile"
                )
            ctx = click.Context(cli, info_name="modeldyno")
            command = cli.get_command(ctx, job.command)
            if command is None:
                raise UnknownName.among("command", job.command, COMMANDS)
            if job.command != "sweep" and not takes_job_files(command):
                raise RequestError(f"{job.command} cannot be a job; profile, load, sweep or compare can.")
        if job.command != "sweep":
            arguments = expand_job_file(command, ctx, (job.address, *typed))
            try:
                command.make_context(job.command, arguments, parent=ctx)
            except click.UsageError as error:
                text = f"Job {job.number} ({job.command}): {error.format_message()}"
                raise click.UsageError(text, ctx=error.ctx) from error


def _json_option(job: FileJob, folder: str | None) -> tuple[str, ...]:
    """Return the option that saves the document of a job; nothing for a command that makes none."""
    command = cli.get_command(click.Context(cli), job.command)
    makes = command is not None and any("--json" in option.opts for option in command.params)
    return ("--json", str(Path(folder) / f"{job.number}.json")) if folder is not None and makes else ()


def _run_job(job: FileJob, typed: Sequence[str]) -> FinishedJob:
    """Run one job; an error is printed, and the next job can be run."""
    arguments = [job.command, job.address, *typed]
    made: list[Any] = []
    try:
        code = run_command(arguments, made)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except (ModelDynoError, click.ClickException, click.Abort, OSError) as error:
        code = print_error(error, arguments)
    return FinishedJob(job=job, code=code if isinstance(code, int) else 0, made=made)


def _title(job: FileJob, jobs: Sequence[FileJob]) -> str:
    of = f" of {jobs[-1].number}" if len(jobs) > 1 else ""
    return f"Job {job.number}{of}: {job.command} {job.label}".rstrip()


_WHAT_CHARS, _FOUND_CHARS = 26, 29
"""Most characters of a column, so that a row has 80."""


def table_of_jobs(finished: Sequence[FinishedJob]) -> Table:
    """List the jobs: how each ended, what it found, and the document that shows more."""
    from modeldyno.base.kinds import kind_of  # only a finished job needs the kinds
    from modeldyno.base.views.text import shorten_ids

    documents = [done.made[-1] if done.made else None for done in finished]
    names = iter(shorten_ids([document.id for document in documents if document is not None]))
    rows = tuple(
        (
            str(done.job.number),
            shorten(f"{done.job.command} {done.job.label}".strip(), _WHAT_CHARS),
            _STATES.get(done.code, "interrupted"),
            "" if document is None else next(names),
            "" if document is None else shorten(kind_of(document).brief(document), _FOUND_CHARS),
        )
        for done, document in zip(finished, documents, strict=True)
    )
    titles = ("job>", "what", "state", "result", "found")
    return make_table("Jobs", titles, rows)
