"""How a ground-truth server serves, in virtual time and for real: workers, queue, batches, stalls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modeldyno.core.stats.statistics import Samples, load_numpy
from modeldyno.errors import RequestError, UnknownName


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """A distribution of service times, in seconds."""

    draw: Callable[[Any, int], Samples]
    """Takes a numpy Generator and how many."""
    mean: float
    deviation: float
    """Standard deviation."""


def constant(seconds: float) -> Durations:
    """Give the same time always."""
    return Durations(draw=lambda _, n: load_numpy().full(n, seconds), mean=seconds, deviation=0.0)


def exponential(mean: float) -> Durations:
    """Give times without memory."""
    return Durations(draw=lambda rng, n: rng.exponential(mean, n), mean=mean, deviation=mean)


def lognormal(median: float, sigma: float) -> Durations:
    """Give times whose logarithms have the standard deviation sigma."""
    mean = median * math.exp(sigma**2 / 2)
    return Durations(
        draw=lambda rng, n: rng.lognormal(math.log(median), sigma, n),
        mean=mean,
        deviation=mean * math.sqrt(math.expm1(sigma**2)),
    )


def recorded(times: Sequence[float]) -> Durations:
    """Give times drawn at random from those seen elsewhere."""
    seen = load_numpy().asarray(times, dtype=float)
    return Durations(
        draw=lambda rng, n: rng.choice(seen, n), mean=float(seen.mean()), deviation=float(seen.std())
    )


_KINDS: dict[str, tuple[Callable[..., Durations], int]] = {
    "constant": (constant, 1),
    "exponential": (exponential, 1),
    "lognormal": (lognormal, 2),
}
"""Name to the distribution and how many numbers it takes."""


def parse_durations(text: str) -> Durations:
    """Read ``constant:0.002``, ``exponential:MEAN``, ``lognormal:MEDIAN:SIGMA`` or ``recorded:FILE``.

    The file has a number of seconds a line.

    Raises:
        RequestError: it is none of these.
    """
    kind, _, rest = text.partition(":")
    if kind == "recorded":
        return recorded([float(line) for line in Path(rest).read_text().split()])
    if kind not in _KINDS:
        raise UnknownName.among("distribution", kind, [*_KINDS, "recorded"])
    make, count = _KINDS[kind]
    try:
        numbers = [float(number) for number in rest.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) != count or min(numbers) < 0:
        raise RequestError(f"'{text}' is no distribution; {kind} takes {count} number(s) of at least 0.")
    return make(*numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A time in which no work gets done; what was begun goes on afterwards."""

    at: float
    """Seconds after the first request."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How a server works; times in seconds."""

    durations: Durations
    """Of one call of the model with one request."""
    workers: int = 1
    """Calls at the same time."""
    limit: int | None = None
    """Most requests that wait; those beyond are refused at once."""
    batch: int = 1
    """Most requests in a call."""
    delay: float = 0.0
    """Most that a request waits for others to share its call while a worker is free."""
    each: float = 0.0
    """Added to a call's time for each request beyond the first."""
    stalls: tuple[Stall, ...] = ()
    """In order, none overlapping another."""

    @property
    def capacity(self) -> float:
        """Requests per second that it can serve for long, with every call as full as it may be."""
        call = self.durations.mean + (self.batch - 1) * self.each
        return self.workers * self.batch / call if call else math.inf


_ROUNDING = 1e-9
"""Seconds by which what waits in a stall may seem to be before it."""


def worked(stalls: Sequence[Stall], moment: Any) -> Any:
    """Give the seconds of work that can have been done until a moment; numbers or arrays."""
    np = load_numpy()
    done = moment
    for stall in stalls:
        done = done - np.clip(moment - stall.at, 0.0, stall.seconds)
    return done


def moment_of(stalls: Sequence[Stall], work: Any) -> Any:
    """Give the moment at which so many seconds of work are done; the end of a stall, where work waits."""
    moment, lost = work, 0.0
    for stall in stalls:
        moment = moment + stall.seconds * (work > stall.at - lost - _ROUNDING)
        lost += stall.seconds
    return moment
