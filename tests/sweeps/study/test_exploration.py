"""How much of a space was tried, and the points that try the rest of its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.sweeps.study.exploration import (
    MOST_STRATA,
    covering_points,
    exploration,
    points_to_cover,
    strata,
)
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.search_space import Point, parse_axis
from modeldyno.sweeps.study.study import TrialState
from modeldyno.testing.sample_studies import a_served_study, a_study, make_goal

if TYPE_CHECKING:
    from modeldyno.sweeps.study.study import Study


def tried(study: Study, *points: Point) -> Study:
    return add_trials(study, [a_trial(point, an_answer("throughput", 100.0)) for point in points])


def covered(study: Study) -> Study:
    """Try what covers the values until all are."""
    while points := covering_points(study, lambda _point: False):
        study = tried(study, points[0])
    return study


def test_what_was_tried_is_counted() -> None:
    """The points of the space, and a default outside it; what is invalid is none of them."""
    study = tried(
        a_study("batch_size=1,4", "threads=1,2", goal=make_goal(maximize="throughput")),
        {"batch_size": 1},
        {"batch_size": 1, "threads": 1},
    )
    study = add_trials(study, [a_trial({"batch_size": 4, "threads": 1}, state=TrialState.SKIPPED)])
    explored = exploration(study)

    assert (explored.tried, explored.points, explored.left) == (2, 4, 2)
    assert explored.untried == (("threads", (2,)),)
    assert explored.untried_text() == "threads=2 was"


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        (("batch_size=1,2,4", "precision=fp32,bf16"), "batch_size=2,4 and precision=bf16 were"),
        (("batch_size=1,2,4",), "batch_size=2,4 were"),
        (("batch_size=1..64",), "56 values of batch_size were"),
        (("batch_size=1,2", "io=true,false if batch_size=2"), "batch_size=2 and io=true,false were"),
    ],
)  # fmt: skip
def test_values_that_were_never_tried_are_named(axes: tuple[str, ...], text: str) -> None:
    """By axis; of many numbers, how many."""
    study = tried(a_study(*axes), {"batch_size": 1, "precision": "fp32"})

    assert exploration(study).untried_text() == text


def test_many_numbers_are_tried_in_groups() -> None:
    """Of a long axis of numbers, one of each group of neighbours is enough; words are tried each."""
    assert len(strata(parse_axis("threads=1..64"))) == MOST_STRATA
    assert len(strata(parse_axis(f"word={','.join('abcdefghij')}"))) == 10
    study = covered(a_study("threads=1..64"))
    values = {trial.point["threads"] for trial in study.trials}

    assert len(values) == MOST_STRATA
    assert {1, 64} < values


def test_as_many_points_cover_all_values_as_the_longest_axis_has() -> None:
    """In a Latin arrangement, and a condition is met where an axis needs it."""
    study = a_study("batch_size=1,4,16,64", "threads=1,2", "precision=fp32,bf16 if threads=2")
    assert points_to_cover(study) == 4
    study = covered(study)

    assert len(study.trials) == 4
    assert not exploration(study).untried
    assert points_to_cover(study) == 0
    assert {tuple(t.point) for t in study.trials} == {
        ("batch_size", "threads"),
        ("batch_size", "threads", "precision"),
    }


def test_loads_are_no_values_to_cover() -> None:
    """The loads of the default are measured by a rule of their own, and a search stops at a bound."""
    study = a_served_study("instances=1,2", "concurrency=1,2,4,8")

    assert exploration(study).untried == (("instances", (1, 2)),)
    assert all(
        point.keys() == {"instances", "concurrency"} for point in covering_points(study, lambda _point: False)
    )


def test_closed_points_are_not_proposed() -> None:
    """Where all that has a value is closed, nothing covers it."""
    study = tried(a_study("batch_size=1,2"), {"batch_size": 1})

    assert covering_points(study, [{"batch_size": 2}].__contains__) == []


def test_a_value_that_was_never_tried_is_a_doubt() -> None:
    """Nothing is known of it, so the answer is certain of nothing there."""
    study = tried(a_study("batch_size=1,4", goal=make_goal(maximize="throughput")), {"batch_size": 1})
    ranked = ranking(study)

    assert [doubt.code for doubt in ranked.doubts] == ["not-explored", "unverified"]
    assert ranked.doubts[0].seen == "batch_size=4 was never tried, so nothing is known of 1 of 2 points"
    assert not ranked.is_certain(0.9)
    assert ranking(tried(study, {"batch_size": 4})).explored.left == 0
    assert ranking(a_study("batch_size=1,4")).doubts == ()
