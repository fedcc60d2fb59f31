"""The page of workers and devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.dashboard.conftest import put, visitor_of
from tests.support.sample_registry import a_target, a_task, a_variant, a_version, a_worker

from modeldyno.base import plugins
from modeldyno.registry.canary import reading_tag
from modeldyno.registry.targets import target_here
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.dashboard.conftest import Visitor

    from modeldyno.stores.interface import Store


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Visitor]:
    """Look at a store with a worker that has a task, a target without one, and readings of a machine."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        fill_devices(store)
        yield visitor_of(store)


def fill_devices(store: Store) -> None:
    """Announce a worker, let it lease a task, and put readings of its machine into the store."""
    registry, target = store.registry, replace(target_here(), name="here")
    worker = replace(a_worker("w"), target=target.id, alive=1000.0, worked=250.0)
    registry.announce(worker, target)
    registry.put_target(a_target(name="lonely"))
    version, _ = registry.add_version(a_version())
    registry.put_variant(a_variant(version), "ada")
    registry.enqueue((replace(a_task(version), target=target.id),))
    registry.claim(worker)
    for day in range(1, 5):
        reading = a_result(
            id=f"{day:02x}" * 6,
            name="canary",
            created=f"2026-01-0{day}T00:00:00+00:00",
            samples=[0.002 + 0.0001 * day] * 1000,
        )
        put(store, reading)
        store.tag(reading.id, add=(reading_tag(target.id),))


def test_who_uses_what_is_said(busy: Visitor) -> None:
    """A worker with its task, which is a link, and how idle it is; a target without a worker."""
    text = busy.read("/targets")

    assert '<a href="/models/digits/1">digits/1 source: batch 1</a>' in text
    assert "75%" in text
    assert "no worker" in text


def test_the_machines_are_told_by_their_reference_model(busy: Visitor) -> None:
    """A chart, a word for how each stands, and a link to its history."""
    text = busy.read("/targets")
    (machine,) = busy.json("/targets")["machines"]

    assert machine["readings"] == 4
    assert "Time of a call of the reference model" in text
    assert f'<a href="/trends?name={reading_tag(machine["target"]).replace(":", "%3A")}">' in text


def test_a_store_without_targets_says_what_makes_one(newcomer: Visitor) -> None:
    """The command of a worker."""
    assert "modeldyno worker" in newcomer.read("/targets")
