"""How what was measured again and again has changed: models, and the machines by their reference model."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from threading import Condition, Thread
from typing import TYPE_CHECKING, NamedTuple

from modeldyno import codec
from modeldyno.comparison.history import StoredReading, read_stored, trend_of_entries
from modeldyno.core.comparison.trend import FEWEST_FOR_A_STEP, Trend
from modeldyno.core.metrics.metric import Query
from modeldyno.core.report.blocks import Column, Table
from modeldyno.core.stats.units import format_quantity
from modeldyno.dashboard.page import (
    CHIPS,
    Attention,
    DashboardPage,
    FormField,
    PageBlocks,
    PageForm,
    PageLink,
    PageText,
    address,
)
from modeldyno.errors import ModelDynoError, RequestError
from modeldyno.interfaces.reporter import TableLinks
from modeldyno.interfaces.store import Store, StoredName
from modeldyno.registry.canary import reading_tag
from modeldyno.views.comparison import trend as trend_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from modeldyno.core.registry.records import HardwareTarget
    from modeldyno.dashboard.page import Asked, Part
    from modeldyno.interfaces.store import Entry

_LOOKED = 300
"""Newest results whose models are listed."""
MODELS = 15
"""Models, measured last, whose histories are listed."""
HISTORY = 100
"""Newest results of each."""
_WORSE, _CHANGED, _STABLE, _ASTRAY, _FEW = "worse", "changed", "stable", "undecided", "too few"
REFERENCE = reading_tag("").rstrip(":")
"""Name of the results of the reference model, which are told by machine."""
_FIRST = 0.05
"""Seconds that the first page waits: a small store has been read by then."""
_REST, _SHARE = 10.0, 0.1
"""Seconds between two looks at which models have new results, and the share of the time that all may take."""


def trends(asked: Asked) -> DashboardPage:
    """Say which models have become slower, and whether the machines have; or draw the history of one."""
    name = asked.text("name")
    if name:
        return _history(asked, name, asked.text("metric"))
    found = tuple(trends_of(asked.store))
    worse = sum(trend_state(trend) == _WORSE for _, _, trend in found)
    table = Table(
        title="",
        columns=tuple(Column(title=t) for t in ("history", "state", "metric", "now", "results", "what")),
        rows=tuple((label, *_row(trend)) for label, _, trend in found),
    )
    links = TableLinks(
        links={"history": {label: address("trends", name=name) for label, name, _ in found}}, chips=CHIPS
    )
    nothing = PageText(
        text="Nothing was measured often enough: a history begins with the second result of a model.",
        commands=("modeldyno profile model.onnx",),
    )
    return DashboardPage(
        title=f"Trends: {worse} worse" if worse else "Trends",
        room="/trends",
        parts=(PageBlocks(blocks=(table,), links=links) if found else nothing,),
        data=[
            {
                "name": name,
                "state": trend_state(trend),
                "metric": str(trend.query),
                "says": trend_view.headline(trend),
            }
            for _, name, trend in found
        ],
    )


def _history(asked: Asked, name: str, metric: str) -> DashboardPage:
    """Draw the history of a model, or of the reference model on a target."""
    query = Query.parse(metric) if metric else None
    trend = _trend(asked.store, name, query)
    form = PageForm(
        id="search",
        action="/trends",
        fields=(
            FormField(name="name", label="Model", value=name),
            FormField(name="metric", label="Metric", value=metric, hint=str(trend.query)),
        ),
        buttons=(("", "Show"),),
    )
    parts: tuple[Part, ...] = (form, PageBlocks(blocks=tuple(trend_view.page(trend))))
    return DashboardPage(
        title=f"Trend of {trend.name}",
        room="/trends",
        trail=(PageLink(text="Trends", address="/trends"),),
        parts=parts,
        data=codec.encode_document(trend),
    )


class NamedTrend(NamedTuple):
    """The history of a machine or a model."""

    label: str
    name: str
    """Under which its page is found."""
    trend: Trend


def trends_of(store: Store) -> Sequence[NamedTrend]:
    """Return the histories of the machines and of the models measured last, those that are worse first."""
    found = [NamedTrend(_label_of(target), tag, trend) for target, tag, trend in machine_trends(store)]
    models = Counter(entry.name for entry in store.find(limit=_LOOKED) if not entry.failed)
    for name in [name for name, times in models.items() if times > 1 and name != REFERENCE][:MODELS]:
        history = _trend_or_none(store, name)
        if history is not None:
            found.append(NamedTrend(name, name, history))
    return sorted(found, key=lambda one: trend_state(one.trend) != _WORSE)


def find_regressions(store: Store) -> Sequence[Attention]:
    """Return what of the histories measured last has become worse and still is, the latest first."""
    return latest_first(map(regression_in, trends_of(store)))


class Regression(NamedTuple):
    """What has become worse, and since when."""

    since: str
    attention: Attention


def regression_in(one: NamedTrend) -> Regression | None:
    """Return what has become worse in a history and still is."""
    if not one.trend.regressions:
        return None
    what = Attention(_WORSE, one.label, "", describe_trend(one.trend), address("trends", name=one.name))
    return Regression(one.trend.readings[one.trend.regressions[-1].at].created, what)


def latest_first(regressions: Iterable[Regression | None]) -> Sequence[Attention]:
    """Return what has become worse, the latest first."""
    worse = [one for one in regressions if one is not None]
    return [one.attention for one in sorted(worse, key=lambda one: one.since, reverse=True)]


def regression_of_model(store: Store, name: str) -> Regression | None:
    """Return what has become worse in the history of a model, of which nothing is kept in memory."""
    with suppress(ModelDynoError):  # nothing is timed, or a result is damaged
        entries = [entry for entry in store.find(name=name, limit=HISTORY) if not entry.failed]
        if entries:
            return regression_in(NamedTrend(name, name, trend_of_entries(store, name, entries)))
    return None


def regressions_of_machines(store: Store) -> Sequence[Regression]:
    """Return the machines that have become slower, by their reference model."""
    found = (
        regression_in(NamedTrend(_label_of(target), tag, trend))
        for target, tag, trend in machine_trends(store)
    )
    return [one for one in found if one is not None]


def _label_of(target: HardwareTarget) -> str:
    return f"the machine {target.name}"


def machine_trends(store: Store) -> Iterator[tuple[HardwareTarget, str, Trend]]:
    """Yield each target whose reference model was measured more than once, its tag, and the history."""
    for target in store.registry.targets():
        tag = reading_tag(target.id)
        if len(store.find(tag=tag, limit=2)) > 1:
            history = _trend_or_none(store, tag)
            if history is not None:
                yield target, tag, history


def _trend(store: Store, name: str, query: Query | None) -> Trend:
    """Return the history of a model by its name, or of the reference model by its tag."""
    found = _kept_trend(_stored_history(store, name), query)
    if isinstance(found, RequestError):
        raise found
    return found


def _trend_or_none(store: Store, name: str) -> Trend | None:
    """Return a history for a list: None where nothing is timed, or a result of it is damaged."""
    with suppress(ModelDynoError):
        found = _kept_trend(_stored_history(store, name), None)
        return found if isinstance(found, Trend) else None
    return None


def _stored_history(store: Store, name: str) -> _Stored:
    tagged = name.startswith(reading_tag(""))
    found = store.find(name=None if tagged else name, tag=name if tagged else None, limit=HISTORY)
    entries = tuple(entry for entry in found if not entry.failed)
    if not entries:
        raise RequestError(f"The store has no results of '{name[:60]}'.")
    label = name
    if tagged:
        labels = {reading_tag(target.id): target.name for target in store.registry.targets()}
        label = f"the reference model on {labels.get(name, name)}"
    return _Stored(store, label, entries)


class _Stored:
    """Results of a history; two are the same if their results are, as a stored Result does not change."""

    def __init__(self, store: Store, label: str, entries: Sequence[Entry]) -> None:
        self.store, self.label, self.entries = store, label, entries
        self._key = label, store.place, tuple(entry.id for entry in entries)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stored) and self._key == other._key


@lru_cache(maxsize=4 * MODELS)
def _kept_trend(stored: _Stored, query: Query | None) -> Trend | RequestError:
    try:
        return trend_of_entries(stored.store, stored.label, stored.entries, query, read=_kept_reading)
    except RequestError as error:
        return error


def _kept_reading(store: Store, identifier: str, query: Query | None) -> StoredReading:
    return _read(_Place(store), identifier, query)


class _Place:
    """A store; two are the same if they are at the same place."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __hash__(self) -> int:
        return hash(self.store.place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and self.store.place == other.store.place


@lru_cache(maxsize=2 * MODELS * HISTORY)
def _read(place: _Place, identifier: str, query: Query | None) -> StoredReading:
    return read_stored(place.store, identifier, query)


def trend_state(trend: Trend) -> str:
    """Say in a word how a history stands: worse, undecided, too few, changed or stable."""
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


def _row(trend: Trend) -> tuple[str, ...]:
    return (
        trend_state(trend),
        str(trend.query),
        format_quantity(trend.levels[-1].value, trend.query.unit, 3),
        f"{len(trend.readings):,}",
        describe_trend(trend),
    )


@dataclass(slots=True)
class RegressionSearch:
    """What has become worse in a store, searched by a thread of its own when the store has changed.

    What was found of a model is kept as long as its results are the same; so every model that has new ones
    is judged in the end, however many there are.
    """

    store: Store
    mark: Callable[[], str]
    """That of the store's last change."""
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    version: int = 0
    """Grows when something else is found."""
    _found: Sequence[Attention] | None = None
    _searched: str | None = None
    """The mark of the store whose models were listed last."""
    _next: float = float("-inf")
    """When the next search may begin."""
    _judged: dict[StoredName, Regression | None] = field(default_factory=dict)
    _running: bool = False
    _changed: Condition = field(default_factory=Condition)

    def found(self) -> Sequence[Attention] | None:
        """Return what was found so far, and search again if the store has changed since.

        None: the models measured last have not been judged yet.
        """
        mark = self.mark()
        with self._changed:
            if not self._running and mark != self._searched and self.clock() >= self._next:
                self._running = True
                Thread(target=self._search, name="regressions", daemon=True).start()
            if self._found is None:
                self._changed.wait_for(lambda: not self._running or self._found is not None, _FIRST)
            return self._found

    def _search(self) -> None:
        """Judge one model after the other until nothing is left, and leave the pages their time."""
        began = self.clock()
        try:
            for _ in self._judge_all():
                self.pause((self.clock() - began) * (1 / _SHARE - 1))
                began = self.clock()
        except ModelDynoError:  # the pages say what is wrong with the store
            self._searched = None
        finally:
            with self._changed:
                ended = self.clock()
                self._next = ended + max(_REST, (ended - began) / _SHARE)
                self._running = False
                self._changed.notify_all()

    def _judge_all(self) -> Iterator[None]:
        """Judge what is new, and yield whenever it is time for a pause."""
        while self._searched != (mark := self.mark()):
            self._searched, listed = mark, self.clock()
            machines, waiting = regressions_of_machines(self.store), self._waiting()
            for count, name in enumerate(waiting, 1):
                self._judged[name] = regression_of_model(self.store, name.name)
                if self._found is not None or count >= MODELS:
                    self._publish(machines)
                    yield
                    # Not before one of either end of the list has been judged.
                    if count > 1 and self.clock() - listed >= _REST and self.mark() != mark:
                        break
            else:
                self._publish(machines)
                return

    def _waiting(self) -> Sequence[StoredName]:
        """Return the models whose results have changed since they were judged, those measured last first.

        Later every other one is of those that have waited longest, as more may change than can be judged.
        """
        there = [one for one in self.store.names(least=FEWEST_FOR_A_STEP) if one.name != REFERENCE]
        self._judged = {one: self._judged[one] for one in there if one in self._judged}
        waiting = [one for one in there if one not in self._judged]
        return waiting if self._found is None else _from_both_ends(waiting)

    def _publish(self, machines: Sequence[Regression]) -> None:
        found = latest_first((*machines, *self._judged.values()))
        with self._changed:
            self.version += found != self._found
            self._found = found
            self._changed.notify_all()


def _from_both_ends(waiting: Sequence[StoredName]) -> Sequence[StoredName]:
    half = -(-len(waiting) // 2)
    first, last = waiting[:half], waiting[: half - 1 : -1] if half < len(waiting) else ()
    return [one for both in zip_longest(first, last) for one in both if one is not None]
