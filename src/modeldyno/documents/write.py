"""Any document, or several, as a file in the format that its suffix names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno import codec, plugins
from modeldyno.codec import series as codec_series
from modeldyno.core.comparison.comparison import Comparison
from modeldyno.core.comparison.saved_kinds import Conclusion
from modeldyno.core.comparison.trend import Trend
from modeldyno.core.result.result import Result
from modeldyno.core.study.ranking import ranking
from modeldyno.core.study.study import Study
from modeldyno.documents.lookup import kept
from modeldyno.errors import RequestError
from modeldyno.interfaces import LaysOut, Tabulates
from modeldyno.views import headline, numbers, page
from modeldyno.views.combined_page import Page, together
from modeldyno.views.comparison import blocks as comparison_blocks
from modeldyno.views.comparison import page as comparison_page
from modeldyno.views.comparison import trend as history
from modeldyno.views.load import page as load_page
from modeldyno.views.study import blocks as studied
from modeldyno.views.study import page as study_page
from modeldyno.views.study.tables import trials

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.report.blocks import Table
    from modeldyno.interfaces import Reporter

Document = Result | Study | Conclusion | Trend


def write(found: Document, path: Path, judgements: Sequence[Judgement] = ()) -> None:
    """Write a document in the format that the suffix of `path` names; `judgements` are those on a Result.

    Raises:
        RequestError: no reporter writes such documents into such files, or the file cannot be written.
        MissingExtra: the format needs a program that is not there.
    """
    check(path)
    reporter = plugins.reporter_for(path)
    if isinstance(found, Result):
        _save(path, reporter.render(found, judgements=judgements))
    elif path.suffix == ".json":
        _save(path, encoded(found))
    elif isinstance(reporter, LaysOut):
        laid = laid_out(found)
        _save(path, reporter.lay_out(laid.blocks, title=laid.title))
    elif isinstance(reporter, Tabulates):
        _save(path, reporter.table(tabulated(found)))


def write_several(found: Sequence[Document], path: Path) -> None:
    """Write documents into one file: below each other, or as an array of JSON.

    Raises:
        RequestError: the format has no room for them, or the file cannot be written.
        MissingExtra: the format needs a program that is not there.
    """
    check(path)
    reporter = plugins.reporter_for(path)
    results = [each for each in found if isinstance(each, Result)]
    if path.suffix == ".json":
        _save(path, codec.array([encoded(each) for each in found]))
    elif isinstance(reporter, LaysOut):
        laid = together([laid_out(each) for each in found])
        _save(path, reporter.lay_out(laid.blocks, title=laid.title))
    elif isinstance(reporter, Tabulates) and len(results) == len(found):
        _save(path, reporter.table(numbers(*results)))
    else:
        raise RequestError(
            f"A {path.suffix} file holds results alone, and these are documents of several kinds; write them "
            "one by one, or as .html, .md or .json."
        )


def check(path: Path) -> None:
    """Refuse, before anything is measured, a file that documents other than a Result cannot be written as.

    Raises:
        RequestError: the suffix of `path` is of no reporter that could.
    """
    reporter: Reporter = plugins.reporter_for(path)
    if path.suffix != ".json" and not isinstance(reporter, LaysOut | Tabulates):
        able = (plugins.reporter(name) for name in plugins.names("reporter") if name != "terminal")
        known = sorted({each.suffix for each in able if isinstance(each, LaysOut | Tabulates)} | {".json"})
        raise RequestError(f"No report is written as {path.suffix}; use one of {', '.join(known)}.")


def laid_out(found: Document) -> Page:
    """Lay any document out as a page."""
    match found:
        case Result():
            known = plugins.knobs(found.job.backend)
            return Page(title=headline(found), blocks=tuple(page(found, knobs=known)))
        case Study():
            ranked = ranking(found)
            blocks = tuple(study_page.page(found, ranked, kept))
            return Page(
                title=f"{found.name or found.job.model}: {studied.brief(found, ranked)}", blocks=blocks
            )
        case Comparison():
            return Page(title=comparison_blocks.brief(found), blocks=tuple(comparison_page.page(found)))
        case Trend():
            return Page(title=history.sentence(found), blocks=tuple(history.page(found)))
        case _:
            blocks = tuple(load_page.page(found))
            return Page(title=load_page.brief(found), blocks=blocks)


def tabulated(found: Document) -> Table:
    """Give the numbers of any document, in base units and unrounded."""
    match found:
        case Result():
            return numbers(found)
        case Study():
            return trials(found, ranking(found))
        case Comparison():
            return comparison_blocks.numbers(found)
        case Trend():
            return history.numbers(found)
        case _:
            return load_page.numbers(found)


def encoded(found: Document) -> bytes:
    """Encode any document."""
    match found:
        case Result():
            return codec.encode(found)
        case Study():
            return codec.encode_study(found, ranking=ranking(found))
        case Trend():
            return codec.encode_document(found)
        case _:
            return codec_series.encode(found)


def _save(path: Path, data: str | bytes) -> None:
    codec.write(path, data.encode() if isinstance(data, str) else data)
