"""How the commands print and write results."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.stats.sanitize import escape_json
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.cli import silence_stdout
from modeldyno.profiling import views
from modeldyno.profiling.findings.rules import findings
from modeldyno.profiling.views.findings import pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.report.blocks import Block
    from modeldyno.base.result.result import Result


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Ignore a broken pipe within the block, so that the exit code is still returned."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()


@ignore_broken_pipe()
def print_document(data: bytes) -> None:
    """Print a document, with terminal control characters escaped."""
    sys.stdout.buffer.write(escape_json(data))


def print_result(
    result: Result, judgements: Sequence[Judgement] = (), view: ViewOptions = PLAIN, *, verbose: bool = False
) -> None:
    """Print a Result as a report, in colour where the terminal has it; `verbose` shows everything."""
    options = replace(view, judgements=tuple(judgements), knobs=plugins.knobs)
    if not verbose:
        print_blocks(*views.overview(result, options))
        return
    from modeldyno.base.report.blocks import drop_empty_columns  # only --verbose needs it

    print_blocks(*views.blocks(result, options))
    if (numbers := views.numbers(result, modules=False)).rows:
        print_blocks(drop_empty_columns(numbers))


@ignore_broken_pipe()
def print_blocks(*blocks: Block) -> None:
    """Print report blocks."""
    plugins.terminal().print_blocks(blocks, console=_console())


def _console() -> Console:
    from rich.console import Console  # only what is drawn needs it

    class Pipe(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # handled in one place, like any error; rich would exit with 1

    return Pipe(highlight=False)


def print_hint(result: Result) -> None:
    """Print a pointer to the findings of a result, if there are any."""
    job = result.job
    knobs = plugins.knobs(job.backend)
    hint = pointer(result, findings(result, knobs), knobs, plugins.loader(job.model.scheme).backend)
    if hint is not None:
        print_blocks(hint)
