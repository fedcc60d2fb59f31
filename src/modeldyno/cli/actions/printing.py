"""How the commands print and write results."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from modeldyno import codec, plugins
from modeldyno.cli import silence_stdout
from modeldyno.core.study.ranking import ranking
from modeldyno.views import PLAIN, ViewOptions, blocks, numbers, overview
from modeldyno.views.comparison import blocks as comparison_blocks
from modeldyno.views.lists import drop_empty_columns
from modeldyno.views.study.blocks import study as study_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from modeldyno.core.comparison.comparison import Comparison
    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.report.blocks import Block, Table
    from modeldyno.core.result.result import Result
    from modeldyno.core.study.study import Study
    from modeldyno.loadtest.replicas import CostAnswer


def print_study(study: Study, *, as_json: bool = False) -> None:
    """Print a study, or its JSON document."""
    ranked = ranking(study)
    with ignore_broken_pipe():
        if as_json:
            print_document(codec.encode_study(study, ranking=ranked))
        else:
            print_blocks(*study_blocks(study, ranked))


def write_report(result: Result, path: Path, judgements: Sequence[Judgement] = ()) -> None:
    """Write a Result in the format that the suffix of `path` names.

    Raises:
        RequestError: no reporter writes such files, or the file cannot be written.
    """
    data = plugins.reporter_for(path).render(result, judgements=judgements)
    codec.write(path, data.encode() if isinstance(data, str) else data)


def print_comparison(comparison: Comparison, *, as_json: bool = False, everything: bool = False) -> None:
    """Print a Comparison as a report, or its JSON document."""
    with ignore_broken_pipe():
        if as_json:
            print_document(codec.encode_comparison(comparison))
        else:
            print_blocks(*comparison_blocks.comparison_blocks(comparison, everything=everything))


def print_costs(answer: CostAnswer) -> None:
    """Print replicas and costs."""
    with ignore_broken_pipe():
        print_blocks(*answer.blocks())


def print_document(data: bytes) -> None:
    """Print a document, with terminal control characters escaped."""
    sys.stdout.buffer.write(plugins.resolve("reporter", "json").escape_terminal_controls(data))
    sys.stdout.buffer.flush()


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Ignore a broken pipe within the block, so that the exit code is still returned."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()


def print_result(
    result: Result, judgements: Sequence[Judgement] = (), look: ViewOptions = PLAIN, *, verbose: bool = False
) -> None:
    """Print a Result as a report, in colour where the terminal has it; `verbose` shows everything."""
    if not verbose:
        print_blocks(*overview(result, judgements, look))
        return
    print_blocks(*blocks(result, judgements, look))
    print_blocks(drop_empty_columns(numbers(result, modules=False)))


def print_blocks(*blocks: Block) -> None:
    """Print report blocks."""
    plugins.resolve("reporter", "terminal").print_blocks(blocks, console=_console())


def print_tables(*tables: Table) -> None:
    """Print tables."""
    print_blocks(*tables)


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415 - only what is drawn needs it

    class Pipe(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # handled in one place, like any error; rich would exit with 1

    return Pipe(highlight=False)
