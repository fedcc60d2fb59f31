"""Pages of the registry: models, versions, the answer, tasks, targets, events, settings."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.version_name import SOURCE, VersionName
from modeldyno.base.report.blocks import (
    Notice,
    Severity,
    Table,
    choose_columns,
    drop_empty_columns,
    make_table,
    note,
    shorten,
)
from modeldyno.base.stats.units import SECONDS
from modeldyno.base.views.text import (
    about_number,
    count,
    format_known,
    format_utc,
    shorten_ids,
    shorten_name,
)
from modeldyno.dashboard import document_pages, network_page, registry_writes
from modeldyno.dashboard.lineage_part import find_lineage, lineage_part
from modeldyno.dashboard.page import (
    CHIPS,
    LARGEST_NUMBER,
    PAGE,
    DashboardPage,
    FormField,
    PageBlocks,
    PageDiagram,
    PageForm,
    PageLink,
    PageLinks,
    PageText,
    address,
    as_number,
    cut_page,
    list_data,
    older_links,
    search_form,
)
from modeldyno.profiling.views import lists as result_lists
from modeldyno.profiling.views.result import network as network_view
from modeldyno.registry import answering, changes
from modeldyno.registry.matrix import newest_speeds, version_speeds
from modeldyno.registry.overview import version_overview
from modeldyno.registry.policies import all_policies
from modeldyno.registry.records.records import OPEN, FigureState, TaskKind, TaskState
from modeldyno.registry.views import answer as answer_view
from modeldyno.registry.views import lists
from modeldyno.registry.views import version as version_view
from modeldyno.reports.interface import TableLinks
from modeldyno.serving.loadtest.replicas import CostOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.report.blocks import Block
    from modeldyno.dashboard.page import PageRequest, Part
    from modeldyno.registry.interface import ModelEntry, Registry
    from modeldyno.registry.records.overview import SpeedRow, VersionOverview
    from modeldyno.registry.records.records import RegistryEvent, Task, Version, Worker
    from modeldyno.stores.interface import Entry, Store

_MODELS = PageLink(text="Models", address="/models")
_TASKS = 50
"""Tasks on a page of tasks."""
_VERSIONS = 50
"""Versions on the page of a model."""
_ROOMS = {
    "result": "results",
    "comparison": "comparisons",
    "ladder": "loads",
    "capacity": "loads",
    "explanation": "loads",
}
"""Where a kind of document is shown."""
_OLD = 8
"""Results and studies of a version that are linked beside its figures."""


# --- models --------------------------------------------------------------------------------------


def models(request: PageRequest) -> DashboardPage:
    """List registered models, and how fast the newest version of each is on each target."""
    query = {word: request.text(word) for word in ("text", "framework", "task")}
    before = request.text("before")
    listed, mark = cut_page(request.store.registry.models(**query, limit=PAGE + 1, before=before))
    speeds = tuple(newest_speeds(request.store.registry, [entry.name for entry in listed]))
    asks = any(query.values()) or bool(before)
    chosen = request.texts("show")
    columns = tuple(one for one in lists.SHOWN if one in chosen) or lists.SHOWN
    return DashboardPage(
        title="Models",
        room="/models",
        parts=(
            *((_model_search(query, columns),) if listed or asks else ()),
            *_model_parts(listed, speeds, columns, asks=asks),
            *(() if asks else _measured_part(request.store)),
            *older_links("models", mark, first=not before, **query),
            registry_writes.register_form(),
        ),
        actions=(PageLink(text="Register a model", address="#register"),),
        data={**list_data(listed, "models", mark, **query), "speeds": speeds},
    )


def _measured_part(store: Store) -> Iterator[PageBlocks]:
    """List the models of the newest results, registered or not; each leads to its results."""
    newest = store.find(limit=_NEWEST)
    if newest:
        links = {shorten_name(entry.name): address("results", name=entry.name) for entry in newest}
        when = (result_lists.WHEN,)
        links_of = TableLinks(links={result_lists.WHAT: links}, times=when, faint=when)
        yield PageBlocks(blocks=(_measured_models(store, newest),), links=links_of)


def _measured_models(store: Store, entries: Sequence[Entry]) -> Table:
    """List models with the figures of their newest results here, and how many they have."""
    counts = Counter(entry.name for entry in entries)
    of_names: dict[str, Entry] = {}
    for entry in entries:
        of_names.setdefault(entry.name, entry)
    newest = tuple(of_names.values())
    figures = document_pages.result_figures(store, newest)
    shown = ("latency.p50", "latency.p99", "throughput")
    titles = tuple(f"{document_pages.FIGURES[name]}>?" for name in shown)
    rows = (
        (
            shorten_name(entry.name),
            *(own[name] for name in shown),
            settings
            if settings and any(own[name] for name in shown)
            else shorten(entry.headline.removeprefix(f"{entry.name} "), _OUTCOME),
            f"{counts[entry.name]:,}",
            format_utc(entry.created)[:16],
        )
        for entry, own, settings in zip(newest, figures, result_lists.settings_of(newest), strict=True)
    )
    titles = (result_lists.WHAT, *titles, "as", "results>", result_lists.WHEN)
    return make_table("Measured", titles, rows)


_OUTCOME = 60
"""Most characters of an outcome in a list of models."""


_NEWEST = 500
"""Results, the newest, whose models are listed."""


def _model_search(query: dict[str, str], columns: Sequence[str]) -> PageForm:
    return search_form(
        "/models",
        FormField(name="text", label="Name contains", value=query["text"]),
        FormField(name="framework", label="Framework", value=query["framework"]),
        FormField(name="task", label="Task", value=query["task"]),
        *(FormField(name="show", label=one, value=one, ticked=one in columns) for one in lists.SHOWN),
    )


def _model_parts(
    listed: Sequence[ModelEntry], speeds: Sequence[SpeedRow], columns: Sequence[str], *, asks: bool
) -> Iterator[Part]:
    if not listed:
        yield (
            PageText(text="No models match this filter.")
            if asks
            else PageText(text="No model is registered yet.", commands=("modeldyno registry add model.onnx",))
        )
        return
    links = TableLinks(
        links={
            "model": {entry.name: address("models", entry.name) for entry in listed},
            "version": {f"{s.model}/{s.number}": address("models", s.model, s.number) for s in speeds},
        },
        chips=CHIPS,
        times=("registered",),
        faint=("registered",),
    )
    blocks: list[Block] = []
    if speeds:
        blocks += [lists.by_target(speeds, columns, "The newest version of each model, on each target")]
        blocks += [lists.speeds(speeds, "Fastest variant per target")]
    blocks += [replace(lists.models(listed), title="Registered")]
    yield PageBlocks(blocks=tuple(blocks), links=links)
    if not speeds:
        yield PageText(text="No measurements yet. Start a worker:", commands=("modeldyno worker",))


def model(request: PageRequest) -> DashboardPage:
    """Show the versions of a model, how fast each is, and its aliases."""
    registry = request.store.registry
    name = VersionName.parse(request.path["name"]).model
    versions = registry.versions(name, limit=_VERSIONS)
    aliases, moves = registry.aliases(name), registry.alias_moves(name)
    speeds = tuple(version_speeds(registry, name))
    addresses = {v.name: address("models", name, v.number) for v in versions}
    times = ("registered", "when")
    links = TableLinks(links={"version": addresses}, chips=CHIPS, times=times, faint=times)
    compares = tuple(_compare_form(registry, name, versions))
    lineage = find_lineage(registry, versions, aliases)
    drawn = lists.over_versions(speeds)
    blocks: list[Block] = [
        *((lists.speeds(speeds, "Speed of each version"),) if speeds else ()),
        *((drawn,) if drawn is not None else ()),
        lists.versions(versions),
    ]
    return DashboardPage(
        title=f"{_answer_of(name, speeds)}; {count(len(versions), 'version')}",
        room="/models",
        trail=(_MODELS, PageLink(text=name, address="")),
        actions=_model_links(name, aliases),
        parts=(
            PageBlocks(blocks=tuple(blocks), links=links),
            *(
                (
                    PageBlocks(
                        blocks=(replace(lists.alias_moves(moves[-PAGE:]), title="Moves of aliases"),),
                        links=TableLinks(times=times),
                    ),
                )
                if moves
                else ()
            ),
            *lineage_part(lineage, len(versions)),
            *compares,
            *_alias_forms(name, versions, aliases),
        ),
        data={
            "model": name,
            "versions": versions,
            "aliases": aliases,
            "moves": moves,
            "speeds": speeds,
            "lineage": lineage,
        },
    )


def _compare_form(registry: Registry, name: str, versions: Sequence[Version]) -> Iterator[PageForm]:
    """Let somebody choose versions to be run side by side: the newest two, unless others are chosen."""
    if len(versions) > 1:
        options = (("", "none"), *((str(v.number), v.name) for v in versions))
        chosen = [str(versions[1].number), str(versions[0].number), ""]
        yield from registry_writes.compare_form(
            registry,
            form="run",
            action=f"{address('models', name)}/compare",
            fields=(
                *(
                    FormField(name="version", label=label, options=options, value=value)
                    for label, value in zip(("Baseline", "Candidate", "and"), chosen, strict=True)
                ),
                FormField(name="batch", label="Batch size", value="1"),
            ),
        )


def _answer_of(name: str, speeds: Sequence[SpeedRow]) -> str:
    """Say how fast the newest version that was timed is at its best."""
    timed = [row for row in speeds if _median_of(row) is not None]
    newest = [row for row in timed if row.number == max(each.number for each in timed)]
    if not newest:
        return f"{name} is not timed yet"
    best = min(newest, key=lambda row: (row.figure.state is not FigureState.FRESH, _median_of(row)))
    p50 = format_known(best.speed.p50, SECONDS, unknown=about_number(best.speed.seen[0]))
    how = f"{best.figure.recipe}, {best.figure.measure.label}"
    old = "" if best.figure.state is FigureState.FRESH else f", which is {best.figure.state}"
    return f"{best.model}/{best.number} answers in {p50} as {how} on {best.target.name}{old}"


def _median_of(row: SpeedRow) -> float | None:
    """Return the median of a version on a target in seconds, certified or as it was seen."""
    return row.speed.seen[0] if row.speed.p50 is None else row.speed.p50


def _model_links(name: str, aliases: dict[str, int]) -> tuple[PageLink, ...]:
    return (
        PageLink(text="Which one to run?", address=address("models", name, "answer")),
        *(
            PageLink(text=f"@{alias} is {name}/{number}", address=address("models", name, number))
            for alias, number in aliases.items()
        ),
        PageLink(text="Compare versions", address="#run"),
        PageLink(text="Tasks", address=address("tasks", model=name)),
        PageLink(text="Events", address=address("events", of=name)),
    )


def _alias_forms(name: str, versions: Sequence[Version], aliases: dict[str, int]) -> Iterator[PageForm]:
    action = address("models", name, "aliases")
    numbers = tuple((str(v.number), v.name) for v in versions)
    yield PageForm(
        id="alias",
        title="Let an alias name a version",
        action=action,
        fields=(
            FormField(name="alias", label="Alias", hint="champion"),
            FormField(name="number", label="Version", options=numbers, value=numbers[0][0]),
        ),
        buttons=(("move", "Set"),),
        writes=True,
    )
    if aliases:
        yield PageForm(
            id="aliases",
            title="Take an alias back",
            action=action,
            fields=(FormField(name="alias", label="Alias", options=tuple((a, f"@{a}") for a in aliases)),),
            buttons=(("back", "Roll back"), ("remove", "Remove")),
            writes=True,
        )


def change_alias(request: PageRequest) -> str:
    """Set, remove or roll back an alias; return the address of its model."""
    name = VersionName.parse(request.path["name"]).model
    what, alias = request.form_value("do"), request.form_value("alias")
    if what not in {"move", "back", "remove"}:
        raise RequestError("An alias is set, removed or rolled back; nothing else can be done with it.")
    of = f"{name}/{as_number(request.form_value('number'))}" if what == "move" else name
    registry = request.store.registry
    changes.change_alias(registry, of, alias, remove=what == "remove", rollback=what == "back")
    return address("models", name)


def version(request: PageRequest) -> DashboardPage:
    """Show a version: its variants, its figures on each target, and what is to come."""
    name, which = request.path["name"], request.path["version"]
    parsed = VersionName.parse(f"{name}/{which}" if which.isdecimal() else f"{name}@{which}")
    registry = request.store.registry
    overview = version_overview(registry, parsed)
    of = overview.version
    results = {m.figure.result[:6]: address("results", m.figure.result) for m in overview.figures}
    documents = {
        v.conversion_id[:6]: address("conversions", v.conversion_id)
        for v in overview.variants
        if v.conversion_id
    }
    documents |= {one.document[:6]: address(_ROOMS[one.kind], one.document) for one in overview.measurements}
    links = TableLinks(
        links={"variant": results, "what": documents, "document": documents},
        found_by={"variant": "result", "what": "document"},
        chips=CHIPS,
        times=("when",),
        faint=("when", "document", "result"),
    )
    actions = (
        PageLink(text="Which one to run?", address=address("models", of.model, "answer")),
        *(
            PageLink(text=f"{of.model}/{number}", address=address("models", of.model, number))
            for number in overview.numbers
            if number != of.number
        ),
        *_document_links("sweep", "studies", overview.studies[:_OLD]),
        PageLink(text="Events", address=address("events", of=of.name)),
    )
    _, *blocks = map(_for_a_page, version_view.blocks(overview))
    states = Counter(str(m.figure.state) for m in overview.figures)
    return DashboardPage(
        title=_answer_of(of.name, tuple(version_speeds(registry, of.model, [of.number]))),
        lead=f"{version_view.headline(overview)}.",
        room="/models",
        chips=tuple(
            (count(number, f"{state} figure"), CHIPS.get(state, Severity.NOTE))
            for state, number in states.items()
        ),
        actions=actions,
        trail=(
            _MODELS,
            PageLink(text=of.model, address=address("models", of.model)),
            PageLink(text=str(of.number), address=""),
        ),
        parts=(
            PageBlocks(blocks=tuple(blocks), links=links),
            *_network_of(overview),
            *registry_writes.measure_form(registry, of, overview.variants),
        ),
        data=overview,
    )


def _for_a_page(block: Block) -> Block:
    """Move the ids of a list of documents behind what people read."""
    if not isinstance(block, Table) or block.columns[0].title != "document":
        return block
    return choose_columns(block, [column.title for column in (*block.columns[1:], block.columns[0])])


def _network_of(overview: VersionOverview) -> Iterator[PageDiagram]:
    """Draw the network of a version, by a figure whose modules were analysed; that of the source first."""
    measured = sorted(overview.figures, key=lambda m: m.figure.recipe != SOURCE)
    for result in (m.result for m in measured if m.result is not None):
        if (drawn := network_view.build_network(result)) is not None:
            yield network_page.network_part(result.id, drawn, f"Network, as result {result.id[:6]} saw it")
            return


def _document_links(word: str, room: str, ids: Sequence[str]) -> Iterator[PageLink]:
    for short, identifier in zip(shorten_ids(ids), ids, strict=True):
        yield PageLink(text=f"{word} {short}", address=address(room, identifier))


# --- the answer ----------------------------------------------------------------------------------


def answer(request: PageRequest) -> DashboardPage:
    """Find the cheapest version, variant and configuration that meets the bounds."""
    registry = request.store.registry
    name = VersionName.parse(request.path["name"]).model
    registry.versions(name, limit=1)
    bounds = tuple(
        filter(None, (part.strip() for text in request.texts("require") for part in _AND.split(text)))
    )
    fields = {word: request.text(word) for word in ("p99", "demand", "price", "on")}
    within = (f"latency.p99 <= {fields['p99']}ms",) if fields["p99"] else ()
    status, title = 200, f"Which form of {name} to run?"
    data: object
    try:
        price = f"{fields['price']}/h" if _NUMBER.fullmatch(fields["price"]) else fields["price"]
        cost = CostOptions.parse(fields["demand"] or None, price or None)
        answered = answering.answer(
            registry, name, require=(*within, *bounds), cost=cost, on=fields["on"] or None
        )
        first, *blocks = answer_view.blocks(answered, ranked=True)
        data, title = answered, first.text if isinstance(first, Notice) else title
    except RequestError as error:
        status, data = 400, {"error": str(error)}
        blocks = [Notice(severity=Severity.FAILURE, text=str(error))]
    question = {word: text for word, text in fields.items() if text} | (
        {"require": " and ".join(bounds)} if bounds else {}
    )
    link = PageLink(text="Link to this question", address=address("models", name, "answer", **question))
    return DashboardPage(
        title=title,
        room="/models",
        trail=(
            _MODELS,
            PageLink(text=name, address=address("models", name)),
            PageLink(text="which one to run", address=""),
        ),
        parts=(
            _question_form(registry, name, bounds, fields),
            PageBlocks(blocks=tuple(blocks), links=TableLinks(chips=CHIPS)),
            *((_SHARE, PageLinks(label="To be shared", links=(link,))) if question else ()),
        ),
        data=data,
        status=status,
    )


_SHARE = PageText(text="The address of this page is the question: whoever opens it sees the answer of then.")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def _question_form(registry: Registry, name: str, bounds: Sequence[str], fields: dict[str, str]) -> PageForm:
    """Let somebody say what must hold: numbers with sliders, which need no script to be typed."""
    numbers = (
        ("p99", "Latency, 99 % of calls within (ms)", "20", (0.1, 10_000.0)),
        ("demand", "Requests to serve, a second", "200", (1.0, 100_000.0)),
        ("price", "Price of a replica, an hour", "1.2", (0.01, 100.0)),
    )
    return PageForm(
        id="question",
        action=address("models", name, "answer"),
        fields=(
            *(
                FormField(
                    name=word,
                    label=label,
                    hint=hint,
                    value=(value := fields[word].removesuffix("/s" if word == "demand" else "/h")),
                    slides=ends if not value or _NUMBER.fullmatch(value) else None,
                )
                for word, label, hint, ends in numbers
            ),
            FormField(
                name="require",
                label="Other bounds that must surely hold, one a line",
                value="\n".join(bounds),
                hint="latency.p50 <= 5ms",
                lines=2,
            ),
            FormField(
                name="on",
                label="Target",
                value=fields["on"],
                options=(("", "any"), *((t.id, t.name) for t in registry.targets())),
            ),
        ),
        buttons=(("", "Answer"),),
        live=True,
    )


_AND = re.compile(r"\n|\band\b")


# --- work ----------------------------------------------------------------------------------------


_NO_TASK = PageText(
    text="Nothing is to be done. A model that is registered gets tasks by its policy:",
    commands=("modeldyno registry add model.onnx",),
)


def tasks(request: PageRequest) -> DashboardPage:
    """List what is being done and will be done, and the workers; tasks can be cancelled or queued again."""
    registry = request.store.registry
    model_, ended, before = request.text("model"), bool(request.text("all")), request.text("before")
    parsed = VersionName.parse(model_) if model_ else None
    queue = registry.tasks(
        states=() if ended else tuple(OPEN),
        model=None if parsed is None else parsed.model,
        number=None if parsed is None else parsed.number,
        limit=_TASKS + 1,
        after=_task_place(before) if before else None,
    )
    listed = queue[:_TASKS]
    mark = "-".join(map(str, listed[-1].place)) if len(queue) > _TASKS else ""
    query = {"model": model_, "all": "yes" if ended else ""}
    other = (
        PageLink(text="Only what is to be done", address=address("tasks", model=model_))
        if ended
        else PageLink(text="Also what has ended", address=address("tasks", model=model_, all="yes"))
    )
    workers = registry.workers()
    return DashboardPage(
        title=_task_title(registry, model_),
        room="/tasks",
        parts=(
            PageLinks(label="Which tasks", links=(other,)),
            *(_task_parts(request, listed) if listed else (_NO_TASK,)),
            *older_links("tasks", mark, first=not before, older="More", newest="First", **query),
            _worker_part(registry, workers),
        ),
        data={
            "tasks": listed,
            "workers": workers,
            "next": list_data((), "tasks", mark, **query)["next"],
        },
    )


def _task_title(registry: Registry, model_: str) -> str:
    """Say how much is to be done; of one model, whose tasks these are."""
    if model_:
        return f"Tasks of {model_}"
    waiting = registry.count_tasks((TaskState.QUEUED, TaskState.DEFERRED), _COUNTED)
    now = registry.count_tasks((TaskState.LEASED,), _COUNTED)
    if not waiting and not now:
        return "Nothing is queued"
    more = " or more" if waiting == _COUNTED else ""
    return f"{count(waiting, 'task')}{more} to do, {now} being done"


_COUNTED = 1000
"""Most tasks that are counted."""


def _task_place(text: str) -> tuple[int, int, int]:
    """Read the place of a task in a list, such as ``1-100-42``."""
    rank, _, remaining = text.partition("-")
    priority, _, identifier = remaining.partition("-")
    return as_number(rank), as_number(priority), as_number(identifier)


_GIVES = {TaskKind.PROFILE: "results", TaskKind.COMPARE: "comparisons"}
"""Where that is which a task has given."""


_AGAIN = {*TaskState} - OPEN | {TaskState.DEFERRED}
"""States of a task that can be queued again."""


def _task_parts(request: PageRequest, listed: Sequence[Task]) -> Iterator[Part]:
    targets = {target.id: target for target in request.store.registry.targets()}
    links = TableLinks(
        links={
            "what": {str(task.id): address("models", task.model, task.number) for task in listed},
            "task": {str(task.id): address(_GIVES[task.kind], task.result) for task in listed if task.result},
        },
        found_by={"what": "task"},
        chips=CHIPS,
        faint=("task",),
        boxes={str(task.id): str(task.id) for task in listed},
        form="tasks",
        box="task",
    )
    order = ("what", "state", "target", "", "task")
    yield PageBlocks(
        blocks=(drop_empty_columns(choose_columns(lists.tasks(listed, targets), order)),), links=links
    )
    buttons = (
        *((("cancel", "Cancel the ticked ones"),) if any(t.state in OPEN for t in listed) else ()),
        *((("retry", "Queue the ticked ones again"),) if any(t.state in _AGAIN for t in listed) else ()),
    )
    yield PageForm(id="tasks", action="/tasks", buttons=buttons, writes=True)


def change_tasks(request: PageRequest) -> str:
    """Cancel tasks, or queue ended ones again; return the address of the tasks."""
    states = {"cancel": TaskState.CANCELLED, "retry": TaskState.QUEUED}
    what, numbers = request.form_value("do"), request.numbers("task")
    if what not in states:
        raise RequestError("A task is cancelled or queued again; nothing else can be done with it.")
    if not numbers:
        raise RequestError("No task was ticked.")
    cancel, retry = (numbers, ()) if what == "cancel" else ((), numbers)
    changes.change_and_list_tasks(request.store.registry, None, cancel=cancel, retry=retry, limit=1)
    return address("tasks")


def _worker_part(registry: Registry, workers: Sequence[Worker]) -> Part:
    if not workers:
        text = "No worker is running; this starts one:"
        return PageText(text=text, commands=("modeldyno worker",))
    targets_ = {target.id: target for target in registry.targets()}
    return PageBlocks(blocks=(lists.workers(workers, targets_),), links=TableLinks(chips=CHIPS))


# --- events and settings -------------------------------------------------------------------------


def events(request: PageRequest) -> DashboardPage:
    """List who did what, the newest first; every event is chained to the one before it."""
    of, before = request.text("of"), request.text("before")
    limit = as_number(before) if before else LARGEST_NUMBER
    newest = request.store.registry.events(subject=of or None, newest=PAGE + 1, before=limit)
    newest_first = tuple(reversed(newest))
    page_events = newest_first[:PAGE]
    mark = str(page_events[-1].id) if len(newest) > PAGE else ""
    faint = ("when", "event")
    links = TableLinks(links={"of": _subjects(page_events)}, times=("when",), faint=faint)
    order = ("of", "what", "detail", "by", "when", "event")
    listed = PageBlocks(blocks=(choose_columns(lists.events(page_events), order),), links=links)
    field = FormField(name="of", label="Of model or version", value=of, hint="digits/3")
    return DashboardPage(
        title=f"Events of {of}" if of else "Events",
        room="/events",
        parts=(
            *((search_form("/events", field),) if page_events or of else ()),
            listed if page_events else PageText(text="Nothing has happened yet."),
            *older_links("events", mark, first=not before, of=of),
        ),
        data=list_data(page_events, "events", mark, of=of),
    )


def _subjects(listed: Sequence[RegistryEvent]) -> dict[str, str]:
    """Return the pages of what events are of; a model may be gone, and its page says so."""
    subjects = {event.subject: event.subject.split("/") for event in listed if ":" not in event.subject}
    return {
        subject: address("models", *parts[:2] if parts[1:2] and parts[1].isdecimal() else parts[:1])
        for subject, parts in subjects.items()
        if not any(event.kind.startswith("policy") and event.subject == subject for event in listed)
    }


def settings(request: PageRequest) -> DashboardPage:
    """Show where the store is, what policies do, and who is told of events."""
    registry = request.store.registry
    policies = all_policies(registry)
    webhooks, deliveries = registry.webhooks(), registry.deliveries()
    files = ("models' files", str(registry.weights))
    place = make_table("Store", ("", ""), (("place", request.store.place), files))
    notice = note(
        f"{count(len(webhooks), 'address', 'addresses')} told of events.",
        advice="" if webhooks else "modeldyno registry webhook https://host/path adds one",
    )
    return DashboardPage(
        title="Settings",
        room="/settings",
        parts=(
            PageBlocks(
                blocks=(
                    place,
                    *map(lists.policy, policies),
                    *((lists.webhooks(webhooks, deliveries),) if webhooks else ()),
                    notice,
                )
            ),
        ),
        data={
            "store": request.store.place,
            "policies": policies,
            "webhooks": [
                replace(hook, url=hook.shown, secret="***" if hook.secret else "") for hook in webhooks
            ],
        },
    )
