"""Doubts: reasons not to trust a number, as data, and the rules that raise them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from modeldyno.base.stats.units import CORES, RATE, SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.metrics.measurement import Distribution

FOREIGN_LIMIT = 0.05
"""Cores; more busy time of other processes than this on the allowed cores raises a doubt."""
STEAL_LIMIT = 0.02
"""Cores; more time than this taken by the hypervisor raises a doubt."""
FEW_PROCESSES = 5
"""Below this, the intervals of the processes are joined instead of resampling the processes."""

_CONTRADICTION = 1.5
"""Factor between latency and throughput from which on they contradict each other."""

HOST_TIMES = "host-times"
DISCREDITING: dict[str, str] = {
    "beyond-peak": "A call would do more operations per second than the machine can do.",
    "answers-repeat": "Inputs that were seen before are answered faster than new ones.",
    "lazy-output": "The work of a call is done, or waited for, when its output is read.",
    "deferred-work": "Work goes on after the calls: in threads, or when their outputs are given up.",
    "earlier-output": "A call returned what belongs to the input of another one.",
    "replaced-clock": "The clock that the code sees was replaced; times were taken by ModelDyno's own.",
    "forked": "The model's process was forked during a call, and both copies returned from it.",
    "inconsistent": "Latency and throughput, measured one after the other, contradict each other.",
    "little-law": "Rate, time of a request and requests in flight contradict each other: no rate is told.",
    "account-differs": "The server's own account contradicts what the client measured.",
    "unasked-precision": "The runtime computed in another precision than the model's, of its own accord.",
    "other-backend": "Another backend ran the model than its configuration names: ModelDyno's runner.",
    "changed-inputs": "A call changed its inputs in place, so that later calls got other values.",
    "client-limited": "The client set the pace: nothing is known of the server.",
    "saturated": "The load exceeds what the server can do: its latency has no steady value.",
    "short-load": "The steady window is shorter than two long answers: the rates of the load are withheld.",
    "model-changed": "The study or load series was resumed although the model had changed.",
    "hardware-changed": "The study or load series was resumed although the machine had changed.",
    "unlike-hardware": "The candidates were measured on different hardware.",
    "unlike-inputs": "The candidates were run with different inputs.",
    "unlike-outputs": "The candidates do not return the same outputs.",
}
"""What was measured may not be the work, the machine or the load that the figures are read as."""
DISTURBING: dict[str, str] = {
    "interference": "Other processes used the same cores during the timed pass.",
    "steal": "The hypervisor gave time of these cores to other virtual machines.",
    "throttled": "A device lowered its own clocks during the timed pass.",
    "paging": "The timed pass had to wait for pages of memory from a disk.",
    "shared-device": "Processes other than the model's used its device during the timed pass.",
    "foreign-requests": "The server answered other clients while it was measured.",
    "foreign-models": "The server had other models loaded, which may have worked at the same time.",
    "outside-pin": "The process used more cores than it was pinned to.",
    "oversubscribed": "More threads were requested than there are cores.",
    "busy-machine": "The machine had other work when the measurement began.",
    "unwatched": "The side process could not run, so noise and memory are not known.",
    "governor": "The frequency of the processor is not held at its highest.",
    "interrupted": "The run was interrupted; the measurements up to then were kept.",
    "out-of-time": "The time of the command was up before everything requested was measured.",
    "process-failed": "Some of the fresh processes failed; the numbers are of the others.",
    "failed-requests": "Some requests were not answered well; they are not in the latency.",
    "unanswered": "The time was up before some requests were answered: the slowest are not in the latency.",
    "sent-late": "Some requests were sent late: the tail of the latency is not the server's alone.",
    "servers-differ": "Of several servers of one model one is slower, or fails more, than another.",
    "cut-sessions": "The steady window is shorter than a session: some turns outweigh others in the figures.",
    "within-client-error": "A time of a stream is below twice the error of the client that measured it.",
    "own-token-counts": "The server did not count tokens; the client did, by the model's tokenizer.",
    "length-differs": "The server counts another number of tokens in a prompt than was asked for.",
    "cached-prompts": "The server had tokens of prompts from earlier requests, and did not compute them.",
    "repeated-request": "All requests were identical, so that a cache may have answered them.",
    "constant-output": "Different inputs gave the same output.",
    "coarse-output": "All values of an output of float32 are those of a 16-bit format.",
    "rows-repeat": "Rows of an output repeat at the same places, whatever the rows of the input are.",
    "few-samples": "A requested percentile has too few effective samples to be certified.",
    "drift": "A trend or a level shift is left in the steady samples.",
    "unsettled": "The warm-up ended by its time limit before the times had settled.",
    "noise-floor": "More samples stopped making the interval narrower.",
    "time-limit": "Measuring ended by its time limit before the interval was narrow enough.",
    "sample-limit": "Measuring ended by its limit of samples before the interval was narrow enough.",
    "timer-bound": "Calls are so short that the cost of reading the clock shows in them.",
    "no-interval": "A verdict rests on a single observation, which has no interval.",
    "one-process": "A claim rests on one process: the variation between starts is not measured.",
    "few-processes": "Fewer than five processes: too few to show the variation between starts.",
    "assumed-batch": "What of an example is the batch was assumed: its first axis, or nothing of a dict.",
    "assumed-sizes": "Inputs have free sizes that were not given; sizes that the model accepts were assumed.",
    "software-changed": "Since the first trial of the study, or load of the series, versions have changed.",
    "unlike-cores": "The candidates ran on different cores of one processor.",
    "measured-differently": "A metric was measured differently on the two sides, and not compared.",
    "not-in-turns": "The candidates were measured at different times.",
    "not-explored": "A search ended before values of its axes were tried: nothing is known of them.",
    "not-ranked": "Configurations have no rank, as their times are not those of the model's work.",
    "unverified": "The best was not measured again; the best of several tends to look too good.",
    "study-winner": "It is the best of a study, chosen for its figures (selection bias).",
    "imported": "Another tool measured it: the machine and its other load are not known.",
    "from-send": "Another tool counted times from the sending of a request, not from when it was due.",
    "no-samples": "Another tool reported figures without their samples: they have no interval.",
    "whole-load": "The numbers of a load include its first and last requests.",
    "other-definition": "Another tool defines this metric differently.",
}
"""The figures are of the work, but others disturbed it, or they are uncertain, assumed or not comparable."""
INCIDENTAL: dict[str, str] = {
    "faulty-plugin": "A plugin of another package, which every run asks, could not be used.",
    "leak": "Calls left something behind: memory, objects, files, sockets, threads or processes.",
    "nondeterministic": "Equal inputs gave different outputs.",
    "shapes-vary": "Equal inputs gave outputs of different shapes.",
    "not-finite": "An array of the output contained only minus infinity.",
    "unchecked-output": "The output contains nothing that could be checked for NaN.",
    "random-weights": "The weights are random: the cost is representative, the outputs are not.",
    "factory-ran": "The function that creates the model takes long, and was run unchanged to analyse it.",
    "padded": "Texts are padded to the longest of all: every call takes as long as that one.",
    "repeated-data": "There was less data than the batches needed, so some was used again.",
    "not-isolated": "The model ran inside the calling process.",
    "not-evaluated": "A metric of labelled samples could not be computed; the others were.",
    "reused": "It was measured for another study of the same model, machine, software and settings.",
    "thinned": "There were more samples than are kept: the times are those of a random sample of them.",
    "completed-config": "A configuration does not declare the model's tensors; they were read from its file.",
    "unexplained": "No time was left to compare outputs or to explain the changes.",
    "process-memory-only": "The backend's allocator reports nothing: only the process's memory is known.",
    "largest-batch": "No largest batch was found for the memory, or memory is not what limits it.",
    "sizes-left-out": "Some of the requested sizes cannot be analysed.",
    "beyond-limit": "A size exceeds the limit that the model declares.",
    "uncounted": "Some operators have no formula: their cost is bounded, not counted.",
    "unread-weights": "The file holds weights that no operator reads; they are not counted.",
    "assumed-branch": "The code reads values unknown to the analysis; they, and so a branch, were assumed.",
    "as-stored": "The analysis is of the weights as stored; the model that ran was converted.",
    "not-analysed": "The model could not be analysed statically.",
    "busy-peaks": "The peaks of this machine were measured beside other work, and may be too low.",
    "unmeasured-peaks": "The peaks of a device could not be measured, so that bounds on it are not known.",
    "parts-differ": "The times of the layers do not add up to that of an untraced call.",
    "other-pace": "The layers were timed while calls took another time than in the timed pass.",
    "unattributed": "Much of the time of a call is spent in no module.",
    "overlapping": "Own times of modules came out negative and were set to zero.",
    HOST_TIMES: "Layers were timed on the host, which does not wait for the device in each of them.",
    "no-such-layer": "Some requested layer names match no path and no class of a module.",
    "unseen-layers": "Modules could not be traced one by one.",
    "traced-operators": "Operators of some calls were recorded, which makes those calls slower.",
    "traced-memory": "Allocations of Python objects were traced, which slowed the code down.",
    "not-followed": "The data could not be traced through a call: needless copies are unknown.",
    "no-trace": "The requested trace could not be written.",
    "negative-hop": "A part of an explained latency came out surely below zero, although it adds work.",
    "large-rest": "Much of an explained latency is in the rests, which no hop explains.",
    "unread-energy": "The energy of a region of code was asked for, and no counter could be read.",
    "unknown-carbon": "The carbon of an inference is unknown, as power or rate could not be read.",
    "assumed-power": "Carbon follows from a power that the user has assumed, not from a reading.",
    "sampled-power": "A device has no energy counter; its sampled power was integrated over time.",
    "short-window": "The timed pass was too short for the energy source; no energy is reported.",
    "at-idle-power": "The devices drew no more than before the model was loaded; no energy is reported.",
    "context-drift": "The time of a token changes with the length of its context.",
    "no-account": "The server reports nothing about its own work.",
    "fields-not-sent": "The file of requests has more about them than what was sent.",
    "not-in-pieces": "A streamed answer came whole, or its pieces have no text: no token has a time.",
    "no-token-counts": "The server did not count the tokens of its answers: their rate is not known.",
    "fewer-tokens": "The answers have fewer tokens than were asked for.",
    "uncalibrated": "The client's own error in the times of streamed answers could not be measured.",
    "trace-reduced": "Not all that the trace has about its requests was used, or not all of them were sent.",
}
"""A figure beside the main ones is rough or lacking, or something is good to know."""
CODES = {**DISCREDITING, **DISTURBING, **INCIDENTAL}
"""Every doubt that ModelDyno raises, by its short stable code, the most serious first."""


EXPECTED = frozenset({"not-isolated"})
"""Codes of doubts that the user expects: shown with how it was measured, not as a warning."""


OTHER_WORK = frozenset({"constant-output", "coarse-output", "rows-repeat"})
"""Codes of doubts about what is computed: the time is right, but is compared with that of no other work."""


class Trust(StrEnum):
    """How far the main figures can be trusted, as the doubts about them say."""

    LOW = "low"
    LIMITED = "limited"
    UNAFFECTED = "unaffected"
    """Doubts, if any, are about other figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A reason not to trust a number."""

    code: str
    """A short stable name, such as ``few-samples``; plugins may add to CODES."""
    seen: str
    """What was observed, with figures."""
    advice: str
    """What to do about it."""


_STOPS = {
    "time limit": ("time-limit", "give it more time with `{longer}`, or ask for less with `precision`"),
    "noise floor": ("noise-floor", "quieten the machine, or pool fresh processes with `processes=5`"),
    "sample limit": ("sample-limit", "raise `max_runs`, or ask for less with `precision`"),
    "interrupted": ("interrupted", "run it again to the end before claiming anything from it"),
}


def distribution_doubts(
    metric: str, distribution: Distribution, percentiles: Sequence[str], longer: str = "max_time"
) -> Iterator[Doubt]:
    """Yield the doubts of a Distribution itself.

    Args:
        metric: what was measured.
        distribution: its values.
        percentiles: the requested ones.
        longer: the field that lets it run longer.
    """
    if distribution.stop in _STOPS:
        code, advice = _STOPS[distribution.stop]
        yield Doubt(code=code, seen=_describe_stop(metric, distribution), advice=advice.format(longer=longer))
    yield from missing_percentile_doubts(metric, distribution, percentiles, longer)
    if metric == "latency" and distribution.timer_cost > 0.01 * distribution.statistic("p50"):
        yield Doubt(
            code="timer-bound",
            seen=f"reading the clock takes {format_quantity(distribution.timer_cost, 's', 2)} "
            f"of a median {metric} of {format_quantity(distribution.statistic('p50'), 's', 3)}",
            advice="measure a larger batch, or read the throughput, which is timed in blocks",
        )


def missing_percentile_doubts(
    metric: str, distribution: Distribution, percentiles: Sequence[str], longer: str = "max_time"
) -> Iterator[Doubt]:
    """Yield a doubt for each requested percentile that is not certified."""
    for name in percentiles:
        if missing := distribution.missing(name):
            yield Doubt(
                code="few-samples",
                seen=f"{metric}.{name} lacks {missing:,} effective samples (it has "
                f"{distribution.effective_size(name):,.0f} of {len(distribution):,} taken)",
                advice=f"let it run longer with `{longer}`, or read {metric}.{name}.raw as a hint only",
            )


def _describe_stop(metric: str, distribution: Distribution) -> str:
    unmet = f": {'; '.join(distribution.unmet)}" if distribution.unmet else ""
    how = "was interrupted" if distribution.stop == "interrupted" else f"stopped by {distribution.stop}"
    return f"{metric} {how} after {len(distribution):,} samples{unmet}"


def noise_doubts(foreign: float, steal: float) -> Iterator[Doubt]:
    """Yield doubts about busy time of other processes and stolen time on the allowed cores, in cores."""
    if foreign > FOREIGN_LIMIT:
        yield Doubt(
            code="interference",
            seen=f"other processes kept {format_quantity(foreign, CORES, 2)} busy of the measured ones",
            advice="stop them, or give the run cores of its own with `pin`",
        )
    if steal > STEAL_LIMIT:
        yield Doubt(
            code="steal",
            seen=f"the hypervisor took {format_quantity(steal, CORES, 2)} away",
            advice="use a machine that is not shared, or pool fresh processes with `processes=5`",
        )


def trust(codes: Iterable[str]) -> Trust:
    """Say how far the main figures can be trusted; a code that a plugin has added disturbs them."""
    serious = {*codes} - INCIDENTAL.keys()
    if serious & DISCREDITING.keys():
        return Trust.LOW
    return Trust.LIMITED if serious else Trust.UNAFFECTED


def seriousness(code: str) -> int:
    """Return the rank of a doubt, 0 for the most serious; a plugin's own is the last that disturbs."""
    return _RANKS.get(code, len(DISCREDITING) + len(DISTURBING) - 1)


_RANKS = {code: rank for rank, code in enumerate(CODES)}


def noteworthy_doubts(doubts: Iterable[Doubt]) -> Iterator[Doubt]:
    """Yield the doubts that tell the user something new."""
    return (doubt for doubt in doubts if doubt.code not in EXPECTED)


def adjust_advice(doubts: Iterable[Doubt], *, several: bool) -> Iterator[Doubt]:
    """Adapt the advice of doubts to one another: some are explained by disturbing processes.

    Args:
        doubts: all doubts of a run.
        several: whether it may have run several threads, which wait for each other.
    """
    all_doubts = tuple(doubts)
    disturbed = any(doubt.code in {"interference", "steal"} for doubt in all_doubts)
    for doubt in all_doubts:
        if doubt.code == "parts-differ" and disturbed:
            yield replace(doubt, advice=_DISTURBED_ADVICE)
        elif doubt.code == "interference" and several:
            yield replace(doubt, advice=_FEWER_THREADS_ADVICE)
        else:
            yield doubt


_DISTURBED_ADVICE = (
    "measure on a quieter machine first: other processes disturb traced and plain calls unequally; "
    "then trace fewer modules with `layers`, or use a larger batch"
)
_FEWER_THREADS_ADVICE = (
    "stop them, give the run cores of its own with `pin`, or, if the model runs several threads, use "
    "fewer (`threads=1`): threads that wait for one without a core spin meanwhile"
)


def pinning_doubts(used: float, cores: int) -> Iterator[Doubt]:
    """Yield a doubt if a process used more cores than it was given, as interference there goes unseen."""
    if cores and used > 1.1 * cores:
        yield Doubt(
            code="outside-pin",
            seen=f"the model kept {format_quantity(used, CORES, 2)} busy, though it was given {cores}",
            advice="a library pins its threads by itself; set its number of threads",
        )


def rate_doubts(latency: float, batch_rate: float) -> Iterator[Doubt]:
    """Yield a doubt if the time of a call and the calls per second contradict each other.

    Calls are made one after the other, so the mean latency (seconds) times the rate (1/s) should be 1.
    """
    product = latency * batch_rate
    if not 1 / _CONTRADICTION <= product <= _CONTRADICTION:
        yield Doubt(
            code="inconsistent",
            seen=f"a mean latency of {format_quantity(latency, SECONDS, 3)} and "
            f"{format_quantity(batch_rate, RATE, 3)} calls contradict each other",
            advice="something changed between the two passes; run it again on a quiet machine",
        )


def layer_time_doubts(layers: float, low: float, high: float) -> Iterator[Doubt]:
    """Yield a doubt if the layers of a call add up to another time than calls took in the timed pass.

    Args:
        layers: seconds of all layers together.
        low: lower end of the interval of the median call, in seconds.
        high: its upper end.
    """
    if not low / _CONTRADICTION <= layers <= high * _CONTRADICTION:
        yield Doubt(
            code="other-pace",
            seen=f"the layers add up to {format_quantity(layers, SECONDS, 3)}, and the median call of the "
            f"timed pass took {format_quantity(low, SECONDS, 3)} to {format_quantity(high, SECONDS, 3)}",
            advice="something changed between the two passes: trust shares more than seconds, or run it "
            "again on a quiet machine",
        )


def process_count_doubts(count: int, *, claimed: bool) -> Iterator[Doubt]:
    """Yield doubts about the number of fresh processes; a single one only if a claim is made."""
    if count == 1 and claimed:
        yield Doubt(
            code="one-process",
            seen="the verdict rests on one process; the variation between starts is not measured",
            advice="replicate over fresh processes with `processes=5`",
        )
    if 1 < count < FEW_PROCESSES:
        yield Doubt(
            code="few-processes",
            seen=f"with {count} processes the interval only joins the intervals of each",
            advice="use `processes=5` or more for a claim",
        )


def pooled_doubts(doubts: Sequence[Doubt]) -> tuple[Doubt, ...]:
    """Merge the doubts of several processes, each with the number of processes that raised it.

    Doubts are equal if they have the same code and the same first word, which is their metric. A missing
    percentile is left out: whether it is still missing is decided for the pool.
    """
    groups: dict[tuple[str, str], list[Doubt]] = {}
    for doubt in doubts:
        if doubt.code != "few-samples":
            groups.setdefault((doubt.code, doubt.seen.split()[0]), []).append(doubt)
    return tuple(
        first if not others else replace(first, seen=f"{first.seen} (and in {_count_more(len(others))})")
        for first, *others in groups.values()
    )


def _count_more(count: int) -> str:
    return "1 more process" if count == 1 else f"{count} more processes"


def observation_doubts(observed: Sequence[str]) -> Iterator[Doubt]:
    """Yield a doubt if a verdict rests on single observations; `observed` are their queries."""
    if observed:
        yield Doubt(
            code="no-interval",
            seen=f"the verdict on {', '.join(observed)} rests on single observations; there is no interval",
            advice="replicate over fresh processes with `processes=5`, or bound the mean or a percentile",
        )


def conversion_doubt(dtype: str) -> Doubt:
    """Return the doubt that the model that ran was converted, but the analysed one was not."""
    return Doubt(
        code="as-stored",
        seen=f"bytes, memory and operators were analysed as the model is stored; what ran was {dtype}",
        advice="read them as those of the stored model, or save it in that precision and profile that",
    )


def unasked_precision_doubt(dtype: str) -> Doubt:
    """Return the doubt that a runtime chose `dtype` by itself."""
    return Doubt(
        code="unasked-precision",
        seen=f"the runtime computes in {dtype} on this machine, although nothing asked for it",
        advice=f"set the precision: f32 for the model as it is, or {dtype} to say that this is meant",
    )


def thread_doubts(counts: Iterable[int], cores: int) -> Iterator[Doubt]:
    """Yield a doubt if more threads are requested than there are cores."""
    thread_count = max(counts, default=0)
    if thread_count > cores:
        yield Doubt(
            code="oversubscribed",
            seen=f"{thread_count} threads share {cores} cores",
            advice=f"set threads to {cores} or fewer, or allow more cores with `pin`",
        )
