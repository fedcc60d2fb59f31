"""A line behind a profile that points to what may be done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.cli.printing import print_blocks
from modeldyno.core.advice.rules import findings
from modeldyno.views.advice.findings import pointer

if TYPE_CHECKING:
    from modeldyno.core.result.result import Result


def point(result: Result) -> None:
    """Print it, where there is anything."""
    found = pointer(result, findings(result, plugins.knobs(result.job.backend)))
    if found is not None:
        print_blocks(found)
