"""The page of a load while it goes on."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING

import pytest
from tests.dashboard.conftest import LIVE_LOAD, put

from modeldyno.base.metrics.measurement import Measurement
from modeldyno.dashboard import live_pages
from modeldyno.dashboard.diagram import TimeChart, TimeLine, TimePanel, write_chart
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_series import a_ladder

if TYPE_CHECKING:
    from tests.dashboard.conftest import Visitor

PAGE = f"/loads/{LIVE_LOAD.id}"


@pytest.fixture
def watcher(newcomer: Visitor) -> Visitor:
    """Look at a store in which a load goes on."""
    newcomer.store.put_live_load(LIVE_LOAD)
    return newcomer


def change(visitor: Visitor, **fields: object) -> None:
    """Store a later state of the load."""
    visitor.store.put_live_load(replace(LIVE_LOAD, **fields))  # type: ignore[arg-type]


def test_it_shows_the_load_by_second_and_calls_each_figure_provisional(watcher: Visitor) -> None:
    """Latency, throughput, errors and what is open, each beside the word."""
    text = watcher.read(PAGE)

    assert "none is certified" in text
    rows = re.findall(r"<tr><th[^>]*>([^<]+)</th>(.*?)</tr>", text.replace("&#160;", " "))
    now = {name: row for name, row in rows if "chip" in row}
    assert list(now) == ["p50", "p99", "slowest", "answered", "errors", "in flight", "waiting"]
    assert all("provisional" in row for row in now.values())
    assert "&#8212;" in now["p50"]
    assert "3.00/s" in now["errors"]
    assert "9.00 ms" in text.replace("&#160;", " ")
    assert len(re.findall(r", provisional( \(\S+\))?</text>", text)) == 3


def test_its_json_twin_has_the_seconds(watcher: Visitor) -> None:
    """As they were counted."""
    twin = watcher.json(PAGE)

    assert (twin["id"], twin["load"], twin["ended"]) == (LIVE_LOAD.id, "concurrency 8", False)
    assert twin["certified"] is False
    assert [second["answered"] for second in twin["seconds"]] == [900, 0]
    assert twin["seconds"][1]["p99"] is None


def test_lists_lead_to_it_while_it_goes_on(watcher: Visitor) -> None:
    """The first page and that of loads, as JSON too; their spreadsheet stays that of the series."""
    watcher.store.put_conclusion(a_ladder(), headline="")
    for page, key in (("/", "loads"), ("/loads", "going_on")):
        assert f'<a href="{PAGE}">digits</a>' in watcher.read(page)
        assert [load["id"] for load in watcher.json(page)[key]] == [LIVE_LOAD.id]
    assert "provisional" not in watcher.read("/loads.csv")
    change(watcher, ended=True)

    for page, key in (("/", "loads"), ("/loads", "going_on")):
        assert PAGE not in watcher.read(page)
        assert watcher.json(page)[key] == []


def test_a_single_load_is_listed_once_it_has_ended(watcher: Visitor) -> None:
    """With its figures and a link to its result and to all of them; a result without a load is not."""
    rate = Measurement(metric="request_rate", value=120.0)
    loaded = a_result(id="e" * 12, measurements=(*a_result().measurements, rate))
    put(watcher.store, a_result(id="d" * 12))
    assert "Single loads" not in watcher.read("/loads")
    put(watcher.store, loaded)

    text = watcher.read("/loads")
    assert f'href="/results/{loaded.id}"' in text
    assert "120/s" in text.replace("&#160;", " ")
    assert "No load is stored yet" not in text
    assert [entry["id"] for entry in watcher.json("/loads")["results"]] == [loaded.id]
    (everything,) = re.findall(r'href="(/results[?][^"]+)"', text)
    assert [entry["id"] for entry in watcher.json(unescape(everything))["items"]] == [loaded.id]
    assert watcher.json("/loads?name=other")["results"] == []


def test_a_browser_without_scripts_loads_it_again_while_it_goes_on(watcher: Visitor) -> None:
    """Every two seconds; a page that will not change is not loaded again."""
    again = '<noscript><meta http-equiv="refresh" content="2"></noscript>'
    assert all(again in watcher.read(page) for page in (PAGE, "/loads"))
    assert again not in watcher.read("/models")
    assert 'data-live="yes"' in watcher.read(PAGE)  # its script follows it at once
    assert 'data-live=""' in watcher.read("/models")
    change(watcher, ended=True)

    assert again not in watcher.read(PAGE)


def test_its_result_takes_its_place(watcher: Visitor) -> None:
    """At the same address, once it is stored; until then it says so."""
    change(watcher, ended=True, result="d" * 12)
    assert "its Result is being stored" in watcher.read(PAGE)
    put(watcher.store, a_result(id="d" * 12))

    assert '<span aria-current="page">dddddd</span>' in watcher.read(PAGE)
    assert watcher.json(PAGE)["id"] == "d" * 12


def test_a_load_that_ended_without_a_result_says_so(watcher: Visitor) -> None:
    """It was interrupted before anything was measured."""
    change(watcher, ended=True)

    assert "It ended without a Result." in watcher.read(PAGE)


def test_silence_is_told() -> None:
    """A command that was killed tells nothing more."""
    texts = [str(live_pages.live_page(replace(LIVE_LOAD, silent=silent)).parts[0]) for silent in (2.0, 42.0)]

    assert ["Nothing was heard of it for 42 seconds" in text for text in texts] == [False, True]


def test_a_chart_breaks_its_line_where_there_is_nothing() -> None:
    """A single second is a dot; what it shows last is said in words."""
    line = TimeLine(name="p50", y=(1.0, None, 2.0, 2.0))
    panel = TimePanel(title="Latency <", unit="s", lines=(line,))
    drawn = write_chart(TimeChart(title="By second", seconds=(1.0, 2.0, 3.0, 4.0), panels=(panel,)))

    assert drawn.count("<path") == 2
    assert 'aria-label="By second. Last: Latency &lt;: p50 2.00' in drawn
    assert "Latency <" not in drawn


def test_ticks_of_a_live_chart_are_round() -> None:
    """Whatever is the highest: 0, 20 and 40 below 47.3 ms, and whole tens of seconds."""
    line = TimeLine(name="p50", y=tuple(0.0473 if at == 7 else 0.02 for at in range(57)))
    panel = TimePanel(title="Latency", unit="s", lines=(line,))
    drawn = write_chart(
        TimeChart(title="t", seconds=tuple(float(at + 1) for at in range(57)), panels=(panel,))
    )
    texts = re.findall(r">([^<]+)</text>", drawn)

    assert [text for text in texts if text.isdecimal()] == ["0", "20", "40"]
    assert [text for text in texts if text.endswith(" s")] == ["10 s", "20 s", "30 s", "40 s", "50 s"]
    assert "Latency (ms)" in texts
    assert write_chart(TimeChart(title="t", seconds=(), panels=()))
