"""The load on a server: when requests are due, how many may be in flight, and for how long."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.cancellation import Cancellation
from modeldyno.base.job.think_time import ThinkTime

if TYPE_CHECKING:
    from collections.abc import Mapping

_FREE_FAILURES = 3
"""Consecutive failed requests after which a slot does not pause yet."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
"""Seconds of the pause after one more failure, doubled with each further one; and the longest pause."""


class Arrivals(StrEnum):
    """When requests are due."""

    CLOSED = "closed"
    """As soon as a slot becomes free: the server sets the pace."""
    CONSTANT = "constant"
    """At equal intervals, whatever the server does."""
    POISSON = "poisson"
    """At random (a Poisson process) with a mean rate."""
    BURST = "burst"
    """Several at once, the bursts at equal intervals."""
    GAMMA = "gamma"
    """At random with a mean rate and a burstiness: the gaps have a gamma distribution."""
    SEQUENCES = "sequences"
    """Sequences begin at random (a Poisson process); each sends its requests one after the other."""
    TRACE = "trace"
    """At the times in a file."""


OPEN_LOOP = (Arrivals.CONSTANT, Arrivals.POISSON, Arrivals.BURST, Arrivals.GAMMA, Arrivals.SEQUENCES)
"""Arrivals at a rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load; times in seconds, rates in requests per second."""

    arrivals: Arrivals = Arrivals.CLOSED
    concurrency: int | None = None
    """Closed loop: the slots. Otherwise the most requests in flight; further ones wait, and their latency
    includes the wait. None is one slot, or no limit."""
    rate: float | None = None
    """Mean rate at which requests are due, or sequences begin; None in a closed loop or for a trace."""
    burst: int = 1
    """Requests in a burst."""
    burstiness: float = 1.0
    """Shape of the gamma distribution of the gaps: 1 is a Poisson process, below it comes more at once."""
    trace: str | None = None
    """File of due times, as `engine.data.trace_file` reads it; perhaps with lengths of requests."""
    speed: float = 1.0
    """How many times as fast as it was recorded a trace is replayed."""
    window: float | None = None
    """Seconds of a trace that are replayed, as they were recorded; None: all."""
    requests: int | None = None
    """Requests to measure after the warm-up, failed ones included; None: as many as the time allows."""
    duration: float | None = None
    """Length of the steady window; None: until the Plan is met."""
    ramp: float = 0.0
    """Time over which slots or rate ramp up."""
    timeout: float = 60.0
    """Time from sending a request to giving it up."""
    within: float | None = None
    """Latency up to which an answer counts as good."""
    also_within: dict[str, float] = field(default_factory=dict)
    """Its other times up to which it does, by metric, such as ``time_to_first_token``."""
    retries: int = 0
    """Retries of a request that was refused, rejected, or lost before any answer; each is counted."""
    drivers: int = 1
    """Driver processes."""
    calibration: float = 1.0
    """Time after a load of streamed answers in which the client's own error is measured; 0: it is not."""
    sequence: tuple[int, int] | None = None
    """Fewest and most requests of a sequence, for stateful models and chats of several turns: each slot has
    one sequence open, and sends its requests one after the other. BY_DATA: as many as its stream of the input
    data. None: no sequences."""
    think_time: ThinkTime | None = None
    """Pause of a sequence between an answer and when its next request is due; None: that of the data, or
    none."""
    prefill_concurrency: int | None = None
    """Most requests at once whose streamed answers have not begun; further ones wait, and their latency
    includes the wait. None: no limit."""
    cancel: Cancellation | None = None
    """Share of requests that the client gives up before their answers end; None: none."""

    def __post_init__(self) -> None:
        """Refuse an invalid load with one sentence."""
        for broken, message in _contradictions(self):
            if broken:
                raise RequestError(f"{message}.")

    @property
    def slots(self) -> int | None:
        """Most requests in flight; None without a limit."""
        return (self.concurrency or 1) if self.arrivals is Arrivals.CLOSED else self.concurrency

    @property
    def processes(self) -> int:
        """Driver processes that it really has: no more than a limit leaves at least one request for each."""
        limits = (self.slots, self.prefill_concurrency)
        return min([self.drivers, *(limit for limit in limits if limit is not None)])

    @property
    def closed(self) -> bool:
        """Whether the server sets the pace."""
        return self.arrivals is Arrivals.CLOSED

    @property
    def times_of_good_answers(self) -> dict[str, float]:
        """Up to which times an answer counts as good, by metric; empty: nothing is said of that."""
        return {**({} if self.within is None else {"latency": self.within}), **self.also_within}

    def with_good_answers(self, times: Mapping[str, float]) -> Load:
        """Return the load with other times up to which an answer counts as good."""
        others = {metric: seconds for metric, seconds in times.items() if metric != "latency"}
        return replace(self, within=times.get("latency"), also_within=others)

    @property
    def holds_back(self) -> bool:
        """Whether requests that are due may wait until others have ended, or begun to be answered."""
        return self.closed or self.concurrency is not None or self.prefill_concurrency is not None

    def longest(self, max_time: float) -> float:
        """Return the seconds that it may take, warm-up included, where a measurement may take `max_time`."""
        if self.duration is not None:  # the warm-up may take a third of it
            return self.ramp + 1.5 * self.duration + 1.0
        return self.ramp + max_time

    def __str__(self) -> str:
        """Describe it in a few words."""
        given_up = self.cancel and f", giving up {str(self.cancel).replace(':', ' after ')}"
        first = self.prefill_concurrency
        prefill = f", at most {first} before the first token" if first else ""
        return f"{self._arriving}{prefill}{given_up or ''}"

    @property
    def _arriving(self) -> str:
        if self.closed:
            return f"concurrency {self.slots}{_in_sequences(self)}"
        limit = f", at most {self.concurrency} at once" if self.concurrency else ""
        if self.arrivals is Arrivals.SEQUENCES:
            length = format_sequence(self.sequence or (0, 0))
            return f"{self.rate:,g} sequences/s of {length}{_thinking(self)}{limit}"
        limit += _in_sequences(self)
        if self.arrivals is Arrivals.TRACE:
            speed = f", {self.speed:g} times as fast" if self.speed != 1 else ""
            window = "" if self.window is None else f", its first {self.window:g} s"
            return f"trace {self.trace}{window}{speed}{limit}"
        several = f" in bursts of {self.burst}" if self.arrivals is Arrivals.BURST else f" {self.arrivals}"
        if self.arrivals is Arrivals.GAMMA:
            several += f" of burstiness {self.burstiness:g}"
        return f"{self.rate:,g}/s{several}{limit}"


def pause_after(failures: int, *, answered: bool) -> float:
    """Return the seconds that a slot of a closed loop pauses after consecutive failed requests.

    A failing server answers at once: without a pause it would be flooded with requests. A few failures among
    good answers cause no pause, so that they do not change the load.

    Args:
        failures: number of consecutive failures; after 0 there is no pause.
        answered: whether any request was answered well yet. Until then the pause is the longest at once, as a
            mistyped name is likelier than an overloaded server.
    """
    if failures and not answered:
        return _LONGEST_PAUSE
    if failures <= _FREE_FAILURES:
        return 0.0
    return min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2.0 ** min(failures - _FREE_FAILURES - 1, 30))


def _contradictions(load: Load) -> tuple[tuple[bool, str], ...]:
    """Return each condition that must not hold, with its message."""
    paced = load.arrivals not in {Arrivals.CLOSED, Arrivals.TRACE}
    arriving = load.arrivals is Arrivals.SEQUENCES
    positive = {
        "rate": load.rate, "duration": load.duration, "timeout": load.timeout, "within": load.within,
        **load.also_within,
        "burstiness (gamma)": load.burstiness, "replay_speed": load.speed, "replay_window": load.window,
    }  # fmt: skip
    counted = {
        "concurrency": load.concurrency, "requests": load.requests, "burst": load.burst,
        "drivers": load.drivers, "prefill_concurrency": load.prefill_concurrency,
    }  # fmt: skip
    return (
        (paced and load.rate is None, f"{load.arrivals} arrivals need a rate, such as `rate=100`"),
        (load.closed and load.rate is not None, "A closed loop has no rate: its server sets the pace"),
        (load.arrivals is Arrivals.TRACE and not load.trace, "Arrivals from a trace need its file"),
        (
            load.arrivals is not Arrivals.TRACE and (load.speed != 1 or load.window is not None),
            "`replay_speed` and `replay_window` are of a trace, which is given with `replay`",
        ),
        *(
            (value is not None and not 0 < value < math.inf, f"The {name} of a load is {value}, not positive")
            for name, value in positive.items()
        ),
        *(
            (value is not None and value < 1, f"A load needs at least 1 as its {name}, not {value}")
            for name, value in counted.items()
        ),
        (
            arriving and load.sequence is None,
            "Sequences that begin at a rate need `sequence`: how many requests each has",
        ),
        (
            load.sequence is not None and not (load.closed or arriving) and load.concurrency is None,
            "Sequences at a rate need `concurrency`: how many of them are open at once",
        ),
        (
            load.think_time is not None and load.sequence is None,
            "Only requests of a sequence follow an answer after `think_time`: give `sequence`, too",
        ),
        (
            load.think_time is not None and not (load.closed or arriving),
            "Requests at a rate wait for no answer; leave `think_time` out, or write `rate=5:sequences`",
        ),
        (load.retries < 0 or not load.ramp >= 0, "Neither retries nor the ramp of a load can be negative"),
        (not 0 <= load.calibration < math.inf, "The calibration of a load cannot be negative"),
    )


def _in_sequences(load: Load) -> str:
    if load.sequence is None:
        return ""
    return f" in sequences of {format_sequence(load.sequence)}{_thinking(load)}"


def _thinking(load: Load) -> str:
    return "" if load.think_time is None else f", thinking {load.think_time}"


def format_sequence(sequence: tuple[int, int]) -> str:
    """Return the length of sequences as `parse_sequence` reads it."""
    fewest, most = sequence
    if not most:
        return _STREAMS
    return str(fewest) if fewest == most else f"{fewest}..{most}"


def parse_sequence(value: object) -> tuple[int, int] | None:
    """Read the length of sequences: ``20``, ``10..30``, or ``data``; None stays None.

    Raises:
        RequestError: it is none of these.
    """
    if value is None:
        return None
    if value == _STREAMS:
        return 0, 0
    text = "..".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    match = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", text.strip())
    fewest, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= fewest <= most:
        raise RequestError(
            f"`sequence` '{text}' is not a length of sequences; write 20, 10..30, or {_STREAMS} for that of "
            "each stream of the input data."
        )
    return fewest, most


_STREAMS = "data"
BY_DATA = (0, 0)
"""Length of sequences that is that of the streams of the input data."""
_RATE = re.compile(
    r"(?P<rate>\d+(?:\.\d+)?(?:e\d+)?)(?:/s)?(?::(?P<kind>[a-z]+)(?:=(?P<shape>\d+(?:\.\d+)?))?)?"
)
_MOST_RATES = 64
"""Most rates that are measured one after the other."""


def parse_rate(text: str) -> dict[str, Any]:
    """Read ``100``, ``100/s:poisson``, ``9:burst=8``, ``9:gamma=0.5``, ``5:sequences``: fields of a Load.

    Raises:
        RequestError: it is none of these.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise _no_rate(text)
    kind, shape = match["kind"] or Arrivals.CONSTANT, match["shape"]
    if kind not in OPEN_LOOP:
        raise UnknownName.among("kind of arrivals", kind, OPEN_LOOP)
    fields: dict[str, Any] = {"rate": float(match["rate"]), "arrivals": Arrivals(kind)}
    if shape is None:
        return fields
    if kind == Arrivals.GAMMA:
        return fields | {"burstiness": float(shape)}
    if kind == Arrivals.BURST and shape.isdecimal():
        return fields | {"burst": int(shape)}
    raise _no_rate(text)


def _no_rate(text: str) -> RequestError:
    return RequestError(
        f"`rate` '{text}' is not a rate; write 100, 100:poisson, 100:burst=8, 100:gamma=0.5 or 5:sequences."
    )


def parse_rates(text: str) -> tuple[str, ...]:
    """Read rising rates that are measured one after the other: ``10,20,40`` or ``10,20:gamma=0.5``.

    Returns:
        Each as `parse_rate` reads it; a single rate as it is.

    Raises:
        RequestError: one is no rate, they do not rise, or there are too many.
    """
    numbers, colon, kind = text.partition(":")
    texts = tuple(f"{number}{colon}{kind}" for number in numbers.split(","))
    rates = [parse_rate(each)["rate"] for each in texts]
    if len(rates) > _MOST_RATES or any(after <= before for before, after in pairwise(rates)):
        raise RequestError(
            f"`rate` '{text}' is not up to {_MOST_RATES} rising rates, such as 10,20,40:poisson."
        )
    return texts
