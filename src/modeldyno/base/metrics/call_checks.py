"""Whether the time of a call is that of the model's work: what a few checked calls of the timed pass show.

Some calls get an input never seen before, and are made again with it; of some the output is read, twice. A
model answers both alike, within what noise and caches explain. The limits are set so that no honest model
crosses them: see `docs/decisions/0040-calls-that-are-checked.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.stats.units import COUNT, RATE, SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInputTimes:
    """Seconds of four calls next to each other, in this order."""

    plain: float
    """With a payload of the cycle, as all calls that are reported."""
    first: float
    """With a new input, whose values are another arrangement of those of the payload."""
    known: float
    """With the payload again."""
    again: float
    """With the new input again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingTimes:
    """Seconds of a call and of what is done with its output afterwards."""

    call: float
    first: float = 0.0
    """Reading every value of the output."""
    again: float = 0.0
    """Reading it once more."""
    ready: float = 0.0
    """Reading values of the same number and kind that are surely there."""
    release: float = 0.0
    """Releasing the output."""
    size: int = 0
    """Bytes of the values; 0 if there are none that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterCalls:
    """What the process did outside the calls of a pass."""

    call: float
    """Seconds of the median call."""
    elapsed: float
    """Seconds of the pass."""
    collected: float
    """Seconds that the garbage collector took within it."""
    threads: float
    """Processor seconds that threads of Python took in a pause after the last call, beyond those that they
    took in one before the first."""


SUSPICIOUS = 2.0
"""Factor between the first call with an input and the next from which on answers look repeated."""
_CLEAR, FEWEST = 20.0, 3
"""A factor that needs only so many new inputs to be believed."""
ENOUGH = 5
"""New inputs that a smaller factor needs; all of them have to show it."""
_LEARNED = 5.0
"""Factor between a new input and one of the cycle that a processor does not explain by what it learned of
the latter: predicted branches save up to three quarters of the time of a walk through trees."""
_SAVED = 5e-6
"""Seconds that must be saved: what a cold cache costs a call of any length is less."""


def answers_repeat(times: Sequence[NewInputTimes]) -> Iterator[Doubt]:
    """Yield a doubt if inputs that were seen before are answered in less time than new ones."""
    for seen, slow, fast, factor in (
        (
            "the same inputs again",
            _firsts(times),
            [max(each.again, each.plain) for each in times],
            SUSPICIOUS,
        ),
        (
            "the cycled ones",
            [min(each.first, each.again) for each in times],
            [each.known for each in times],
            _LEARNED,
        ),
    ):
        ratios = [a / max(b, 1e-9) for a, b in zip(slow, fast, strict=True)]
        believed = len(times) >= ENOUGH or (len(times) >= FEWEST and min(ratios) >= _CLEAR)
        if believed and min(ratios) >= factor and median(slow) - median(fast) >= _SAVED:
            yield Doubt(
                code="answers-repeat",
                seen=f"{len(times)} calls with inputs never seen before took "
                f"{format_quantity(median(slow), SECONDS, 3)}, {seen} "
                f"{format_quantity(median(fast), SECONDS, 3)}: {_factor(median(ratios))} faster",
                advice="measure without what answers inputs that it has seen: those of a service differ",
            )
            return


def _factor(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def looks_repeated(times: Sequence[NewInputTimes]) -> bool:
    """Return whether too few new inputs show so far what `answers_repeat` would say of more."""
    return bool(times) and all(
        each.first >= SUSPICIOUS * max(each.again, each.plain)
        or min(each.first, each.again) >= _LEARNED * each.known
        for each in times
    )


def _firsts(times: Sequence[NewInputTimes]) -> list[float]:
    return [each.first for each in times]


_SHARE = 0.5
"""Share of the time of a call from which on work outside it matters."""
_DEFERRED, _PER_BYTE = 1e-4, 1e-9
"""Seconds, and seconds a byte, that a first reading may take beyond a second one: a copy from a device."""
_AT_LEAST = 3.0
"""Factor between a first reading and a second one, or one of ready values."""
_MOST = 0.75
"""Share of the readings that must show it: each may be disturbed."""
_CONVERSION, _SLOW_BYTE = 5e-5, 1e-8
"""Seconds, and seconds a byte, that converting another library's object may take; more is computing."""
_BEYOND_READY = 4.0
"""Factor on reading values that are ready, which nothing but work explains."""
_RELEASED = 2e-4
"""Seconds of a release beside _PER_BYTE: giving memory back takes a tenth of that a byte."""


def lazy_output(times: Sequence[ReadingTimes]) -> Iterator[Doubt]:
    """Yield a doubt if the work of a call is done, or waited for, when its output is read."""
    if len(times) >= FEWEST and looks_lazy(times):
        call, first, ready = _median_of(times, "call"), _median_of(times, "first"), _median_of(times, "ready")
        yield Doubt(
            code="lazy-output",
            seen=f"a call took {format_quantity(call, SECONDS, 3)}, and reading its output "
            f"{format_quantity(first, SECONDS, 3)}, where reading such values that are ready takes "
            f"{format_quantity(ready, SECONDS, 3)}",
            advice="compute, or wait for the device, within the call: let it return numpy arrays",
        )


def looks_lazy(times: Sequence[ReadingTimes]) -> bool:
    """Return whether most readings show work, however few they are."""
    if not times:
        return False
    ready = _median_of(times, "ready")
    return sum(_does_work(each, ready) for each in times) >= _MOST * len(times)


def _does_work(reading: ReadingTimes, ready: float) -> bool:
    """Return whether a reading waited, or computed; `ready` are the seconds of reading ready values."""
    waited = reading.first - reading.again
    return (
        waited >= max(_SHARE * reading.call, _DEFERRED + _PER_BYTE * reading.size)
        and reading.first >= _AT_LEAST * max(reading.again, ready)
    ) or reading.again >= max(reading.call, _CONVERSION + _SLOW_BYTE * reading.size, _BEYOND_READY * ready)


def _median_of(times: Sequence[ReadingTimes], name: str) -> float:
    return float(median(getattr(each, name) for each in times))


def deferred_work(after: AfterCalls, times: Sequence[ReadingTimes]) -> Iterator[Doubt]:
    """Yield a doubt if work goes on after the calls, in threads or when their outputs are given up."""
    evidence = ""
    if after.threads >= max(5e-4, 2 * after.call):
        evidence = (
            f"threads went on for {format_quantity(after.threads, SECONDS, 2)} of processor time after the "
            f"last call, which took {format_quantity(after.call, SECONDS, 2)}"
        )
    elif after.collected >= _SHARE * after.elapsed:
        evidence = (
            f"the garbage collector took {after.collected / after.elapsed:.0%} of the time, which most "
            "calls do not show"
        )
    elif len(times) >= FEWEST:
        release, size = min(each.release for each in times), max(each.size for each in times)
        if release >= max(_RELEASED + _PER_BYTE * size, _SHARE * after.call):
            evidence = (
                f"releasing an output took {format_quantity(release, SECONDS, 2)} or more, where a call took "
                f"{format_quantity(after.call, SECONDS, 2)}"
            )
    if evidence:
        yield Doubt(
            code="deferred-work",
            seen=evidence,
            advice="do the work within the call, and wait there for the threads that do it",
        )


FASTER_FORMAT = 64.0
"""Factor on a measured peak of float32 that no machine reaches: the tiles of a processor for 8-bit integers
do 64 times the operations of its float32 units, and an accelerator's fastest format 8 to 16 times. Algorithms
that need fewer operations than are counted, as Winograd's (4 times), do not run in that format."""
ORDINARY = 8e9
"""Operations per second that any core reaches in float32: below FASTER_FORMAT of it nothing is measured."""


def beyond_peak(
    flops: float, call: float, cores: int, measure: Callable[[], float | None]
) -> Iterator[Doubt]:
    """Yield a doubt if a call does more operations per second than the machine can do.

    Args:
        flops: counted operations of a call.
        call: seconds of the median call.
        cores: allowed ones.
        measure: returns the measured float32 peak in operations per second, None if it cannot; only called
            where the rate would be doubtful on any processor.
    """
    rate = flops / max(call, 1e-9)
    if rate <= FASTER_FORMAT * ORDINARY * cores:
        return
    peak = measure()
    if peak is not None and rate > FASTER_FORMAT * peak:
        yield Doubt(
            code="beyond-peak",
            seen=f"{format_quantity(flops, COUNT, 3)} operations in {format_quantity(call, SECONDS, 3)} "
            f"would be {format_quantity(rate, RATE, 3)}, {_factor(rate / peak)} what was measured as the "
            f"peak of float32 ({format_quantity(peak, RATE, 3)})",
            advice="something is answered without being computed: look for a table of answers, or for "
            "outputs that are not waited for",
        )


_CLOCKS_DIFFER, _CLOCK_SLACK = 0.05, 0.01
"""Share of the time, and seconds, by which a clock that code sees may differ from ours."""


def replaced_clock(name: str, moved: float, elapsed: float) -> Iterator[Doubt]:
    """Yield a doubt if a clock that the model's code sees moved by other seconds than elapsed."""
    if abs(moved - elapsed) > _CLOCK_SLACK + _CLOCKS_DIFFER * elapsed:
        yield Doubt(
            code="replaced-clock",
            seen=f"{name} moved by {moved:.3g} s while {elapsed:.3g} s passed",
            advice="nothing, if a test freezes time: the times here are right; else look for what does it",
        )
