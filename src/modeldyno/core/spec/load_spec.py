"""What a server is put under: when requests are due, how many may be on their way, for how long."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from modeldyno.errors import RequestError, UnknownName

_FREE_FAILURES = 3
"""Failed requests in a row after which a slot does not wait yet."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
"""Seconds that it waits after one more failure, doubled with each that follows; and at most."""


class Arrivals(StrEnum):
    """When a request is due."""

    CLOSED = "closed"
    """The instant that one of so many slots becomes free: the server sets the pace."""
    CONSTANT = "constant"
    """At equal steps of time, whatever the server does."""
    POISSON = "poisson"
    """At random, independent of each other, at a mean rate."""
    BURST = "burst"
    """Several at once, the bursts at equal steps of time."""
    TRACE = "trace"
    """At the times that a file tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load; times in seconds, rates in requests per second."""

    arrivals: Arrivals = Arrivals.CLOSED
    concurrency: int | None = None
    """Closed: the slots. Else: most requests on their way at once; those beyond wait, and their latency
    counts. None is one slot, or no limit."""
    rate: float | None = None
    """Mean rate at which requests are due; None in a closed loop, or where a trace tells the times."""
    burst: int = 1
    """Requests in a burst."""
    trace: str | None = None
    """File of due times: a number of seconds a line, or JSON lines with ``timestamp`` (milliseconds)."""
    requests: int | None = None
    """Requests to measure after the warm-up, failed ones included; None: as many as the time allows."""
    duration: float | None = None
    """Length of the steady window; None: until the Plan is met."""
    ramp: float = 0.0
    """Over how long slots or rate grow up to their full number."""
    timeout: float = 60.0
    """From sending a request to giving it up."""
    within: float | None = None
    """Latency up to which an answer counts as good."""
    retries: int = 0
    """Times that a request is sent again where the server did not answer it; each is counted."""
    drivers: int = 1
    """Processes that send."""

    def __post_init__(self) -> None:
        """Refuse, in one sentence, a load that cannot be."""
        for broken, message in _contradictions(self):
            if broken:
                raise RequestError(f"{message}.")

    @property
    def slots(self) -> int | None:
        """Most requests on their way at once; None without a limit."""
        return (self.concurrency or 1) if self.arrivals is Arrivals.CLOSED else self.concurrency

    @property
    def closed(self) -> bool:
        """Whether the server sets the pace."""
        return self.arrivals is Arrivals.CLOSED

    def __str__(self) -> str:
        """Say it in a few words."""
        if self.closed:
            return f"concurrency {self.slots}"
        limit = f", at most {self.concurrency} at once" if self.concurrency else ""
        if self.arrivals is Arrivals.TRACE:
            return f"trace {self.trace}{limit}"
        several = f" in bursts of {self.burst}" if self.arrivals is Arrivals.BURST else f" {self.arrivals}"
        return f"{self.rate:,g}/s{several}{limit}"


def pause_after(failures: int, *, answered: bool) -> float:
    """Give the seconds that a slot of a closed loop waits after so many failed requests in a row.

    A server that fails answers in no time: without a pause it would be flooded with requests. A few failures
    among good answers cost nothing, so that they do not change the load that is measured.

    Args:
        failures: how many; after 0 there is no pause.
        answered: whether any request was answered well yet. Until then the pause is the longest at once: a
            name is mistyped rather than a server overloaded.
    """
    if failures and not answered:
        return _LONGEST_PAUSE
    if failures <= _FREE_FAILURES:
        return 0.0
    return min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2.0 ** min(failures - _FREE_FAILURES - 1, 30))


def _contradictions(load: Load) -> tuple[tuple[bool, str], ...]:
    """Return what must not be, each with the sentence that says so."""
    paced = load.arrivals in {Arrivals.CONSTANT, Arrivals.POISSON, Arrivals.BURST}
    positive = {"rate": load.rate, "duration": load.duration, "timeout": load.timeout, "within": load.within}
    counted = {
        "concurrency": load.concurrency, "requests": load.requests, "burst": load.burst,
        "drivers": load.drivers,
    }  # fmt: skip
    return (
        (paced and load.rate is None, f"{load.arrivals} arrivals need a rate, such as --rate 100"),
        (load.closed and load.rate is not None, "A closed loop has no rate: its server sets the pace"),
        (load.arrivals is Arrivals.TRACE and not load.trace, "Arrivals from a trace need its file"),
        *(
            (value is not None and not 0 < value < math.inf, f"The {name} of a load is {value}, not positive")
            for name, value in positive.items()
        ),
        *(
            (value is not None and value < 1, f"A load needs at least 1 as its {name}, not {value}")
            for name, value in counted.items()
        ),
        (load.retries < 0 or not load.ramp >= 0, "Neither retries nor the ramp of a load can be negative"),
    )


_RATE = re.compile(r"(?P<rate>\d+(?:\.\d+)?(?:e\d+)?)(?:/s)?(?::(?P<kind>[a-z]+)(?:=(?P<burst>\d+))?)?")


def parse_rate(text: str) -> tuple[float, Arrivals, int]:
    """Read ``100``, ``100/s:poisson`` or ``100:burst=8``: the rate, the arrivals, and the size of a burst.

    Raises:
        RequestError: it is none of these.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise RequestError(f"--rate '{text}' is no rate; write 100, 100:poisson or 100:burst=8.")
    kinds = [Arrivals.CONSTANT, Arrivals.POISSON, Arrivals.BURST]
    kind = match["kind"] or Arrivals.CONSTANT
    if kind not in kinds:
        raise UnknownName.among("kind of arrivals", kind, kinds)
    return float(match["rate"]), Arrivals(kind), int(match["burst"] or 1)
