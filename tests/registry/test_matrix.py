"""How fast each model is on each target."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_registry import TARGET, a_figure, a_target, a_task, a_version

from modeldyno.base import plugins
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.registry.figures import old_figures
from modeldyno.registry.matrix import newest_speeds, version_speeds
from modeldyno.registry.records.policy import Policy
from modeldyno.registry.records.records import FigureState
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.overview import SpeedRow
    from modeldyno.registry.records.records import Version
    from modeldyno.stores.interface import Store


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Give an empty store, in a file and then on a server."""
    with plugins.store(url) as opened:
        yield opened


def measure(store: Store, version: Version, batch: int, milliseconds: float, **changes: str) -> None:
    """Store a figure and its Result."""
    identifier = f"{version.number}{batch:x}" * 6
    result = a_result(id=identifier, samples=[milliseconds / 1000] * 3000)
    rate = replace(result.measurements[1], value=batch * 1000.0, interval=None, runs=())
    store.put(replace(result, measurements=(result.measurements[0], rate)), headline="")
    figure = a_figure(a_task(version, batch), result=identifier, **changes)
    store.registry.put_figures([figure])


def filled(store: Store, policy: str = "default") -> Registry:
    """Register two versions; the newer one is measured at two batch sizes."""
    registry = store.registry
    registry.put_target(a_target())
    first, _ = registry.add_version(a_version(policy=policy))
    second, _ = registry.add_version(a_version(number=2, policy=policy))
    measure(store, first, 1, 4.0)
    measure(store, second, 1, 2.0)
    measure(store, second, 8, 9.0)
    return registry


def test_the_newest_version_is_told_by_its_best_figures(store: Store) -> None:
    """The lowest latency and the highest rate may be of two figures."""
    (row,) = newest_speeds(filled(store), ["digits"])

    assert (row.number, row.target.id) == (2, TARGET)
    assert row.speed.p50 == 0.002
    assert row.figure.measure.label == "batch 1"
    assert row.rate == 8000.0
    assert row.most.measure.label == "batch 8"
    assert row.speed.bounds is None


def test_every_version_has_a_row(store: Store) -> None:
    """The newest first."""
    assert [(row.number, row.speed.p50) for row in version_speeds(filled(store), "digits")] == [
        (2, 0.002),
        (1, 0.004),
    ]


def test_the_bounds_of_the_policy_are_judged(store: Store) -> None:
    """By the figure that is shown."""
    store.registry.put_policy(Policy(name="quick", require=("latency.p50 <= 3ms",)), "ada")

    verdicts = [row.speed.bounds for row in version_speeds(filled(store, policy="quick"), "digits")]

    assert verdicts == [Verdict.HELD, Verdict.BROKEN]


def test_a_fresh_figure_comes_before_a_faster_stale_one(store: Store) -> None:
    """Only where nothing is fresh is a stale one told, as what it is."""
    registry = filled(store)
    version = a_version(number=2)
    measure(store, version, 4, 0.5, state=FigureState.STALE, taken="2027-01-01")
    assert [row.speed.p50 for row in newest_speeds(registry, ["digits"])] == [0.002]

    for batch in (1, 8):
        measure(store, version, batch, 2.0, state=FigureState.STALE)
    (row,) = newest_speeds(registry, ["digits"])
    assert (row.figure.state, row.figure.measure.label) == (FigureState.STALE, "batch 4")


@pytest.mark.parametrize(
    "speeds", [lambda r: newest_speeds(r, ["digits"]), lambda r: version_speeds(r, "digits")]
)
def test_a_list_sees_what_has_become_stale_since_it_was_stored(
    store: Store, speeds: Callable[[Registry], Iterable[SpeedRow]]
) -> None:
    """By its age and the policy of its version, though nobody has opened the version."""
    registry = store.registry
    registry.put_policy(Policy(name="patient", max_age=400 * 86400.0), "ada")
    registry.put_target(a_target())
    long_ago = (datetime.now(UTC) - timedelta(days=330)).isoformat()
    for number, policy in ((1, "default"), (2, "patient")):
        version, _ = registry.add_version(a_version(number=number, policy=policy))
        measure(store, version, 1, 2.0, taken=long_ago)

    states = {row.number: row.figure for row in speeds(registry)}

    assert states[2].state is FigureState.FRESH
    if 1 in states:
        assert states[1].state is FigureState.STALE
        assert states[1].why == "measured 330 days ago, and the policy allows 30 days"
    assert {figure.state for figure in registry.figures("digits")} == {FigureState.FRESH}


def test_old_figures_are_the_stale_and_the_doubtful_ones(store: Store) -> None:
    """Also one that has become stale since it was stored; of fresh ones, the oldest are looked at."""
    registry = filled(store)
    version = a_version(number=2)
    assert old_figures(registry, [TARGET], limit=9) == []

    measure(store, version, 16, 1.0, taken="2020-01-01T00:00:00+00:00")
    measure(store, version, 32, 1.0, state=FigureState.DOUBTFUL)
    measure(store, version, 64, 1.0, state=FigureState.STALE)

    labels = [
        (figure.measure.label, str(figure.state)) for figure in old_figures(registry, [TARGET], limit=1)
    ]
    assert labels == [("batch 64", "stale"), ("batch 16", "stale"), ("batch 32", "doubtful")]


def test_a_figure_whose_result_is_gone_tells_nothing(store: Store) -> None:
    """It keeps its row."""
    registry = filled(store)
    store.remove("11" * 6)

    rows = list(version_speeds(registry, "digits"))

    assert (rows[1].speed.p50, rows[1].rate) == (None, None)
