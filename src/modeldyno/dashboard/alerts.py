"""What needs attention: models that have become worse, broken bounds, failures, figures that are old."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.report.blocks import make_table, note, shorten
from modeldyno.base.views.text import count, shorten_message
from modeldyno.dashboard.page import CHIPS, Attention, DashboardPage, PageBlocks, address
from modeldyno.dashboard.trend_pages import find_regressions
from modeldyno.registry.figures import StalenessCheck, old_figures
from modeldyno.registry.matrix import newest_speeds
from modeldyno.registry.records.records import TaskState
from modeldyno.reports.interface import TableLinks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.dashboard.page import PageRequest
    from modeldyno.registry.records.records import HardwareTarget, VariantFigure
    from modeldyno.stores.interface import Entry, Store

LOOKED = 60
"""Newest results among which failures are looked for."""
_MODELS = 50
"""Models, last touched, whose bounds are looked at."""
_MOST = 100
"""Figures of a target that are looked at in each state."""
_WHY = 100
_EACH = 12
"""Alerts of each reason."""


def alerts(request: PageRequest) -> DashboardPage:
    """List all that needs attention."""
    attention, known = find_alerts(request, request.store.find(limit=LOOKED))
    parts = (attention_table(attention),) if attention else ()
    return DashboardPage(
        title=alert_title(attention, known=known),
        lead=alert_lead(attention, known=known),
        room="/alerts",
        parts=parts,
        reload=0 if known else 2,
        data=[one._asdict() for one in attention],
    )


def find_alerts(request: PageRequest, results: Sequence[Entry]) -> tuple[tuple[Attention, ...], bool]:
    """Return what needs attention, and whether it is known by now which models have become worse.

    Args:
        request: whose store is looked at.
        results: the newest ones.
    """
    store = request.store
    worse = find_regressions(store) if request.regressions is None else request.regressions()
    others = _others(store, results, store.registry.targets())
    return (*(worse or ())[:_EACH], *others), worse is not None


def alert_title(attention: Sequence[Attention], *, known: bool) -> str:
    """Say how many alerts there are, of which kinds."""
    if attention:
        states = Counter(one.state for one in attention)
        return f"Needs attention: {', '.join(f'{number} {state}' for state, number in states.items())}"
    return "Nothing needs attention" if known else "Histories are being read"


def alert_lead(attention: Sequence[Attention], *, known: bool) -> str:
    """Say what the title means, where it does not say so itself."""
    if not known:
        return "Histories are being read: models that have become worse will stand here."
    return "" if attention else "Nothing became worse or failed, and no figure is stale."


def attention_table(attention: Sequence[Attention], most: int | None = None) -> PageBlocks:
    """List alerts; with `most`, those of one reason in a row, the first rows, and how many more there are."""
    groups: dict[object, list[Attention]] = {}
    for place, one in enumerate(attention):
        groups.setdefault(place if most is None else (one.state, one.target, one.why), []).append(one)
    listed = list(groups.values())[:most]
    rows = ((_name_of(group), *_reason_of(group[0])) for group in listed)
    table = make_table("", ("what", "state", "change>?", "target?", "why"), rows)
    addresses = {
        _name_of(group): group[0].address if len(group) == 1 else address("alerts") for group in listed
    }
    links = TableLinks(links={"what": addresses}, chips=CHIPS)
    more = len(attention) - sum(map(len, listed))
    return PageBlocks(
        blocks=(table, *((note(f"{count(more, 'more alert')} under Trends and alerts"),) if more else ())),
        links=links,
    )


def _name_of(group: Sequence[Attention]) -> str:
    first, others = group[0].of, len(group) - 1
    return f"{first} and {others} more" if others else first


def _reason_of(one: Attention) -> tuple[str, ...]:
    return one.state, one.change, one.target, one.why


def _others(store: Store, results: Sequence[Entry], targets: Sequence[HardwareTarget]) -> Iterator[Attention]:
    registry = store.registry
    check = StalenessCheck(registry)  # what is installed here is looked up once
    for row in newest_speeds(registry, (entry.name for entry in registry.models(limit=_MODELS)), check):
        if row.speed.bounds is Verdict.BROKEN:
            where = address("models", row.model, row.number)
            why = "the bounds of its policy do not hold"
            yield Attention("broken", f"{row.model}/{row.number}", row.target.name, why, where)
    names = {target.id: target.name for target in targets}
    for task in registry.tasks(states=(TaskState.FAILED,), limit=_EACH):
        where = address("models", task.model, task.number)
        why = shorten_message(task.why, _WHY)
        yield Attention("failed", task.label, names.get(task.target, ""), why, where)
    for entry in [entry for entry in results if entry.failed][:_EACH]:
        where = address("results", entry.id)
        yield Attention("failed", f"{entry.name} ({entry.id[:6]})", "", shorten(entry.headline, _WHY), where)
    yield from _old_figures(old_figures(registry, names, limit=_MOST, check=check), names)


def _old_figures(figures: Sequence[VariantFigure], targets: Mapping[str, str]) -> Iterator[Attention]:
    """Yield a row for each version: a new driver makes all of its figures stale at once."""
    by_version: dict[tuple[str, str, str, int], list[VariantFigure]] = {}
    for figure in figures:
        place = figure.target, str(figure.state), figure.model, figure.number
        by_version.setdefault(place, []).append(figure)
    for (target, state, model, number), of_version in list(by_version.items())[:_EACH]:
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
            shorten_message(first.why, _WHY),
            address("models", model, number),
        )
