"""The inputs of a comparison's sides: whether all were given the same, and what to do if one refuses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.spec.job import Job

FIRST_CALL = "first call"
"""Where a model fails that refuses its inputs by itself."""
OWN_INPUTS = "give each model its own with `baseline_inputs` and `candidate_inputs`"


def share_inputs(jobs: Sequence[Job]) -> bool:
    """Return whether several models were given the same inputs."""
    return len(jobs) > 1 and bool(jobs[0].inputs) and all(job.inputs == jobs[0].inputs for job in jobs)


def name_refusing_side(message: str, side: int, jobs: Sequence[Job]) -> str:
    """Name the model that refused an input, and say how each gets its own if all were given the same."""
    advice = f"; {OWN_INPUTS}" if share_inputs(jobs) else ""
    return f"{jobs[side].model.locator}: {message.rstrip('.')}{advice}."
