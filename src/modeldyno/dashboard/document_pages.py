"""Pages of stored documents: results, studies, comparisons, loads, and several beside each other."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.kinds import kind_of
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Heading, Notice, Severity, Table, clean, make_table
from modeldyno.base.result.result import Result
from modeldyno.base.result.where_text import parse
from modeldyno.base.stats.units import format_quantity
from modeldyno.base.views.text import about_number, count, short_model_names, shorten_ids, shorten_name
from modeldyno.comparison.change.comparison import Comparison
from modeldyno.dashboard import document_lists, live_pages, network_page, registry_writes
from modeldyno.dashboard.chart_pictures import links_to_charts
from modeldyno.dashboard.page import (
    CHIPS,
    PAGE,
    DashboardPage,
    FormField,
    Marked,
    PageBlocks,
    PageForm,
    PageLink,
    PageLinks,
    PageText,
    address,
    cut_page,
    list_data,
    older_links,
    search_form,
)
from modeldyno.dashboard.store_access import live_loads, result_or_none
from modeldyno.profiling.views import ViewOptions, lists
from modeldyno.profiling.views.side_by_side import BEST, side_by_side
from modeldyno.reports.interface import TableLinks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from modeldyno.base.document import StoredDocument
    from modeldyno.base.report.blocks import Block
    from modeldyno.base.result.where import Expression, KeptNumber
    from modeldyno.dashboard.page import PageRequest, Part
    from modeldyno.stores.interface import ConclusionEntry, Entry, Store, StudyEntry

MOST = 5
"""Documents that stand beside each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRoom:
    """A list of documents of the same kind, and where it is."""

    path: str
    title: str
    kinds: tuple[str, ...] = ()
    """Kinds of conclusions."""
    none: str = ""
    """Said if there is none."""
    command: str = ""
    """Makes one."""


RESULTS = DocumentRoom(
    path="results",
    title="Results",
    none="No result is stored yet.",
    command="modeldyno profile model.onnx",
)
STUDIES = DocumentRoom(
    path="studies",
    title="Sweeps",
    none="No sweep is stored yet.",
    command="modeldyno sweep model.onnx --space batch_size=1,8,32",
)
COMPARISONS = DocumentRoom(
    path="comparisons",
    title="Comparisons",
    kinds=("comparison",),
    none="No comparison is stored yet.",
    command="modeldyno compare before.onnx after.onnx",
)
LOADS = DocumentRoom(
    path="loads",
    title="Loads",
    kinds=("ladder", "capacity", "explanation"),
    none="No load is stored yet. This finds the largest one; each load is shown here while it goes on.",
    command="modeldyno load http://127.0.0.1:8000#model --find-load 'latency.p99 <= 50ms'",
)
CONVERSIONS = DocumentRoom(
    path="conversions",
    title="Conversions",
    kinds=("conversion",),
    none="No conversion is stored yet.",
    command="modeldyno convert model.onnx --to openvino",
)
ROOMS = {name: room for room in (COMPARISONS, LOADS, CONVERSIONS) for name in room.kinds} | {
    "result": RESULTS,
    "study": STUDIES,
}
"""Where documents of a kind are."""


# --- lists ---------------------------------------------------------------------------------------


def results(request: PageRequest) -> DashboardPage:
    """List results, those of a name or with a tag, a page at a time."""
    name, tag, before, where, columns = map(request.text, ("name", "tag", "before", "where", "columns"))
    hint = "latency.p99 < 20ms and batch_size = 8"
    conditions = FormField(name="where", label="Where", value=where, hint=hint)
    chosen = FormField(
        name="columns", label="Columns", value=columns, hint="created, latency.p99, throughput"
    )
    wrong = ""
    try:
        queries = _queries_of(columns)
        entries = request.store.find(
            name=name or None, tag=tag or None, limit=PAGE + 1, before=before, where=conditions_of(where)
        )
    except RequestError as error:
        entries, queries, wrong = (), {}, str(error)
    beside = PageForm(
        id="beside", action="/compare", buttons=(("", f"Show the ticked ones side by side (2 to {MOST})"),)
    )

    def show(listed: Sequence[Entry]) -> Iterator[Part]:
        ids = [entry.id for entry in listed]
        boxes = dict(zip(shorten_ids(ids), ids, strict=True))
        ticked = replace(list_links({one: address(RESULTS.path, one) for one in ids}), boxes=boxes)
        ticked = replace(ticked, form="beside", box="with")
        yield PageBlocks(blocks=(_listing(request.store, listed, queries),), links=ticked)
        yield beside

    return _list_page(
        request,
        RESULTS,
        entries,
        show,
        query={"name": name, "tag": tag, "where": where, "columns": columns},
        more_fields=(FormField(name="tag", label="Tag", value=tag), conditions, chosen),
        wrong=wrong,
    )


def _queries_of(text: str) -> dict[str, Query | None]:
    """Read the columns that were chosen: columns of the list, and metrics.

    Raises:
        RequestError: one is neither.
    """
    columns = dict.fromkeys(word.strip() for word in text.split(",") if word.strip())
    if len(columns) > _COLUMNS:
        raise RequestError(f"{len(columns)} columns are too many for one page; choose up to {_COLUMNS}.")
    return {word: None if word in _LISTED else Query.parse(word) for word in columns}


_LISTED = ("created", "model", "summary")
"""Columns of the list of results that are no metrics."""
_COLUMNS = 12


def _listing(store: Store, listed: Sequence[Entry], queries: dict[str, Query | None]) -> Table:
    """List results with the columns that were chosen; with none, with the figures of each."""
    if not queries:
        return result_list(store, listed)
    names = [str(query) for query in queries.values() if query is not None]
    kept = store.registry.numbers([entry.id for entry in listed], names) if names else {}

    def cell(row: Sequence[str], entry: Entry, word: str, query: Query | None) -> str:
        if query is None:
            return row[titles.index(word)]
        return _figure(kept.get(entry.id, {}).get(str(query)), query)

    table = lists.listing(listed)
    titles = [column.title for column in table.columns]
    chosen = {word: query for word, query in queries.items() if word != lists.WHAT}
    return make_table(
        "",
        (
            lists.WHAT,
            *(word if query is None else f"{word}>" for word, query in chosen.items()),
            lists.ID,
        ),
        (
            (
                f"{entry.name} · {settings}".removesuffix(" · "),
                *(cell(row, entry, word, query) for word, query in chosen.items()),
                row[0],
            )
            for row, entry, settings in zip(table.rows, listed, lists.settings_of(listed), strict=True)
        ),
    )


def result_list(store: Store, listed: Sequence[Entry]) -> Table:
    """List results with their usual figures."""
    return lists.runs(listed, result_figures(store, listed), FIGURES)


def result_figures(store: Store, listed: Sequence[Entry]) -> list[dict[str, str]]:
    """Return the usual figures of results, as text, by metric."""
    queries = {str(query): query for query in map(Query.parse, (*FIGURES, "request_rate"))}
    kept = store.registry.numbers([entry.id for entry in listed], list(queries)) if listed else {}
    figures = [
        {
            name: "" if name == _ERRORS and number is not None and not number.raw else _figure(number, query)
            for name, query in queries.items()
            for number in (kept.get(entry.id, {}).get(name),)
        }
        for entry in listed
    ]
    for own in figures:  # of a load, it is the rate of requests
        requests = own.pop("request_rate")
        own["throughput"] = requests or own["throughput"]
    return figures


_ERRORS = "error_rate"
"""Shown only where there were any."""


FIGURES = {
    "latency.p50": "p50",
    "latency.p99": "p99",
    "throughput": "rate",
    "process_memory.max": "memory",
    _ERRORS: "errors",
}
"""Metrics in the list of results, where no columns are chosen, and their titles."""


def _figure(number: KeptNumber | None, query: Query) -> str:
    if number is None or number.value is None:
        return "" if number is None else about_number(number.raw, query.unit)
    return format_quantity(number.value, query.unit, 3)


def conditions_of(text: str) -> Expression | None:
    """Read the conditions of the search box, which are those of ``modeldyno list --where``."""
    return parse(text, now=datetime.now(UTC)) if text else None


def studies(request: PageRequest) -> DashboardPage:
    """List studies, those of a name, a page at a time."""
    name = request.text("name")
    entries = request.store.studies(name=name or None, limit=PAGE + 1, before=request.text("before"))
    return _list_page(request, STUDIES, entries, lambda listed: (study_list(listed),), query={"name": name})


def comparisons(request: PageRequest) -> DashboardPage:
    """List comparisons, those of a model, a page at a time."""
    return _conclusions(request, COMPARISONS)


def loads(request: PageRequest) -> DashboardPage:
    """List load curves and searches for the largest load, and single loads; those of a model, by pages."""
    page, name, first = _conclusions(request, LOADS), request.text("name"), not request.text("before")
    live = [one for one in live_loads(request.store) if not one.ended] if first else []
    single = _newest_loads(request.store, name) if first else []
    assert isinstance(page.data, dict)
    series = () if single and not page.data["items"] else page.parts
    return replace(
        page,
        parts=(*live_pages.going_on(live), *series, *_single_loads(request.store, single, name)),
        data={**page.data, "going_on": live, "results": single},
        reload=live_pages.RELOAD if live else 0,
    )


def _newest_loads(store: Store, name: str) -> list[Entry]:
    """Return the loads among the newest results; to search all of a large store takes too long."""
    entries = store.find(name=name or None, limit=_LOOKED)
    numbers = store.registry.numbers([entry.id for entry in entries], _OF_LOADS)
    return [entry for entry in entries if numbers.get(entry.id)][:PAGE]


_LOOKED = 300
"""Newest results among which loads are looked for."""
_OF_LOADS = ("request_rate", "error_rate")
"""Metrics of which a load has at least one, and nothing else has any."""
_IS_LOAD = " or ".join(f"{name} >= 0" for name in _OF_LOADS)


def _single_loads(store: Store, listed: Sequence[Entry], name: str) -> Iterator[Part]:
    if not listed:
        return
    links = list_links({entry.id: address(RESULTS.path, entry.id) for entry in listed})
    blocks = (Heading(title="Single loads"), result_list(store, listed))
    yield PageBlocks(blocks=blocks, links=links, listed=False)
    everything = address(RESULTS.path, name=name, where=_IS_LOAD)
    yield PageLinks(label="More loads", links=(PageLink(text="All of them, to search", address=everything),))


def conversions(request: PageRequest) -> DashboardPage:
    """List conversions, those of a model, a page at a time."""
    return _conclusions(request, CONVERSIONS)


def _conclusions(request: PageRequest, room: DocumentRoom) -> DashboardPage:
    name = request.text("name")
    entries = request.store.conclusions(
        name=name or None, kinds=room.kinds, limit=PAGE + 1, before=request.text("before")
    )

    def show(listed: Sequence[ConclusionEntry]) -> Iterator[Part]:
        links = list_links({entry.id: address(room.path, entry.id) for entry in listed})
        kinds = [KINDS.get(entry.kind, entry.kind) for entry in listed] if len(room.kinds) > 1 else ()
        yield PageBlocks(blocks=(_conclusion_list(request.store, room, listed, kinds),), links=links)

    return _list_page(request, room, entries, show, query={"name": name})


def _conclusion_list(
    store: Store, room: DocumentRoom, listed: Sequence[ConclusionEntry], kinds: Sequence[str]
) -> Table:
    if room is LOADS:
        return document_lists.load_list(store, listed, kinds)
    if room is COMPARISONS:
        return document_lists.comparison_list(store, listed)
    return lists.documents(listed, kinds)


KINDS = {"capacity": "largest load", "ladder": "load curve", "study": "sweep"}
"""What kinds of documents are called in lists, where that is another word."""


def study_list(listed: Sequence[StudyEntry]) -> PageBlocks:
    """List studies with links to them."""
    links = list_links({entry.id: address(STUDIES.path, entry.id) for entry in listed})
    return PageBlocks(blocks=(document_lists.study_list(listed),), links=links)


def list_links(addresses: Mapping[str, str]) -> TableLinks:
    """Return the links of a list from the ids of its documents and their addresses."""
    shortened = dict(zip(shorten_ids(list(addresses)), addresses.values(), strict=True))
    return TableLinks(
        links={lists.WHAT: shortened},
        found_by={lists.WHAT: lists.ID},
        chips=CHIPS,
        times=(lists.WHEN, "created"),
        faint=(lists.WHEN, lists.ID),
    )


def _list_page(
    request: PageRequest,
    room: DocumentRoom,
    entries: Sequence[Marked],
    show: Callable[[Sequence[Marked]], Iterable[Part]],
    *,
    query: dict[str, str],
    more_fields: tuple[FormField, ...] = (),
    wrong: str = "",
) -> DashboardPage:
    """Make the page of a list.

    Args:
        request: what was asked for.
        room: of the list.
        entries: those of this page, and one more if there is a next page.
        show: makes the parts of the entries of this page.
        query: what was asked for besides the page.
        more_fields: of the search form, beside the name.
        wrong: what was wrong in what was asked for.
    """
    first = not request.text("before")
    listed, mark = cut_page(entries)
    asks = any(query.values()) or not first
    nothing = (
        PageText(text=wrong or "Nothing matches this filter.")
        if asks
        else PageText(text=room.none, commands=(room.command,))
    )
    fields = (FormField(name="name", label="Model", value=query["name"]), *more_fields)
    return DashboardPage(
        title=room.title,
        room=f"/{room.path}",
        parts=(
            *((search_form(address(room.path), *fields),) if listed or asks else ()),
            *(show(listed) if listed else (nothing,)),
            *older_links(room.path, mark, first=first, **query),
        ),
        data={"error": wrong} if wrong else list_data(listed, room.path, mark, **query),
        status=400 if wrong else 200,
    )


# --- documents -----------------------------------------------------------------------------------


def result(request: PageRequest) -> DashboardPage:
    """Show a result, as its report does, with its tags."""
    document = request.store.get(request.path["id"])
    entry = request.store.tag(document.id)
    page = _document_page(request.store, RESULTS, document)
    where = address("results", document.id)
    versions = request.store.registry.with_digest(document.model.digest) if document.model else ()
    again = tuple(registry_writes.again_parts(request.store.registry, document))
    actions = (
        *network_page.network_link(document),
        PageLink(text="Compare", address=address("compare", **{"with": document.id})),
        *(PageLink(text=v.name, address=address("models", v.model, v.number)) for v in versions),
        *(PageLink(text=f"tag: {tag}", address=address("results", tag=tag)) for tag in entry.tags),
        *(PageLink(text="Measure again", address=f"#{p.id}") for p in again if isinstance(p, PageForm)),
        PageLink(text="Tag", address="#tags"),
    )
    tags = PageForm(
        id="tags",
        title="Tags",
        action=f"{where}/tags",
        fields=(FormField(name="tag", label="Tag", hint="nightly"),),
        buttons=(("add", "Add tag"), *((("remove", "Remove tag"),) if entry.tags else ())),
        writes=True,
    )
    return replace(page, actions=actions, parts=(*page.parts, *again, tags))


def study(request: PageRequest) -> DashboardPage:
    """Show a study, as its report does; it grows while the study runs."""
    return _document_page(request.store, STUDIES, request.store.study(request.path["id"]))


def comparison(request: PageRequest) -> DashboardPage:
    """Show a comparison, as its report does."""
    return _document_page(request.store, COMPARISONS, _of_kind(request, COMPARISONS))


def load(request: PageRequest) -> DashboardPage:
    """Show a load curve or a search for the largest load, as its report does; or a load while it goes on.

    Once it has ended, its Result takes its place.
    """
    identifier = request.path["id"]
    live = next((one for one in live_loads(request.store) if one.id == identifier), None)
    if live is not None:
        if live.result:
            with suppress(RequestError):
                return result(replace(request, path={"id": live.result}))
        return live_pages.live_page(live)
    return _document_page(request.store, LOADS, _of_kind(request, LOADS))


def conversion(request: PageRequest) -> DashboardPage:
    """Show a conversion, as its report does."""
    return _document_page(request.store, CONVERSIONS, _of_kind(request, CONVERSIONS))


def _of_kind(request: PageRequest, room: DocumentRoom) -> Any:
    document = request.store.conclusion(request.path["id"])
    if kind_of(document).name not in room.kinds:
        raise RequestError(f"{document.id} is no {room.kinds[0]}, but a {kind_of(document).name}.")
    return document


def _document_page(store: Store, room: DocumentRoom, document: Any) -> DashboardPage:
    """Show a document as its report does; its verdict is the heading, with the doubts beside it."""
    kind = kind_of(document)
    options = ViewOptions(load_result=result_or_none(store), knobs=plugins.knobs)
    blocks = tuple(kind.page(document, options))
    verdict = next((block for block in blocks if _is_verdict(block)), None)
    text = verdict.text if isinstance(verdict, Notice) else kind.headline(document)
    title, lead = split_heading(text)
    page = DashboardPage(
        title=title,
        lead=lead,
        chips=_chips(document, itertools.takewhile(lambda block: not isinstance(block, Heading), blocks)),
        room=f"/{room.path}",
        trail=trail_of(room, document),
        parts=(PageBlocks(blocks=tuple(block for block in blocks if block is not verdict)),),
        data=kind.encode(document),
    )
    pictures = links_to_charts(page, room.path, document.id)
    return page if pictures is None else replace(page, parts=(*page.parts, pictures))


def split_heading(text: str) -> tuple[str, str]:
    """Split a long verdict into its first clause, which is a heading, and the rest.

    A sweep of many settings has what its best configuration gives as the heading, and the settings below it.
    """
    swept = _SWEPT.fullmatch(text)
    if swept is not None and len(swept["point"]) + len(swept["gives"]) > _HEADING:
        return f"{_begin(swept['gives'])}.", f"With {swept['point']}; {swept['rest']}"
    first = re.search(r"[.;:] ", text[_CLAUSE:]) if len(text) > _HEADING else None
    if first is None:
        return text, ""
    clause, rest = text[: _CLAUSE + first.start()], text[_CLAUSE + first.end() :]
    return f"{clause}.", _begin(rest)


def _begin(text: str) -> str:
    """Let a sentence begin with a capital letter, unless it begins with a name of code."""
    return text if _CODE.match(text) else f"{text[:1].upper()}{text[1:]}"


_SWEPT = re.compile(
    r"(?P<point>[^;]+=[^;]+?) gives (?P<gives>[^;]+); (?P<rest>.*\d measurements? over \d[^;]*)"
)
_HEADING, _CLAUSE = 100, 30
"""Longest verdict that is a heading as it is, and fewest characters of a first clause."""
_CODE = re.compile(r"\S*[._]\w")
"""Begins a name of code, which keeps its small letter."""


def _is_verdict(block: Block) -> bool:
    return isinstance(block, Notice) and block.severity is Severity.VERDICT


def trail_of(room: DocumentRoom, document: Any) -> tuple[PageLink, ...]:
    """Return the trail of a document: its room, those of the same model, and the document by its id."""
    name = clean(document.name)
    return (
        PageLink(text=room.title, address=f"/{room.path}"),
        *(
            (PageLink(text=shorten_name(name), address=address(room.path, name=document.name)),)
            if name
            else ()
        ),
        PageLink(text=document.id[:6], address=""),
    )


def _chips(document: Any, opening: Iterable[Block]) -> tuple[tuple[str, Severity], ...]:
    """Sum up verdicts of a comparison, and what stands above the first heading: failures, bounds, doubts."""
    contrasts = document.contrasts if isinstance(document, Comparison) else ()
    verdicts = tuple((str(one.outcome), CHIPS[one.outcome]) for one in contrasts)
    severities = Counter(block.severity for block in opening if isinstance(block, Notice))
    nouns = {
        Severity.FAILURE: ("failure", "failures"),
        Severity.BROKEN: ("bound broken", "bounds broken"),
        Severity.UNDECIDED: ("undecided", "undecided"),
        Severity.HELD: ("bound holds", "bounds hold"),
        Severity.DOUBT: ("doubt", "doubts"),
    }
    return verdicts + tuple(
        (count(severities[severity], *words), severity)
        for severity, words in nouns.items()
        if severities[severity]
    )


# --- beside each other ---------------------------------------------------------------------------


def beside(request: PageRequest) -> DashboardPage:
    """Show two to five documents beside each other: verdicts, and the figures of results in columns."""
    names = request.texts("with")
    if len(names) > MOST:
        raise RequestError(f"{len(names)} documents are too many for one page; choose up to {MOST}.")
    documents = [_any(request.store, name) for name in names]
    results_ = [document for document in documents if isinstance(document, Result)]
    tables = side_by_side(results_) if len(results_) > 1 else ()
    return DashboardPage(
        title=_beside_title(results_, tables[-1]) if tables else "Side by side",
        room="/results",
        trail=(
            PageLink(text="Results", address="/results"),
            PageLink(text="side by side", address=""),
        ),
        parts=(
            *_beside_parts(documents, results_, tables),
            *_run_form(request.store, results_, len(documents)),
            _beside_form(request.store, [d.id for d in documents]),
        ),
        data=[codec.to_json(document) for document in documents],
    )


def _beside_title(results_: Sequence[Result], figures: Table) -> str:
    """Say which result is the best in the first of the usual figures in which one is."""
    titles = [column.title for column in figures.columns]
    names = " and ".join(short_model_names(results_))
    best = {row[0]: row[titles.index(BEST)] for row in figures.rows} if BEST in titles else {}
    for figure, words in (("latency.p50", "answers the soonest"), ("throughput", "answers the most")):
        if name := best.get(figure):
            return f"{name} {words} of {len(results_)}, by {figure}"
    return f"{names} side by side"


def _beside_parts(
    documents: Sequence[Any], results_: Sequence[Result], tables: Sequence[Table]
) -> Iterator[Part]:
    if not documents:
        yield PageText(text=f"Choose two to {MOST} documents.")
        return
    rooms = {document.id: ROOMS[kind_of(document).name] for document in documents}
    kinds = [KINDS.get(kind_of(d).name, kind_of(d).name) for d in documents]
    cells = _names_of(documents)
    links = TableLinks(
        links={
            lists.WHAT: {
                cell: address(rooms[d.id].path, d.id) for cell, d in zip(cells, documents, strict=True)
            }
        }
    )
    rows = (
        (cell, kind if len(set(kinds)) > 1 else "", kind_of(d).headline(d))
        for cell, kind, d in zip(cells, kinds, documents, strict=True)
    )
    verdicts = make_table("", (lists.WHAT, "kind?", "verdict"), rows)
    yield PageBlocks(blocks=(verdicts,), links=links)
    if tables:
        yield PageBlocks(blocks=tuple(tables))
        yield PageText(
            text="Figures of separate runs differ by more than their intervals say. To be sure of a "
            "difference, measure the models side by side:",
            commands=(f"modeldyno compare {results_[0].id[:12]} {results_[1].id[:12]}",),
        )


def _names_of(documents: Sequence[Any]) -> list[str]:
    """Return the names of documents; where several have one, each with its id."""
    names = [shorten_name(clean(document.name)) or "the model" for document in documents]
    short_ids = shorten_ids([document.id for document in documents])
    return [
        f"{name} ({short})" if names.count(name) > 1 else name
        for name, short in zip(names, short_ids, strict=True)
    ]


def _run_form(store: Store, results_: Sequence[Result], count: int) -> Iterator[PageForm]:
    """Let somebody run registered models side by side, if all that is shown are Results of such."""
    registry = store.registry
    if count > 1 and len(results_) == count:
        variants = [registry_writes.variant_of(registry, result_) for result_ in results_]
        if all(variants) and len({v.name for v in variants if v is not None}) == count:
            yield from registry_writes.compare_form(
                registry,
                form="run",
                action="/compare",
                fields=tuple(FormField(name="with", label="", value=r.id, hidden=True) for r in results_),
            )


def _beside_form(store: Store, chosen: Sequence[str]) -> PageForm:
    entries = [(e.id, f"{e.name}: {e.headline}"[:100] + f" ({e.id[:6]})") for e in store.find(limit=2 * PAGE)]
    options = (("", "none"), *entries, *((one, one) for one in chosen if one not in dict(entries)))
    values = (*chosen, *[""] * MOST)[: max(2, min(MOST, len(chosen) + 1))]
    return PageForm(
        id="beside",
        action="/compare",
        fields=tuple(
            FormField(name="with", label=f"Document {place}", value=value, options=options)
            for place, value in enumerate(values, 1)
        ),
        buttons=(("", "Show side by side"),),
    )


def _any(store: Store, name: str) -> StoredDocument:
    for read in (store.get, store.study, store.conclusion):
        with suppress(RequestError):
            document: StoredDocument = read(name)
            return document
    raise RequestError(
        f"The store has no result, study, comparison, load series or conversion '{name[:60]}'."
    )


def change_tags(request: PageRequest) -> str:
    """Add a tag to a result, or remove it; return the address of the result."""
    tag, what = request.form_value("tag"), request.form_value("do")
    if what not in {"add", "remove"}:
        raise RequestError("A tag is added or removed; nothing else can be done with it.")
    entry = request.store.tag(request.path["id"], **{what: (tag,)})
    return address("results", entry.id)
