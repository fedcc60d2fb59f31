"""Writes one document or several to a file, in the format of its suffix."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from modeldyno import codec, plugins
from modeldyno.core.report.charts import Picture
from modeldyno.core.result.result import Result
from modeldyno.documents.lookup import stored_result
from modeldyno.errors import RequestError
from modeldyno.interfaces.reporter import DrawsCharts, LaysOut, Tabulates
from modeldyno.kinds import kind_of
from modeldyno.views import ViewOptions, numbers
from modeldyno.views.combined_page import Page, combine_pages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.interfaces.reporter import Reporter
    from modeldyno.kinds import Document


def write(
    document: Document, path: Path, judgements: Sequence[Judgement] = (), *, chart: str | None = None
) -> None:
    """Write a document in the format of the suffix of `path`; `judgements` are those of a Result.

    A picture shows the chart that is named, or the first one.

    Raises:
        RequestError: no reporter writes such documents in this format, there is no such chart, or the file
            cannot be written.
        MissingExtra: the format needs a program or a package that is not installed.
    """
    reporter = plugins.reporter_for(path)
    if chart is not None:
        _save(path, draw_chart(lay_out_document(document), path, chart))
        return
    if isinstance(document, Result):
        _save(path, reporter.render(document, judgements=judgements))
        return
    check_format(path)
    if path.suffix == ".json":
        _save(path, kind_of(document).encode(document))
    elif isinstance(reporter, LaysOut):
        page_layout = lay_out_document(document)
        _save(path, reporter.lay_out(page_layout.blocks, title=page_layout.title))
    elif isinstance(reporter, Tabulates):
        _save(path, reporter.table(kind_of(document).numbers(document)))


def write_several(documents: Sequence[Document], path: Path) -> None:
    """Write documents into one file: below each other, or as a JSON array.

    Raises:
        RequestError: the format cannot hold them, or the file cannot be written.
        MissingExtra: the format needs a program that is not installed.
    """
    check_format(path)
    reporter = plugins.reporter_for(path)
    if isinstance(reporter, DrawsCharts):
        raise RequestError(f"A {path.suffix} file holds one chart; name one document.")
    results = [document for document in documents if isinstance(document, Result)]
    if path.suffix == ".json":
        _save(path, codec.json_array([kind_of(document).encode(document) for document in documents]))
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


def write_report(
    documents: Sequence[Document], path: Path, require: Sequence[str] = (), *, chart: str | None = None
) -> None:
    """Write one document, or several into one file; judge a Result by the bounds of `require`.

    Of one document, a picture shows the chart named by `chart`.

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
        if chart is not None:
            raise RequestError("--chart names a chart of one document; name one document.")
        write_several(documents, path)
        return
    (document,) = documents
    if require and not isinstance(document, Result):
        raise RequestError("--require applies to a result; studies and load series have bounds of their own.")
    judgements = [document.judge(bound) for bound in require] if isinstance(document, Result) else []
    write(document, path, judgements, chart=chart)


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


def draw_chart(page: Page, path: Path, name: str) -> bytes:
    """Draw the chart of a page whose name is `name`, or the first whose name has it in it.

    The suffix of `path` is the format.

    Raises:
        RequestError: there is no such chart, or the format is none of a picture.
        MissingExtra: the format needs a package that is not installed.
    """
    reporter = plugins.reporter_for(path)
    if not isinstance(reporter, DrawsCharts):
        raise RequestError(f"A {path.suffix} file holds every chart or none; --chart is for .svg and .png.")
    charts = charts_by_name(page)
    wanted = name.strip().casefold()
    alike = [title for title in charts if wanted and wanted in title.casefold()]
    if not alike:
        raise RequestError(f"There is no chart '{name}' here; charts: {'; '.join(charts) or 'none'}.")
    same = [title for title in alike if title.casefold() == wanted]
    return reporter.draw(charts[(same or alike)[0]], title=page.title)


def charts_by_name(page: Page) -> dict[str, Picture]:
    """Return the charts of a page by title; of the same title, the second is ``TITLE #2``."""
    found: dict[str, Picture] = {}
    times: Counter[str] = Counter()
    for block in page.blocks:
        if isinstance(block, Picture):
            times[block.title] += 1
            number = times[block.title]
            found[block.title if number == 1 else f"{block.title} #{number}"] = block
    return found


def lay_out_document(document: Document) -> Page:
    """Lay out any document as a page."""
    kind, options = kind_of(document), ViewOptions(load_result=stored_result)
    return Page(title=kind.title(document), blocks=tuple(kind.page(document, options)))


def _save(path: Path, data: str | bytes) -> None:
    codec.write(path, data.encode() if isinstance(data, str) else data)
