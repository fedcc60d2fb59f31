"""What becomes of an Outcome: where it is kept, how it is told. Shared by the commands that measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
from click.core import ParameterSource

from modeldyno import codec, plugins
from modeldyno.cli import quantity
from modeldyno.cli.printing import listened, print_document, write_report
from modeldyno.core.spec.static_options import Mode
from modeldyno.documents.lookup import keep as keep_results
from modeldyno.documents.write import write_several
from modeldyno.errors import ModelDynoError, RequestError, StoreError
from modeldyno.views import headline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modeldyno.core.comparison.saved_kinds import Conclusion
    from modeldyno.profiling.run import Outcome


def keeping_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where a result is kept and how much of it is printed."""
    options = (
        click.option("--tag", "tags", multiple=True, help="Tag the stored result."),
        click.option("--json", "json_path", metavar="PATH|-", help="Save the document, or print it."),
        click.option("-o", "--output", metavar="FILE", help="Write a report too: .html .pdf .md .csv .json"),
        click.option("--no-store", is_flag=True, help="Do not keep the result."),
        click.option("-q", "--quiet", is_flag=True, help="Print the verdict only."),
    )
    for option in reversed(options):
        command = option(command)
    return command


_LEAST_MEMORY = 64 * 2**20
"""Bytes, fewer than which no child process begins with."""


def _memory(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    number: int | None = quantity("B")(ctx, parameter, value)
    if number is not None and number < _LEAST_MEMORY:
        bare = str(value).strip().isdecimal()
        hint = f"it was read as bytes; write {value}GiB" if bare else "a child process takes 64 MiB at least"
        raise RequestError(f"{parameter.opts[0]} {value} is too little: {hint}.")
    return number


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that bound a child process."""
    command = click.option(
        "--memory-limit", callback=_memory, help="Most memory of a child process, such as 2GiB."
    )(command)
    return click.option(
        "--timeout", callback=quantity("s"), help="Longest life of a child process, such as 10m."
    )(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where results are kept; checked before anything is measured."""

    json: str | None = None
    """A path, or ``-`` for standard output."""
    report: str | None = None
    store: bool = True
    tags: tuple[str, ...] = ()
    derived: Mapping[str, Any] = field(default_factory=dict)
    """What the document of one Result says beside it, such as the replicas that a demand takes."""

    @classmethod
    def of(cls, options: dict[str, Any]) -> Self:
        """Read the options, and find before measuring, not after, that a result could not be kept."""
        found = cls(
            json=options["json_path"],
            report=options["output"],
            store=not options["no_store"],
            tags=tuple(options["tags"]),
        )
        for path in filter(None, (found.json, found.report)):
            if path != "-":
                codec.check_directory(Path(path))
        if found.report:
            plugins.reporter_for(Path(found.report))
        if found.store:
            try:
                keep_results(())
            except StoreError as error:
                if found.tags:  # who names a result wants to find it again
                    raise
                warn_not_stored(error)
                return replace(found, store=False)
        return found

    @property
    def silent(self) -> bool:
        """Whether standard output holds the document alone."""
        return self.json == "-"

    def keep(self, *outcomes: Outcome) -> ModelDynoError | None:
        """Save everywhere that was asked for; a place that fails does not keep the others from it."""
        problem: ModelDynoError | None = None
        for save in (self._to_json, self._to_report, self._to_store):
            try:
                save(outcomes)
            except ModelDynoError as error:
                problem = problem or error
        return problem

    def refuse_report(self, why: str) -> None:
        """Refuse a report of what has none, before anything is measured."""
        if self.report:
            raise RequestError(f"{why}; leave {self.report} away, and save the document with --json.")

    def store_only(self, outcome: Outcome) -> None:
        """Keep one of several Outcomes; the document of them all comes at the end."""
        self._to_store((outcome,))

    def conclude(self, found: Conclusion, headline: str) -> None:
        """Keep what was concluded from several Results, which are kept already."""
        if not self.store:
            return
        try:
            with plugins.store() as store:
                store.put_conclusion(found, headline=headline)
        except StoreError as error:
            warn_not_stored(error)

    def write(self, document: bytes) -> None:
        """Save a document where JSON goes."""
        if self.json == "-":
            with listened():
                print_document(document)
        elif self.json:
            codec.write(Path(self.json), document)

    def _to_json(self, outcomes: Sequence[Outcome]) -> None:
        """Write one document as itself, with what is derived of it, and several as an array."""
        self.write(
            codec.encode_several([outcome.result for outcome in outcomes])
            if len(outcomes) > 1
            else codec.encode(outcomes[0].result, **_judged(outcomes[0]), **self.derived)
        )

    def _to_report(self, outcomes: Sequence[Outcome]) -> None:
        if self.report and len(outcomes) == 1:
            write_report(outcomes[0].result, Path(self.report), outcomes[0].judgements)
        elif self.report:
            write_several([outcome.result for outcome in outcomes], Path(self.report))

    def _to_store(self, outcomes: Sequence[Outcome]) -> None:
        if not self.store:
            return
        try:
            keep_results([outcome.result for outcome in outcomes], self.tags)
        except StoreError as error:
            if self.tags:
                raise
            warn_not_stored(error)

    def told(self) -> None:
        """Say where the document is."""
        if self.json:
            click.echo(f"Saved to {self.json}.")


def warn_not_stored(error: StoreError) -> None:
    """Say that what is measured is printed and written, but not stored."""
    text = f"the result is not stored. {error} To skip the store: --no-store"
    click.echo(f"modeldyno: warning: {text}", err=True)


def _judged(outcome: Outcome) -> dict[str, Any]:
    return {"judgements": outcome.judgements} if outcome.judgements else {}


def optimizer(ctx: click.Context) -> str | None:
    """Give the optimiser that is asked for; where nothing is trained, none that only a file asks for."""
    typed = ctx.get_parameter_source("optimizer") is ParameterSource.COMMANDLINE
    asked: str = ctx.params["optimizer"]
    return asked if typed or ctx.params["mode"] == Mode.TRAIN else None


def verdict(outcome: Outcome) -> str:
    """Say in one line what came out, with the codes of the doubts."""
    doubts = ", ".join(dict.fromkeys(found.code for found in outcome.result.doubts))
    return headline(outcome.result, outcome.judgements) + (f" Doubts: {doubts}." if doubts else "")
