"""Queueing theory: the distribution of a server's response time, from arrival to answer.

Queues are first come, first served, and in a steady state. Rates are per second, times in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext

from modeldyno.base.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sojourn:
    """Response time of a request at a server, waiting plus service."""

    mean: float
    beyond: Callable[[float], float]
    """Maps a time to the share of requests that take longer."""

    def quantile(self, p: float) -> float:
        """Return the p-quantile of the response time."""
        low, high = 0.0, self.mean
        while self.beyond(high) > 1 - p:
            low, high = high, 2 * high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.beyond(middle) > 1 - p else (low, middle)
        return high


def erlang_c(workers: int, offered: float) -> float:
    """Return the share of Poisson arrivals that find every worker busy.

    Args:
        workers: number of workers with exponential service times.
        offered: offered load, rate times service time, the mean number of busy workers.
    """
    blocked = 1.0  # Erlang's B, by its recursion over the workers, which cannot overflow
    for count in range(1, workers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1 - offered / workers * (1 - blocked))


def open_exponential(rate: float, service: float, workers: int = 1) -> Sojourn:
    """Return M/M/k: Poisson arrivals, exponential service times of mean `service`, k workers."""
    offered = _offered_load(rate, service, workers)
    waits = erlang_c(workers, offered)
    leaving = workers / service - rate  # rate of the exponential waiting time of those who wait
    return Sojourn(
        mean=service + waits / leaving,
        beyond=lambda t: (1 - waits) * math.exp(-t / service) + waits * _beyond_both(t, 1 / service, leaving),
    )


def _beyond_both(t: float, *rates: float) -> float:
    """Return the share of sums of two exponentials, given their rates, that exceeds t."""
    slow, fast = sorted(rates)
    difference = fast - slow
    if difference * t < 1e-9:
        return (1 + slow * t) * math.exp(-slow * t)
    return math.exp(-slow * t) * (1 - slow * math.expm1(-difference * t) / difference)


def open_constant(rate: float, service: float) -> Sojourn:
    """Return M/D/1: Poisson arrivals, a constant service time, one worker (Erlang 1909)."""
    load = _offered_load(rate, service, 1)

    def beyond(t: float) -> float:
        wait = t - service
        return 1.0 if wait < 0 else 1 - (1 - load) * _erlang_sum(wait / service, load)

    return Sojourn(mean=mean_sojourn(rate, service, 0.0), beyond=beyond)


def _erlang_sum(wait: float, load: float) -> float:
    """Return Erlang's sum: the share that waits at most this long (in service times), over `1 - load`.

    Its terms are huge and alternate in sign, and are added with as many digits as necessary.
    """
    with localcontext(prec=30 + int(wait * load)):
        total = (Decimal(load) * Decimal(wait)).exp()
        for count in range(1, int(wait) + 1):
            x = Decimal(load) * (Decimal(wait) - count)
            total += (-x) ** count / math.factorial(count) * x.exp() if x else 0
        return float(total)


def closed_mean(slots: int, service: float, workers: int = 1) -> float:
    """Return the mean response time in a closed loop without think time, for any service times (Little)."""
    return service * max(slots, workers) / workers


def mean_sojourn(rate: float, service: float, deviation: float) -> float:
    """Return the mean of M/G/1: Poisson arrivals, any service times, one worker (Pollaczek-Khinchine)."""
    load = _offered_load(rate, service, 1)
    return service + rate * (service**2 + deviation**2) / 2 / (1 - load)


def _offered_load(rate: float, service: float, workers: int) -> float:
    """Return the mean number of busy workers.

    Raises:
        RequestError: the workers cannot keep up.
    """
    offered = rate * service
    if offered >= workers:
        raise RequestError(f"At {rate:g}/s, {workers} worker(s) of {service:g} s never reach a steady state.")
    return offered
