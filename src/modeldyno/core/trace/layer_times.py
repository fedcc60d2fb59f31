"""From spans, plain times and the cost of watching to the time of each module.

Watching a module costs time: a part of it falls into the module's own span, the rest into that of the
module around it. Both are known (`Toll`), so that a span is told without its own toll and of those of all
that was watched within it. What is left of a module once its children are taken off is its own time,
so that children and own time add up to their parent in each call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.result.trace_data import Layer
from modeldyno.core.stats.units import SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from modeldyno.core.result.trace_data import Span

MISSED_LIMIT = 0.03
"""Part of the plain time by which the sum of the parts may miss it without a doubt."""
TOLL_LIMIT = 0.1
"""Part of the cost of watching to which it is known: what is taken off may be wrong by so much, too."""
UNATTRIBUTED_LIMIT = 0.15
"""Part of the time that may be spent in no module without a doubt."""
CLAMPED_LIMIT = 0.01
"""Part of the time that may be cut off from own times below zero without a doubt."""
OVERHEAD_SHARE = 0.2
"""A part that neither operations nor bytes explain to this share is far from both roofs."""
DISPATCH = 30e-6
"""Seconds that a module may take to start its operators; a shorter one far from both roofs is overhead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toll:
    """Seconds that watching one call of one module adds."""

    inside: float = 0.0
    """To its own span."""
    outside: float = 0.0
    """To the span around it, beyond that."""

    @property
    def whole(self) -> float:
        """To the call of the model."""
        return self.inside + self.outside


def in_place(toll: Toll, more: Sequence[float], spans: int) -> Toll:
    """Scale the cost of watching by what it is in a model, whose own work leaves less of ours in the caches.

    Args:
        toll: as it was measured on work that does nothing.
        more: seconds by which watched calls of the model took longer than plain ones, made in turns.
        spans: watched within each.

    Noise must not make it more than twice as much.
    """
    if not more or not spans or not toll.whole:
        return toll
    scale = min(2.0, max(1.0, median(more) / (spans * toll.whole)))
    return Toll(inside=toll.inside * scale, outside=toll.outside * scale)


def quiet(times: Iterable[float]) -> float:
    """Give the lower quartile of times of the same small work: what is disturbed is longer."""
    found = sorted(times)
    return found[len(found) // 4]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A module, and its calibrated times."""

    layer: Layer
    times: tuple[float, ...]
    """Seconds in each watched call of the model: all calls of the module, with its children."""
    own: tuple[float, ...]
    """The same without its children."""
    output_bytes: int
    """That its last call gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Where the time of a call goes, and how far that is to be trusted."""

    parts: tuple[Part, ...]
    """Parents before their children; the first is the whole."""
    overhead: float
    """Median time of the watched calls, over that of the plain ones."""
    unattributed: float
    """Part of the time that is spent in no module below the whole."""
    missed: float
    """By which part of the plain time the sum of the parts is larger, in the middle of all pairs of calls."""
    surely: float
    """The same in the quarter of the pairs that differ least; 0 where they do not agree which is larger."""
    clamped: float
    """Part of the time that was cut off from own times below zero."""


def attribute(
    calls: Sequence[Sequence[Span]], plain: Sequence[float], toll: Toll, *, containers: bool = True
) -> Attribution:
    """Free the spans of the cost of watching, and sum them up by path.

    Args:
        calls: the spans of each watched call, in the order of their beginning, the first that of the whole.
        plain: seconds of the calls that nobody watched, as many, made in turns with those.
        toll: the cost of watching.
        containers: whether a path that holds modules and is none that is called gets their sum.
    """
    freed = [_freed(spans, toll) for spans in calls]
    called = {span.path for spans in calls for span in spans}
    holders = {path for inner in called for path in _prefixes(inner)} - called if containers else set()
    rows = [_Sums.of(spans, found, holders) for spans, found in zip(calls, freed, strict=True)]
    whole = [found.times[0] for found in freed]
    watched = [spans[0].end - spans[0].begin for spans in calls]
    alone = [found.own[0] / max(found.times[0], _LEAST) for found in freed]
    cut = sum(found.cut for found in freed)
    larger = [a / max(b, _LEAST) - 1 for a, b in zip(whole, plain, strict=True)]
    return Attribution(
        parts=tuple(_parts(calls, rows)),
        overhead=median(watched) / max(median(plain), _LEAST),
        unattributed=median(alone),
        missed=median(larger),
        surely=max(0.0, quiet(larger)) or -max(0.0, quiet(-each for each in larger)),
        clamped=cut / max(sum(whole), _LEAST),
    )


_LEAST = 1e-12
"""Seconds; no call takes less."""


@dataclass(frozen=True, slots=True)
class _Freed:
    times: list[float]
    """Of each span, with its children."""
    own: list[float]
    cut: float
    """Seconds that own times were below zero."""


def _freed(spans: Sequence[Span], toll: Toll) -> _Freed:
    """Take the toll off each span of a call, the innermost first: a parent is no less than its children."""
    within = [0] * len(spans)
    below = [0.0] * len(spans)
    times, own, cut = [0.0] * len(spans), [0.0] * len(spans), 0.0
    for place in range(len(spans) - 1, -1, -1):
        span = spans[place]
        paid = within[place] * toll.whole + (0.0 if span.parent is None else toll.inside)
        rest = span.end - span.begin - paid - below[place]
        cut += max(0.0, -rest)
        own[place] = max(0.0, rest)
        times[place] = below[place] + own[place]
        if span.parent is not None:
            within[span.parent] += within[place] + 1
            below[span.parent] += times[place]
    return _Freed(times, own, cut)


@dataclass(frozen=True, slots=True)
class _Sums:
    """The sums of one call by path."""

    times: Mapping[str, float]
    own: Mapping[str, float]
    calls: Mapping[str, int]

    @classmethod
    def of(cls, spans: Sequence[Span], freed: _Freed, holders: AbstractSet[str]) -> _Sums:
        """Add up; a call within a call of the same module, or of the same holder, is part of that."""
        times: defaultdict[str, float] = defaultdict(float)
        own: defaultdict[str, float] = defaultdict(float)
        calls: defaultdict[str, int] = defaultdict(int)
        around: list[frozenset[str]] = []
        for place, span in enumerate(spans):
            outer = frozenset() if span.parent is None else around[span.parent]
            paths = {span.path, *(path for path in _prefixes(span.path) if path in holders)}
            around.append(outer | paths)
            calls[span.path] += 1
            own[span.path] += freed.own[place]
            for path in paths - outer:
                times[path] += freed.times[place]
        return cls(times, own, calls)


def _prefixes(path: str) -> Iterator[str]:
    """Give the paths around a path, the outermost first; not the whole."""
    for place, character in enumerate(path):
        if character == ".":
            yield path[:place]


def _parts(calls: Sequence[Sequence[Span]], rows: Sequence[_Sums]) -> Iterator[Part]:
    last = {span.path: span for spans in calls for span in spans}
    for path in _ordered(calls, {path for row in rows for path in row.times}):
        found = last.get(path)
        count = sum(row.calls.get(path, 0) for row in rows) / len(rows)
        kind, output = (found.kind, found.output) if found else ("", "")
        yield Part(
            layer=Layer(path=path, kind=kind, calls=count, output=output),
            times=tuple(row.times.get(path, 0.0) for row in rows),
            own=tuple(row.own.get(path, 0.0) for row in rows),
            output_bytes=found.output_bytes if found else 0,
        )


def _ordered(calls: Sequence[Sequence[Span]], known: set[str]) -> Iterable[str]:
    """Put paths in the order in which they began, parents before their children."""
    order: dict[str, None] = {}
    for spans in calls:
        for span in spans:
            if span.path not in order:
                order.update(dict.fromkeys(path for path in _prefixes(span.path) if path in known))
                order[span.path] = None
    return order


# -- doubts -------------------------------------------------------------------------------------------


def doubts_of(found: Attribution, plain: Sequence[float], *, everything: bool) -> Iterator[Doubt]:
    """Say where the parts cannot be trusted; `everything` is whether all modules were watched."""
    time = format_quantity(median(plain), SECONDS, 3)
    if abs(found.surely) > MISSED_LIMIT + TOLL_LIMIT * max(0.0, found.overhead - 1):
        yield Doubt(
            code="parts-differ",
            seen=f"the layers add up to {1 + found.missed:.1%} of the {time} that a call takes "
            "when nobody watches, and three in four pairs of calls agree that they differ",
            advice="watch fewer modules with --layers, a larger batch, or on a quieter machine",
        )
    if everything and len(found.parts) > 1 and found.unattributed > UNATTRIBUTED_LIMIT:
        yield Doubt(
            code="unattributed",
            seen=f"{found.unattributed:.1%} of the time of a call is spent in no module",
            advice="look for work in the model's own forward, or for the cost of the call itself",
        )
    if found.clamped > CLAMPED_LIMIT:
        yield Doubt(
            code="overlapping",
            seen=f"own times below zero were taken for zero, {found.clamped:.1%} of the time in all",
            advice="modules run side by side, or take less time than watching them; "
            "read their sum, not each of them",
        )


# -- roofline -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a part stands on the roofline."""

    bound: str
    """``compute`` or ``memory``; where they explain little of the time ``overhead`` if each call of a module
    is about as short as starting it, or else ``neither``."""
    share: float
    """Of the bound that is achieved; 1 is the roof."""
    to_win: float
    """Seconds that it takes beyond its bound."""


def placed(seconds: float, compute: float, memory: float, calls: float = 1.0) -> Placed | None:
    """Place a part by its time, and by the seconds for its operations and for its bytes at the peaks.

    `calls` are those of modules that share this time, that of the part itself among them.

    None where it has neither operations nor bytes, or takes no time.
    """
    bound = max(compute, memory)
    if not bound or not seconds:
        return None
    share = bound / seconds
    roof = "compute" if compute >= memory else "memory"
    return Placed(
        bound=roof if share >= OVERHEAD_SHARE else "overhead" if seconds <= DISPATCH * calls else "neither",
        share=share,
        to_win=max(0.0, seconds - bound),
    )
