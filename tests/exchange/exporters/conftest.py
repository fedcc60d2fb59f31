from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.sweeps.study.study import Trial, TrialState
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_studies import a_study

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result
    from modeldyno.sweeps.study.study import Study


@pytest.fixture
def study() -> tuple[Study, dict[str, Result]]:
    """A study of three trials, of which one has lost its result, and a skipped one."""
    results = {name: replace(a_result(), id=name) for name in ("aaaaaaaaaaa1", "aaaaaaaaaaa2")}
    trials = tuple(
        Trial(number=number, point={"batch_size": number}, state=state, result=result)
        for number, (state, result) in enumerate(
            (
                (TrialState.DONE, "aaaaaaaaaaa1"),
                (TrialState.FAILED, "aaaaaaaaaaa2"),
                (TrialState.DONE, "ffffffffffff"),
                (TrialState.SKIPPED, ""),
            ),
            1,
        )
    )
    return replace(a_study(), trials=trials), results
