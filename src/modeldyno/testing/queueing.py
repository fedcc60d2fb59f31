"""What queueing theory says of a server: the distribution of the time from arrival to answer.

Queues are first come, first served, and in a steady state. Rates are per second, times in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext

from modeldyno.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sojourn:
    """The time that a request spends with a server, waiting and being served."""

    mean: float
    beyond: Callable[[float], float]
    """Time to the share of requests that take longer."""

    def quantile(self, p: float) -> float:
        """Give the time that the share p of requests does not exceed."""
        low, high = 0.0, self.mean
        while self.beyond(high) > 1 - p:
            low, high = high, 2 * high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.beyond(middle) > 1 - p else (low, middle)
        return high


def erlang_c(workers: int, offered: float) -> float:
    """Give the share of Poisson arrivals that find every worker busy.

    Args:
        workers: exponential ones.
        offered: rate times service time, the mean number of busy workers.
    """
    blocked = 1.0  # Erlang's B, by its recursion over the workers, which never overflows
    for count in range(1, workers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1 - offered / workers * (1 - blocked))


def open_exponential(rate: float, service: float, workers: int = 1) -> Sojourn:
    """Tell of M/M/k: Poisson arrivals, exponential service times of the mean `service`, k workers."""
    offered = _stable(rate, service, workers)
    waits = erlang_c(workers, offered)
    leaving = workers / service - rate  # of the waiting time of those who wait
    return Sojourn(
        mean=service + waits / leaving,
        beyond=lambda t: (1 - waits) * math.exp(-t / service) + waits * _beyond_both(t, 1 / service, leaving),
    )


def _beyond_both(t: float, *rates: float) -> float:
    """Give the share of sums of two exponentials, by their rates, that is above t."""
    slow, fast = sorted(rates)
    apart = fast - slow
    if apart * t < 1e-9:
        return (1 + slow * t) * math.exp(-slow * t)
    return math.exp(-slow * t) * (1 - slow * math.expm1(-apart * t) / apart)


def open_constant(rate: float, service: float) -> Sojourn:
    """Tell of M/D/1: Poisson arrivals, a constant service time, one worker (Erlang 1909)."""
    load = _stable(rate, service, 1)

    def beyond(t: float) -> float:
        wait = t - service
        return 1.0 if wait < 0 else 1 - (1 - load) * _waiting_less(wait / service, load)

    return Sojourn(mean=mean_sojourn(rate, service, 0.0), beyond=beyond)


def _waiting_less(wait: float, load: float) -> float:
    """Give Erlang's sum, the share that waits at most so long (in service times) over `1 - load`.

    Its terms are huge and alternate in sign, so that they are added with as many digits as that takes.
    """
    with localcontext(prec=30 + int(wait * load)):
        total = (Decimal(load) * Decimal(wait)).exp()
        for count in range(1, int(wait) + 1):
            x = Decimal(load) * (Decimal(wait) - count)
            total += (-x) ** count / math.factorial(count) * x.exp() if x else 0
        return float(total)


def closed_mean(slots: int, service: float, workers: int = 1) -> float:
    """Give the mean sojourn in a closed loop without thinking, whatever the service times (Little's law)."""
    return service * max(slots, workers) / workers


def mean_sojourn(rate: float, service: float, deviation: float) -> float:
    """Give the mean of M/G/1: Poisson arrivals, any service times, one worker (Pollaczek and Khinchine)."""
    load = _stable(rate, service, 1)
    return service + rate * (service**2 + deviation**2) / 2 / (1 - load)


def _stable(rate: float, service: float, workers: int) -> float:
    """Give the mean number of busy workers.

    Raises:
        RequestError: they cannot keep up.
    """
    offered = rate * service
    if offered >= workers:
        raise RequestError(f"At {rate:g}/s, {workers} worker(s) of {service:g} s never have a steady state.")
    return offered
