"""Bounds on percentiles of the times of a load: whether they are decided, and how long that may take."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Answer, Verdict
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement
from modeldyno.base.metrics.metric import METRICS, fraction_of
from modeldyno.base.stats.statistics import certified_floor, extreme_floor, rank_interval
from modeldyno.base.stats.units import SECONDS
from modeldyno.serving.load.load_analysis import request_times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.serving.load.steady_window import SteadyWindow

LONGEST = 600.0
"""Most seconds for which a load whose time nobody set goes on for a bound."""
_CLEAR = 1.1
"""Factor between an interval and a bound with which it counts as decided: looking again and again at what is
close would find it decided by chance."""
_WORTH = 0.5
"""Least effective size of all answers, as a share of the rounds that are needed: else slow spells may outlast
them."""
_LOOKS = 1.5
"""Rounds that count as one independent answer, as a load is looked at again and again."""
_GROWTH = 1.2
"""Growth of the steady phase from one look to the next."""
_ENDS = 2
"""Rounds of a window, at its ends, that may not be answered within it."""
_MEDIAN = 0.5
_SPARE = 1.25
"""Answers, as a multiple of those that certify a percentile, to leave time for the warm-up."""


def is_on_times(bound: Constraint) -> bool:
    """Return whether a bound is on a percentile of times of the measured model's requests."""
    return (
        bound.percentile is not None and not bound.query.scope and METRICS[bound.query.metric].unit == SECONDS
    )


def open_bounds(window: SteadyWindow, bounds: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """Return the bounds on percentiles of a load's times that are not decided, while it goes on.

    Args:
        window: what was answered so far.
        bounds: those asked for; others than on percentiles of times of the measured model's requests are none
            to wait for.
    """
    times = {m.metric: m.value for m in request_times(window) if isinstance(m.value, Distribution)}
    rounds = window.seconds / service.statistic("p90") if (service := times.get("service_time")) else 0.0
    return tuple(
        bound
        for bound in bounds
        if is_on_times(bound)
        and (samples := times.get(bound.query.metric)) is not None
        and not is_closed(bound, samples, rounds)
    )


def is_closed(bound: Constraint, samples: Distribution, rounds: float) -> bool:
    """Return whether a load need not go on for a bound on a percentile of times.

    In the worst case the answers that break it come a whole round at a time, and nothing else shows that
    those of a round are alike. So they are worth no more independent answers than there were rounds, as long
    as an answer each, and a bound is closed once it is clearly broken, clearly held, or its percentile is
    certified by so many. If all answers keep it, it is held by as many rounds as it takes independent answers
    to see one that does not (Wilks 1941, see `statistics.extreme_floor`).
    """
    name = bound.percentile or ""
    fraction = fraction_of(name) or 0.0
    size = max(1.0, min(rounds / _LOOKS, samples.effective_size(name)))
    if size >= certified_floor(fraction):
        return True
    low, high = rank_interval(samples.samples(), fraction, int(size))
    floor = extreme_floor(fraction)
    is_seen = rounds >= floor and samples.effective_size() >= _WORTH * floor
    if fraction >= _MEDIAN:
        high = samples.statistic("max") if is_seen else inf
    else:
        low = samples.statistic("min") if is_seen else -inf
    answer = Answer(query=bound.query, value=None, interval=Interval(low=low, high=high))
    verdicts = {bound.scaled(factor).on(answer).verdict for factor in (1 / _CLEAR, _CLEAR)}
    if len(verdicts) > 1 or Verdict.UNDECIDED in verdicts:
        return False
    return bound.judge((Measurement(metric=bound.query.metric, value=samples),)).verdict in verdicts


def seconds_to_decide(bounds: Sequence[Constraint], answer: float) -> float:
    """Return the seconds that a load may take for its open bounds, if its answers take so many each.

    It is the time in which their percentiles are certified. Where not even answers that all keep a bound
    would decide it within the limit, it is 0.
    """
    return max(
        (
            min(LONGEST, _SPARE * _LOOKS * certified_floor(fraction) * answer)
            for fraction, rounds in _fewest_rounds(bounds)
            if rounds * answer <= LONGEST
        ),
        default=0.0,
    )


def next_look(bounds: Sequence[Constraint], answer: float, seconds: float) -> float:
    """Return the seconds of the steady phase at which to look at the open bounds again.

    Args:
        bounds: those that are open.
        answer: seconds that an answer takes.
        seconds: of the steady phase so far.
    """
    firsts = ((rounds + _ENDS) * answer for _, rounds in _fewest_rounds(bounds))
    return min([_GROWTH * seconds, *(first for first in firsts if first > seconds)])


def _fewest_rounds(bounds: Sequence[Constraint]) -> Iterator[tuple[float, int]]:
    """Yield the fraction of each bound on a percentile, and the rounds that decide it if all keep it."""
    for bound in bounds:
        if (fraction := fraction_of(bound.percentile or "")) is not None:
            yield fraction, extreme_floor(fraction)
