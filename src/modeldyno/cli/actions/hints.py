"""The line after a profile that points to its findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.cli.actions.printing import print_blocks
from modeldyno.core.advice.rules import findings
from modeldyno.views.advice.findings import pointer

if TYPE_CHECKING:
    from modeldyno.core.result.result import Result


def print_hint(result: Result) -> None:
    """Print a pointer to the findings of a result, if there are any."""
    job = result.job
    knobs = plugins.knobs(job.backend)
    hint = pointer(result, findings(result, knobs), knobs, plugins.loader(job.model.scheme).backend)
    if hint is not None:
        print_blocks(hint)
