"""Which models have become slower, and whether the machines have."""

from __future__ import annotations

import re
import sqlite3
import time
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from tests.dashboard.conftest import put, visitor_of
from tests.support.sample_registry import TARGET, a_target

from modeldyno.base import plugins
from modeldyno.base.errors import StoreError
from modeldyno.dashboard import home_page, regressions
from modeldyno.dashboard.page import PageRequest
from modeldyno.dashboard.regressions import RegressionSearch
from modeldyno.dashboard.trend_pages import find_regressions, regression_of_model, trends_of
from modeldyno.registry.canary import reading_tag
from modeldyno.stores.interface import StoredName
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.dashboard.conftest import Visitor

    from modeldyno.base.result.result import Result
    from modeldyno.dashboard.trend_pages import Regression
    from modeldyno.stores.interface import Store


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    """Look at a store with a model that became slower, one that did not, and a reference model."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        store.registry.put_target(a_target(name="the bench"))
        for day in range(1, 11):
            for name, milliseconds in (("slower", 2.0 if day < 6 else 3.0), ("steady", 5.0), ("canary", 1.0)):
                result = a_result(
                    id=f"{day:02}{name[:2].encode().hex()}".ljust(12, "0"),
                    name=name,
                    created=f"2026-01-{day:02}T00:00:00+00:00",
                    samples=[milliseconds / 1000] * 1000,
                )
                put(store, result)
                if name == "canary":
                    store.tag(result.id, add=(reading_tag(TARGET),))
        yield visitor_of(store)


def test_a_model_that_is_known_to_be_slower_is_listed_though_others_are_newer(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list agrees with the alerts, which are of all models."""
    monkeypatch.setattr("modeldyno.dashboard.trend_pages.MODELS", 1)
    newest = {one.name for one in trends_of(visitor.store)}
    both = {one.name for one in trends_of(visitor.store, ["slower", "steady", "gone"])}

    assert len(newest & {"slower", "steady"}) == 1
    assert {"slower", "steady"} < both
    assert "gone" not in both


def test_a_history_leads_to_its_results_by_their_times(visitor: Visitor) -> None:
    """Ids stand in the last column."""
    page = visitor.read("/trends?name=slower")
    links = re.findall(r'<a href="/results/(\w+)">([^<]*)</a>', page)

    assert len(links) >= 10
    assert all(text.startswith("2026-01-") for _, text in links)


def test_a_model_that_has_become_slower_stands_first(visitor: Visitor) -> None:
    """The title counts such; each links to its history."""
    states = {row["name"]: row["state"] for row in visitor.json("/trends")}
    text = visitor.read("/trends")

    assert next(iter(states)) == "slower"
    assert states == {"slower": "worse", "steady": "stable", reading_tag(TARGET): "stable"}
    assert "<h1>1 worse of 3 histories</h1>" in text
    assert "worse by 50.0%" in text
    assert "the machine the bench" in text


def test_the_history_of_a_model_is_drawn(visitor: Visitor) -> None:
    """With its steps, and of another metric if one is named."""
    text = visitor.read("/trends?name=slower")

    assert "has been worse by 50.0% since 2026-01-06" in text
    assert 'id="pictures"' in text
    assert visitor.json("/trends?name=slower")["name"] == "slower"
    assert "latency.p90 is" in visitor.read("/trends?name=steady&metric=latency.p90")
    assert "the reference model on the bench" in visitor.read(f"/trends?name={reading_tag(TARGET)}")


def test_the_first_page_names_what_has_become_worse(visitor: Visitor) -> None:
    """With a link to its history; while nobody knows yet, it says so."""

    def attention(question: PageRequest) -> list[tuple[str, str, str, str]]:
        data = home_page.home(question).data
        assert isinstance(data, dict)
        return [(one["state"], one["of"], one["why"], one["address"]) for one in data["attention"]]

    why = "latency.p50 has been worse by 50.0% since 2026-01-06 00:00 (06736c), and is now 3.00 ms."
    assert attention(PageRequest(store=visitor.store)) == [("worse", "slower", why, "/trends?name=slower")]
    assert attention(PageRequest(store=visitor.store, regressions=lambda: None)) == []
    assert home_page.home(PageRequest(store=visitor.store, regressions=lambda: None)).reload > 0
    assert home_page.home(PageRequest(store=visitor.store, regressions=tuple)).reload == 0


def test_a_damaged_result_makes_its_own_history_unknown_alone(visitor: Visitor, tmp_path: Path) -> None:
    """The others are judged; what is wrong with it is said in the lists and on its own page."""
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE results SET checksum = 'wrong' WHERE name = 'steady'")

    regressions = [(one.of, one.state) for one in find_regressions(visitor.store)]
    assert regressions == [("slower", "worse"), ("steady", "unknown")]
    states = {row["name"]: row["state"] for row in visitor.json("/trends")}
    assert states == {"slower": "worse", "steady": "unknown", reading_tag(TARGET): "stable"}
    assert "<h1>1 worse, 1 unknown of 3 histories</h1>" in visitor.read("/trends")
    assert "is damaged" in visitor.get("/trends?name=steady").text


def test_a_model_whose_results_cannot_be_read_for_a_moment_is_unknown_until_they_can(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again although the store has not changed, and is never taken for one that is not worse."""
    now, locked, get = 0.0, True, type(visitor.store).get

    def read(store: Store, identifier: str) -> Result:
        if locked:
            raise StoreError("The store is locked by another process.")
        return get(store, identifier)

    monkeypatch.setattr(type(visitor.store), "get", read)
    search = RegressionSearch(store=visitor.store, mark=lambda: "first", clock=lambda: now)
    wait_for(lambda: {(one.of, one.state) for one in search.regressions() or ()} >= {("slower", "unknown")})
    wait_for(lambda: not search._running)
    wait_for(lambda: "is locked" in visitor.read("/"))
    assert "Nothing needs attention" not in visitor.read("/")

    now, locked = 100.0, False
    wait_for(lambda: [(one.of, one.state) for one in search.regressions() or ()] == [("slower", "worse")])


def wait_for(holds: Callable[[], bool]) -> None:
    """Wait up to ten seconds until something holds."""
    end = time.monotonic() + 10
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    assert holds()


def test_regressions_are_searched_again_when_the_store_has_changed(visitor: Visitor) -> None:
    """Not sooner than ten seconds after the last search, and its version moves with what is found."""
    now, mark = 0.0, "first"
    search = RegressionSearch(store=visitor.store, mark=lambda: mark, clock=lambda: now)
    wait_for(lambda: search.regressions() is not None)
    (regression,) = search.regressions() or ()
    assert (regression.of, search.version) == ("slower", 1)

    for day in range(11, 17):
        result = a_result(
            id=f"{day}" * 6,
            name="slower",
            created=f"2026-01-{day}T00:00:00+00:00",
            samples=[0.002] * 1000,
        )
        put(visitor.store, result)
    mark = "second"
    assert search.regressions() == [regression]
    now = 20.0
    wait_for(lambda: search.regressions() == [])
    assert search.version == 2


def test_every_model_is_judged_in_a_tenth_of_the_time(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those measured last are told first; the others follow, with pauses nine times as long as it takes."""
    now = 0.0
    pauses: list[float] = []
    judged: list[str] = []

    def pause(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += seconds

    def judge(store: Store, name: str) -> Regression | None:
        nonlocal now
        now += 1.0
        judged.append(name)
        return regression_of_model(store, name)

    for day in range(1, 11):
        newer = f"2026-02-{day:02}T00:00:00+00:00"
        put(visitor.store, a_result(id=f"{day:02}" * 6, name="newer", created=newer, samples=[0.001] * 1000))
    monkeypatch.setattr(regressions, "regression_of_model", judge)
    monkeypatch.setattr(regressions, "MODELS", 1)
    search = RegressionSearch(store=visitor.store, mark=lambda: "first", clock=lambda: now, pause=pause)
    wait_for(lambda: [one.of for one in search.regressions() or ()] == ["slower"])
    assert (judged[0], sorted(judged)) == ("newer", ["newer", "slower", "steady"])
    assert pauses == [9.0] * len(pauses)
    assert len(pauses) >= 2


def test_no_model_waits_for_ever_although_others_are_measured_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time that the models are listed again, the one that has waited longest is judged too."""
    now, results = 0.0, {f"old-{n}": (10, 0) for n in range(20)}
    judged: list[str] = []

    class Busy:
        place, registry = "busy", Mock(targets=Mock(return_value=()))

        def names(self, *, least: int) -> list[StoredName]:
            assert least > 1
            rows = [StoredName(name=n, results=c, newest=f"{at:09}") for n, (c, at) in results.items()]
            return sorted(rows, key=lambda row: row.newest, reverse=True)

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds
        for n in range(50 if len(judged) < 200 else 0):  # more than are judged meanwhile
            results[f"busy-{n}"] = (int(now), int(now) + n)

    def judge(_store: Store, name: str) -> None:
        nonlocal now
        now += 1.0
        judged.append(name)

    monkeypatch.setattr(regressions, "regression_of_model", judge)
    search = RegressionSearch(
        store=Busy(),  # type: ignore[arg-type]
        mark=lambda: str(results), clock=lambda: now, pause=pause,
    )  # fmt: skip
    wait_for(lambda: search.regressions() is not None and len(judged) >= 200)
    wait_for(lambda: not search._running)
    assert {f"old-{n}" for n in range(20)} <= set(judged[:100])


def test_a_search_that_cannot_read_the_store_leaves_the_question_open() -> None:
    """The pages say what is wrong with the store."""

    class Broken:
        place = "broken"

        @property
        def registry(self) -> object:
            raise StoreError("It is gone.")

    search = RegressionSearch(store=Broken(), mark=lambda: "", clock=lambda: 0.0)  # type: ignore[arg-type]

    assert search.regressions() is None
    assert search.version == 0


@pytest.mark.parametrize("query", ["name=none", "name=slower&metric=latncy", "name=slower&metric=energy"])
def test_a_history_that_is_not_there_is_said_in_a_sentence(visitor: Visitor, query: str) -> None:
    """A name, a metric, or a metric that was not measured."""
    assert visitor.get(f"/trends?{query}").status_code in {400, 404}


def test_a_new_result_is_part_of_the_history(visitor: Visitor) -> None:
    """What is kept in memory is of those results only."""
    visitor.read("/trends")
    for day in range(11, 17):
        put(
            visitor.store,
            a_result(
                id=f"{day}" * 6,
                name="steady",
                created=f"2026-01-{day}T00:00:00+00:00",
                samples=[0.008] * 1000,
            ),
        )

    assert {row["name"] for row in visitor.json("/trends") if row["state"] == "worse"} == {"slower", "steady"}
