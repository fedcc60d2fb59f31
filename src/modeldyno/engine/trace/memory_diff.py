"""Compare what is in memory at the peak of a call in two Results."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.errors import RunFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from modeldyno.base.result.result import Result
    from modeldyno.base.result.static_data import MemoryItem
    from modeldyno.base.result.trace_data import TraceReport


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
    """The difference of two memory snapshots at the peak, by module and role."""

    held: tuple[HeldChange, ...]
    """All modules and roles of either, the largest difference first, the unchanged ones last."""
    before_in: str = ""
    """The module during which the peak was reached."""
    after_in: str = ""

    @property
    def before(self) -> int:
        """Bytes held at the peak, weights and inputs included."""
        return sum(change.before for change in self.held)

    @property
    def after(self) -> int:
        """Bytes held at the peak of the later one."""
        return sum(change.after for change in self.held)

    @property
    def difference(self) -> int:
        """Bytes more than before: the sum of all differences."""
        return self.after - self.before


def memory_change(baseline: Result, candidate: Result) -> MemoryChange:
    """Compare what two Results hold at the measured peak.

    Raises:
        RunFailed: one of them has no memory snapshot.
    """
    before, after = _snapshot(baseline), _snapshot(candidate)
    changes = sorted(held_changes(before.held, after.held), key=_sort_key)
    return MemoryChange(held=tuple(changes), before_in=before.held_in, after_in=after.held_in)


def held_changes(
    before: Iterable[MemoryItem], after: Iterable[MemoryItem], new_paths: Mapping[str, str] | None = None
) -> Iterator[HeldChange]:
    """Yield what each module holds in each role before and after; `new_paths` maps renamed modules."""
    old: Counter[tuple[str, str]] = Counter()
    new: Counter[tuple[str, str]] = Counter()
    for item in before:
        old[(new_paths or {}).get(item.scope, item.scope), item.role] += item.bytes
    for item in after:
        new[item.scope, item.role] += item.bytes
    for scope, role in {**old, **new}:
        yield HeldChange(scope=scope, role=role, before=old[scope, role], after=new[scope, role])


def _snapshot(result: Result) -> TraceReport:
    activity = result.activity
    if activity is None or (activity.course is None and not activity.held):
        raise RunFailed(
            f"The result {result.id} of {result.name} has no memory snapshot; profile it with "
            "the probe memory, on a backend whose allocator can be recorded, such as torch."
        )
    return activity


def _sort_key(change: HeldChange) -> tuple[int, int, str, str]:
    return -abs(change.difference), -change.after, change.scope, change.role
