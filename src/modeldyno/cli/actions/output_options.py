"""How the output options (--json, -o, --tag, --no-store) are applied.

The store and the reporters know every kind of document; they are imported when something is kept or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
from click.core import ParameterSource

from modeldyno.base import codec, plugins
from modeldyno.base.errors import ModelDynoError, RequestError, StoreError
from modeldyno.base.job.static_options import Mode
from modeldyno.cli.actions.printing import ignore_broken_pipe, print_blocks, print_document
from modeldyno.profiling.views.result.headline import headline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from modeldyno.base.document import Conclusion, Document
    from modeldyno.base.report.blocks import Block
    from modeldyno.profiling.run import JudgedResult


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTargets:
    """Where results are stored and written; checked before anything is measured."""

    json: str | None = None
    """A path, or ``-`` for standard output."""
    reports: tuple[str, ...] = ()
    """Files, each of the format that its suffix names."""
    store: bool = True
    tags: tuple[str, ...] = ()
    derived: Mapping[str, Any] = field(default_factory=dict)
    """Derived data for the document of one Result, such as the replicas that a demand takes."""

    @classmethod
    def of_document(cls, path: str | None) -> Self:
        """Return the target of a document that is not stored, after a check that it can be written."""
        if path not in {None, "-"}:
            codec.check_directory(Path(str(path)))
        return cls(json=path, store=False)

    @classmethod
    def of(cls, options: Mapping[str, Any], *, of_results: bool = True) -> Self:
        """Read the options, and check before measuring that documents can be stored and written.

        Fewer formats hold those that are not `of_results`.
        """
        targets = cls(
            json=options["json_path"],
            reports=options["reports"],
            store=not options["no_store"],
            tags=tuple(options["tags"]),
        )
        for path in filter(None, (targets.json, *targets.reports)):
            if path != "-":
                codec.check_directory(Path(path))
        for report in targets.reports:
            plugins.check_reporter(Path(report))
        if not of_results:
            targets.check_formats()
        if targets.store:
            from modeldyno.stores.catalog import store_results  # as above

            try:
                store_results(())
            except StoreError as error:
                if targets.tags:  # a tagged result is meant to be found again
                    raise
                warn_not_stored(error)
                return replace(targets, store=False)
        return targets

    def check_formats(self) -> None:
        """Check that the reports can hold a document that is no Result."""
        if self.reports:
            from modeldyno.reports.write import check_format  # as above

            for report in self.reports:
                check_format(Path(report))

    @property
    def silent(self) -> bool:
        """Whether standard output is reserved for the document."""
        return self.json == "-"

    def keep(
        self, *outcomes: JudgedResult, further: Sequence[Callable[[], None]] = ()
    ) -> ModelDynoError | None:
        """Save to every target, then call `further` savers, even if one fails; return the first error."""
        _add_to_made(*(outcome.result for outcome in outcomes))
        reports = [partial(_to_report, Path(report), outcomes) for report in self.reports]
        to_json, to_store = partial(self._to_json, outcomes), partial(self._to_store, outcomes)
        return first_error(to_json, *reports, to_store, *further)

    def write_both(self, document: Document, data: bytes) -> ModelDynoError | None:
        """Write a document to --json, as `data`, and to -o, even if one fails; return the first error."""
        from modeldyno.reports.write import write  # as above

        _add_to_made(document)
        reports = [partial(write, document, Path(report)) for report in self.reports]
        return first_error(partial(self.write, data), *reports)

    def refuse_report(self, why: str) -> None:
        """Refuse ``-o`` before anything is measured, where there is no report."""
        if self.reports:
            raise RequestError(f"{why}; drop -o {self.reports[0]}, and save the document with --json.")

    def store_only(self, outcome: JudgedResult) -> None:
        """Store one of several Outcomes; their common document is written at the end."""
        self._to_store((outcome,))

    def store_conclusion(self, conclusion: Conclusion) -> None:
        """Store a conclusion from several Results, which are stored already."""
        if not self.store:
            return
        from modeldyno.stores.catalog import store_conclusion  # as above

        try:
            store_conclusion(conclusion)
        except StoreError as error:
            warn_not_stored(error)

    def write(self, document: bytes) -> None:
        """Write a JSON document to --json: a file or standard output."""
        if self.json == "-":
            print_document(document)
        elif self.json:
            codec.write(Path(self.json), document)

    def _to_json(self, outcomes: Sequence[JudgedResult]) -> None:
        """Write one Result with its derived data, or several as an array."""
        judged = {"judgements": outcomes[0].judgements} if outcomes[0].judgements else {}
        self.write(
            codec.encode_several([outcome.result for outcome in outcomes])
            if len(outcomes) > 1
            else codec.encode(outcomes[0].result, **judged, **self.derived)
        )

    def _to_store(self, outcomes: Sequence[JudgedResult]) -> None:
        if not self.store:
            return
        from modeldyno.stores.catalog import store_results  # as above

        try:
            store_results([outcome.result for outcome in outcomes], self.tags)
        except StoreError as error:
            if self.tags:
                raise
            warn_not_stored(error)

    def print_report(
        self,
        blocks: Iterable[Block],
        headline: str = "",
        *,
        hints: Iterable[str] = (),
        problem: ModelDynoError | None = None,
    ) -> None:
        """Print blocks, or in their place a headline, then hints and where the document was saved.

        Nothing is printed where standard output is for the document.

        Args:
            blocks: the report.
            headline: printed in its place unless empty.
            hints: further lines.
            problem: what kept it from being stored or written; it is raised at the end.
        """
        if not self.silent:
            with ignore_broken_pipe():
                if headline:
                    click.echo(headline)
                else:
                    print_blocks(*blocks)
                for line in hints:
                    click.echo(line)
                self.print_saved(problem)
        if problem is not None:
            raise problem

    def print_saved(self, problem: ModelDynoError | None = None) -> None:
        """Print where the document and its reports were saved, unless a problem kept them from that."""
        files = [*filter(None, (self.json,)), *self.reports]
        if files and problem is None:
            click.echo(f"Saved to {', '.join(files[:-1])}{' and ' * (len(files) > 1)}{files[-1]}.")


def _to_report(path: Path, outcomes: Sequence[JudgedResult]) -> None:
    from modeldyno.reports.write import write, write_several  # as above

    if len(outcomes) == 1:
        write(outcomes[0].result, path, outcomes[0].judgements)
    else:
        write_several([outcome.result for outcome in outcomes], path)


def _add_to_made(*documents: Document) -> None:
    """Tell whoever runs several commands what this one made."""
    ctx = click.get_current_context(silent=True)
    if ctx is not None and isinstance(ctx.obj, list):
        ctx.obj.extend(documents)


def first_error(*savers: Callable[[], None]) -> ModelDynoError | None:
    """Call every saver, even if one fails; return the first error, to be raised when all is printed."""
    problem: ModelDynoError | None = None
    for save in savers:
        try:
            save()
        except ModelDynoError as error:
            problem = problem or error
    return problem


def warn_not_stored(error: StoreError) -> None:
    """Warn that results are printed and written, but not stored."""
    text = f"the result is not stored. {error} To skip the store: --no-store"
    click.echo(f"modeldyno: warning: {text}", err=True)


def report_hint(conclusion: Conclusion, file: str) -> str:
    """Say under which id a conclusion is stored, and how it becomes a report."""
    return f"Stored as {conclusion.id}; for a report: modeldyno report {conclusion.id[:6]} -o {file}"


def requested_optimizer() -> str | None:
    """Return the requested optimizer; outside training, only if it was typed on the command line."""
    ctx = click.get_current_context()
    typed = ctx.get_parameter_source("optimizer") is ParameterSource.COMMANDLINE
    requested: str = ctx.params["optimizer"]
    return requested if typed or ctx.params["mode"] == Mode.TRAIN else None


def verdict_line(outcome: JudgedResult) -> str:
    """Return the headline of an outcome in one line, with the codes of its doubts."""
    doubts = ", ".join(dict.fromkeys(doubt.code for doubt in outcome.result.doubts))
    return headline(outcome.result, outcome.judgements) + (f" Doubts: {doubts}." if doubts else "")
