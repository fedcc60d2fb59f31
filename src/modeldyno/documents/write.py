"""Writes one document or several to a file, in the format of its suffix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno import codec, plugins
from modeldyno.codec import series as codec_series
from modeldyno.core.comparison.comparison import Comparison
from modeldyno.core.comparison.saved_kinds import SeriesDocument
from modeldyno.core.comparison.trend import Trend
from modeldyno.core.result.result import Result
from modeldyno.core.study.ranking import ranking
from modeldyno.core.study.study import Study
from modeldyno.documents.lookup import stored_result
from modeldyno.errors import RequestError
from modeldyno.interfaces.reporter import LaysOut, Tabulates
from modeldyno.views import headline, numbers, page
from modeldyno.views.combined_page import Page, combine_pages
from modeldyno.views.comparison import blocks as comparison_blocks
from modeldyno.views.comparison import page as comparison_page
from modeldyno.views.comparison import trend as history
from modeldyno.views.load import page as load_page
from modeldyno.views.study import blocks as study_blocks
from modeldyno.views.study import page as study_page
from modeldyno.views.study.tables import trials

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.report.blocks import Table
    from modeldyno.interfaces.reporter import Reporter

Document = Result | Study | SeriesDocument | Trend


def write(document: Document, path: Path, judgements: Sequence[Judgement] = ()) -> None:
    """Write a document in the format of the suffix of `path`; `judgements` are those of a Result.

    Raises:
        RequestError: no reporter writes such documents in this format, or the file cannot be written.
        MissingExtra: the format needs a program that is not installed.
    """
    check_format(path)
    reporter = plugins.reporter_for(path)
    if isinstance(document, Result):
        _save(path, reporter.render(document, judgements=judgements))
    elif path.suffix == ".json":
        _save(path, encode_any(document))
    elif isinstance(reporter, LaysOut):
        page_layout = lay_out_document(document)
        _save(path, reporter.lay_out(page_layout.blocks, title=page_layout.title))
    elif isinstance(reporter, Tabulates):
        _save(path, reporter.table(tabulate_document(document)))


def write_several(documents: Sequence[Document], path: Path) -> None:
    """Write documents into one file: below each other, or as a JSON array.

    Raises:
        RequestError: the format cannot hold them, or the file cannot be written.
        MissingExtra: the format needs a program that is not installed.
    """
    check_format(path)
    reporter = plugins.reporter_for(path)
    results = [document for document in documents if isinstance(document, Result)]
    if path.suffix == ".json":
        _save(path, codec.json_array([encode_any(document) for document in documents]))
    elif isinstance(reporter, LaysOut):
        page_layout = combine_pages([lay_out_document(document) for document in documents])
        _save(path, reporter.lay_out(page_layout.blocks, title=page_layout.title))
    elif isinstance(reporter, Tabulates) and len(results) == len(documents):
        _save(path, reporter.table(numbers(*results)))
    else:
        raise RequestError(
            f"A {path.suffix} file holds only results, and these are documents of several kinds; write them "
            "one by one, or as .html, .md or .json."
        )


def write_report(documents: Sequence[Document], path: Path, require: Sequence[str] = ()) -> None:
    """Write one document, or several into one file; judge a Result by the bounds of `require`.

    Raises:
        RequestError: there is no document, bounds are given for something other than one Result, or as
            `write` and `write_several` do.
        MissingExtra: the format needs a program that is not installed.
    """
    if not documents:
        raise RequestError("A report needs a document; name a result, a study or a comparison.")
    if len(documents) > 1:
        if require:
            raise RequestError("--require applies to one result; write a report for each.")
        write_several(documents, path)
        return
    (document,) = documents
    if require and not isinstance(document, Result):
        raise RequestError("--require applies to a result; studies and load series have bounds of their own.")
    judgements = [document.judge(bound) for bound in require] if isinstance(document, Result) else []
    write(document, path, judgements)


def check_format(path: Path) -> None:
    """Check before measuring that documents other than Results can be written in the format of `path`.

    Raises:
        RequestError: no reporter with this suffix can write them.
    """
    reporter: Reporter = plugins.reporter_for(path)
    if path.suffix != ".json" and not isinstance(reporter, LaysOut | Tabulates):
        reporters = (plugins.reporter(name) for name in plugins.names("reporter") if name != "terminal")
        suffixes = sorted(
            {candidate.suffix for candidate in reporters if isinstance(candidate, LaysOut | Tabulates)}
            | {".json"}
        )
        raise RequestError(f"No report is written as {path.suffix}; use one of {', '.join(suffixes)}.")


def lay_out_document(document: Document) -> Page:
    """Lay out any document as a page."""
    match document:
        case Result():
            knobs = plugins.knobs(document.job.backend)
            return Page(title=headline(document), blocks=tuple(page(document, knobs=knobs)))
        case Study():
            study_ranking = ranking(document)
            blocks = tuple(study_page.page(document, study_ranking, stored_result))
            return Page(
                title=f"{document.name or document.job.model}: {study_blocks.brief(document, study_ranking)}",
                blocks=blocks,
            )
        case Comparison():
            return Page(title=comparison_blocks.brief(document), blocks=tuple(comparison_page.page(document)))
        case Trend():
            return Page(title=history.sentence(document), blocks=tuple(history.page(document)))
        case _:
            blocks = tuple(load_page.page(document))
            return Page(title=load_page.brief(document), blocks=blocks)


def tabulate_document(document: Document) -> Table:
    """Tabulate the numbers of any document, in base units and unrounded."""
    match document:
        case Result():
            return numbers(document)
        case Study():
            return trials(document, ranking(document))
        case Comparison():
            return comparison_blocks.numbers(document)
        case Trend():
            return history.numbers(document)
        case _:
            return load_page.numbers(document)


def encode_any(document: Document) -> bytes:
    """Encode any document as JSON."""
    match document:
        case Result():
            return codec.encode(document)
        case Study():
            return codec.encode_study(document, ranking=ranking(document))
        case Trend():
            return codec.encode_document(document)
        case _:
            return codec_series.encode(document)


def _save(path: Path, data: str | bytes) -> None:
    codec.write(path, data.encode() if isinstance(data, str) else data)
