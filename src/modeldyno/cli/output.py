"""What commands print and write, and where they find documents."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno import plugins, wire
from modeldyno.cli import nobody_listens
from modeldyno.core.ranking import ranking
from modeldyno.errors import RequestError, UnreadableDocument
from modeldyno.ports import Compares, Tabulates
from modeldyno.views import PLAIN, SORTS, Look, blocks, numbers
from modeldyno.views.study import study as laid_out
from modeldyno.views.study_numbers import trials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from modeldyno.core.block import Block, Table
    from modeldyno.core.goal import Judgement
    from modeldyno.core.result import Result
    from modeldyno.core.study import Study
    from modeldyno.ports import Reporter


def find(document: str) -> Result:
    """Give a Result by the path of its file, or by its id, a prefix of it or a tag in the store.

    Raises:
        RequestError: there is none.
    """
    path = Path(document)
    if path.is_file():
        return wire.read(path)
    if path.suffix == ".json" or "/" in document:
        raise RequestError(f"There is no file '{document}'; check the path, or name a stored id or tag.")
    with plugins.store() as store:
        return store.get(document)


def find_study(document: str) -> Study:
    """Give a Study by the path of its file, or by its id or name in the store; ``""`` is the newest.

    Raises:
        RequestError: there is none.
    """
    path = Path(document)
    if document and path.is_file():
        return wire.read_study(path)
    with plugins.store() as store:
        if document:
            return store.study(document)
        newest = store.studies(limit=1)
        if not newest:
            raise RequestError("The store has no study yet; modeldyno sweep MODEL makes one.")
        return store.study(newest[0].id)


def find_any(document: str) -> Result | Study:
    """Give the Result or the Study that a path, an id or the beginning of one, a tag or a name stands for.

    Raises:
        RequestError: there is neither.
    """
    path = Path(document)
    if path.is_file() and wire.kind_of(path) == wire.STUDY:
        return wire.read_study(path)
    try:
        return find(document)
    except UnreadableDocument:
        raise
    except RequestError:
        with suppress(RequestError):
            if not path.is_file():
                return find_study(document)
        raise


def print_study(found: Study, *, as_json: bool = False) -> None:
    """Print what a study found, or its document."""
    ranked = ranking(found)
    with listened():
        if as_json:
            sys.stdout.buffer.write(wire.encode_study(found, ranking=ranked))
        else:
            print_blocks(*laid_out(found, ranked))


def writes_studies(path: Path) -> None:
    """Refuse a file that no study is written as.

    Raises:
        RequestError: its suffix is none of a table or of JSON.
    """
    if path.suffix != ".json" and not isinstance(reporter_for(path), Tabulates):
        raise RequestError(f"A study is written as .csv or .json, and not as {path}.")


def write_study(found: Study, path: Path) -> None:
    """Write a Study: its trials as a table, or the whole document with its ranking.

    Raises:
        RequestError: the suffix of `path` is none of these, or it cannot be written.
    """
    writes_studies(path)
    ranked = ranking(found)
    reporter = reporter_for(path)
    if path.suffix != ".json" and isinstance(reporter, Tabulates):
        wire.write(path, reporter.table(trials(found, ranked)).encode())
    else:
        wire.write(path, wire.encode_study(found, ranking=ranked))


def reporter_for(path: Path) -> Reporter:
    """Give the reporter that the suffix of `path` names.

    Raises:
        RequestError: none writes such files.
    """
    formats = {
        plugins.reporter(name).suffix: name for name in plugins.names("reporter") if name != "terminal"
    }
    if path.suffix not in formats:
        raise RequestError(f"No reporter writes '{path.name}'; use one of {', '.join(sorted(formats))}.")
    return plugins.reporter(formats[path.suffix])


def write_report(result: Result, path: Path, judgements: Sequence[Judgement] = ()) -> None:
    """Write a Result in the format that the suffix of `path` names.

    Raises:
        RequestError: no reporter writes such files, or the file cannot be written.
    """
    data = reporter_for(path).render(result, judgements=judgements)
    wire.write(path, data.encode() if isinstance(data, str) else data)


def write_comparison(first: Result, second: Result, path: Path) -> None:
    """Write two Results side by side in the format that the suffix of `path` names.

    Raises:
        RequestError: no reporter writes two into such files, or the file cannot be written.
    """
    reporter = reporter_for(path)
    if not isinstance(reporter, Compares):
        raise RequestError(f"A {path.suffix} file holds one model; use .csv, .html, .json or .md.")
    data = reporter.compare(first, second)
    wire.write(path, data.encode() if isinstance(data, str) else data)


def print_json(*results: Result) -> None:
    """Print the document, or an array of several, with nothing in it that a terminal would obey."""
    reporter = plugins.reporter("json")
    documents = [data.encode() if isinstance(data, str) else data for data in map(reporter.render, results)]
    sys.stdout.buffer.write(documents[0] if len(documents) == 1 else wire.array(documents))
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
    """Print a Result for people, in colour where the terminal has it; `verbose` adds numbers of the whole."""
    print_blocks(*blocks(result, judgements, look))
    if verbose:
        print_blocks(numbers(result, modules=False))


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
