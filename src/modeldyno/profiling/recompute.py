"""Recompute the figures, verdicts and doubts of a Result from its samples, sums and counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.job.job import IMPORTED
from modeldyno.base.metrics import doubt
from modeldyno.base.metrics.constraints import Answer, Constraint, Judgement
from modeldyno.base.metrics.measurement import (
    CLIENT_LIMITED,
    INTERRUPTED,
    PERCENTILES,
    SATURATED,
    Distribution,
    Interval,
    Measurement,
    interval_over_processes,
)
from modeldyno.base.metrics.metric import END_TO_END, CallStage, Query
from modeldyno.base.report.figure_checks import (
    CheckState,
    FigureCheck,
    at,
    compare,
    groundless,
    kept,
    missing,
    objects,
    to_plain,
)
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.stats.evaluation import is_share
from modeldyno.base.stats.statistics import load_numpy, mean_interval, share_interval, unpack_samples
from modeldyno.engine.trace.energy import energy_per_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.report.figure_checks import Plain
    from modeldyno.base.result.result import Result

SAMPLES, WINDOWS, PROCESSES = "raw samples", "sums of windows", "the numbers of the processes"
SCORES = "the score of each sample"
"""What figures are recomputed from."""
COUNT = "a number of the model or the machine, without samples"
OBSERVED = "one observation, without samples"
ESTIMATE = "a number and its interval, without samples"
SEEN = "what the run saw, in words"
"""What figures are kept as that cannot be recomputed."""


def check_result(written: Mapping[str, Plain], result: Result) -> Iterator[FigureCheck]:
    """Yield a check of every figure, verdict and doubt of a Result.

    Args:
        written: its JSON.
        result: the Result that was read from it.
    """
    derived = _derived_measurements(result)
    for measurement, plain in zip(result.measurements, objects(written, "measurements"), strict=True):
        yield from _check_measurement(measurement, plain, derived)
    yield from _check_request_times(result)
    yield from _check_call_stages(result)
    yield from _check_doubts(result)
    yield from check_judgements(written, result)


def name_of(measurement: Measurement) -> str:
    """Return the name of a measurement as queries have it."""
    return f"{measurement.metric}@{measurement.scope}" if measurement.scope else measurement.metric


# --- figures -----------------------------------------------------------------------------------------


def _check_measurement(
    measurement: Measurement, plain: Mapping[str, Plain], derived: Mapping[tuple[str, str], Measurement]
) -> Iterator[FigureCheck]:
    name = name_of(measurement)
    if isinstance(measurement.value, Distribution):
        certificate = at(at(plain, "value"), "certificate")
        if certificate:
            recomputed = measurement.value.certificate()
            intervals = {
                key: ends for key, ends in recomputed.intervals.items() if key in _since(certificate)
            }
            yield from compare(name, dict(certificate), replace(recomputed, intervals=intervals), SAMPLES)
        return
    number_and_why = _recomputed_number(measurement, derived)
    if number_and_why is None:
        ends = measurement.interval is not None
        why = ESTIMATE if ends else OBSERVED if measurement.runs else COUNT
        yield kept(name, measurement.value, why)
        if ends:
            yield from (kept(f"{name} interval {end}", at(plain, "interval")[end], why) for end in _ENDS)
        return
    number, why = number_and_why
    yield from compare(name, plain.get("value"), number.value, why)
    yield from compare(f"{name} interval", plain.get("interval"), number.interval, why)
    yield from compare(f"{name} of process", plain.get("runs"), number.runs, why)


_ENDS = ("low", "high")


def _since(certificate: Mapping[str, Plain]) -> tuple[str, ...]:
    """Return the statistics whose intervals a certificate must have: an older one has none of the maximum."""
    return ("mean", *PERCENTILES, *(("max",) if "max" in at(certificate, "intervals") else ()))


def _recomputed_number(
    measurement: Measurement, derived: Mapping[tuple[str, str], Measurement]
) -> tuple[Measurement, str] | None:
    """Return a number with its interval, recomputed, and what from; None if it is kept as it is."""
    if measurement.windows:
        runs = tuple(sums.ratio() for sums in measurement.windows)
        interval = measurement.windows[0].interval() if len(runs) == 1 else interval_over_processes(runs)
        return _number(measurement, sum(runs) / len(runs), interval, runs), WINDOWS
    if measurement.scores is not None:
        scores = unpack_samples(measurement.scores.values)
        low, high = (
            share_interval(int(scores.sum()), len(scores))
            if is_share(measurement.metric)
            else mean_interval(scores, len(scores))
        )
        value = float(scores.mean())
        return _number(measurement, value, Interval(low=low, high=high), measurement.runs), SCORES
    if len(measurement.runs) > 1:
        runs = measurement.runs
        return _number(measurement, sum(runs) / len(runs), interval_over_processes(runs), runs), PROCESSES
    if (other := derived.get((measurement.metric, measurement.scope))) is not None:
        return other, "other figures of the document"
    return None


def _number(
    measurement: Measurement, value: float, interval: Interval | None, runs: tuple[float, ...]
) -> Measurement:
    return Measurement(
        metric=measurement.metric, value=value, scope=measurement.scope, interval=interval, runs=runs
    )


def _derived_measurements(result: Result) -> dict[tuple[str, str], Measurement]:
    """Return the measurements of one process that follow from others."""
    if result.job.backend == IMPORTED:
        return {}
    measurements = [m for m in energy_per_call(result.measurements) if isinstance(m, Measurement)]
    measurements += _error_rate(result)
    measurements += _count_answers(result)
    measurements += _costs(result)
    return {(m.metric, m.scope): m for m in measurements}


def _outcomes(result: Result) -> dict[RequestOutcome, float]:
    """Return how many requests of the load ended in which way."""
    counts = {outcome: result.number("requests", outcome.word) for outcome in RequestOutcome}
    return {outcome: count for outcome, count in counts.items() if count is not None}


def _error_rate(result: Result) -> list[Measurement]:
    outcomes = _outcomes(result)
    settled = sum(n for end, n in outcomes.items() if end is RequestOutcome.OK or end.is_failure)
    if not settled:
        return []
    rate = 1 - outcomes.get(RequestOutcome.OK, 0) / settled
    return [Measurement(metric="error_rate", value=rate, runs=(rate,))]


def _count_answers(result: Result) -> list[Measurement]:
    """Return the number of answers: each has a latency, unless there were too many."""
    latency, sampled = _timed_latency(result), any(raised.code == "thinned" for raised in result.doubts)
    if latency is None or latency.void or sampled or result.processes > 1:
        return []
    count = float(len(latency))
    return [Measurement(metric="requests", scope=RequestOutcome.OK.word, value=count, runs=(count,))]


def _costs(result: Result) -> list[Measurement]:
    """Return the costs of a call, as the sums over its operators, and what follows from them."""
    operators = result.outline.operators if result.outline else ()
    if not operators or result.find("macs") is None:
        return []
    macs, elementwise = (sum(getattr(each, name) for each in operators) for name in ("macs", "elementwise"))
    calls = sum(each.calls for each in operators)
    numbers: dict[str, float] = {"macs": macs, "elementwise": elementwise, "flops": 2 * macs + elementwise}
    numbers["coverage"] = sum(each.calls for each in operators if each.counted) / calls if calls else 1.0
    traffic = (result.number("bytes_read") or 0) + (result.number("bytes_written") or 0)
    numbers |= {"arithmetic_intensity": numbers["flops"] / traffic} if traffic else {}
    return [
        Measurement(metric=name, value=value, interval=cost.interval)
        for name, value in numbers.items()
        if (cost := result.find(name)) is not None
    ]


def _check_request_times(result: Result) -> Iterator[FigureCheck]:
    """Check that each request's latency is its send lag and its service time."""
    parts = [result.find(metric) for metric in ("latency", "service_time", "send_lag")]
    yield from _check_sums("request", parts, "its send lag and its service time")


def _check_call_stages(result: Result) -> Iterator[FigureCheck]:
    """Check that the time of each call end to end is that of its stages."""
    scopes = (END_TO_END, *CallStage)
    parts = [part for scope in scopes if (part := result.find("latency", scope)) is not None]
    if parts and parts[0].scope == END_TO_END:
        yield from _check_sums("call end to end", parts, "its stages")


def _check_sums(of: str, parts: Sequence[Measurement | None], why: str) -> Iterator[FigureCheck]:
    """Check that each time of the first part is the sum of those of the others."""
    spreads = [part.value for part in parts if part is not None and isinstance(part.value, Distribution)]
    if len(spreads) != len(parts) or len({tuple(map(len, spread.runs)) for spread in spreads}) != 1:
        return
    np = load_numpy()
    sums, *others = (spread.samples() for spread in spreads)
    total = np.sum(others, axis=0)
    wrong = np.flatnonzero(~np.isclose(sums, total, rtol=1e-9, atol=1e-12))
    first = int(wrong[0]) if wrong.size else 0
    more = f" and {wrong.size - 1:,} more" if wrong.size > 1 else ""
    yield FigureCheck(
        place=f"latency of {of} {first + 1:,}{more}" if wrong.size else f"latency of each {of}",
        state=CheckState.WRONG if wrong.size else CheckState.HOLDS,
        written=float(sums[first]),
        recomputed=float(total[first]),
        why=why,
    )


# --- doubts ------------------------------------------------------------------------------------------

_STOPS = ("time-limit", "noise-floor", "sample-limit", INTERRUPTED)
_OF_LATENCY = frozenset({*_STOPS, "few-samples", "timer-bound"})
_OF_NOISE = frozenset({"interference", "steal"})
_FAILED = "failed-requests"
_FIGURES = "the figures that it is about"


def _check_doubts(result: Result) -> Iterator[FigureCheck]:
    """Check the doubts that follow from figures: those that should be there, and those that should not."""
    lacking = {(raised.code, raised.seen) for raised in _expected_doubts(result)}
    for reported in result.doubts:
        place, key = f"doubt {reported.code}", (reported.code, reported.seen)
        if key in lacking or reported.seen in _texts_of_code(result, reported.code):
            lacking.discard(key)
            yield FigureCheck(place=place, state=CheckState.HOLDS, written=reported.seen, why=_FIGURES)
        elif _follows_from_figures(result, reported):
            yield groundless(place, reported.seen, _FIGURES)
        else:
            yield kept(place, reported.seen, SEEN)
    yield from (missing(f"doubt {code}", seen, _FIGURES) for code, seen in sorted(lacking))
    yield from _check_void(result)


def _timed_latency(result: Result) -> Distribution | None:
    """Return the latency of a timed pass or load of ours that came to its end; its doubts follow from it."""
    latency = result.find("latency")
    ours = (
        result.job.backend != IMPORTED and not result.failures and {"latency", "load"} & {*result.job.probes}
    )
    return latency.value if ours and latency and isinstance(latency.value, Distribution) else None


def _expected_doubts(result: Result) -> Iterator[Doubt]:
    """Yield the doubts that must be in the document."""
    latency = _timed_latency(result)
    if latency is not None and len(latency.runs) > 1:
        yield from doubt.missing_percentile_doubts("latency", latency, result.job.plan.percentiles)
    elif latency is not None and not latency.void:
        yield from doubt.distribution_doubts("latency", latency, result.job.plan.percentiles)
    noise = _noise(result)
    if noise is not None:
        yield from doubt.noise_doubts(*noise)


def _noise(result: Result) -> tuple[float, float] | None:
    """Return the busy time of other processes and the stolen time, in cores, of one process."""
    measurements = [result.find(metric) for metric in ("foreign_cpu", "steal")]
    numbers = [m.value for m in measurements if m is not None and not isinstance(m.value, Distribution)]
    alone = all(m is not None and len(m.runs) == 1 for m in measurements)
    return (numbers[0], numbers[1]) if alone else None


def _texts_of_code(result: Result, code: str) -> set[str]:
    """Return what a doubt of this code may say, if it need not be in every document."""
    latency, rate = _timed_latency(result), result.number("batch_rate")
    if code == "inconsistent" and latency is not None and rate is not None:
        return {raised.seen for raised in doubt.rate_doubts(latency.statistic("mean"), rate)}
    return set()


def _follows_from_figures(result: Result, reported: Doubt) -> bool:
    """Return whether a doubt would be raised again from the figures, if they gave rise to it."""
    if reported.code in _OF_LATENCY:
        return (
            _timed_latency(result) is not None
            and reported.seen.startswith("latency")
            and result.processes == 1
        )
    if reported.code in _OF_NOISE:
        return _noise(result) is not None
    return reported.code == "inconsistent" and _timed_latency(result) is not None


def _check_void(result: Result) -> Iterator[FigureCheck]:
    """Check that a load without a steady latency, or with failed requests, says so."""
    latency, alone = _timed_latency(result), not result.job.beside
    if latency is None or result.job.load is None:
        return
    raised = {reported.code for reported in result.doubts}
    for code in (SATURATED, CLIENT_LIMITED):
        if (latency.void == code) is not (code in raised) and (alone or latency.void == code):
            yield FigureCheck(
                place=f"doubt {code}",
                state=CheckState.WRONG,
                written=code in raised,
                recomputed=latency.void == code,
                why="whether the latency is valid",
            )
    outcomes = _outcomes(result)
    wrong = sum(n for end, n in outcomes.items() if end.is_failure)
    if result.processes > 1 or not outcomes:
        return
    start = f"{wrong:,.0f} of {sum(outcomes.values()):,.0f} requests failed: "
    messages = [reported.seen for reported in result.doubts if reported.code == _FAILED]
    if wrong and not any(message.startswith(start) for message in messages):
        yield missing(f"doubt {_FAILED}", start.rstrip(": "), "the requests by how they ended")
    elif messages and not wrong and alone:
        yield groundless(f"doubt {_FAILED}", messages[0], "the requests by how they ended")


# --- verdicts ----------------------------------------------------------------------------------------


def check_judgements(written: Mapping[str, Plain], result: Result) -> Iterator[FigureCheck]:
    """Check the verdicts on bounds that a document has beside its measurements."""
    for judgement in objects(written, "judgements"):
        constraint = read_constraint(at(judgement, "constraint"))
        judged = constraint.judge(result.measurements)
        yield from compare(f"bound {constraint}", judgement, judged, "the measurements")


def read_constraint(plain: Mapping[str, Plain]) -> Constraint:
    """Return the bound that an object of JSON holds."""
    return Constraint(**{**plain, "query": Query(**at(plain, "query"))})  # type: ignore[arg-type]


def check_judgement(place: str, constraint: Constraint, answer: Answer, verdict: str) -> FigureCheck:
    """Check a verdict on a bound by the answer that it was given on."""
    judged = constraint.on(answer)
    right = verdict == judged.verdict
    return FigureCheck(
        place=f"{place} {constraint}",
        state=CheckState.HOLDS if right else CheckState.WRONG,
        written=str(verdict),
        recomputed=str(judged.verdict),
        why="the answer that it was judged by",
    )


ELSEWHERE = "its figures, as its result {} is not at hand"


def within(place: str, checks: Iterator[FigureCheck]) -> Iterator[FigureCheck]:
    """Return the checks with the part of the document that they are of."""
    return (replace(check, place=f"{place}: {check.place}") for check in checks)


def check_parts(place: str, written: object, again: object, names: Sequence[str]) -> Iterator[FigureCheck]:
    """Yield a check of parts of what is written, by the same parts of what was made again."""
    for name in names:
        plain = to_plain(getattr(written, name))
        yield from compare(f"{place} {name}", plain, getattr(again, name), "its result")


def check_judgement_list(place: str, judgements: Sequence[Judgement]) -> Iterator[FigureCheck]:
    """Yield a check of each judgement, by its bound and its answer."""
    for judgement in judgements:
        yield check_judgement(place, judgement.constraint, judgement.answer, judgement.verdict)


def keep_answers(place: str, answers: Sequence[Answer], result: str) -> Iterator[FigureCheck]:
    """Yield figures that are kept as they are, because their Result is not at hand."""
    why = ELSEWHERE.format(result[:12]) if result else "its figures, without a result"
    yield from (kept(f"{place} {answer.query}", answer.value, why) for answer in answers)
