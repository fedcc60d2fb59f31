"""Bounds on percentiles of the times of a load: whether they are decided, and how long that may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.load.load_analysis import request_times
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.metrics.metric import METRICS, fraction_of
from modeldyno.core.stats.statistics import certified_floor, extreme_floor
from modeldyno.core.stats.units import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.load.steady_window import SteadyWindow
    from modeldyno.core.metrics.constraints import Constraint

LONGEST = 600.0
"""Most seconds for which a load whose time nobody set goes on for a bound."""
_CLEAR = 1.1
"""Factor between an interval and a bound with which it counts as decided: looking again and again at what is
close would find it decided by chance."""
_WORTH = 0.5
"""Least effective size of all answers, as a share of the rounds that are needed: else slow spells may outlast
them."""
_SPARE = 1.25
"""Answers, as a multiple of those that certify a percentile, to leave time for the warm-up."""


def is_on_times(bound: Constraint) -> bool:
    """Return whether a bound is on a percentile of times of the measured model's requests."""
    return (
        bound.percentile is not None and not bound.query.scope and METRICS[bound.query.metric].unit == SECONDS
    )


def open_bounds(window: SteadyWindow, bounds: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """Return the bounds on percentiles of a load's times that are not decided, while it goes on.

    A bound is closed once its percentile is certified, once it is clearly broken, or once it is clearly held
    by enough rounds, as long as an answer each. In the worst case the answers that break it come a whole
    round at a time; it then takes as many rounds to see one as it takes independent answers otherwise (Wilks
    1941, see `statistics.extreme_floor`).

    Args:
        window: what was answered so far.
        bounds: those asked for; others than on percentiles of times of the measured model's requests are none
            to wait for.
    """
    measurements = tuple(request_times(window))
    times = {m.metric: m.value for m in measurements if isinstance(m.value, Distribution)}

    rounds = window.seconds / service.statistic("p90") if (service := times.get("service_time")) else 0.0

    def is_open(bound: Constraint) -> bool:
        name, samples = bound.percentile, times.get(bound.query.metric)
        if name is None or samples is None or not is_on_times(bound) or not samples.missing(name):
            return False
        verdicts = {bound.scaled(factor).judge(measurements).verdict for factor in (1 / _CLEAR, _CLEAR)}
        if verdicts == {Verdict.HELD}:
            floor = extreme_floor(fraction_of(name) or 0.0)
            return rounds < floor or samples.effective_size() < _WORTH * floor
        return verdicts != {Verdict.BROKEN}

    return tuple(filter(is_open, bounds))


def seconds_to_decide(bounds: Sequence[Constraint], answer: float) -> float:
    """Return the seconds that a load may take for its open bounds, if its answers take so many each.

    In the worst case all that is answered at the same time is alike, and of what is answered one after the
    other it takes as many answers as have one beyond the percentile. Where that would be too long, it is 0.
    """
    return max(_times_to_decide(bounds, answer), default=0.0)


def _times_to_decide(bounds: Sequence[Constraint], answer: float) -> Iterator[float]:
    for bound in bounds:
        fraction = fraction_of(bound.percentile or "")
        if fraction is not None and extreme_floor(fraction) * answer <= LONGEST:
            yield min(LONGEST, _SPARE * certified_floor(fraction) * answer)
