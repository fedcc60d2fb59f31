"""The page that the dashboard opens on: what needs attention, a wall of models, what goes on and is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Heading, make_table, note, shorten
from modeldyno.base.views.text import count, format_utc, shorten_ids, shorten_text
from modeldyno.dashboard import document_pages, live_pages
from modeldyno.dashboard.alerts import LOOKED, alert_lead, alert_title, attention_table, find_alerts
from modeldyno.dashboard.model_wall import NEWEST, model_wall
from modeldyno.dashboard.page import DashboardPage, PageBlocks, PageLink, PageText, address
from modeldyno.dashboard.store_access import live_loads
from modeldyno.profiling.views import lists
from modeldyno.registry.records.records import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.dashboard.page import PageRequest, Part
    from modeldyno.registry.records.records import Task, Worker
    from modeldyno.stores.interface import ConclusionEntry, Entry, StudyEntry

_NEW = 8
"""Documents that are shown as new."""
_STRIP = 5
"""Alerts above the wall."""
_MOST = 200
"""Tasks that are counted."""
_OUTCOME = 90


def home(request: PageRequest) -> DashboardPage:
    """Say what needs attention, and show the models measured last, what is being done and what is new."""
    store = request.store
    newest = store.find(limit=NEWEST)  # asked once: reading entries is half of this page's time
    results = newest[:LOOKED]
    studies, conclusions = store.studies(limit=_NEW), store.conclusions(limit=_NEW)
    attention, known = find_alerts(request, results)
    running = store.registry.tasks(states=(TaskState.LEASED,), limit=_NEW)
    queued = store.registry.count_tasks((TaskState.QUEUED, TaskState.DEFERRED), _MOST)
    workers = store.registry.workers()
    live = [load for load in live_loads(store) if not load.ended]
    wall = tuple(model_wall(store, newest, attention))
    documents: tuple[Entry | StudyEntry | ConclusionEntry, ...] = (*results[:_NEW], *studies, *conclusions)
    is_empty = not (live or documents or store.registry.models(limit=1))
    parts: tuple[Part, ...] = (
        *((attention_table(attention, _STRIP),) if attention else ()),
        *live_pages.going_on(live),
        *wall,
        *_work_part(running, queued, workers),
        *((_newest(documents),) if documents else ()),
    )
    return DashboardPage(
        title="Nothing is measured yet" if is_empty else alert_title(attention, known=known),
        lead="" if is_empty else alert_lead(attention, known=known),
        room="/",
        actions=(PageLink(text="All alerts", address="/alerts"),) if len(attention) > 1 else (),
        parts=(_EMPTY,) if is_empty else parts,
        reload=0 if known else 2,
        data={
            "attention": [one._asdict() for one in attention],
            "running": running,
            "queued": queued,
            "models": [card for part in wall for card in part.cards],
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


def _work_part(running: Sequence[Task], queued: int, workers: Sequence[Worker]) -> Iterator[PageBlocks]:
    """Say in a line what is being done; nothing where nobody waits for anything."""
    if running or queued or workers:
        more = " or more" if queued == _MOST else ""
        says = f"{count(queued, 'task')}{more} to do" if queued else "Nothing is queued"
        advice = "" if workers or not queued else "no worker is running: start one with modeldyno worker"
        now = ", ".join(task.label for task in running[:1])
        text = f"{says}; {len(running)} being done{f': {now}' if now else ''}."
        text += f" {count(len(workers), 'worker')}." if workers else ""
        yield PageBlocks(blocks=(note(text, code="queue", advice=advice),))


def _newest(documents: Sequence[Entry | StudyEntry | ConclusionEntry]) -> PageBlocks:
    """List what was stored last, whatever it is."""
    newest = sorted(documents, key=lambda one: one.created, reverse=True)[:_NEW]
    kinds = [_kind(one) for one in newest]
    short_ids = shorten_ids([one.id for one in newest])
    rows = (
        (
            shorten_text(one.name, _OUTCOME),
            document_pages.KINDS.get(kind, kind),
            shorten(one.headline.removeprefix(f"{one.name} "), _OUTCOME),
            format_utc(one.created)[:16],
            short,
        )
        for one, kind, short in zip(newest, kinds, short_ids, strict=True)
    )
    table = make_table("", (lists.WHAT, "kind", "outcome", lists.WHEN, lists.ID), rows)
    addresses = {
        one.id: address(document_pages.ROOMS[kind].path, one.id)
        for one, kind in zip(newest, kinds, strict=True)
    }
    links = document_pages.list_links(addresses)
    return PageBlocks(blocks=(Heading(title="Measured last"), table), links=links)


def _kind(document: Entry | StudyEntry | ConclusionEntry) -> str:
    """Return the kind of a document by what lists it."""
    kind = getattr(document, "kind", "")
    return kind or ("study" if hasattr(document, "trials") else "result")
