"""How what was measured again and again has changed: models, and the machines by their reference model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from modeldyno.base import codec
from modeldyno.base.errors import ModelDynoError, RequestError, StoreError, UnreadableDocument
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Notice, Table, choose_columns, make_table
from modeldyno.base.stats.units import format_quantity
from modeldyno.base.views.text import count
from modeldyno.comparison.change.trend import FEWEST_FOR_A_STEP, Trend
from modeldyno.comparison.history import StoredReading, read_stored, trend_of_entries
from modeldyno.comparison.views import trend as trend_view
from modeldyno.dashboard.page import (
    CHIPS,
    Attention,
    DashboardPage,
    FormField,
    PageBlocks,
    PageLink,
    PageText,
    address,
    search_form,
)
from modeldyno.registry.canary import reading_tag
from modeldyno.reports.interface import TableLinks
from modeldyno.stores.interface import Entry, Store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from modeldyno.base.report.blocks import Block
    from modeldyno.dashboard.page import PageRequest, Part
    from modeldyno.registry.records.records import HardwareTarget

_LOOKED = 300
"""Newest results whose models are listed."""
MODELS = 15
"""Models, measured last, whose histories are listed."""
HISTORY = 100
"""Newest results of each."""
_WORSE, _CHANGED, _STABLE, _ASTRAY, _FEW = "worse", "changed", "stable", "undecided", "too few"
_UNKNOWN = "unknown"
_UNREADABLE = StoreError, UnreadableDocument
"""What is raised of a history that cannot be read, now or ever, of which nobody knows whether it is worse."""


def trends(request: PageRequest) -> DashboardPage:
    """Say which models have become slower, and whether the machines have; or draw the history of one."""
    name = request.text("name")
    if name:
        return _history(request, name, request.text("metric"))
    named_trends = tuple(trends_of(request.store, _known_worse(request)))
    titles = ("history", "state", "metric", "now>", "results>", "what")
    table = make_table("", titles, ((label, *_row(trend)) for label, _, trend in named_trends))
    links = TableLinks(
        links={"history": {label: address("trends", name=name) for label, name, _ in named_trends}},
        chips=CHIPS,
    )
    nothing = PageText(
        text="Nothing was measured often enough: a history begins with the second result of a model.",
        commands=("modeldyno profile model.onnx",),
    )
    return DashboardPage(
        title=_title([trend_state(one.trend) for one in named_trends]),
        room="/trends",
        parts=(PageBlocks(blocks=(table,), links=links) if named_trends else nothing,),
        data=[
            {
                "name": name,
                "state": trend_state(trend),
                "metric": str(trend.query) if isinstance(trend, Trend) else "",
                "says": trend_view.headline(trend) if isinstance(trend, Trend) else str(trend),
            }
            for _, name, trend in named_trends
        ],
    )


def _title(states: Sequence[str]) -> str:
    """Say how many histories are worse, or that none is."""
    counts = Counter(states)
    wrong = ", ".join(f"{counts[state]} {state}" for state in (_WORSE, _UNKNOWN) if counts[state])
    if wrong:
        return f"{wrong} of {count(len(states), 'history', 'histories')}"
    return f"Nothing became worse in {count(len(states), 'history', 'histories')}" if states else "Trends"


def _history(request: PageRequest, name: str, metric: str) -> DashboardPage:
    """Draw the history of a model, or of the reference model on a target."""
    query = Query.parse(metric) if metric else None
    trend = _trend(request.store, name, query)
    form = search_form(
        "/trends",
        FormField(name="name", label="Model", value=name),
        FormField(name="metric", label="Metric", value=metric, hint=str(trend.query)),
    )
    headline = trend_view.headline(trend)
    blocks = [
        _with_ids_last(block)
        for block in trend_view.page(trend)
        if not (isinstance(block, Notice) and block.text == headline)
    ]
    results_ = {reading.result[:6]: address("results", reading.result) for reading in trend.readings}
    links = TableLinks(
        links=dict.fromkeys(_TIMES, results_),
        found_by=dict.fromkeys(_TIMES, _ID),
        chips=CHIPS,
        faint=(_ID,),
    )
    parts: tuple[Part, ...] = (PageBlocks(blocks=tuple(blocks), links=links), form)
    state = trend_state(trend)
    results = PageLink(text="Results", address=address("results", name=name))
    return DashboardPage(
        title=headline,
        room="/trends",
        chips=((state, CHIPS[state]),),
        actions=() if name.startswith(reading_tag("")) else (results,),
        trail=(PageLink(text="Trends", address="/trends"), PageLink(text=trend.name, address="")),
        parts=parts,
        data=codec.encode_document(trend),
    )


_ID, _TIMES = "result", ("measured", "since")
"""Titles of the columns of ids, and of the times that lead to results instead of them."""


def _with_ids_last(block: Block) -> Block:
    """Move the ids of a table of results behind what people read."""
    titles = [column.title for column in block.columns] if isinstance(block, Table) else []
    if not isinstance(block, Table) or _ID not in titles:
        return block
    return choose_columns(block, [*(title for title in titles if title != _ID), _ID])


class NamedTrend(NamedTuple):
    """The history of a machine or a model."""

    label: str
    name: str
    """Under which its page is found."""
    trend: Trend | ModelDynoError
    """The error says why it cannot be read."""


def _known_worse(request: PageRequest) -> Sequence[str]:
    """Return the names of what has become worse, as far as the search beside the pages has found."""
    worse = () if request.regressions is None else request.regressions() or ()
    return [one.of for one in worse]


def trends_of(store: Store, also: Collection[str] = ()) -> Sequence[NamedTrend]:
    """Return the histories of the machines and of the models measured last, those that are worse first.

    Args:
        store: that has them.
        also: names of models that are listed though others were measured later.
    """
    named_trends = [
        NamedTrend(_label_of(target), tag, trend) for target, tag, trend in _machine_histories(store)
    ]
    models = Counter(entry.name for entry in store.find(limit=_LOOKED) if not entry.failed)
    several = [name for name, times in models.items() if times > 1 and name != REFERENCE]
    for name in dict.fromkeys((*several[:MODELS], *(name for name in several if name in also))):
        history = _history_or_none(store, name)
        if history is not None:
            named_trends.append(NamedTrend(name, name, history))
    return sorted(named_trends, key=lambda one: _ORDER.index(trend_state(one.trend)))


_ORDER = (_WORSE, _UNKNOWN, _ASTRAY, _CHANGED, _STABLE, _FEW)
"""States of histories in the order of a list."""


def find_regressions(store: Store) -> Sequence[Attention]:
    """Return what of the histories measured last is worse, the latest first, and which cannot be read."""
    return latest_first(map(regression_in, trends_of(store)))


class Regression(NamedTuple):
    """What has become worse, and since when; or what may have, as its history cannot be read."""

    since: str
    """Empty if the history cannot be read."""
    attention: Attention

    @property
    def unknown(self) -> bool:
        """Return whether its history could not be read."""
        return self.attention.state == _UNKNOWN


def regression_in(one: NamedTrend) -> Regression | None:
    """Return what has become worse in a history and still is, or that it cannot be read."""
    if isinstance(one.trend, ModelDynoError):
        why = Attention(_UNKNOWN, one.label, "", str(one.trend), address("trends", name=one.name))
        return Regression("", why)
    if not one.trend.regressions:
        return None
    last = one.trend.regressions[-1]
    what = Attention(
        _WORSE,
        one.label,
        "",
        describe_trend(one.trend),
        address("trends", name=one.name),
        change=f"{last.change:+.1%}",
    )
    return Regression(one.trend.readings[last.at].created, what)


def latest_first(regressions: Iterable[Regression | None]) -> Sequence[Attention]:
    """Return what has become worse, the latest first, and then what is unknown."""
    worse = [one for one in regressions if one is not None]
    return [one.attention for one in sorted(worse, key=lambda one: one.since, reverse=True)]


def regression_of_model(store: Store, name: str) -> Regression | None:
    """Return what has become worse in the history of a model, of which nothing is kept in memory."""
    history: Trend | ModelDynoError
    try:
        entries = [entry for entry in store.find(name=name, limit=HISTORY) if not entry.failed]
        if not entries:
            return None
        history = trend_of_entries(store, name, entries)
    except _UNREADABLE as error:
        history = error
    except RequestError:  # nothing is timed
        return None
    return regression_in(NamedTrend(name, name, history))


def regressions_of_machines(store: Store) -> Sequence[Regression]:
    """Return the machines that have become slower, or may have, by their reference model."""
    regressions = (
        regression_in(NamedTrend(_label_of(target), tag, history))
        for target, tag, history in _machine_histories(store)
    )
    return [one for one in regressions if one is not None]


def _label_of(target: HardwareTarget) -> str:
    return f"the machine {target.name}"


def machine_trends(store: Store) -> Iterator[tuple[HardwareTarget, str, Trend]]:
    """Yield each target whose reference model was measured more than once, its tag, and the history."""
    for target, tag, history in _machine_histories(store):
        if isinstance(history, Trend):
            yield target, tag, history


def _machine_histories(store: Store) -> Iterator[tuple[HardwareTarget, str, Trend | ModelDynoError]]:
    for target in store.registry.targets():
        tag = reading_tag(target.id)
        if len(store.find(tag=tag, limit=2)) > 1:
            history = _history_or_none(store, tag)
            if history is not None:
                yield target, tag, history


REFERENCE = reading_tag("").rstrip(":")
"""Name of the results of the reference model, which are told by machine."""


def _trend(store: Store, name: str, query: Query | None) -> Trend:
    """Return the history of a model by its name, or of the reference model by its tag."""
    trend = _kept_trend(_stored_history(store, name), query)
    if isinstance(trend, RequestError):
        raise trend
    return trend


def _history_or_none(store: Store, name: str) -> Trend | ModelDynoError | None:
    """Return a history for a list, or why it cannot be read; None where nothing is timed."""
    try:
        trend = _kept_trend(_stored_history(store, name), None)
    except _UNREADABLE as error:
        return error
    except RequestError:
        return None
    return trend if isinstance(trend, Trend) else None


def _stored_history(store: Store, name: str) -> _Stored:
    tagged = name.startswith(reading_tag(""))
    listed = store.find(name=None if tagged else name, tag=name if tagged else None, limit=HISTORY)
    entries = tuple(entry for entry in listed if not entry.failed)
    if not entries:
        raise RequestError(f"The store has no results of '{name[:60]}'.")
    label = name
    if tagged:
        labels = {reading_tag(target.id): target.name for target in store.registry.targets()}
        label = f"the reference model on {labels.get(name, name)}"
    return _Stored(store, label, entries, store.place, tuple(entry.id for entry in entries))


@dataclass(frozen=True, slots=True)
class _Stored:
    """Results of a history; two are the same if their results are, as a stored Result does not change."""

    store: Store = field(compare=False)
    label: str
    entries: tuple[Entry, ...] = field(compare=False)
    place: str
    """Of the store."""
    ids: tuple[str, ...]
    """Of the entries."""


@lru_cache(maxsize=4 * MODELS)
def _kept_trend(stored: _Stored, query: Query | None) -> Trend | RequestError:
    try:
        return trend_of_entries(stored.store, stored.label, stored.entries, query, read=_kept_reading)
    except UnreadableDocument:
        raise
    except RequestError as error:
        return error


def _kept_reading(store: Store, identifier: str, query: Query | None) -> StoredReading:
    return _read(_Place(store, store.place), identifier, query)


@dataclass(frozen=True, slots=True)
class _Place:
    """A store; two are the same if they are at the same place."""

    store: Store = field(compare=False)
    place: str


@lru_cache(maxsize=2 * MODELS * HISTORY)
def _read(place: _Place, identifier: str, query: Query | None) -> StoredReading:
    return read_stored(place.store, identifier, query)


def trend_state(trend: Trend | ModelDynoError) -> str:
    """Say in a word how a history stands: worse, undecided, too few, changed, stable, or unknown."""
    if isinstance(trend, ModelDynoError):
        return _UNKNOWN
    if trend.regressions:
        return _WORSE
    if trend.astray:
        return _ASTRAY
    if len(trend.readings) < FEWEST_FOR_A_STEP:
        return _FEW
    return _CHANGED if trend.steps else _STABLE


def describe_trend(trend: Trend) -> str:
    """Say what has become of a history, without its name."""
    return trend_view.headline(trend).partition(": ")[2]


def _row(trend: Trend | ModelDynoError) -> tuple[str, ...]:
    if isinstance(trend, ModelDynoError):
        return (_UNKNOWN, "", "", "", str(trend))
    return (
        trend_state(trend),
        str(trend.query),
        format_quantity(trend.levels[-1].value, trend.query.unit, 3),
        f"{len(trend.readings):,}",
        describe_trend(trend),
    )
