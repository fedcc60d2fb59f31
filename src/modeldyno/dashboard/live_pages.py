"""A load while it goes on, by second: provisional figures, until its Result takes its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Heading, Notice, Severity, clean, make_table, note
from modeldyno.base.stats.units import RATE, SECONDS, format_quantity
from modeldyno.base.views.text import count, format_known
from modeldyno.dashboard.diagram import TimeChart, TimeLine, TimePanel
from modeldyno.dashboard.page import DashboardPage, PageBlocks, PageDiagram, PageLink, address
from modeldyno.reports.interface import TableLinks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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


def going_on(loads: Iterable[LiveLoad]) -> Iterator[PageBlocks]:
    """Yield the list of the loads that go on, if there are any."""
    listed = [load for load in loads if not load.ended]
    if not listed:
        return
    table = make_table(
        "",
        ("model", "load", "second>", *_QUANTITIES, "figures are"),
        (
            (load.name, load.load, f"{last.at + 1:,.0f}", *_cells(last), "provisional")
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
        parts=tuple(_parts(load)),
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
    yield PageBlocks(blocks=tuple(notices))
    newest = load.seconds[-1]
    now = make_table(
        f"Second {newest.at + 1:,.0f}",
        ("quantity", "value>", "figure is"),
        (
            (title.rstrip(">"), value, "provisional")
            for title, value in zip(_QUANTITIES, _cells(newest), strict=True)
        ),
    )
    table = make_table(
        f"The last {count(min(_SHOWN, len(load.seconds)), 'second')}, provisional",
        ("second>", *_QUANTITIES),
        ((f"{second.at + 1:,.0f}", *_cells(second)) for second in load.seconds[: -_SHOWN - 1 : -1]),
    )
    yield PageDiagram(diagram=_chart(load.seconds), blocks=(now, table), links=TableLinks(chips=_CHIPS))


_QUANTITIES = ("p50>", "p99>", "slowest>", "answered>", "errors>", "in flight>", "waiting>")


def _cells(second: LiveSecond) -> tuple[str, ...]:
    times = (second.p50, second.p99, second.worst)
    return (
        *(format_known(time, SECONDS) for time in times),
        format_quantity(float(second.answered), RATE, 3),
        format_quantity(float(second.failed), RATE, 3),
        f"{second.in_flight:,}",
        f"{second.waiting:,}",
    )


def _chart(seconds: Sequence[LiveSecond]) -> TimeChart:
    def line(name: str, attribute: str) -> TimeLine:
        return TimeLine(name=name, y=tuple(getattr(one, attribute) for one in seconds))

    latencies = (line("p50", "p50"), line("p99", "p99"))
    requests = (line("answered", "answered"), line("errors", "failed"))
    waiting = (line("in flight", "in_flight"), line("waiting", "waiting"))
    return TimeChart(
        title="Provisional figures by second",
        seconds=tuple(one.at + 1 for one in seconds),
        panels=(
            TimePanel(title="Latency, provisional", unit=SECONDS, lines=latencies),
            TimePanel(title="Requests, provisional", unit=RATE, lines=requests),
            TimePanel(title="Open requests, provisional", unit="", lines=waiting),
        ),
    )
