"""The page that the dashboard opens on: what needs attention, what goes on, what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.report.blocks import Heading, Notice, Severity, make_table, note, shorten
from modeldyno.base.views.text import count
from modeldyno.dashboard import document_pages, live_pages
from modeldyno.dashboard.page import CHIPS, Attention, DashboardPage, PageBlocks, PageText, address
from modeldyno.dashboard.store_access import live_loads
from modeldyno.dashboard.trend_pages import find_regressions
from modeldyno.profiling.views import lists
from modeldyno.registry.figures import old_figures
from modeldyno.registry.matrix import newest_speeds
from modeldyno.registry.records.records import TaskState
from modeldyno.registry.views import lists as registry_lists
from modeldyno.reports.interface import TableLinks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.dashboard.page import PageRequest, Part
    from modeldyno.registry.records.records import HardwareTarget, Task, VariantFigure, Worker
    from modeldyno.stores.interface import ConclusionEntry, Entry, Store

_NEW = 8
"""Documents of a kind that are shown as new."""
_LOOKED = 60
"""Newest results among which failures are looked for."""
_MODELS = 50
"""Models, last touched, whose bounds are looked at."""
_MOST = 200
"""Tasks, and figures of a target, that are counted."""
_WHY = 100
_ATTENTION = 12
"""Rows of each reason that are shown."""


def home(request: PageRequest) -> DashboardPage:
    """Say what needs attention and what is being done, and list what is new."""
    store = request.store
    results = store.find(limit=_LOOKED)
    studies, conclusions = store.studies(limit=_NEW), store.conclusions(limit=_NEW)
    targets = store.registry.targets()
    worse = find_regressions(store) if request.regressions is None else request.regressions()
    attention = (*(worse or ())[:_ATTENTION], *_attention(store, results, targets))
    running = store.registry.tasks(states=(TaskState.LEASED,), limit=_NEW)
    queued = store.registry.count_tasks((TaskState.QUEUED, TaskState.DEFERRED), _MOST)
    workers = store.registry.workers()
    live = [load for load in live_loads(store) if not load.ended]
    parts: list[Part] = [*live_pages.going_on(live)]
    if attention:
        parts.append(_attention_part(attention))
    if running or queued or workers:
        parts.append(_work_part(running, queued, workers, targets))
    if results:
        newest = results[:_NEW]
        links = document_pages.entry_links(document_pages.RESULTS, "id", [entry.id for entry in newest])
        parts.append(PageBlocks(blocks=(Heading(title="Newest results"), lists.listing(newest)), links=links))
    if studies:
        listed = document_pages.study_list(studies)
        parts.append(PageBlocks(blocks=(Heading(title="Newest studies"), *listed.blocks), links=listed.links))
    if conclusions:
        parts.append(_new_conclusions(conclusions))
    if not (live or results or studies or conclusions or store.registry.models(limit=1)):
        parts = [_EMPTY]
    else:
        parts = [*_calm_part(worse, attention), *parts]
    return DashboardPage(
        title="What is new",
        room="/",
        parts=tuple(parts),
        reload=0 if worse is not None else 2,
        data={
            "attention": [one._asdict() for one in attention],
            "running": running,
            "queued": queued,
            "results": results[:_NEW],
            "studies": studies,
            "conclusions": conclusions,
            "loads": live,
        },
    )


_EMPTY = PageText(
    text="The store is empty. Each of these puts something here; this page follows by itself.",
    commands=(
        "modeldyno profile model.onnx",
        "modeldyno registry add model.onnx",
        "modeldyno worker",
    ),
)


def _calm_part(worse: Sequence[Attention] | None, attention: Sequence[Attention]) -> Iterator[PageBlocks]:
    """Say that nothing needs attention, or that nobody knows yet whether something has become worse."""
    if worse is None:
        text = "Histories are being read: models that have become worse will stand here."
        yield PageBlocks(blocks=(note(text),))
    elif not attention:
        text = "Nothing needs attention: nothing became worse or failed, and no figure is stale."
        yield PageBlocks(blocks=(Notice(severity=Severity.HELD, text=text),))


def _attention(
    store: Store, results: Sequence[Entry], targets: Sequence[HardwareTarget]
) -> Iterator[Attention]:
    registry = store.registry
    for row in newest_speeds(registry, (entry.name for entry in registry.models(limit=_MODELS))):
        if row.speed.bounds is Verdict.BROKEN:
            where = address("models", row.model, row.number)
            why = "the bounds of its policy do not hold"
            yield Attention("broken", f"{row.model}/{row.number}", row.target.name, why, where)
    names = {target.id: target.name for target in targets}
    for task in registry.tasks(states=(TaskState.FAILED,), limit=_ATTENTION):
        where = address("models", task.model, task.number)
        yield Attention("failed", task.label, names.get(task.target, ""), shorten(task.why, _WHY), where)
    for entry in [entry for entry in results if entry.failed][:_ATTENTION]:
        where = address("results", entry.id)
        yield Attention("failed", f"{entry.id[:6]} {entry.name}", "", shorten(entry.headline, _WHY), where)
    yield from _old_figures(old_figures(registry, names, limit=_MOST), names)


def _old_figures(figures: Sequence[VariantFigure], targets: Mapping[str, str]) -> Iterator[Attention]:
    """Yield a row for each version: a new driver makes all of its figures stale at once."""
    by_version: dict[tuple[str, str, str, int], list[VariantFigure]] = {}
    for figure in figures:
        place = figure.target, str(figure.state), figure.model, figure.number
        by_version.setdefault(place, []).append(figure)
    for (target, state, model, number), of_version in list(by_version.items())[:_ATTENTION]:
        first = of_version[0]
        what = (
            f"{first.recipe}, {first.measure.label}"
            if len(of_version) == 1
            else count(len(of_version), "figure")
        )
        yield Attention(
            state,
            f"{model}/{number}: {what}",
            targets[target],
            shorten(first.why, _WHY),
            address("models", model, number),
        )


def _attention_part(attention: Sequence[Attention]) -> PageBlocks:
    rows = ((one.of, one.state, one.target, one.why) for one in attention)
    table = make_table("", ("of", "state", "target", "why"), rows)
    links = TableLinks(links={"of": {one.of: one.address for one in attention}}, chips=CHIPS)
    return PageBlocks(blocks=(Heading(title="Needs attention"), table), links=links)


def _work_part(
    running: Sequence[Task], queued: int, workers: Sequence[Worker], targets: Sequence[HardwareTarget]
) -> PageBlocks:
    by_id = {target.id: target for target in targets}
    more = " or more" if queued == _MOST else ""
    says = f"{count(queued, 'task')}{more} to do" if queued else "Nothing is queued"
    advice = "" if workers or not queued else "no worker is running: start one with modeldyno worker"
    blocks = [
        Heading(title="Going on"),
        note(f"{says}; {len(running)} being done.", advice=advice),
        *((registry_lists.workers(workers, by_id),) if workers else ()),
    ]
    return PageBlocks(blocks=tuple(blocks), links=TableLinks(chips=CHIPS))


def _new_conclusions(conclusions: Sequence[ConclusionEntry]) -> PageBlocks:
    with_rooms = [(entry, document_pages.ROOMS[entry.kind]) for entry in conclusions]
    table = lists.conclusions([entry for entry, _ in with_rooms])
    addresses = {
        row[0]: address(room.path, entry.id)
        for row, (entry, room) in zip(table.rows, with_rooms, strict=True)
    }
    return PageBlocks(
        blocks=(Heading(title="Newest comparisons, loads and conversions"), table),
        links=TableLinks(links={"id": addresses}),
    )
