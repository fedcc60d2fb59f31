"""What commands print and write."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from modeldyno import codec, plugins
from modeldyno.cli import nobody_listens
from modeldyno.core.study.ranking import ranking
from modeldyno.views import PLAIN, SORTS, Look, blocks, numbers, overview
from modeldyno.views.comparison import blocks as comparison_blocks
from modeldyno.views.lists import filled
from modeldyno.views.study.blocks import study as laid_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from modeldyno.core.comparison.comparison import Comparison
    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.report.blocks import Block, Table
    from modeldyno.core.result.result import Result
    from modeldyno.core.study.study import Study


def print_study(found: Study, *, as_json: bool = False) -> None:
    """Print what a study found, or its document."""
    ranked = ranking(found)
    with listened():
        if as_json:
            print_document(codec.encode_study(found, ranking=ranked))
        else:
            print_blocks(*laid_out(found, ranked))


def write_report(result: Result, path: Path, judgements: Sequence[Judgement] = ()) -> None:
    """Write a Result in the format that the suffix of `path` names.

    Raises:
        RequestError: no reporter writes such files, or the file cannot be written.
    """
    data = plugins.reporter_for(path).render(result, judgements=judgements)
    codec.write(path, data.encode() if isinstance(data, str) else data)


def print_contrast(found: Comparison, *, as_json: bool = False, everything: bool = False) -> None:
    """Print a Comparison for people, or its document."""
    with listened():
        if as_json:
            print_document(codec.encode_comparison(found))
        else:
            print_blocks(*comparison_blocks.contrasted(found, everything=everything))


def print_document(data: bytes) -> None:
    """Print a document, with nothing in it that a terminal would obey."""
    sys.stdout.buffer.write(plugins.resolve("reporter", "json").harmless(data))
    sys.stdout.buffer.flush()


@contextmanager
def listened() -> Iterator[None]:
    """Go on when the reader of our output has gone: the exit code is still to be told."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        nobody_listens()


def draw(
    result: Result, judgements: Sequence[Judgement] = (), look: Look = PLAIN, *, verbose: bool = False
) -> None:
    """Print a Result for people, in colour where the terminal has it; `verbose` shows all there is."""
    if not verbose:
        print_blocks(*overview(result, judgements, look))
        return
    print_blocks(*blocks(result, judgements, look))
    print_blocks(filled(numbers(result, modules=False)))


def print_blocks(*blocks: Block) -> None:
    """Print blocks for people."""
    plugins.resolve("reporter", "terminal").print_blocks(blocks, console=_console())


def print_tables(*tables: Table) -> None:
    """Print tables for people."""
    print_blocks(*tables)


def look_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which modules to show."""
    options = (
        click.option("--depth", type=click.IntRange(min=0), help="Levels of modules to show."),
        click.option(
            "--sort", type=click.Choice(SORTS), default="order", show_default=True, help="Order of modules."
        ),
        click.option("--filter", metavar="TEXT", default="", help="Only modules with it in path or class."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415 - only what is drawn needs it

    class Pipe(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # told in one place, like any error; rich would leave with 1

    return Pipe(highlight=False)
