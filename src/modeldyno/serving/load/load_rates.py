"""Rates of a load: requests, samples and tokens per second, and requests in flight.

One definition serves all of them: what a request is worth - 1, its samples, its tokens - is spread evenly
over the time from its sending to its last byte, and the part within the window counts. Requests of a closed
loop end in cohorts, all slots within milliseconds, so to count ends would tell where the window happens to
begin. Spread out, a request that spent a third of its time in the window counts a third; that of a user who
thinks is spread over the thinking before it, too, as users who began together think together. Wherever a
window lies in a stationary load, the expected count is the rate times its length, as each request gives all
that it is worth to time once (Campbell's theorem). See docs/decisions/0039-rates-of-long-answers.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import (
    CLIENT_LIMITED,
    LITTLE_LAW,
    SATURATED,
    SHORT_LOAD,
    observed_number,
    ratio_number,
)
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.stats import statistics
from modeldyno.base.stats.statistics import Samples
from modeldyno.base.stats.units import RATE, SECONDS, format_percent, format_quantity
from modeldyno.serving.load.answer_times import keeps_bounds
from modeldyno.serving.load.request_log import sample_records
from modeldyno.serving.load.steady_window import NANO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.serving.load.request_log import Column, Records
    from modeldyno.serving.load.steady_window import SteadyWindow

_MOST_PARTS, _FEW_PARTS = 64, 15
"""Parts of the window whose counts give the interval of a rate: of one that holds as many long answers, or
else at most so many that they need not show how they are correlated. None is shorter than a long answer, so
that parts share no request but across their common edge."""
_LEAST_ANSWERS = 2
"""Long answers, one after the other, that a window must hold."""
_LONG = 0.9
"""Share of the time in flight that is spent in answers no longer than a long one."""
_LITTLE = 0.1
"""Largest difference between the two sides of Little's law."""
_SAMPLE = 200_000
"""Requests sampled to find the time of a long answer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Counts:
    """What each part of a window holds of its requests."""

    requests: Samples
    """Requests answered well."""
    answers: Samples
    """The same, spread over their time in flight alone."""
    tokens: Samples
    """Their tokens."""
    prompts: Samples
    """Tokens of their prompts; NaN if those of any are unknown."""
    good: Samples
    """Those of them whose answer keeps the bounds of the load."""
    in_flight: Samples
    """Seconds of all requests in flight, however they ended."""
    answering: Samples
    """Seconds of those that were answered well, or that the end of the load cut off."""
    service: float
    """Mean seconds that those took, or had waited, which were due in the window; 0 of none."""


def rates(window: SteadyWindow, why: str) -> Iterator[Measurement]:
    """Yield the rates of a load, and its mean number of requests in flight.

    A rate that is withheld is left out; `rate_doubts` says why.

    Args:
        window: the steady window.
        why: why its latency is void, if it is.
    """
    long = _long_answer(window)
    parts = _parts(window, long)
    counts, seconds = _count(window, why, parts), (window.seconds / parts,) * parts
    if not any(_withheld(window, counts, long, why)):
        yield ratio_number("throughput", counts.requests * window.samples, seconds)
        yield ratio_number("request_rate", counts.requests, seconds)
        if counts.tokens.any():
            yield ratio_number("token_rate", counts.tokens, seconds)
        if counts.prompts.any() and not statistics.load_numpy().isnan(counts.prompts).any():
            yield ratio_number("prompt_token_rate", counts.prompts, seconds)
        if window.load.times_of_good_answers:
            yield ratio_number("goodput", counts.good, seconds)
    if not window.load.closed and why != CLIENT_LIMITED:  # a limited client may not log what was due
        yield observed_number("offered_rate", (len(window.due()) + window.backlog) / window.seconds)
    yield ratio_number("in_flight", counts.in_flight, seconds)


def count_parts(window: SteadyWindow) -> int:
    """Return into how many nearly independent parts a window is cut: none is shorter than a long answer."""
    return _parts(window, _long_answer(window))


def _parts(window: SteadyWindow, long: float) -> int:
    parts = int(min(_MOST_PARTS, window.seconds / long)) if long else _MOST_PARTS
    return parts if parts == _MOST_PARTS else max(_LEAST_ANSWERS, min(parts, _FEW_PARTS))


def rate_doubts(window: SteadyWindow, why: str) -> Iterator[Doubt]:
    """Yield the reason to withhold the rates, if there is one; `why` is why the latency is void."""
    yield from _withheld(window, _count(window, why, 1), _long_answer(window), why)


def _count(window: SteadyWindow, why: str, places: int) -> _Counts:
    """Count the requests of a window, in so many parts of it, in one pass over the log.

    In an overload no request in flight is like the others, as each waits longer: it counts when it ends.
    """
    np = statistics.load_numpy()
    sums = {
        name: np.zeros(places)
        for name in ("requests", "tokens", "prompts", "good", "answers", "in_flight", "answering")
    }
    bounds, is_cut_off = window.load.times_of_good_answers, _cut_off(window)
    times, answers = 0.0, 0
    for part in window.records.parts():
        fine, prompts = part.fine, window.prompt_tokens_of(part)
        worth = {
            "requests": fine.astype(float),
            "tokens": np.where(fine, np.maximum(part.tokens, 0), 0),
            "prompts": np.where(fine, np.where(prompts < 0, np.nan, prompts), 0),
            "good": keeps_bounds(bounds, part).astype(float),
        }
        since = part.end if why == SATURATED else _begin(part)
        for name, amounts in worth.items():
            sums[name] += _spread(window, places, since, part.end, amounts)
        sums["answers"] += _spread(window, places, part.sent, part.end, worth["requests"])
        seconds = np.where(fine | (part.sent > 0), part.end - part.sent, 0) * NANO
        sums["in_flight"] += _spread(window, places, part.sent, part.end, seconds)
        waiting = fine | is_cut_off(part)
        sums["answering"] += _spread(window, places, part.sent, part.end, np.where(waiting, seconds, 0))
        due = waiting & (part.due >= window.begin) & (part.due < window.end)
        times, answers = times + float(seconds[due].sum()), answers + int(due.sum())
    return _Counts(**sums, service=times / answers if answers else 0.0)


def _cut_off(window: SteadyWindow) -> Callable[[Records], Column]:
    """Return what says which requests were on their way to an answer when the load ended.

    Where a server lets others wait for longer than the client does, these may be no answers either.
    """
    hangs = any((part.outcome == RequestOutcome.TIMEOUT).any() for part in window.records.parts())
    return lambda part: (part.outcome == RequestOutcome.CANCELLED) & (part.sent > 0) & (not hangs)


def _begin(part: Records) -> Column:
    """Return when each request was sent, or when its user began to think before it."""
    pause = part.turn("think_time")
    begin: Column = statistics.load_numpy().where(pause > 0, part.due - pause, part.sent)
    return begin


def _spread(window: SteadyWindow, places: int, begin: Column, end: Column, amounts: Column) -> Samples:
    """Return the sum of amounts in each part of the window, each spread evenly from its begin to its end."""
    np = statistics.load_numpy()
    here = (amounts != 0) & (end > window.begin) & (begin < window.end)
    edges = np.linspace(0, window.end - window.begin, places + 1)
    begin, end, amounts = begin[here] - window.begin, end[here] - window.begin, amounts[here]
    first, last = (np.searchsorted(edges, times, side="right") - 1 for times in (begin, end))
    inside = (first == last) & (first >= 0) & (last < places)
    sums: Samples = np.bincount(first[inside], weights=amounts[inside], minlength=places).astype(float)
    # Few cross an edge: at most as many as are in flight then.
    begin, end, amounts = begin[~inside], end[~inside], amounts[~inside]
    density = amounts / np.maximum(end - begin, 1)
    for place in range(places):
        overlap = np.minimum(end, edges[place + 1]) - np.maximum(begin, edges[place])
        sums[place] += float((np.maximum(overlap, 0) * density).sum())
    return sums


def _withheld(window: SteadyWindow, counts: _Counts, long: float, why: str) -> Iterator[Doubt]:
    """Yield the reason why the rates of a window cannot be told.

    In an overload neither rule holds: its latency has no steady value.
    """
    if why == SATURATED or not counts.answering.any():
        return
    if window.seconds < _LEAST_ANSWERS * long:
        what = "answers" if window.load.think_time is None else "turns, with the time to think,"
        yield Doubt(
            code=SHORT_LOAD,
            seen=f"the steady window of {format_quantity(window.seconds, SECONDS, 2)} holds no two {what} "
            f"of {format_quantity(long, SECONDS, 2)}, one after the other: its rates are withheld",
            advice="give it more time with `max_time`, or measure "
            f"{format_quantity((_LEAST_ANSWERS + 1) * long, SECONDS, 2)} with `duration`",
        )
        return
    rate, in_flight = (float(each.sum()) / window.seconds for each in (counts.answers, counts.answering))
    if abs(rate * counts.service / in_flight - 1) > _LITTLE:
        yield Doubt(
            code=LITTLE_LAW,
            seen=f"{format_quantity(rate, RATE, 3)} times {format_quantity(counts.service, SECONDS, 3)} of a "
            f"request is {format_percent(rate * counts.service / in_flight)} of the {in_flight:.3g} requests "
            "in flight, which Little's law forbids in a steady state: the rates are withheld",
            advice="measure for longer with `duration`, and look for a server that slows down",
        )


def _long_answer(window: SteadyWindow) -> float:
    """Return the seconds of an answer such that nine tenths of the time in flight are in no longer ones.

    The time that its user thinks before it belongs to it. A single request that hangs is no measure of a
    thousand others. 0 if nothing was in flight.
    """
    np, is_cut_off = statistics.load_numpy(), _cut_off(window)
    requests = sample_records(window.overlapping().where(lambda part: part.fine | is_cut_off(part)), _SAMPLE)
    if not len(requests):
        return 0.0
    seconds = np.sort(requests.end - _begin(requests)) * NANO
    total = np.cumsum(seconds)
    return float(seconds[min(int(np.searchsorted(total, _LONG * total[-1])), seconds.size - 1)])
