"""Measurements of other studies are taken where they are the same and fresh."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.identity import new_identity
from modeldyno.sweeps.loop import run_study
from modeldyno.sweeps.study.study import TrialPurpose
from modeldyno.testing.sample_studies import SimulatedTrials, a_study

if TYPE_CHECKING:
    from modeldyno.sweeps.study.study import Study

DAY = 86_400.0


@pytest.fixture(autouse=True)
def _store(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path / 'store.db'}")


def fresh_study(*axes: str, **changes: Any) -> Study:
    """Return a study with an id and a time of its own."""
    return replace(a_study(*axes, strategy="grid", **changes), **new_identity())


def swept(study: Study, *, reuse: float | None = None, **bench: Any) -> tuple[Study, SimulatedTrials]:
    """Run a study, and return it with what was run for it."""
    trials = SimulatedTrials(rate=lambda point: 100.0 * float(point.get("batch_size", 1)), **bench)
    return run_study(study, store=True, watch=lambda _: None, rooms=trials, reuse=reuse)[0], trials


def taken(study: Study) -> list[int]:
    """Return the batches that were taken from another study."""
    return [int(t.point["batch_size"]) for t in study.trials if "reused" in t.doubts]


def test_what_another_study_has_measured_is_not_measured_again() -> None:
    """The default is, and so is the verification; a value that the other lacked is, too."""
    swept(fresh_study("batch_size=1,2,4"))
    study, bench = swept(fresh_study("batch_size=2,4,8"), reuse=DAY)
    stages = Counter(trial.stage for trial in study.trials if "reused" not in trial.doubts)

    assert taken(study) == [2, 4]
    assert stages[TrialPurpose.DEFAULT] == stages[TrialPurpose.SEARCH] == 1
    assert stages[TrialPurpose.VERIFY] > 0
    assert len(bench.jobs) == len(study.trials) - 2


def test_a_trial_that_was_taken_has_the_figures_of_the_other_study() -> None:
    """And names its stored Result; nothing is charged to the budget of time for it."""
    first, _ = swept(fresh_study("batch_size=1,2"))
    study, _ = swept(fresh_study("batch_size=1,2"), reuse=DAY)
    (mine,) = [t for t in study.trials if "reused" in t.doubts and t.point == {"batch_size": 2}]
    (its,) = [t for t in first.trials if t.stage is TrialPurpose.SEARCH and t.point == {"batch_size": 2}]

    assert (mine.result, mine.answers, mine.seconds) == (its.result, its.answers, 0.0)
    with plugins.store() as store:
        assert taken(store.study(study.id)) == taken(study)


@pytest.mark.parametrize(
    "changed",
    [
        {"digest": "sha256:" + "b" * 64},
        {"hardware": {"processor": "another"}},
        {"software": {"onnxruntime": "2.0"}},
    ],
    ids=["model", "machine", "software"],
)
def test_what_was_measured_of_something_else_is_measured(changed: dict[str, Any]) -> None:
    """Another model under the same name, another machine, and another version."""
    swept(fresh_study("batch_size=1,2"))
    study, _ = swept(fresh_study("batch_size=1,2"), reuse=DAY, **changed)

    assert taken(study) == []


def test_what_was_measured_in_another_way_or_long_ago_is_measured() -> None:
    """Another plan, another setting, an age beyond what is allowed, and no wish for it."""
    swept(fresh_study("batch_size=1,2"))
    longer = fresh_study("batch_size=1,2")
    longer = replace(longer, job=replace(longer.job, plan=replace(longer.job.plan, max_time=0.9)))

    assert taken(swept(longer, reuse=DAY)[0]) == []
    assert taken(swept(fresh_study("batch_size=1,2", settings={"threads": 2}), reuse=DAY)[0]) == []
    assert taken(swept(fresh_study("batch_size=1,2"), reuse=0.0)[0]) == []
    assert taken(swept(fresh_study("batch_size=1,2"))[0]) == []


def test_without_a_store_there_is_nothing_to_take() -> None:
    """It is told before anything is measured."""
    with pytest.raises(RequestError, match="reuse takes measurements from the store"):
        run_study(fresh_study("batch_size=1,2"), store=False, watch=lambda _: None, reuse=DAY)
