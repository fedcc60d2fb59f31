"""What a run of a Job begins with, and the doubt that it ends with when it is interrupted.

The parent process needs no more of the engine than this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.result.result import Result
from modeldyno.identity import new_identity

if TYPE_CHECKING:
    from modeldyno.core.spec.job import Job

INTERRUPTED = Doubt(
    code="interrupted",
    seen="the run was interrupted before it finished",
    advice="run it again to the end before drawing conclusions from it",
)


def empty_result(job: Job) -> Result:
    """Return the empty Result with which a run of this Job begins."""
    return Result(job=job, **new_identity())
