"""Explanation of a latency: from the bound of the hardware to a request under load, hop by hop.

A level is a way to run the model: in this process, behind a server that has nothing else to do, and under
load. Each has a whole, the latency of a call or a request, and the hops by which it exceeds the whole of the
level before. A hop is measured by itself; what the hops of a level leave of its whole is the rest, a hop as
well, so that the hops add up to the whole. A server that traces requests tells when they passed each stage,
so that nothing lies between the hops; of another one only counters are known, and the way to it and back is
that of an echo. A server's stages are means, and only means add up: another statistic leaves its difference
from the mean in the rest. What is not known is None, and then part of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import hypot, inf, isfinite, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Self

from modeldyno.base.document import Conclusion, MeasuredAt
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Interval
from modeldyno.base.result.result import Result
from modeldyno.base.stats.student_t import upper_tail_quantile
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.profiling.latency_breakdown import STAGES
from modeldyno.serving.load.request_stages import STAGE_TIME, RequestStage, has_stages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEstimate:
    """A time in seconds; a difference of two may be negative."""

    seconds: float
    interval: Interval | None = None
    """95 %; None if it is not known."""

    def __add__(self, other: TimeEstimate) -> TimeEstimate:
        """Return the sum; see `_combine`."""
        return self._combine(other, 1)

    def __sub__(self, other: TimeEstimate) -> TimeEstimate:
        """Return the difference; see `_combine`."""
        return self._combine(other, -1)

    def _combine(self, other: TimeEstimate, sign: int) -> TimeEstimate:
        """Return the sum or the difference of two independent estimates.

        The distances of the ends from the estimates add up in squares (Zou and Donner 2008, "Construction of
        confidence limits about effect measures", Statistics in Medicine 27), so that an interval may be
        lopsided. If one has no interval, neither has the result.
        """
        value = self.seconds + sign * other.seconds
        if self.interval is None or other.interval is None:
            return TimeEstimate(seconds=value)
        below, above = self._reach
        others = other._reach if sign > 0 else other._reach[::-1]
        ends = Interval(low=value - hypot(below, others[0]), high=value + hypot(above, others[1]))
        return TimeEstimate(seconds=value, interval=ends)

    @property
    def _reach(self) -> tuple[float, float]:
        assert self.interval is not None
        return self.seconds - self.interval.low, self.interval.high - self.seconds

    def moved_to(self, seconds: float) -> Self:
        """Return it at another value, with an interval as wide."""
        if self.interval is None:
            return type(self)(seconds=seconds)
        below, above = self._reach
        return type(self)(seconds=seconds, interval=Interval(low=seconds - below, high=seconds + above))

    def not_negative(self) -> Self:
        """Return it with an interval of no time below zero; its value is not below zero."""
        if self.interval is None:
            return self
        return type(self)(
            seconds=self.seconds, interval=Interval(low=max(0.0, self.interval.low), high=self.interval.high)
        )

    @property
    def may_be_zero(self) -> bool:
        """Whether zero lies in its interval."""
        return self.interval is not None and self.interval.low <= 0 <= self.interval.high

    @property
    def is_known_negative(self) -> bool:
        """Whether even the upper end of its interval is below zero."""
        return self.interval is not None and self.interval.high < 0


def sum_times(times: Iterable[TimeEstimate]) -> TimeEstimate:
    """Return the sum of independent estimates; that of none is exactly zero."""
    total = TimeEstimate(seconds=0.0, interval=Interval(low=0.0, high=0.0))
    for time in times:
        total += time
    return total


def measured_time(result: Result, metric: str, statistic: str, scope: str = "") -> TimeEstimate | None:
    """Return a time of a Result: a statistic of a distribution, or a number; None if it has none.

    The mean is that of the means of the processes, as it is for numbers, so that both add up.
    """
    measurement = result.find(metric, scope)
    if measurement is None:
        return None
    value = measurement.value
    if not isinstance(value, Distribution):
        return _make_estimate(float(value), measurement.interval)
    if statistic == "mean":
        means = [float(run.mean()) for run in value.arrays()]
        return _make_estimate(sum(means) / len(means), _mean_interval(value, means))
    return _make_estimate(value.statistic(statistic), value.interval(statistic))


def _mean_interval(value: Distribution, means: list[float]) -> Interval | None:
    """Return the interval of the mean; if no process bounds it by itself, Student's of their means."""
    interval = value.interval("mean")
    if interval is None or value.void or len(means) == 1 or interval.high < _BOUNDLESS * fmean(means):
        return interval
    reach = upper_tail_quantile(_TAIL, len(means) - 1) * stdev(means) / sqrt(len(means))
    return Interval(low=max(0.0, fmean(means) - reach), high=fmean(means) + reach)


_BOUNDLESS = 100
"""How many means an interval reaches that tells nothing, as of samples that only rise."""
_TAIL = 0.025
"""Probability beyond each end of a 95 % interval."""


def _make_estimate(seconds: float, interval: Interval | None) -> TimeEstimate:
    """Return an estimate without an interval that tells nothing."""
    if interval is not None and interval.low == -inf and interval.high == inf:
        interval = None
    if interval is not None and isfinite(seconds):
        interval = Interval(low=min(interval.low, seconds), high=max(interval.high, seconds))
    return TimeEstimate(seconds=seconds, interval=interval)


SCHEMA = 1
"""Number of the schema of an Explanation."""
MEAN, MEDIAN = "mean", "p50"
STATISTICS = (MEAN, MEDIAN)
"""Statistics that can be explained."""
_UNEXPLAINED = 0.03
"""Share of the whole that the rests may have."""
_DIGITS = 12
"""Digits of a rest in seconds, so that one of rounding is 0."""
_TOO_SMALL = 0.01
"""Share of the whole up to which a negative hop raises no doubt."""
_WATCHED = "ops"
"""Scope of what the second pass saw of operators."""
NETWORK = "network_time"


class RunLevel(StrEnum):
    """A way to run the model; each comes with all that the one before has."""

    IN_PROCESS = "in process"
    ALONE = "served alone"
    LOADED = "under load"


ECHO = "echo"
"""Name of the result of a model that only returns what the real one did, on the same server, alone."""


class HopName(StrEnum):
    """What takes the time."""

    BOUND = "bound"
    """What the hardware needs at least."""
    KERNELS = "kernels"
    """Operators, beyond the bound."""
    FRAMEWORK = "framework"
    """The call outside of operators."""
    COMPUTE = "server compute"
    """The server's call of the model, beyond that in process."""
    QUEUE = "queue"
    INPUT = "server inputs"
    OUTPUT = "server outputs"
    PROTOCOL = "protocol"
    """Requests and answers of this size, on their way and being read and written."""
    THERE = "way to the server"
    """From its sending until the server has read all of it."""
    PARSE = "request parsed"
    """Until it is in the queue."""
    ANSWER = "answer formed"
    """From the model's outputs until the server begins to write the answer."""
    BACK = "way to the client"
    """Until the client has read all of it."""
    CLIENT = "wait for the client"
    """From the time that a request was due to its sending."""
    REST = "rest"


_STAGE_HOPS = {
    "compute_time": HopName.COMPUTE,
    "queue_time": HopName.QUEUE,
    "compute_input_time": HopName.INPUT,
    "compute_output_time": HopName.OUTPUT,
}
assert {*_STAGE_HOPS} == {*STAGES}
_ACCOUNT, _STAMPED = "the server's own account", "the server's time stamps of some requests"
_WAYS = {
    HopName.THERE: "from its sending until the server has read all of it",
    HopName.PARSE: "from there until it is in the queue",
    HopName.ANSWER: "from the outputs until the server begins to write the answer, in a thread of its own",
    HopName.BACK: "from there until the client has read all of it; both may wait for a core",
}
"""What lies between two time stamps, where the name does not say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A part of the latency."""

    name: HopName
    level: RunLevel
    time: TimeEstimate | None
    """None if it cannot be known."""
    how: str
    """How it was measured, or why it is not known."""

    @property
    def label(self) -> str:
        """Its name, with the level where others have the same."""
        if self.name is HopName.REST:
            return f"rest {self.level}"
        return f"{self.name} {self.level}" if self.level is RunLevel.LOADED else str(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelHops:
    """A level: its whole, and the hops that lead to it from the level before."""

    level: RunLevel
    whole: TimeEstimate
    hops: tuple[Hop, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation(Conclusion):
    """What was measured at each level, of which the hops are derived."""

    KIND = "explanation"
    id: str
    created: str
    """ISO 8601, UTC."""
    results: dict[str, Result]
    """By level, and that of the echo."""
    baseline: dict[str, Result] = field(default_factory=dict)
    """The results of another explanation, with which this one is compared; empty without one."""
    statistic: str = MEAN
    """What is explained of the latency: the mean or, with a rest that this brings, the median."""
    missing: dict[str, str] = field(default_factory=dict)
    """Level to the reason why it was not measured."""
    schema: int = SCHEMA

    @property
    def last(self) -> Result:
        """The result of the last level."""
        return last_result(self.results)

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.last.name

    @property
    def model_digests(self) -> frozenset[str]:
        """Digests of the models of its results."""
        return frozenset().union(*(result.model_digests for result in self.results.values()))

    @property
    def measured_at(self) -> MeasuredAt:
        """Where its last level was measured."""
        return self.last.measured_at

    @property
    def levels(self) -> tuple[LevelHops, ...]:
        """The levels that were measured, with their hops."""
        return tuple(explain_levels(self.results, self.statistic))

    @property
    def levels_before(self) -> tuple[LevelHops, ...]:
        """Those of the baseline."""
        return tuple(explain_levels(self.baseline, self.statistic))

    @property
    def hops(self) -> tuple[Hop, ...]:
        """All hops; their sum is the whole of the last level."""
        return tuple(hop for level in self.levels for hop in level.hops)

    @property
    def whole(self) -> TimeEstimate | None:
        """The latency that is explained: that of the last level."""
        levels = self.levels
        return levels[-1].whole if levels else None

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Reasons to doubt the hops, and those of the results."""
        own = explanation_doubts(self.levels)
        theirs = (doubt for result in self.results.values() for doubt in result.doubts)
        return tuple(dict.fromkeys((*own, *theirs)))

    @property
    def failures(self) -> dict[str, str]:
        """Level to the message of its failure."""
        return {
            name: f"{result.failure.where}: {result.failure.message}"
            for name, result in self.results.items()
            if result.failure is not None
        }

    @property
    def interrupted(self) -> bool:
        """Whether the user ended it early."""
        return any(result.interrupted for result in self.results.values())

    def __getitem__(self, name: str) -> float:
        """Return the seconds of a hop by its label, such as ``"framework"``, or of a level; KeyError."""
        times = {hop.label: hop.time for hop in self.hops}
        times |= {str(level.level): level.whole for level in self.levels}
        time = times[name]
        if time is None:
            raise KeyError(f"{name} is not known")
        return time.seconds


def last_result(results: Mapping[str, Result]) -> Result:
    """Return the result of the last level that is there."""
    return next(results[level] for level in reversed(RunLevel) if level in results)


def usual_statistic(level: RunLevel) -> str:
    """Return what is explained unless asked otherwise: of requests the mean, as a server's stages are."""
    return MEDIAN if level is RunLevel.IN_PROCESS else MEAN


def level_of(result: Result) -> RunLevel:
    """Return the level of a result: under load if it is of requests, else in process."""
    return RunLevel.IN_PROCESS if result.job.load is None else RunLevel.LOADED


# --- levels ------------------------------------------------------------------------------------------


def explain_levels(results: Mapping[str, Result], statistic: str = MEAN) -> Iterator[LevelHops]:
    """Yield each level whose latency was measured, with its hops; the rest is the last of them."""
    before: LevelHops | None = None
    stages_before: Mapping[HopName, TimeEstimate] = {}
    stamped = are_stamped(results)
    for level in RunLevel:
        result = results.get(level)
        total = None if result is None else measured_time(result, "latency", statistic)
        if result is None or total is None:
            continue
        if level is RunLevel.IN_PROCESS:
            hops = tuple(_hops_in_process(result, total, statistic))
        else:
            stages = server_stages(result, stamped=stamped)
            hops = tuple(_hops_served(level, result, results, before, stages, stages_before))
            stages_before = stages
        known_seconds = sum(hop.time.seconds for hop in hops if hop.time is not None)
        start = 0.0 if before is None else before.whole.seconds
        time, how = _rest_estimate(level, total, before, hops, results, statistic)
        time = time.moved_to(round(total.seconds - start - known_seconds, _DIGITS))
        rest = Hop(name=HopName.REST, level=level, time=time, how=how)
        before = LevelHops(level=level, whole=total, hops=(*hops, rest))
        yield before


def _hops_in_process(result: Result, total: TimeEstimate, statistic: str) -> Iterator[Hop]:
    bound = measured_time(result, "roofline_latency", statistic, result.peaks_scope)
    if bound is not None and bound.interval is None:
        bound = _exact(bound.seconds)
    kernels, framework = _split_call(result, statistic)
    unknown = "the model could not be analysed, or this machine's peaks are not known in its dtype"
    if bound is not None and (kernels or total).seconds < bound.seconds:
        busy = any(doubt.code == "busy-peaks" for doubt in result.doubts)
        bound, unknown = None, BUSY_PEAKS if busy else BOUND_ABOVE
    yield _hop(
        HopName.BOUND, RunLevel.IN_PROCESS, bound,
        "operations and bytes of the model, at the peaks measured on this machine",
        unknown,
    )  # fmt: skip
    unwatched = "the backend does not tell its operators"
    yield _hop(
        HopName.KERNELS, RunLevel.IN_PROCESS,
        kernels if kernels is None or bound is None else (kernels - bound).not_negative(),
        "operators of the second pass, without the cost of watching them; less the bound",
        unwatched,
    )  # fmt: skip
    yield _hop(
        HopName.FRAMEWORK, RunLevel.IN_PROCESS, framework,
        "a call of the second pass outside of its operators: interpreter, dispatch, allocation",
        unwatched,
    )  # fmt: skip


BUSY_PEAKS = "this machine's peaks were measured while it was busy, and are too low: no bound is known"
BOUND_ABOVE = (
    "the operators are faster than the bound, as where caches hold what it reads from memory, or where its "
    "peaks were measured beside other work"
)
"""Why a bound is left out, as the one above: nothing takes less than no time beyond it."""


def _split_call(result: Result, statistic: str) -> tuple[TimeEstimate | None, TimeEstimate | None]:
    """Divide a call into operators and the time outside of them, without the cost of watching.

    Watching makes a call longer, in part within operators and in part outside of them. So the time outside is
    at most what the profiler saw of it, and at least that without all of the cost of watching: the middle is
    taken. Operators have the other part of an unwatched call.
    """
    operators, outside, plain = (
        measured_time(result, metric, statistic, _WATCHED)
        for metric in ("operator_time", "dispatch_time", "unwatched_time")
    )
    if operators is None or outside is None or plain is None:
        return None, None
    watching = max(0.0, operators.seconds + outside.seconds - plain.seconds)
    framework = min(outside.seconds - min(watching, outside.seconds) / 2, plain.seconds)
    return (
        _time_between(plain.seconds - framework, plain - outside, operators, plain),
        _time_between(framework, plain - operators, outside, plain),
    )


def _time_between(seconds: float, least: TimeEstimate, *most: TimeEstimate) -> TimeEstimate:
    """Return a time that is at least one estimate and at most each of some others; none is below zero."""
    if least.interval is None or any(time.interval is None for time in most):
        return TimeEstimate(seconds=seconds)
    low = max(0.0, least.interval.low)
    high = min(time.interval.high for time in most if time.interval is not None)
    return TimeEstimate(seconds=seconds, interval=Interval(low=min(low, seconds), high=max(high, seconds)))


def are_stamped(results: Mapping[str, Result]) -> bool:
    """Return whether the hops of requests are those of time stamps: of each level that has requests."""
    served = [results[level] for level in (RunLevel.ALONE, RunLevel.LOADED) if level in results]
    return bool(served) and all(map(has_stages, served))


def server_stages(result: Result, *, stamped: bool = False) -> dict[HopName, TimeEstimate]:
    """Return the mean time of each stage that the server reports, and the client's wait; network included.

    With `stamped` they are those of the server's time stamps, which leave no network.
    """
    named = {"send_lag": HopName.CLIENT} if stamped else {**_STAGE_HOPS, "send_lag": HopName.CLIENT}
    times = {hop: measured_time(result, metric, MEAN) for metric, hop in named.items()}
    if stamped:
        times |= _stamped_stages(result)
    else:
        times[HopName.PROTOCOL] = measured_time(result, NETWORK, MEAN)
    return {hop: time for hop, time in times.items() if time is not None}


def _stamped_stages(result: Result) -> dict[HopName, TimeEstimate | None]:
    """Return the mean time of each stage, carried over from the traced requests to all.

    Traced ones take longer by the cost of tracing, and differ by chance, in shares of the stages that nobody
    knows: all are scaled by the ratio of both service times, and the intervals hold both ends.
    """
    stages = {stage: measured_time(result, STAGE_TIME, MEAN, stage) for stage in RequestStage}
    service = measured_time(result, "service_time", MEAN)
    traced = sum(time.seconds for time in stages.values() if time is not None)
    ratio = service.seconds / traced if service is not None and traced > 0 else 1.0
    return {HopName(stage): None if time is None else _scaled(time, ratio) for stage, time in stages.items()}


def _scaled(time: TimeEstimate, ratio: float) -> TimeEstimate:
    if time.interval is None:
        return TimeEstimate(seconds=time.seconds * ratio)
    ends = Interval(low=time.interval.low * min(1.0, ratio), high=time.interval.high * max(1.0, ratio))
    return TimeEstimate(seconds=time.seconds * ratio, interval=ends)


def _hops_served(
    level: RunLevel,
    result: Result,
    results: Mapping[str, Result],
    before: LevelHops | None,
    stages: Mapping[HopName, TimeEstimate],
    stages_before: Mapping[HopName, TimeEstimate],
) -> Iterator[Hop]:
    first, stamped = not stages_before, HopName.BACK in stages
    source = _STAMPED if stamped else _ACCOUNT
    for name in map(HopName, RequestStage) if stamped else _STAGE_HOPS.values():
        reported = stages.get(name)
        time, how = reported, f"{_WAYS[name]}: {source}" if name in _WAYS else source
        if not first:
            time, how = _less(reported, stages_before.get(name)), f"{how}, less that of a request alone"
        elif name is HopName.COMPUTE and reported is not None and before is not None:
            time, how = reported - before.whole, f"{how}, less the call in process"
        yield _hop(name, level, time, how, _why_not_reported(result, name))
    if first and not stamped:
        echo = results.get(ECHO)
        time = None if echo is None else measured_time(echo, NETWORK, MEAN)
        yield _hop(
            HopName.PROTOCOL, level, time,
            "a model that returns the same outputs at once: its latency, less the server's own account of it",
            "no echo of the same size was measured; it is in the rest",
        )  # fmt: skip
    waited = stages.get(HopName.CLIENT)
    yield _hop(
        HopName.CLIENT, level, waited if first else _less(waited, stages_before.get(HopName.CLIENT)),
        "from the time that a request was due to its sending"
        + ("" if first else ", less that of a request alone"),
        "the client's record does not tell when requests were due",
    )  # fmt: skip


def _less(now: TimeEstimate | None, before: TimeEstimate | None) -> TimeEstimate | None:
    return None if now is None or before is None else now - before


def _why_not_reported(result: Result, name: HopName) -> str:
    """Say why the server's account lacks a stage."""
    if result.find("compute_time") is not None:
        return f"this server does not report its {name}"
    return "the server reports no statistics"


def _hop(name: HopName, level: RunLevel, time: TimeEstimate | None, how: str, otherwise: str) -> Hop:
    return Hop(name=name, level=level, time=time, how=how if time is not None else otherwise)


def _exact(seconds: float) -> TimeEstimate:
    return TimeEstimate(seconds=seconds, interval=Interval(low=seconds, high=seconds))


# --- rests -------------------------------------------------------------------------------------------


def _rest_estimate(
    level: RunLevel,
    total: TimeEstimate,
    before: LevelHops | None,
    hops: tuple[Hop, ...],
    results: Mapping[str, Result],
    statistic: str,
) -> tuple[TimeEstimate, str]:
    """Return the time that the hops of a level leave of its whole, and what it consists of.

    Its interval is of that, as the hops and the whole come from the same requests and do not vary
    independently; its value is replaced by the one that makes the hops add up.
    """
    result = results[level]
    if level is RunLevel.IN_PROCESS:
        plain = measured_time(result, "unwatched_time", statistic, _WATCHED)
        if plain is not None:
            return total - plain, "the timed pass, less unwatched calls of the second pass"
        return _independent(total, before, hops), "all that is above what is known"
    if are_stamped(results):
        return _stamped_rest(result, total, statistic)
    network = measured_time(result, NETWORK, MEAN)
    if network is None:
        return _independent(total, before, hops), "network, protocol, client, and the server as a whole"
    return _network_rest(level, network, results)


def _stamped_rest(result: Result, total: TimeEstimate, statistic: str) -> tuple[TimeEstimate, str]:
    """Return what the stages leave that follow each other without a gap: of the mean nothing."""
    mean = measured_time(result, "latency", MEAN)
    if statistic == MEAN or mean is None:
        return _exact(0.0), "nothing: each stage begins where the one before ends"
    return total - mean, "the difference from the mean, which the stages are of"


def _network_rest(
    level: RunLevel, network: TimeEstimate, results: Mapping[str, Result]
) -> tuple[TimeEstimate, str]:
    """Return what is known of the network of a level whose server tells counters only."""
    alone, echo = (results.get(name) for name in (RunLevel.ALONE, ECHO))
    if level is RunLevel.LOADED and alone is not None and (other := measured_time(alone, NETWORK, MEAN)):
        return network - other, "network, protocol and client, less those of a request alone"
    if echo is not None and (other := measured_time(echo, NETWORK, MEAN)):
        return network - other, "what neither the server's account nor the echo has"
    return network, "network, protocol and client: what the server's account leaves"


def _independent(total: TimeEstimate, before: LevelHops | None, hops: tuple[Hop, ...]) -> TimeEstimate:
    parts = [hop.time for hop in hops if hop.time is not None]
    return total - sum_times([*([] if before is None else [before.whole]), *parts])


# --- doubts ------------------------------------------------------------------------------------------


def explanation_doubts(levels: tuple[LevelHops, ...]) -> Iterator[Doubt]:
    """Yield reasons to doubt the hops: some are surely negative, or the rests are large."""
    least = _TOO_SMALL * levels[-1].whole.seconds if levels else 0.0
    for hop in (hop for level in levels for hop in level.hops):
        if hop.how in {BOUND_ABOVE, BUSY_PEAKS}:
            yield Doubt(
                code="negative-hop",
                seen=f"{hop.label} is left out: {hop.how}",
                advice="read the kernels as the whole time of the operators",
            )
        if hop.time is not None and hop.time.is_known_negative and -hop.time.seconds > least:
            yield Doubt(
                code="negative-hop",
                seen=f"{hop.label}: {format_quantity(hop.time.seconds, SECONDS, 3)}, although it adds work: "
                f"{_NEGATIVE.get(hop.name, 'both ends were measured under unlike conditions')}",
                advice="read this hop together with those beside it",
            )
    if levels and (share := unexplained_share(levels)) > _UNEXPLAINED:
        yield Doubt(
            code="large-rest",
            seen=f"{share:.1%} of the latency is in the rests: no hop explains it",
            advice="measure longer (`max_time`) on a quiet machine; a rest whose interval holds 0 is noise",
        )


_NEGATIVE = {
    HopName.COMPUTE: "the server runs the model faster than this process, as with other threads, another "
    "runtime or a rewritten model",
}


def unexplained_share(levels: tuple[LevelHops, ...]) -> float:
    """Return the sum of the rests, each as a positive number, as a share of the whole."""
    rests = [
        hop.time.seconds for level in levels for hop in level.hops if hop.name is HopName.REST and hop.time
    ]
    total = levels[-1].whole.seconds
    return sum(map(abs, rests)) / total if total > 0 and isfinite(total) else 0.0


# --- two explanations --------------------------------------------------------------------------------


def hop_changes(before: tuple[LevelHops, ...], now: tuple[LevelHops, ...]) -> tuple[Hop, ...]:
    """Return the change of each hop between two explanations; None where only one of them knows it."""
    old = {(hop.level, hop.name): hop for level in before for hop in level.hops}
    new = {(hop.level, hop.name): hop for level in now for hop in level.hops}
    changes = []
    for level, name in dict.fromkeys((*old, *new)):
        one, other = old.get((level, name)), new.get((level, name))
        if one is None or other is None or one.time is None or other.time is None:
            if (one is None or one.time is None) and (other is None or other.time is None):
                continue
            changes.append(Hop(name=name, level=level, time=None, how="known of one of both only"))
        else:
            changes.append(Hop(name=name, level=level, time=other.time - one.time, how=other.how))
    return tuple(changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailTime:
    """A percentile of the latency, and the mean of what its slowest requests are made of."""

    percentile: str
    latency: TimeEstimate
    waited: float
    """Mean seconds that the requests at or above the percentile waited for the client."""
    served: float
    """Mean seconds from their sending to their last byte."""
    requests: int
    """How many they are."""


def tail_time(result: Result, percentile: str = "p99") -> TailTime | None:
    """Return the tail of the requests of a Result; None unless the percentile is certified.

    The record tells of each request when it was due, sent and answered, so what the client adds is known
    request by request. The stages of a server are means over requests: none of a single one is known.
    """
    latency, lag = result.find("latency"), result.find("send_lag")
    if latency is None or lag is None:
        return None
    if not isinstance(latency.value, Distribution) or not isinstance(lag.value, Distribution):
        return None
    samples, lags = latency.value.samples(), lag.value.samples()
    if latency.value.certified(percentile) is None or samples.size != lags.size:
        return None
    value = latency.value.statistic(percentile)
    slow = samples >= value
    waited = float(lags[slow].mean())
    return TailTime(
        percentile=percentile,
        latency=TimeEstimate(seconds=value, interval=latency.value.interval(percentile)),
        waited=waited,
        served=float(samples[slow].mean()) - waited,
        requests=int(slow.sum()),
    )
