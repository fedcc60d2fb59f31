from __future__ import annotations

from itertools import pairwise

from modeldyno.sweeps.strategies import grid
from modeldyno.testing.sample_studies import a_study
from modeldyno.testing.strategies import add_done_trial, add_failed_trial, plain_values


def test_every_point_is_measured_those_of_a_configuration_together() -> None:
    """Though the load changes slowest in the space, the server is started once per configuration."""
    study = a_study("concurrency=1,2,4", "instances=1,2", "max_batch=1,8")
    while (ask := grid.propose(study)) is not None:
        study = add_done_trial(study, ask, plain_values(ask.point))
    servers = [study.configuration(trial.point) for trial in study.trials]

    assert len(study.candidates) == study.space.size == 12
    assert sum(one != other for one, other in pairwise(servers)) == 3


def test_a_default_that_is_a_point_of_the_space_is_not_measured_again() -> None:
    """Points that were measured first are skipped."""
    study = a_study("batch_size=1,2,4")
    first = grid.propose(study)
    assert first is not None
    study = add_done_trial(study, first, plain_values(first.point))
    second = grid.propose(study)

    assert second is not None
    assert second.point == {"batch_size": 2}


def test_only_what_surely_takes_more_memory_is_left_out() -> None:
    """A batch that did not fit in one precision may fit in another."""
    study = a_study("precision=fp32,bf16", "batch_size=1,2,4")
    while (ask := grid.propose(study)) is not None:
        large = ask.point == {"precision": "fp32", "batch_size": 2}
        study = add_failed_trial(study, ask) if large else add_done_trial(study, ask, plain_values(ask.point))

    assert [tuple(trial.point.values()) for trial in study.trials] == [
        ("fp32", 1), ("fp32", 2), ("bf16", 1), ("bf16", 2), ("bf16", 4),
    ]  # fmt: skip


def test_an_axis_that_depends_on_a_load_stays_behind_it() -> None:
    """All points of the space are proposed, whatever depends on what."""
    study = a_study("concurrency=1,2", "instances=1,2 if concurrency=2")
    while (ask := grid.propose(study)) is not None:
        study = add_done_trial(study, ask, plain_values(ask.point))

    assert [trial.point for trial in study.trials] == list(study.space.points())
