"""What stands for a study where it is compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.base.errors import RequestError
from modeldyno.sweeps.study.ranking import winner
from modeldyno.sweeps.study.study import TrialPurpose
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_studies import a_study

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result
    from modeldyno.sweeps.study.study import Study

BOUND = an_answer("latency.p99", 0.001)


def measured() -> Study:
    """Make a study of two points, the second of which is better, and was verified twice."""
    slow, quick = {"batch_size": 1}, {"batch_size": 2}
    trials = (
        (slow, 100.0, TrialPurpose.SEARCH, "a" * 12),
        (quick, 300.0, TrialPurpose.SEARCH, "b" * 12),
        (quick, 200.0, TrialPurpose.VERIFY, "c" * 12),
        (quick, 201.0, TrialPurpose.VERIFY, "d" * 12),
    )
    return add_trials(
        a_study("batch_size=1,2"),
        [
            replace(a_trial(point, an_answer("throughput", rate), BOUND, stage=stage), result=result)
            for point, rate, stage, result in trials
        ],
    )


def kept(identifier: str) -> Result:
    """Give a Result for any id."""
    return a_result(id=identifier)


def test_the_verified_trials_of_the_best_are_pooled() -> None:
    """Not those for whose luck it was chosen; and it is said that it was chosen."""
    result = winner(measured(), kept)

    assert result.id == "c" * 12
    assert result.processes == 2
    assert result.doubts[-1].code == "study-winner"
    assert "best of 2 points of the study digits" in result.doubts[-1].seen


def test_what_is_left_in_the_store_is_enough() -> None:
    """One of its Results was removed; without any there is nothing to compare."""
    result = winner(measured(), lambda identifier: kept(identifier) if identifier[0] == "d" else None)

    assert (result.id, result.processes) == ("d" * 12, 1)
    with pytest.raises(RequestError, match="of the study digits are not in the store"):
        winner(measured(), lambda _identifier: None)


def test_a_study_that_found_nothing_has_no_winner() -> None:
    """The refusal names it."""
    with pytest.raises(RequestError, match="The study 012345 has no winner"):
        winner(a_study(name=""), kept)
