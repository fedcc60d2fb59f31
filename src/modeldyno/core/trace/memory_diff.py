"""What lies in memory at the peak of a call, in two Results: what came, what went, what changed its size."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.errors import RunFailed

if TYPE_CHECKING:
    from modeldyno.core.result.result import Result
    from modeldyno.core.result.trace_data import Activity

Place = tuple[str, str]
"""Path of a module, and the role of what it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldChange:
    """What one module holds in one role, in bytes before and after."""

    scope: str
    role: str
    before: int
    """0 where it is new."""
    after: int
    """0 where it is gone."""

    @property
    def difference(self) -> int:
        """Bytes more than before."""
        return self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChange:
    """Two snapshots of memory at the peak, place by place."""

    held: tuple[HeldChange, ...]
    """All places of either, the largest difference first; what is alike in both comes last."""
    before_in: str = ""
    """The module during which the peak was reached."""
    after_in: str = ""

    @property
    def before(self) -> int:
        """Bytes of all that lay there, weights and inputs included."""
        return sum(each.before for each in self.held)

    @property
    def after(self) -> int:
        """Likewise, in the later one."""
        return sum(each.after for each in self.held)

    @property
    def difference(self) -> int:
        """Bytes more than before: the sum of the differences of all places."""
        return self.after - self.before


def memory_change(baseline: Result, candidate: Result) -> MemoryChange:
    """Compare what two Results hold at the measured peak.

    Raises:
        RunFailed: one of them has no snapshot of memory.
    """
    before, after = _snapshot(baseline), _snapshot(candidate)
    old, new = _sizes(before), _sizes(after)
    rows = (
        HeldChange(scope=scope, role=role, before=old[scope, role], after=new[scope, role])
        for scope, role in {**old, **new}
    )
    return MemoryChange(held=tuple(sorted(rows, key=_rank)), before_in=before.held_in, after_in=after.held_in)


def _snapshot(result: Result) -> Activity:
    found = result.activity
    if found is None or (found.course is None and not found.held):
        raise RunFailed(
            f"The result {result.id} of {result.name} holds no snapshot of memory; profile it with "
            "the probe memory, by a backend whose allocator can be watched, such as torch."
        )
    return found


def _sizes(activity: Activity) -> Counter[Place]:
    sizes: Counter[Place] = Counter()
    for held in activity.held:
        sizes[held.scope, held.role] += held.bytes
    return sizes


def _rank(change: HeldChange) -> tuple[int, int, str, str]:
    return -abs(change.difference), -change.after, change.scope, change.role
