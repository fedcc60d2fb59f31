"""Writes one document or several to a file, in the format of its suffix."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.kinds import kind_of
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Block, Heading, Notice, Severity, choose_columns, make_table
from modeldyno.base.report.charts import Picture
from modeldyno.base.report.chosen_plot import parse_plot
from modeldyno.base.result.result import Result
from modeldyno.base.views.text import count, document_foot
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.reports.interface import Content
from modeldyno.stores.catalog import caching_reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.document import Document
    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.report.blocks import Table
    from modeldyno.reports.interface import Reporter


def write(
    document: Document,
    path: Path,
    judgements: Sequence[Judgement] = (),
    *,
    chart: str | None = None,
    options: ViewOptions = PLAIN,
    fields: Sequence[str] = (),
) -> None:
    """Write a document in the format of the suffix of `path`; `judgements` are those of a Result.

    A picture shows the chart that is named, or the first one; `options` choose what of a study is shown, and
    `fields` the columns of a table of numbers.

    Raises:
        RequestError: no reporter writes such documents in this format, there is no such chart, or the file
            cannot be written.
        MissingExtra: the format needs a program or a package that is not installed.
    """
    render = kind_of(document).formats.get(path.suffix)
    if render is not None:
        save_file(path, render(document))
        return
    reporter = plugins.reporter_for(path)
    if chart is not None:
        save_file(path, draw_chart(lay_out_document(document, options), path, chart))
        return
    if fields:
        if reporter.content is not Content.TABLES:
            raise RequestError(f"`fields` are columns of a .csv file; a {path.suffix} file has others.")
        kind = kind_of(document)
        save_file(path, reporter.table(_chosen(kind.numbers(document), fields, kind.columns)))
        return
    if isinstance(document, Result):
        save_file(path, reporter.render(document, judgements=judgements))
        return
    check_format(path)
    if path.suffix == ".json":
        save_file(path, kind_of(document).encode(document))
    elif reporter.content is Content.TABLES:
        save_file(path, reporter.table(kind_of(document).numbers(document)))
    else:
        page_layout = lay_out_document(document, options)
        save_file(path, _lay_out(reporter, page_layout))


def _lay_out(reporter: Reporter, page: Page) -> str | bytes:
    return reporter.lay_out(page.blocks, title=page.title, foot=page.foot)


def _chosen(table: Table, fields: Sequence[str], usual: Sequence[str]) -> Table:
    """Choose columns; that of a metric that was not measured, or of a usual one, may be empty.

    Raises:
        UnknownName: a field is neither a column nor a metric.
    """
    titles = [column.title for column in table.columns]
    names = []
    for field in fields:
        name = field if field in {*titles, *usual} else _query_name(field)
        if name is None:
            known = [title for title in titles if not title.endswith((".low", ".high"))]
            raise UnknownName.among("column", field, known)
        names.append(name)
    return choose_columns(table, names)


def _query_name(text: str) -> str | None:
    """Return the name of a metric or of its statistic; None if there is no such metric."""
    try:
        return str(Query.parse(text))
    except RequestError:
        return None


def write_several(documents: Sequence[Document], path: Path) -> None:
    """Write documents into one file: below each other, or as a JSON array.

    Raises:
        RequestError: the format cannot hold them, or the file cannot be written.
        MissingExtra: the format needs a program that is not installed.
    """
    check_format(path)
    reporter = plugins.reporter_for(path)
    if reporter.content is Content.CHART:
        raise RequestError(f"A {path.suffix} file holds one chart; name one document.")
    results = [document for document in documents if isinstance(document, Result)]
    if path.suffix == ".json":
        save_file(path, codec.json_array([kind_of(document).encode(document) for document in documents]))
    elif reporter.content is Content.PAGES:
        page_layout = combine_pages([lay_out_document(document) for document in documents])
        save_file(path, _lay_out(reporter, page_layout))
    elif len(results) == len(documents):
        save_file(path, reporter.table(kind_of(results[0]).numbers(*results)))
    else:
        raise RequestError(
            f"A {path.suffix} file holds only results, and these are documents of several kinds; write them "
            "one by one, or as .html, .md or .json."
        )


def write_report(
    documents: Sequence[Document],
    path: Path,
    require: Sequence[str] = (),
    *,
    chart: str | None = None,
    configurations: Sequence[str] = (),
    plots: Sequence[str] = (),
    pictures: Path | None = None,
    fields: Sequence[str] = (),
) -> None:
    """Write one document, or several into one file; judge a Result by the bounds of `require`.

    Of one document, a picture shows the chart named by `chart`.

    Args:
        documents: what is written.
        path: the file.
        require: bounds to judge a Result by.
        chart: the title of the chart of a picture, or a part of it.
        configurations: names of configurations of a study: only these are shown, in detail.
        plots: charts of a study, as ``x=latency.p99,y=throughput``.
        pictures: a directory for each chart of the document as a picture, besides the file.
        fields: columns of a .csv file, in this order, such as ``model,concurrency,throughput``.

    Raises:
        RequestError: there is no document, bounds are given for something other than one Result, or as
            `write` and `write_several` do.
        MissingExtra: the format needs a program that is not installed.
    """
    if not documents:
        raise RequestError("A report needs a document; name a result, a study or a comparison.")
    if len(documents) > 1:
        if require:
            raise RequestError("`require` applies to one result; write a report for each.")
        if chart is not None:
            raise RequestError("`chart` names a chart of one document; name one document.")
        if configurations or plots or pictures or fields:
            raise RequestError(
                "`configurations`, `plots`, `pictures` and `fields` are of one document; name one document."
            )
        write_several(documents, path)
        return
    (document,) = documents
    if (configurations or plots) and kind_of(document).configurations_title is None:
        raise RequestError("`configurations` and `plots` choose what is shown of a study, and this is none.")
    if require and not isinstance(document, Result):
        raise RequestError("`require` applies to a result; studies and load series have bounds of their own.")
    judgements = [document.judge(bound) for bound in require] if isinstance(document, Result) else []
    options = ViewOptions(
        configurations=tuple(name for text in configurations for name in text.split(",") if name.strip()),
        plots=tuple(map(parse_plot, plots)),
    )
    if pictures is not None:  # first, as they need a package that may be missing
        page = lay_out_document(document, options)
        for suffix in (".svg", ".png"):
            write_pictures(page, pictures, suffix)
    names = tuple(name.strip() for text in fields for name in text.split(",") if name.strip())
    write(document, path, judgements, chart=chart, options=options, fields=names)


def write_pictures(page: Page, folder: Path, suffix: str = ".svg") -> tuple[Path, ...]:
    """Write every chart of a page as a picture into a directory; return the files.

    Raises:
        RequestError: the directory or a file cannot be written.
        MissingExtra: the package that draws is not installed.
    """
    reporter = plugins.reporter_for(Path(f"chart{suffix}"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"Cannot create {folder}: {error.strerror}.") from error
    paths = []
    for name, chart in charts_by_name(page).items():
        path = folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}{suffix}"
        save_file(path, reporter.draw(chart, title=page.title))
        paths.append(path)
    return tuple(paths)


def check_format(path: Path) -> None:
    """Check before measuring that documents other than Results can be written in the format of `path`.

    Raises:
        RequestError: no reporter with this suffix can write them.
    """
    reporter: Reporter = plugins.reporter_for(path)
    if path.suffix != ".json" and reporter.content is Content.RESULTS:
        others = (other for name, other in plugins.usable("reporter") if name != "terminal")
        any_document = {other.suffix for other in others if other.content is not Content.RESULTS}
        suffixes = sorted(any_document | {".json"})
        raise RequestError(f"No report is written as {path.suffix}; use one of {', '.join(suffixes)}.")


def draw_chart(page: Page, path: Path, name: str) -> bytes:
    """Draw the chart of a page whose name is `name`, or the first whose name has it in it.

    The suffix of `path` is the format.

    Raises:
        RequestError: there is no such chart, or the format is none of a picture.
        MissingExtra: the format needs a package that is not installed.
    """
    reporter = plugins.reporter_for(path)
    if reporter.content is not Content.CHART:
        raise RequestError(f"A {path.suffix} file holds every chart or none; `chart` is for .svg and .png.")
    charts = charts_by_name(page)
    chart = name.strip().casefold()
    alike = [title for title in charts if chart and chart in title.casefold()]
    if not alike:
        raise RequestError(f"There is no chart '{name}' here; charts: {'; '.join(charts) or 'none'}.")
    same = [title for title in alike if title.casefold() == chart]
    return reporter.draw(charts[(same or alike)[0]], title=page.title)


def charts_by_name(page: Page) -> dict[str, Picture]:
    """Return the charts of a page by title; of the same title, the second is ``TITLE #2``."""
    charts: dict[str, Picture] = {}
    times: Counter[str] = Counter()
    for block in page.blocks:
        if isinstance(block, Picture):
            times[block.title] += 1
            number = times[block.title]
            charts[block.title if number == 1 else f"{block.title} #{number}"] = block
    return charts


def lay_out_document(document: Document, options: ViewOptions = PLAIN) -> Page:
    """Lay out any document as a page; `options` choose what of a study is shown."""
    options = replace(options, load_result=caching_reader(), knobs=plugins.knobs)
    kind = kind_of(document)
    title = kind.title(document)
    if kind.configurations_title is not None and options.configurations:
        title = kind.configurations_title(document, options.configurations)
    return Page(title=title, blocks=tuple(kind.page(document, options)), foot=document_foot(document))


def save_file(path: Path, data: str | bytes) -> None:
    """Write a file atomically."""
    codec.write(path, data.encode() if isinstance(data, str) else data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The blocks of one document, with its title."""

    title: str
    blocks: tuple[Block, ...]
    foot: str = ""
    """What stands at the foot of each sheet of paper."""


def combine_pages(pages: Sequence[Page]) -> Page:
    """Combine pages into one, with a table of their verdicts at the top."""
    names = [page.title for page in pages]
    return Page(
        title=f"{count(len(pages), 'document')}: {', '.join(names)}",
        blocks=tuple(_combined_blocks(pages)),
        foot=count(len(pages), "document"),
    )


def _combined_blocks(pages: Sequence[Page]) -> Iterator[Block]:
    yield Notice(severity=Severity.VERDICT, text=f"{count(len(pages), 'document')}.")
    yield make_table("", ("document", "verdict"), ((page.title, _verdict(page)) for page in pages))
    for page in pages:
        yield Heading(title=page.title)
        for block in page.blocks:
            yield replace(block, level=block.level + 1) if isinstance(block, Heading) else block


def _verdict(page: Page) -> str:
    texts = (block.text for block in page.blocks if isinstance(block, Notice))
    return next(texts, "")
