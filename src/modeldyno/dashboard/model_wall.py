"""The models measured last as cards: the newest figure of each, how it came to it, and whether it is well."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Severity, shorten
from modeldyno.base.stats.units import format_quantity
from modeldyno.base.views.text import about_number, format_utc, shorten_text
from modeldyno.dashboard.page import CHIPS, ModelCard, PageWall, address
from modeldyno.profiling.views import lists
from modeldyno.registry.canary import reading_tag

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from modeldyno.base.result.where import KeptNumber
    from modeldyno.dashboard.page import Attention
    from modeldyno.stores.interface import Entry, Store

CARDS = 24
"""Models that have a card, those measured last."""
NEWEST = 300
"""Newest results, whose models have cards and curves: one question for all of them is quick."""
_FEW = 6
"""Fewer cards than that are filled up with models that were measured earlier."""
_POINTS = 20
"""Most results in a curve."""
_TIME, _RATE = Query.parse("latency.p50"), Query.parse("throughput")
_REFERENCE = reading_tag("").rstrip(":")
_TEXT = 60


def model_wall(store: Store, newest: Sequence[Entry], attention: Sequence[Attention]) -> Iterator[PageWall]:
    """Yield the wall of the models measured last, those that need attention first; none without results.

    Args:
        store: that has the figures.
        newest: its `NEWEST` newest results, the newest first.
        attention: what needs it.
    """
    states = {name: one for one in reversed(attention) for name in (one.of.partition("/")[0], one.of)}
    by_name = _entries_by_name(store, newest, states)
    ids = [entry.id for entries in by_name.values() for entry in entries]
    numbers = store.registry.numbers(ids, [str(_TIME), str(_RATE)]) if ids else {}
    cards = [_card(entries, numbers, states.get(name)) for name, entries in by_name.items()]
    if cards:
        yield PageWall(title="Models", cards=tuple(sorted(cards, key=_urgency)))


def _entries_by_name(store: Store, newest: Sequence[Entry], needed: Container[str]) -> dict[str, list[Entry]]:
    """Return the newest results of the models measured last, by model; not those of the reference model.

    Models whose names are among the needed ones come first.
    """
    by_name: dict[str, list[Entry]] = {}
    for entry in newest:
        by_name.setdefault(entry.name, []).append(entry)
    names = [name for name in by_name if name != _REFERENCE]
    chosen = [*(name for name in names if name in needed), *(name for name in names if name not in needed)]
    by_name = {name: by_name[name] for name in chosen[:CARDS]}
    if len(by_name) < _FEW and len(newest) == NEWEST:  # one model fills the list
        earlier = (one.name for one in store.names() if one.name not in by_name and one.name != _REFERENCE)
        by_name |= {name: [*store.find(name=name, limit=1)] for name in islice(earlier, _FEW)}
    return {name: entries for name, entries in by_name.items() if entries}


def _urgency(card: ModelCard) -> int:
    """Return the place of a card by its state: what is broken, what is doubtful, what is well."""
    if not card.state:
        return 2
    return CHIPS.get(card.state, Severity.NOTE) is not Severity.BROKEN


def _card(
    entries: Sequence[Entry], numbers: Mapping[str, Mapping[str, KeptNumber]], attention: Attention | None
) -> ModelCard:
    """Return the card of a model by its newest timed result, or by its newest one."""
    timed = [entry for entry in entries if str(_TIME) in numbers.get(entry.id, {})]
    newest, *_ = timed or entries
    kept = numbers.get(newest.id, {})
    settings = lists.settings_of([newest])[0]
    figure = _format(kept.get(str(_TIME)), _TIME)
    of_many = address("trends", name=newest.name)
    return ModelCard(
        name=shorten_text(newest.name, _TEXT),
        address=of_many if len(timed) > 1 else address("results", newest.id),
        figure=figure or shorten(newest.headline, _TEXT),
        what="median" if figure else "",
        about=settings or ("measured" if figure else "analysed"),
        rate=_format(kept.get(str(_RATE)), _RATE),
        when=format_utc(newest.created)[:16],
        state="" if attention is None else attention.state,
        change="" if attention is None else attention.change,
        curve=tuple(_curve(newest, timed, numbers)),
    )


def _curve(
    newest: Entry, timed: Sequence[Entry], numbers: Mapping[str, Mapping[str, KeptNumber]]
) -> Iterator[float]:
    """Yield the figure of the results that were measured as the newest one was, the oldest first."""
    settings = _settings(newest)
    alike = (entry for entry in timed if _settings(entry) == settings)
    for entry in reversed(list(islice(alike, _POINTS))):
        if (value := numbers[entry.id][str(_TIME)].raw) is not None:
            yield value


def _settings(entry: Entry) -> tuple[str, Mapping[str, object], str]:
    """Return how a result was measured: two of a model that have this alike are of one curve."""
    return entry.backend, entry.config, entry.headline.partition(": ")[0]


def _format(number: KeptNumber | None, query: Query) -> str:
    """Format a number; one that too few samples certify is about what was seen."""
    if number is None or number.raw is None:
        return ""
    if number.value is None:
        return about_number(number.raw, query.unit)
    return format_quantity(number.value, query.unit, 3)
