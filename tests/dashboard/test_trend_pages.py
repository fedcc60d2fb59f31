"""Which models have become slower, and whether the machines have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.dashboard.conftest import put, visitor_of
from tests.support.sample_registry import TARGET, a_target

from modeldyno import plugins
from modeldyno.registry.canary import reading_tag
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.dashboard.conftest import Visitor


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


def test_a_model_that_has_become_slower_stands_first(visitor: Visitor) -> None:
    """The title counts such; each links to its history."""
    told = {row["name"]: row["state"] for row in visitor.json("/trends")}
    text = visitor.read("/trends")

    assert next(iter(told)) == "slower"
    assert told == {"slower": "worse", "steady": "stable", reading_tag(TARGET): "stable"}
    assert "<h1>Trends: 1 worse</h1>" in text
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
