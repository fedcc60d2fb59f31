"""What runs a Job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event, Result


class Executor(Protocol):
    """Runs Jobs in an isolated environment."""

    def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
        """Run a Job; a failed run is a Failure in the Result, an invalid request raises."""
