"""The page of a load while it goes on."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING

import pytest
from tests.dashboard.conftest import LIVE_LOAD, LIVE_TOKENS, put

from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.result.trace_data import LiveSecond
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


def as_read(text: str) -> str:
    """Return text as it is seen."""
    return unescape(text).replace("\xa0", " ")


def tiles(text: str) -> dict[str, tuple[str, str]]:
    """Return the figures at a glance: name to value and note."""
    figures = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd><dd class=\"faint\">(.*?)</dd>", text)
    return {name: (as_read(value), as_read(note)) for name, value, note in figures}


def panels(text: str) -> list[str]:
    """Return the titles of what is drawn."""
    return [title for title, _ in re.findall(r">([^<]+), provisional( \(\S+\))?</text>", text)]


def test_it_shows_the_load_by_second_and_calls_each_figure_provisional(watcher: Visitor) -> None:
    """Latency, throughput, errors and what is open, each beside the word."""
    text = watcher.read(PAGE)
    now = tiles(text)

    assert "none is certified" in text
    assert list(now) == ["median latency", "p99 latency", "requests", "in flight", "errors"]
    assert all("provisional" in note for _, note in now.values())
    assert now["median latency"] == ("2.00 ms", "provisional, 1 second ago")
    assert now["requests"] == ("0/s", "answered; provisional; 450/s over 2 s")
    assert now["in flight"] == ("8", "provisional; waiting: 40")
    assert now["errors"] == ("3.00/s", "provisional; 3 in 2 seconds")
    assert "9.00 ms" in text.replace("&#160;", " ")
    assert panels(text) == ["Latency", "Requests", "Open requests"]


def test_a_load_of_tokens_is_shown_by_these(newcomer: Visitor) -> None:
    """In the words of its Result; times of the newest second in which there were any, and when that was."""
    newcomer.store.put_live_load(LIVE_TOKENS)
    text = newcomer.read(f"/loads/{LIVE_TOKENS.id}")
    now = tiles(text)

    assert list(now)[:4] == ["tokens", "median first token", "p99 first token", "median time per token"]
    assert now["tokens"] == ("180/s", "provisional; 167/s over 3 s")
    assert now["median first token"] == ("90.0 ms", "provisional, 1 second ago")
    assert now["p99 first token"][0] == "250 ms"
    assert now["median time per token"][0] == "11.0 ms"
    assert now["errors"] == ("0/s", "provisional; 1 in 3 seconds")
    assert panels(text) == ["Tokens", "First token", "Requests", "Open requests"]


def test_pieces_before_the_first_answer_are_worth_as_many_tokens(newcomer: Visitor) -> None:
    """As those of the answers that ended since then; lists say the tokens, too."""
    newcomer.store.put_live_load(LIVE_TOKENS)
    rows = re.findall(
        r"<tr><th[^>]*>(\d)</th><td[^>]*>([^<]+)</td>", newcomer.read(f"/loads/{LIVE_TOKENS.id}")
    )
    (listed,) = re.findall(r"<tr><th[^>]*><a[^>]*>llama.*?</tr>", newcomer.read("/loads"))

    assert rows == [("3", "180/s"), ("2", "200/s"), ("1", "120/s")]
    assert "180/s" in listed


def test_pieces_are_shown_where_nobody_counts_tokens(newcomer: Visitor) -> None:
    """As those of servers that send no usage, and of all before the first answer has ended."""
    first = LIVE_TOKENS.seconds[0]
    newcomer.store.put_live_load(replace(LIVE_TOKENS, seconds=(first,)))
    text = newcomer.read(f"/loads/{LIVE_TOKENS.id}")
    now = tiles(text)

    assert now["pieces"] == ("60.0/s", "of tokens not yet counted; provisional; 60.0/s over 1 s")
    assert now["median time per token"] == ("—", "none yet")
    assert panels(text)[0] == "Pieces"


def test_loads_with_and_without_tokens_share_a_list(watcher: Visitor) -> None:
    """Each has what is known of it."""
    watcher.store.put_live_load(LIVE_TOKENS)
    text = watcher.read("/loads")
    titles = [
        re.sub("<[^>]+>", "", title) for title in re.findall(r"<th[^>]*scope=\"col\"[^>]*>(.*?)</th>", text)
    ]

    assert {"tokens", "first token", "p50", "p99"} <= set(titles)
    assert all(f">{name}</a>" in text for name in ("llama", "digits"))


def test_a_load_without_an_answer_says_what_it_waits_for(newcomer: Visitor) -> None:
    """In place of charts and tables of nothing."""
    empty = LiveSecond(at=4.0, answered=0, failed=0, in_flight=8)
    newcomer.store.put_live_load(replace(LIVE_LOAD, seconds=(empty,)))
    text = newcomer.read(PAGE)

    assert "Nothing has been answered yet: 8 requests in flight after 5 seconds." in text
    assert tiles(text)["in flight"][0] == "8"
    assert tiles(text)["median latency"] == ("—", "none yet")
    assert '<svg class="diagram' not in text
    newcomer.store.put_live_load(replace(LIVE_LOAD, seconds=(empty,), ended=True))
    assert "Nothing has been answered yet" not in newcomer.read(PAGE)


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
