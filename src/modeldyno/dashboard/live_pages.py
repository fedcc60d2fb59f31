"""A load while it goes on, by second: provisional figures, until its Result takes its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from modeldyno.base.report.blocks import (
    Heading,
    Notice,
    Severity,
    Table,
    clean,
    make_columns,
    make_table,
    note,
)
from modeldyno.base.stats.units import RATE, SECONDS
from modeldyno.base.views.text import count, format_known
from modeldyno.dashboard.diagram import TimeChart, TimeLine, TimePanel
from modeldyno.dashboard.page import DashboardPage, PageBlocks, PageDiagram, PageLink, address
from modeldyno.reports.interface import TableLinks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from modeldyno.base.result.live_load import LiveLoad
    from modeldyno.base.result.trace_data import LiveSecond
    from modeldyno.dashboard.page import Part

_CHIPS = {"provisional": Severity.UNDECIDED}
_SHOWN = 10
"""Newest seconds in the table."""
_QUIET = 5.0
"""Seconds of silence that are told."""
RELOAD = 2
"""Seconds after which a browser without scripts loads a page with such a load again."""
_PROVISIONAL = (
    "Provisional: each figure is that of one second, the warm-up included, and none is certified; "
    "the Result will take their place."
)


class _Quantity(NamedTuple):
    """What is said of a second."""

    title: str
    unit: str
    value: Callable[[LiveSecond], float | None]


_LATENCIES = (
    _Quantity("p50", SECONDS, lambda second: second.p50),
    _Quantity("p99", SECONDS, lambda second: second.p99),
    _Quantity("slowest", SECONDS, lambda second: second.worst),
)
_TOKENS = _Quantity("tokens", RATE, lambda second: second.tokens)
_PIECES = _Quantity("pieces", RATE, lambda second: second.pieces)
"""In place of the tokens, where the server has not said how many these are."""
_TOKEN_TIMES = (
    _Quantity("first token", SECONDS, lambda second: second.first_token),
    _Quantity("its p99", SECONDS, lambda second: second.first_token_p99),
    _Quantity("per token", SECONDS, lambda second: second.time_per_token),
)
_REQUESTS = (
    _Quantity("answered", RATE, lambda second: float(second.answered)),
    _Quantity("errors", RATE, lambda second: float(second.failed)),
    _Quantity("in flight", "", lambda second: float(second.in_flight)),
    _Quantity("waiting", "", lambda second: float(second.waiting)),
)


def _quantities(*loads: LiveLoad) -> tuple[_Quantity, ...]:
    """Return what is said of each second of these loads, of which some may have tokens and some not."""
    of_tokens = [load for load in loads if _has_tokens(load)]
    counted = _TOKENS if any(map(_is_counted, of_tokens)) else _PIECES
    tokens = (counted, *_TOKEN_TIMES) if of_tokens else ()
    return (*tokens, *(_LATENCIES if len(of_tokens) < len(loads) else ()), *_REQUESTS)


def _has_tokens(load: LiveLoad) -> bool:
    return any(second.pieces is not None or second.tokens is not None for second in load.seconds)


def _is_counted(load: LiveLoad) -> bool:
    return any(second.tokens is not None for second in load.seconds)


def _with_tokens(load: LiveLoad) -> LiveLoad:
    """Say of the seconds before the first answer had ended, too, how many tokens their pieces were worth."""
    worth = next((one.tokens / one.pieces for one in load.seconds if one.tokens and one.pieces), None)
    return replace(
        load,
        seconds=tuple(
            replace(one, tokens=one.pieces * worth)
            if one.tokens is None and one.pieces is not None and worth is not None
            else one
            for one in load.seconds
        ),
    )


def going_on(loads: Iterable[LiveLoad]) -> Iterator[PageBlocks]:
    """Yield the list of the loads that go on, if there are any."""
    listed = [_with_tokens(load) for load in loads if not load.ended]
    if not listed:
        return
    quantities = _quantities(*listed)
    table = make_table(
        "",
        ("model", "load", "second>", *_titles(quantities), "figures are"),
        (
            (load.name, load.load, f"{last.at + 1:,.0f}", *_cells(last, quantities), "provisional")
            for load in listed
            for last in load.seconds[-1:]
        ),
    )
    links = TableLinks(
        links={"model": {load.name: address("loads", load.id) for load in reversed(listed)}}, chips=_CHIPS
    )
    yield PageBlocks(blocks=(Heading(title="Loads that go on"), table), links=links, listed=False)


def live_page(load: LiveLoad) -> DashboardPage:
    """Show a load by second, as it happens; a browser without scripts loads the page again."""
    name = clean(load.name) or "a model"
    return DashboardPage(
        title=f"Load of {name}, as it goes on" if not load.ended else f"Load of {name}, which has ended",
        room="/loads",
        trail=(
            PageLink(text="Loads", address="/loads"),
            PageLink(text=name, address=address("loads", name=load.name)),
            PageLink(text=load.id[:6], address=""),
        ),
        parts=tuple(_parts(_with_tokens(load))),
        data=load,
        reload=0 if load.ended and not load.result else RELOAD,
    )


def _parts(load: LiveLoad) -> Iterator[Part]:
    says = f"{load.load}, second by second."
    notices = [Notice(severity=Severity.UNDECIDED, text=says, advice=_PROVISIONAL)]
    if load.ended:
        says = "It has ended; its Result is being stored." if load.result else "It ended without a Result."
        notices.append(note(says))
    elif load.silent > _QUIET:
        silent = count(round(load.silent), "second")
        notices.append(
            Notice(
                severity=Severity.DOUBT,
                text=f"Nothing was heard of it for {silent}.",
                advice="it may be ending, or its command was killed",
            )
        )
    is_empty = not any(one.answered or one.failed or one.pieces for one in load.seconds)
    if is_empty and not load.ended:
        waited = count(round(load.seconds[-1].at + 1), "second")
        open_now = count(load.seconds[-1].in_flight, "request")
        notices.append(note(f"Nothing has been answered yet: {open_now} in flight after {waited}."))
    yield PageBlocks(blocks=(*notices, _tiles(load)))
    if is_empty:
        return
    is_waiting = any(one.waiting for one in load.seconds)
    quantities = [one for one in _quantities(load) if is_waiting or one.title != "waiting"]
    table = make_table(
        f"The last {count(min(_SHOWN, len(load.seconds)), 'second')}, provisional",
        ("second>", *_titles(quantities)),
        (
            (f"{second.at + 1:,.0f}", *_cells(second, quantities))
            for second in load.seconds[: -_SHOWN - 1 : -1]
        ),
    )
    yield PageDiagram(diagram=_chart(load), blocks=(table,), links=TableLinks())


def _titles(quantities: Iterable[_Quantity]) -> tuple[str, ...]:
    return tuple(f"{quantity.title}>" for quantity in quantities)


def _cells(second: LiveSecond, quantities: Iterable[_Quantity]) -> tuple[str, ...]:
    return tuple(_format(quantity.value(second), quantity.unit) for quantity in quantities)


def _format(value: float | None, unit: str) -> str:
    return format_known(value, unit) if unit else f"{value or 0:,.0f}"


# --- figures at a glance --------------------------------------------------------------------------


def _tiles(load: LiveLoad) -> Table:
    """Return the figures of the newest second, by the names that they have in a Result."""
    recent = load.seconds[-_SHOWN:]
    if _has_tokens(load):
        counted, says = (_TOKENS, "") if _is_counted(load) else (_PIECES, "of tokens not yet counted; ")
        first, first_p99, per_token = _TOKEN_TIMES
        rows = [
            _rate_tile(counted.title, counted, says, recent),
            _time_tile("median first token", first, recent),
            _time_tile("p99 first token", first_p99, recent),
            _time_tile("median time per token", per_token, recent),
        ]
    else:
        p50, p99, _ = _LATENCIES
        rows = [_time_tile("median latency", p50, recent), _time_tile("p99 latency", p99, recent)]
    answered, errors, _, _ = _REQUESTS
    newest, failed = load.seconds[-1], sum(one.failed for one in load.seconds)
    rows += [
        _rate_tile("requests", answered, "answered; ", recent),
        ("in flight", f"{newest.in_flight:,}", f"provisional; waiting: {newest.waiting:,}"),
        (
            "errors",
            _format(errors.value(newest), errors.unit),
            f"provisional; {failed:,} in {count(len(load.seconds), 'second')}",
        ),
    ]
    return Table(title="", columns=make_columns("", "", ""), rows=tuple(rows), tiles=True)


def _rate_tile(
    name: str, quantity: _Quantity, says: str, recent: Sequence[LiveSecond]
) -> tuple[str, str, str]:
    values = [value for one in recent if (value := quantity.value(one)) is not None]
    if not values:
        return name, "—", says
    mean = _format(sum(values) / len(values), quantity.unit)
    return name, _format(values[-1], quantity.unit), f"{says}provisional; {mean} over {len(values)} s"


def _time_tile(name: str, quantity: _Quantity, recent: Sequence[LiveSecond]) -> tuple[str, str, str]:
    """Return a time of the newest second in which anything took one."""
    for back, second in enumerate(reversed(recent)):
        if (value := quantity.value(second)) is not None:
            when = f", {count(back, 'second')} ago" if back else ""
            return name, _format(value, quantity.unit), f"provisional{when}"
    return name, "—", "none yet" if len(recent) < _SHOWN else f"none in {count(len(recent), 'second')}"


# --- figures by second ----------------------------------------------------------------------------


def _chart(load: LiveLoad) -> TimeChart:
    def panel(title: str, unit: str, *lines: tuple[str, _Quantity]) -> TimePanel:
        drawn = (TimeLine(name=name, y=tuple(map(quantity.value, load.seconds))) for name, quantity in lines)
        return TimePanel(title=f"{title}, provisional", unit=unit, lines=tuple(drawn))

    p50, p99, _ = _LATENCIES
    first, first_p99, _ = _TOKEN_TIMES
    counted = _TOKENS if _is_counted(load) else _PIECES
    answered, errors, in_flight, waiting = _REQUESTS
    requests = panel("Requests", RATE, ("answered", answered), ("errors", errors))
    in_flight_panel = panel("Open requests", "", ("in flight", in_flight), ("waiting", waiting))
    times = (
        (
            panel(counted.title.capitalize(), RATE, (counted.title, counted)),
            panel("First token", SECONDS, ("median", first), ("p99", first_p99)),
        )
        if _has_tokens(load)
        else (panel("Latency", SECONDS, ("p50", p50), ("p99", p99)),)
    )
    return TimeChart(
        title="Provisional figures by second",
        seconds=tuple(one.at + 1 for one in load.seconds),
        panels=(*times, requests, in_flight_panel),
    )
