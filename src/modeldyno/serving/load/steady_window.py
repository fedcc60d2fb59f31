"""The steady window of a load: what of its log is measured, and how it was found.

A request belongs to it if it was due in it, and is followed to its end even if that comes later, so that slow
requests are not left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.job.load_spec import Load
from modeldyno.base.stats import statistics
from modeldyno.serving.load.request_log import FilteredRecords, RecordParts, Records

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.serving.load.request_log import Column

NANO = 1e-9
_BINS = 4096
"""Bins of the window in which requests are counted to find the first n."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSums:
    """What a driver did from each reading of its counters to the next."""

    cpu: tuple[float, ...]
    """Seconds of processor time."""
    wall: tuple[float, ...]
    """Seconds in which it was used."""
    sent: tuple[int, ...]
    """Requests sent."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SteadyWindow:
    """The steady window of a load."""

    records: RecordParts
    """Log of the whole load, drain included."""
    begin: int
    """Nanoseconds of the monotonic clock."""
    end: int
    load: Load
    samples: int = 1
    """Samples per request."""
    prompt_tokens: tuple[int, ...] = ()
    """Tokens of each message's prompt, as the server counts them, -1 if it does not say; empty: unknown."""
    clients: tuple[float, ...] = ()
    """Cores that each driver kept busy."""
    drivers: tuple[DriverSums, ...] = ()
    """What their processor time is the sum of; empty if that is not known."""
    backlog: int = 0
    """Requests that were due but not yet sent at the end."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """How the window was found: metadata for a Distribution."""

    @property
    def seconds(self) -> float:
        """Length of the window in seconds."""
        return max(self.end - self.begin, 1) * NANO

    def due(self) -> FilteredRecords:
        """Return the requests that were due in it."""
        return self._chosen(lambda part: self._holds(part.due))

    def sent(self) -> FilteredRecords:
        """Return the requests that were sent in it, whenever they were due and however they ended."""
        return self._chosen(lambda part: self._holds(part.sent))

    def overlapping(self) -> FilteredRecords:
        """Return the requests that were in flight at some time of it, however they ended."""
        return self._chosen(lambda part: (part.sent < self.end) & (part.end > self.begin))

    def done(self) -> FilteredRecords:
        """Return the requests that were answered well in it."""
        return self._chosen(lambda part: self._holds(part.end) & part.fine)

    def prompt_tokens_of(self, part: Records) -> Column:
        """Return the tokens of the prompt of each request, that of a chat as it was sent; -1 if unknown."""
        if len(part.turns):
            return part.turn("prompt_tokens")
        known = statistics.load_numpy().array(self.prompt_tokens or (-1,), "int64")
        tokens: Column = known[part.message % known.size]
        return tokens

    def first(self, count: int) -> SteadyWindow:
        """Cut the window to the first `count` requests due in it, ending when the next one is due.

        Requests due at the same time, such as those of a burst, stay together.
        """
        dues = _first_due(self.due(), count + 1, (self.begin, self.end))
        if dues.size <= count:
            return self
        later = dues[dues > dues[count - 1]]
        end = later[0] if later.size else dues[count - 1] + 1
        return replace(self, begin=int(dues[0]), end=int(end), backlog=0)

    def _chosen(self, holds: Callable[[Records], Column]) -> FilteredRecords:
        return FilteredRecords(records=self.records, holds=holds)

    def _holds(self, times: Column) -> Column:
        within: Column = (times >= self.begin) & (times < self.end)
        return within


def _first_due(records: RecordParts, count: int, span: tuple[int, int]) -> Column:
    """Return the sorted due times of the first `count` requests, and of some shortly after them.

    Requests are counted in narrow bins first, so that later ones take no memory.
    """
    np = statistics.load_numpy()
    edges = np.linspace(*span, _BINS + 1)
    counts = np.zeros(_BINS)
    for part in records.parts():
        counts += np.histogram(part.due, edges)[0]
    last = edges[min(int(np.searchsorted(counts.cumsum(), count)) + 1, _BINS)]
    dues = [part.due[part.due <= last] for part in records.parts()]
    first_dues: Column = np.sort(np.concatenate(dues)) if dues else np.empty(0, "int64")
    return first_dues
