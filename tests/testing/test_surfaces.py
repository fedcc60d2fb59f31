from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.random_surfaces import FAMILIES
from tests.support.recorded_surfaces import (
    LOOK,
    Surface,
    count_starts,
    run_search,
    simulate_trial,
    study_of,
    verify_best,
)

from modeldyno.base.metrics.metric import Query
from modeldyno.sweeps.strategies import grid
from modeldyno.sweeps.study.study import TrialPurpose, TrialRequest, TrialState

if TYPE_CHECKING:
    from pathlib import Path

RATE = Query.parse("throughput")
DOCUMENT: dict[str, Any] = {
    "name": "a server",
    "axes": [
        {"name": "max_batch", "values": [1, 4]},
        {"name": "queue_delay", "values": [0, 100], "where": "max_batch", "equals": [4]},
        {"name": "concurrency", "values": [1, 2]},
    ],
    "loads": ["concurrency"],
    "default": {"max_batch": 1},
    "goals": [{"maximize": "throughput", "require": ["latency.p99 <= 20ms"]}],
    "points": [
        {"point": {"max_batch": 1, "concurrency": 1}, "runs": [
            {"throughput": 90.0, "latency.p99": 0.011}, {"throughput": 110.0, "latency.p99": 0.009},
        ], "failure": ""},
        {"point": {"max_batch": 1, "concurrency": 2}, "runs": [
            {"throughput": 150.0, "latency.p99": 0.022}, {"throughput": 150.0, "latency.p99": 0.022},
        ], "failure": ""},
        {"point": {"max_batch": 4, "queue_delay": 0, "concurrency": 1}, "runs": [],
         "failure": "out of memory"},
    ],
}  # fmt: skip


@pytest.fixture
def surface(tmp_path: Path) -> Surface:
    path = tmp_path / "server.json"
    path.write_text(json.dumps(DOCUMENT))
    return Surface.read(path)


def test_a_point_is_its_mean_over_all_that_was_recorded(surface: Surface) -> None:
    """Means are judged, not the random values of one run."""
    assert surface.values({"max_batch": 1, "concurrency": 1})[RATE] == pytest.approx(100.0)


def test_the_best_is_the_best_that_holds_the_bounds(surface: Surface) -> None:
    """A point that breaks a bound has no score."""
    (goal,), (best,) = surface.goals, surface.bests

    assert best == pytest.approx(math.log(100.0))
    assert surface.score(goal, {"max_batch": 1, "concurrency": 2}) == -math.inf


def test_measurements_differ_as_much_as_those_that_were_recorded(surface: Surface) -> None:
    """Except for shifts of a whole pass: of 90 and 110, next to a constant, half belongs to the point.

    What rises with what is kept.
    """
    source = np.random.default_rng(0)
    drawn = [surface.draw({"max_batch": 1, "concurrency": 1}, source) for _ in range(4000)]
    rates, times = (np.log([row[query] for row in drawn]) for query in (RATE, Query.parse("latency.p99")))

    assert np.std(rates) == pytest.approx(np.log(110 / 90) / 2, rel=0.05)
    assert np.corrcoef(rates, times)[0, 1] == pytest.approx(-1.0)


def test_what_failed_fails_and_what_is_not_there_cannot_be(surface: Surface) -> None:
    """A trial at a failed point has its cause; one at an unmeasured point is skipped."""
    study = study_of(surface, surface.goals[0])
    source = np.random.default_rng(0)
    failed = simulate_trial(
        surface, study, TrialRequest(point={"max_batch": 4, "queue_delay": 0, "concurrency": 1}), source
    )
    skipped = simulate_trial(
        surface, study, TrialRequest(point={"max_batch": 4, "queue_delay": 100, "concurrency": 1}), source
    )

    assert (failed.state, failed.kind, failed.failure) == (TrialState.FAILED, "oom", "out of memory")
    assert skipped.state is TrialState.SKIPPED


def test_a_server_is_started_where_more_than_the_load_changes(surface: Surface) -> None:
    """The default at both loads needs one start."""
    study = run_search(surface, surface.goals[0], grid.propose)
    default = [trial for trial in study.measured if trial.stage is TrialPurpose.DEFAULT]

    assert len(default) == 2
    assert count_starts(default) == 1
    assert default[1].seconds == LOOK


def test_what_is_verified_is_measured_again() -> None:
    """Verification follows the search."""
    surface = FAMILIES["compiled"](0)
    study = run_search(surface, surface.goals[0], grid.propose)
    after = verify_best(surface, study).measured[len(study.measured) :]

    assert after
    assert all(trial.stage is TrialPurpose.VERIFY for trial in after)


@pytest.mark.parametrize("family", FAMILIES)
def test_made_up_surfaces_are_the_same_again_and_have_a_best(family: str) -> None:
    """Each has points that meet its bounds, and points that do not."""
    surface, again = FAMILIES[family](3), FAMILIES[family](3)

    assert {k: list(row) for k, row in surface.means.items()} == {
        k: list(row) for k, row in again.means.items()
    }
    assert all(map(math.isfinite, surface.bests))
    for goal in surface.goals[1:]:
        assert (
            0 < sum(math.isfinite(surface.score(goal, dict(k))) for k in surface.means) < len(surface.means)
        )
