"""Reasons not to trust a number, as data, and the rules that find them in what was seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.core.stats.units import CORES, RATE, SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.core.metrics.measurement import Distribution

FOREIGN_LIMIT = 0.05
"""Cores; more busy time of others than this on the allowed cores is a doubt."""
STEAL_LIMIT = 0.02
"""Cores; more time than this taken by the hypervisor is a doubt."""
FEW_PROCESSES = 5
"""Below this, the intervals of the processes are joined instead of resampling the processes."""

_CONTRADICTION = 1.5
"""Factor between latency and throughput from which on they contradict each other."""

CODES: dict[str, str] = {
    "one-process": "A claim rests on one process: what differs from start to start is unseen.",
    "few-processes": "Fewer than five processes: too few to say how much one start differs from the next.",
    "few-samples": "A requested percentile has too few effective samples to be a claim.",
    "drift": "A trend or a level shift is left in the steady samples.",
    "unsettled": "The warm-up ended by its time limit, not because the times had settled.",
    "time-limit": "Measuring ended by its time limit before the interval was narrow enough.",
    "noise-floor": "More samples stopped making the interval narrower.",
    "sample-limit": "Measuring ended by its limit of samples before the interval was narrow enough.",
    "interrupted": "The run was interrupted; what had been measured was kept.",
    "governor": "The frequency of the processor is not held at its highest.",
    "busy-machine": "The machine had other work when the measurement began.",
    "interference": "Other processes used the same cores during the timed pass.",
    "outside-pin": "The process used more cores than it was given.",
    "inconsistent": "Latency and throughput, measured one after the other, contradict each other.",
    "steal": "The hypervisor gave time of these cores to others.",
    "unwatched": "The side process could not watch, so nothing is known of noise and memory.",
    "oversubscribed": "More threads were asked for than there are cores.",
    "no-interval": "A verdict rests on a number that was only observed and has no interval.",
    "assumed-batch": "The first axis of an example was taken for the batch.",
    "assumed-sizes": "Inputs have free sizes that nobody gave; some that the network takes were assumed.",
    "unchecked-output": "The output holds nothing that could be checked for NaN.",
    "nondeterministic": "Equal inputs gave unlike outputs.",
    "shapes-vary": "Equal inputs gave outputs of unlike shapes.",
    "not-finite": "An array of the output held minus infinity and nothing else.",
    "forked": "The model's process was copied during a call, and both copies came back from it.",
    "memory-leak": "Every call left memory behind that none of the next gave back.",
    "process-memory-only": "The backend's allocator tells nothing: memory is known of the process alone.",
    "not-isolated": "The model ran inside the calling process.",
    "random-weights": "The weights are random: the cost is representative, the outputs are not.",
    "factory-ran": "The function that makes the model computes for long, and was run as it is to analyse it.",
    "timer-bound": "Calls are so short that the clock's own cost shows in them.",
    "traced-memory": "Allocations of Python objects were traced, which slowed the code down.",
    "repeated-data": "There was less data than the batches took, so some was used again.",
    "padded": "Texts are padded to the longest of them all: a call takes as long as that one does.",
    "uncounted": "Some operators have no formula: what they cost is bounded, not counted.",
    "assumed-branch": "Control flow depends on data that an analysis does not have; one branch was assumed.",
    "largest-batch": "No largest batch was found for the memory, or it is not the memory that limits it.",
    "sizes-left-out": "Some of the sizes that were asked for cannot be analysed.",
    "beyond-limit": "A size is larger than the model says that it takes.",
    "busy-peaks": "The peaks of this machine were measured beside other work, and may be too low.",
    "as-stored": "The analysis is of the weights as stored; what ran was converted.",
    "not-analysed": "The model could not be analysed statically.",
    "no-such-layer": "Some names of layers that were asked for are in no path and no class of a module.",
    "unseen-layers": "Modules could not be watched one by one.",
    "foreign-models": "The server had models of others loaded, which may have worked at the same time.",
    "parts-differ": "The times of the layers do not add up to that of a call which nobody watches.",
    "unattributed": "Much of the time of a call is spent in no module.",
    "overlapping": "Own times of modules came out below zero and were taken for zero.",
    "throttled": "A device lowered its own clocks during the timed pass.",
    "paging": "The timed pass had to wait for pages of memory that lay on a disk.",
    "sampled-power": "A device has no counter of energy; its power was sampled and summed up over time.",
    "short-window": "The timed pass was too short for what tells the energy; none is reported.",
    "at-idle-power": "The devices drew no more than before the model was loaded; no energy is reported.",
    "context-drift": "The time of a token changes with the length of its context.",
    "not-followed": "The data could not be followed through a call: needless copies are unknown.",
    "no-trace": "The trace that was asked for could not be written.",
    "saturated": "More was asked of the server than it can do: its latency has no steady value.",
    "client-limited": "The client set the pace: nothing is known of the server.",
    "thinned": "There were more samples than are kept: the times are those of an even part of them.",
    "sent-late": "Some requests were sent late: the tail of the latency is not the server's alone.",
    "failed-requests": "Some requests were not answered well; they are in no latency.",
    "foreign-requests": "The server answered others while it was measured.",
    "account-differs": "The server's own account contradicts what the client saw.",
    "no-account": "The server tells nothing of its own work.",
    "repeated-request": "All requests were alike, so that a cache may have answered them.",
    "trace-reduced": "The trace tells more of its requests than when they were due, which was not used.",
    "model-changed": "The study went on although the model had become another one.",
    "hardware-changed": "The study went on although the machine had become another one.",
    "software-changed": "Since the first trial of the study, versions have changed.",
    "unlike-hardware": "What is compared was measured on unlike hardware.",
    "unlike-cores": "What is compared ran on other cores of one processor.",
    "unlike-inputs": "What is compared was not fed the same.",
    "unlike-outputs": "What is compared does not return the same.",
    "unexplained": "No time was left to look at the outputs, or at where changes come from.",
    "not-in-turns": "What is compared was measured at different times.",
    "study-winner": "It is the best of a study, chosen for its figures.",
    "imported": "Another tool measured it: on which machine, and beside what, is not known.",
    "from-send": "Another tool counted times from the sending of a request, not from when it was due.",
    "no-samples": "Another tool told figures without the samples behind them: they have no interval.",
    "whole-load": "The first and the last requests of a load are in its numbers.",
    "other-definition": "Another tool defines this number otherwise.",
    "process-failed": "Some of the fresh processes failed; the numbers are of the others.",
}
"""Every doubt that this program raises, by its short stable code."""


EXPECTED = frozenset({"not-isolated"})
"""Codes of what whoever asked knows already: told with how it was measured, and not as a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A reason not to trust a number."""

    code: str
    """A short stable name, such as ``few-samples``; plugins may add to CODES."""
    seen: str
    """What was seen, with figures."""
    advice: str
    """What to do about it."""


_STOPS = {
    "time limit": ("time-limit", "give it more time with --max-time, or ask for less with --precision"),
    "noise floor": ("noise-floor", "quieten the machine, or pool fresh processes with --processes 5"),
    "sample limit": ("sample-limit", "raise --max-runs, or ask for less with --precision"),
    "interrupted": ("interrupted", "run it again to the end before claiming anything from it"),
}


def of_distribution(metric: str, found: Distribution, percentiles: Sequence[str]) -> Iterator[Doubt]:
    """Doubts that a Distribution carries in itself; `percentiles` are those that were requested."""
    if found.stop in _STOPS:
        code, advice = _STOPS[found.stop]
        yield Doubt(code=code, seen=_ended(metric, found), advice=advice)
    yield from of_missing(metric, found, percentiles)
    if metric == "latency" and found.timer_cost > 0.01 * found.statistic("p50"):
        yield Doubt(
            code="timer-bound",
            seen=f"reading the clock takes {format_quantity(found.timer_cost, 's', 2)} "
            f"of a median {metric} of {format_quantity(found.statistic('p50'), 's', 3)}",
            advice="measure a larger batch, or read the throughput, which is timed in blocks",
        )


def of_missing(metric: str, found: Distribution, percentiles: Sequence[str]) -> Iterator[Doubt]:
    """Doubts of the requested percentiles that are no claim yet."""
    for name in percentiles:
        if missing := found.missing(name):
            yield Doubt(
                code="few-samples",
                seen=f"{metric}.{name} lacks {missing:,} effective samples (it has "
                f"{found.effective_size(name):,.0f} of {len(found):,} taken)",
                advice=f"let it run longer with --max-time, or read {metric}.{name}.raw as a hint only",
            )


def _ended(metric: str, found: Distribution) -> str:
    unmet = f": {'; '.join(found.unmet)}" if found.unmet else ""
    how = "was interrupted" if found.stop == "interrupted" else f"stopped by {found.stop}"
    return f"{metric} {how} after {len(found):,} samples{unmet}"


def of_noise(foreign: float, steal: float) -> Iterator[Doubt]:
    """Doubts from the busy time of others and the time stolen on the allowed cores, in cores."""
    if foreign > FOREIGN_LIMIT:
        yield Doubt(
            code="interference",
            seen=f"other processes kept {format_quantity(foreign, CORES, 2)} busy "
            "of those that were measured",
            advice="stop them, or give the run cores of its own with --pin",
        )
    if steal > STEAL_LIMIT:
        yield Doubt(
            code="steal",
            seen=f"the hypervisor took {format_quantity(steal, CORES, 2)} away",
            advice="use a machine that is not shared, or pool fresh processes with --processes 5",
        )


def noteworthy(doubts: Iterable[Doubt]) -> Iterator[Doubt]:
    """Give those that say something new to whoever asked for the measurement."""
    return (found for found in doubts if found.code not in EXPECTED)


def together(doubts: Iterable[Doubt], *, several: bool) -> Iterator[Doubt]:
    """Let doubts that other processes explain say so, and the one about those what helps here.

    Args:
        doubts: all of a run.
        several: whether it may have run several threads, which wait for each other.
    """
    found = tuple(doubts)
    disturbed = any(each.code in {"interference", "steal"} for each in found)
    for each in found:
        if each.code == "parts-differ" and disturbed:
            yield replace(each, advice=_DISTURBED)
        elif each.code == "interference" and several:
            yield replace(each, advice=_FEWER)
        else:
            yield each


_DISTURBED = (
    "measure on a quieter machine first: other processes disturb watched calls and plain ones unequally; "
    "then watch fewer modules with --layers, or a larger batch"
)
_FEWER = (
    "stop them, give the run cores of its own with --pin, or, where the model runs several threads, ask for "
    "fewer (--set threads=1): those that wait for one that lost its core spin meanwhile"
)


def of_pin(used: float, cores: int) -> Iterator[Doubt]:
    """A doubt when a process used more cores than it was given: what others did there is unseen."""
    if cores and used > 1.1 * cores:
        yield Doubt(
            code="outside-pin",
            seen=f"the model kept {format_quantity(used, CORES, 2)} busy, though it was given {cores}",
            advice="a library pins its threads by itself; set its number of threads",
        )


def of_rates(latency: float, batch_rate: float) -> Iterator[Doubt]:
    """A doubt when the time of a call and the calls in a second contradict each other.

    Calls are made one after the other, so the mean latency (seconds) times the rate (1/s) is one.
    """
    product = latency * batch_rate
    if not 1 / _CONTRADICTION <= product <= _CONTRADICTION:
        yield Doubt(
            code="inconsistent",
            seen=f"a mean latency of {format_quantity(latency, SECONDS, 3)} and "
            f"{format_quantity(batch_rate, RATE, 3)} calls contradict each other",
            advice="something changed between the two passes; run it again on a quiet machine",
        )


def of_processes(count: int, *, claimed: bool) -> Iterator[Doubt]:
    """Doubts from the number of fresh processes; one is only doubted when a claim is made of it."""
    if count == 1 and claimed:
        yield Doubt(
            code="one-process",
            seen="the verdict rests on one process; the difference between starts is unseen",
            advice="replicate over fresh processes with --processes 5",
        )
    if 1 < count < FEW_PROCESSES:
        yield Doubt(
            code="few-processes",
            seen=f"with {count} processes an interval only joins what each of them gave",
            advice="use --processes 5 or more for a claim",
        )


def of_pool(doubts: Sequence[Doubt]) -> tuple[Doubt, ...]:
    """Tell what several processes have in common once, with how many of them said it.

    Doubts are alike when they have the same code and speak of the same metric, which is their
    first word. A missing percentile is left out: whether it is still missing is for the pool.
    """
    groups: dict[tuple[str, str], list[Doubt]] = {}
    for found in doubts:
        if found.code != "few-samples":
            groups.setdefault((found.code, found.seen.split()[0]), []).append(found)
    return tuple(
        first if not others else replace(first, seen=f"{first.seen} (and in {_more(len(others))})")
        for first, *others in groups.values()
    )


def _more(count: int) -> str:
    return "1 more process" if count == 1 else f"{count} more processes"


def of_observations(observed: Sequence[str]) -> Iterator[Doubt]:
    """A doubt when a verdict rests on numbers that were only observed; `observed` are their queries."""
    if observed:
        yield Doubt(
            code="no-interval",
            seen=f"the verdict on {', '.join(observed)} rests on what was seen; there is no interval",
            advice="replicate over fresh processes with --processes 5, or bound the mean or a percentile",
        )


def of_conversion(dtype: str) -> Doubt:
    """A doubt when what ran was converted, and what was counted was not."""
    return Doubt(
        code="as-stored",
        seen=f"bytes, memory and operators were analysed as the model is stored; what ran was {dtype}",
        advice="read them as those of the stored model, or save it in that precision and profile that",
    )


def of_threads(asked: Iterable[int], cores: int) -> Iterator[Doubt]:
    """A doubt when more threads are asked for than there are cores to run them."""
    most = max(asked, default=0)
    if most > cores:
        yield Doubt(
            code="oversubscribed",
            seen=f"{most} threads share {cores} cores",
            advice=f"set threads to {cores} or fewer, or allow more cores with --pin",
        )
