"""Time of each module: from the spans of hooked calls, the times of unhooked calls, and the hook overhead.

Hooks cost time: part of it falls into the module's own span, the rest into that of the module around it. Both
are known (`HookOverhead`), so that a span is reported without its own overhead and that of all hooked modules
within it. A module's own time is its time without its children, so that children and own time add up to
their parent in each call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.trace_data import Layer
from modeldyno.base.stats.units import SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from modeldyno.base.result.trace_data import Span

MISSED_LIMIT = 0.03
"""Fraction of the unhooked time by which the sum of the parts may differ from it without a doubt."""
TOLL_LIMIT = 0.1
"""Relative error of the hook overhead: what is subtracted may be wrong by so much, too."""
UNATTRIBUTED_LIMIT = 0.15
"""Fraction of the time that may be spent in no module without a doubt."""
CLAMPED_LIMIT = 0.01
"""Fraction of the time that may be cut off negative own times without a doubt."""
OVERHEAD_SHARE = 0.2
"""A part whose roofline bound is less than this share of its time is far from both roofs."""
DISPATCH = 30e-6
"""Seconds that a module may take to launch its operators; a shorter one far from both roofs is overhead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOverhead:
    """Seconds that the hooks of one call of one module add."""

    inside: float = 0.0
    """To the module's own span."""
    outside: float = 0.0
    """To the span around it, in addition."""

    @property
    def whole(self) -> float:
        """To the call of the model: both together."""
        return self.inside + self.outside


def scale_overhead_to_model(overhead: HookOverhead, more: Sequence[float], spans: int) -> HookOverhead:
    """Scale the hook overhead to what it is in the model, whose own work evicts the hooks from the caches.

    Args:
        overhead: as measured on modules that do nothing.
        more: seconds by which hooked calls of the model took longer than unhooked ones, interleaved.
        spans: number of hooked module calls in each.

    The scale is limited to 2, as a guard against noise.
    """
    if not more or not spans or not overhead.whole:
        return overhead
    scale = min(2.0, max(1.0, median(more) / (spans * overhead.whole)))
    return HookOverhead(inside=overhead.inside * scale, outside=overhead.outside * scale)


def lower_quartile(times: Iterable[float]) -> float:
    """Return the lower quartile of times of the same work: disturbances only make it longer."""
    ordered = sorted(times)
    return ordered[len(ordered) // 4]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedModule:
    """A module and its times, hook overhead subtracted."""

    layer: Layer
    times: tuple[float, ...]
    """Seconds in each hooked call of the model: all calls of the module, with its children."""
    own: tuple[float, ...]
    """The same without its children."""
    output_bytes: int
    """Bytes of the output of its last call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Where the time of a call goes, and how far to trust that."""

    parts: tuple[TimedModule, ...]
    """Parents before their children; the first is the whole."""
    overhead: float
    """Median time of the hooked calls, over that of the unhooked ones."""
    unattributed: float
    """Fraction of the time that is spent in no module below the whole."""
    missed: float
    """Relative excess of the sum of the parts over the unhooked time: median over all pairs of calls."""
    surely: float
    """The same at the quartile nearest to zero; 0 where the quartiles differ in sign."""
    clamped: float
    """Fraction of the time that was cut off negative own times."""


def attribute_module_times(
    calls: Sequence[Sequence[Span]],
    plain: Sequence[float],
    overhead: HookOverhead,
    *,
    containers: bool = True,
) -> Attribution:
    """Subtract the hook overhead from spans, and sum them by path.

    Args:
        calls: the spans of each hooked call, in the order of their begin, the first that of the whole.
        plain: seconds of as many unhooked calls, interleaved with the hooked ones.
        overhead: the hook overhead.
        containers: whether a path that only contains modules, and is never called, gets their sum.
    """
    calibrated = [_subtract_overhead(spans, overhead) for spans in calls]
    called = {span.path for spans in calls for span in spans}
    holders = {path for inner in called for path in _parent_paths(inner)} - called if containers else set()
    rows = [_SumsByPath.of(spans, call, holders) for spans, call in zip(calls, calibrated, strict=True)]
    totals = [call.times[0] for call in calibrated]
    hooked = [spans[0].end - spans[0].begin for spans in calls]
    unattributed = [call.own[0] / max(call.times[0], _LEAST) for call in calibrated]
    cut = sum(call.cut for call in calibrated)
    excess = [a / max(b, _LEAST) - 1 for a, b in zip(totals, plain, strict=True)]
    return Attribution(
        parts=tuple(_make_parts(calls, rows)),
        overhead=median(hooked) / max(median(plain), _LEAST),
        unattributed=median(unattributed),
        missed=median(excess),
        surely=max(0.0, lower_quartile(excess))
        or -max(0.0, lower_quartile(-difference for difference in excess)),
        clamped=cut / max(sum(totals), _LEAST),
    )


_LEAST = 1e-12
"""Seconds; no call takes less."""


@dataclass(frozen=True, slots=True)
class _CalibratedCall:
    times: list[float]
    """Of each span, with its children."""
    own: list[float]
    cut: float
    """Seconds cut off negative own times."""


def _subtract_overhead(spans: Sequence[Span], overhead: HookOverhead) -> _CalibratedCall:
    """Subtract the overhead from each span of a call; a parent takes at least as long as its children."""
    hooked_within = [0] * len(spans)
    children = [0.0] * len(spans)
    times, own, cut = [0.0] * len(spans), [0.0] * len(spans), 0.0
    for index in range(len(spans) - 1, -1, -1):
        span = spans[index]
        hooks = hooked_within[index] * overhead.whole + (0.0 if span.parent is None else overhead.inside)
        own_time = span.end - span.begin - hooks - children[index]
        cut += max(0.0, -own_time)
        own[index] = max(0.0, own_time)
        times[index] = children[index] + own[index]
        if span.parent is not None:
            hooked_within[span.parent] += hooked_within[index] + 1
            children[span.parent] += times[index]
    return _CalibratedCall(times, own, cut)


@dataclass(frozen=True, slots=True)
class _SumsByPath:
    """The sums of one call by path."""

    times: Mapping[str, float]
    own: Mapping[str, float]
    calls: Mapping[str, int]

    @classmethod
    def of(cls, spans: Sequence[Span], calibrated: _CalibratedCall, holders: AbstractSet[str]) -> _SumsByPath:
        """Sum by path; a call within a call of the same module or container is part of that."""
        times: defaultdict[str, float] = defaultdict(float)
        own: defaultdict[str, float] = defaultdict(float)
        calls: defaultdict[str, int] = defaultdict(int)
        enclosing: list[frozenset[str]] = []
        for index, span in enumerate(spans):
            outer = frozenset() if span.parent is None else enclosing[span.parent]
            paths = {span.path, *(path for path in _parent_paths(span.path) if path in holders)}
            enclosing.append(outer | paths)
            calls[span.path] += 1
            own[span.path] += calibrated.own[index]
            for path in paths - outer:
                times[path] += calibrated.times[index]
        return cls(times, own, calls)


def _parent_paths(path: str) -> Iterator[str]:
    """Yield the parents of a path, the outermost first, without the whole."""
    for index, character in enumerate(path):
        if character == ".":
            yield path[:index]


def _make_parts(calls: Sequence[Sequence[Span]], rows: Sequence[_SumsByPath]) -> Iterator[TimedModule]:
    last = {span.path: span for spans in calls for span in spans}
    for path in _in_call_order(calls, {path for row in rows for path in row.times}):
        last_span = last.get(path)
        count = sum(row.calls.get(path, 0) for row in rows) / len(rows)
        kind, output = (last_span.kind, last_span.output) if last_span else ("", "")
        yield TimedModule(
            layer=Layer(path=path, kind=kind, calls=count, output=output),
            times=tuple(row.times.get(path, 0.0) for row in rows),
            own=tuple(row.own.get(path, 0.0) for row in rows),
            output_bytes=last_span.output_bytes if last_span else 0,
        )


def _in_call_order(calls: Sequence[Sequence[Span]], known_paths: set[str]) -> Iterable[str]:
    """Return paths in the order of their first span, parents before their children."""
    order: dict[str, None] = {}
    for spans in calls:
        for span in spans:
            if span.path not in order:
                order.update(dict.fromkeys(path for path in _parent_paths(span.path) if path in known_paths))
                order[span.path] = None
    return order


# -- doubts -------------------------------------------------------------------------------------------


def attribution_doubts(
    attribution: Attribution, plain: Sequence[float], *, everything: bool
) -> Iterator[Doubt]:
    """Yield doubts about an attribution; `everything` is whether all modules were hooked."""
    time = format_quantity(median(plain), SECONDS, 3)
    if abs(attribution.surely) > MISSED_LIMIT + TOLL_LIMIT * max(0.0, attribution.overhead - 1):
        yield Doubt(
            code="parts-differ",
            seen=f"the layers add up to {1 + attribution.missed:.1%} of the {time} that a call takes "
            "without hooks, and three in four pairs of calls agree that they differ",
            advice="hook fewer modules with `layers`, use a larger batch or a quieter machine",
        )
    if everything and len(attribution.parts) > 1 and attribution.unattributed > UNATTRIBUTED_LIMIT:
        yield Doubt(
            code="unattributed",
            seen=f"{attribution.unattributed:.1%} of the time of a call is spent in no module",
            advice="look for work in the model's own forward, or for the cost of the call itself",
        )
    if attribution.clamped > CLAMPED_LIMIT:
        yield Doubt(
            code="overlapping",
            seen=f"negative own times were set to zero, {attribution.clamped:.1%} of the time in total",
            advice="modules run in parallel, or take less time than their hooks; "
            "read their sum, not each of them",
        )


# -- roofline -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePosition:
    """The position of a part on the roofline."""

    bound: str
    """``compute`` or ``memory``; far from both roofs ``overhead`` if each call takes about as long as its
    launch, else ``neither``."""
    share: float
    """Fraction of the bound that is achieved; 1 is the roof."""
    to_win: float
    """Seconds beyond its bound."""


RESOLVED = 10
"""Ticks of a clock from which on a time is resolved: rounding, and an overhead that is subtracted, are less
than a tenth of it."""


def is_resolved(seconds: float, tick: float) -> bool:
    """Return whether a time is long enough for the clock that counted it, in ticks of so many seconds."""
    return seconds >= RESOLVED * tick


def locate_on_roofline(
    seconds: float, compute: float, memory: float, calls: float = 1.0
) -> RooflinePosition | None:
    """Return the position of a part, given its time and the seconds of its operations and bytes at the peaks.

    `calls` is the number of module calls in this time, that of the part itself included.

    None where it has neither operations nor bytes, or takes no time.
    """
    bound = max(compute, memory)
    if not bound or not seconds:
        return None
    share = bound / seconds
    roof = "compute" if compute >= memory else "memory"
    return RooflinePosition(
        bound=roof if share >= OVERHEAD_SHARE else "overhead" if seconds <= DISPATCH * calls else "neither",
        share=share,
        to_win=max(0.0, seconds - bound),
    )
