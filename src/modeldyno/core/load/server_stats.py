"""What a server says of its own work: counters that only grow, and what happened between two looks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A server's counters of one model; times are summed over requests, in seconds.

    None is what this server does not tell.
    """

    requests: int
    """Answered well."""
    failures: int = 0
    samples: int | None = None
    executions: int | None = None
    """Calls of the model; several requests may share one."""
    queue: float | None = None
    compute_input: float | None = None
    compute: float | None = None
    compute_output: float | None = None
    batches: dict[int, int] = field(default_factory=dict)
    """Size of a batch that was formed, to how often."""

    def since(self, before: Account) -> Account:
        """Give what was added after another look."""
        added: dict[str, Any] = {name: _less(getattr(self, name), getattr(before, name)) for name in _SUMS}
        batches = {size: count - before.batches.get(size, 0) for size, count in self.batches.items()}
        return replace(self, **added, batches={size: count for size, count in batches.items() if count})


_SUMS = (
    "requests", "failures", "samples", "executions", "queue", "compute_input", "compute", "compute_output",
)  # fmt: skip


def _less(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before
