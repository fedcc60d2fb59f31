"""Model of how the ground-truth server works, in virtual and real time: workers, queue, batches, stalls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.stats.statistics import Samples, load_numpy


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """A distribution of service times, in seconds."""

    draw: Callable[[Any, int], Samples]
    """Takes a numpy Generator and the number of samples."""
    mean: float
    deviation: float
    """Standard deviation."""


def constant(seconds: float) -> Durations:
    """Return a constant service time."""
    return Durations(draw=lambda _, n: load_numpy().full(n, seconds), mean=seconds, deviation=0.0)


def exponential(mean: float) -> Durations:
    """Return exponential (memoryless) service times."""
    return Durations(draw=lambda rng, n: rng.exponential(mean, n), mean=mean, deviation=mean)


def lognormal(median: float, sigma: float) -> Durations:
    """Return log-normal service times; sigma is the standard deviation of their logarithms."""
    mean = median * math.exp(sigma**2 / 2)
    return Durations(
        draw=lambda rng, n: rng.lognormal(math.log(median), sigma, n),
        mean=mean,
        deviation=mean * math.sqrt(math.expm1(sigma**2)),
    )


def recorded_times(times: Sequence[float]) -> Durations:
    """Return service times drawn at random from recorded ones."""
    samples = load_numpy().asarray(times, dtype=float)
    return Durations(
        draw=lambda rng, n: rng.choice(samples, n), mean=float(samples.mean()), deviation=float(samples.std())
    )


_KINDS: dict[str, tuple[Callable[..., Durations], int]] = {
    "constant": (constant, 1),
    "exponential": (exponential, 1),
    "lognormal": (lognormal, 2),
}
"""Name to the distribution and how many numbers it takes."""


def parse_durations(text: str) -> Durations:
    """Parse ``constant:0.002``, ``exponential:MEAN``, ``lognormal:MEDIAN:SIGMA`` or ``recorded:FILE``.

    The file has one number of seconds per line.

    Raises:
        RequestError: the text is none of these.
    """
    kind, _, rest = text.partition(":")
    if kind == "recorded":
        return recorded_times([float(line) for line in Path(rest).read_text().split()])
    if kind not in _KINDS:
        raise UnknownName.among("distribution", kind, [*_KINDS, "recorded"])
    make, count = _KINDS[kind]
    try:
        numbers = [float(number) for number in rest.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) != count or min(numbers) < 0:
        raise RequestError(f"'{text}' is not a distribution; {kind} takes {count} number(s) of at least 0.")
    return make(*numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A pause in which no work is done; calls in progress continue afterwards."""

    at: float
    """Seconds after the first request."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How a server works; times in seconds."""

    durations: Durations
    """Time of a call of the model with one request."""
    workers: int = 1
    """Number of concurrent calls."""
    limit: int | None = None
    """Most requests that may wait; others are refused at once."""
    batch: int = 1
    """Most requests in a call."""
    delay: float = 0.0
    """Longest wait of a request for others to share its call while a worker is free."""
    each: float = 0.0
    """Time added to a call for each request beyond the first."""
    stalls: tuple[Stall, ...] = ()
    """In order, without overlap."""

    @property
    def capacity(self) -> float:
        """Sustained requests per second, with every call as full as possible."""
        call = self.durations.mean + (self.batch - 1) * self.each
        return self.workers * self.batch / call if call else math.inf


_ROUNDING = 1e-9
"""Seconds of tolerance, by which work that waits in a stall may seem to be before it."""


def work_done_by(stalls: Sequence[Stall], moment: Any) -> Any:
    """Return the seconds of work that can be done before a moment; numbers or arrays."""
    np = load_numpy()
    done = moment
    for stall in stalls:
        done = done - np.clip(moment - stall.at, 0.0, stall.seconds)
    return done


def moment_of(stalls: Sequence[Stall], work: Any) -> Any:
    """Return the moment at which the given seconds of work are done; work in a stall waits for its end."""
    moment, lost = work, 0.0
    for stall in stalls:
        moment = moment + stall.seconds * (work > stall.at - lost - _ROUNDING)
        lost += stall.seconds
    return moment
