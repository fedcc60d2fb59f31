"""The client's own error in the times of streamed answers: what it adds to a first token and to a gap.

After a load, a moment of it is played again by a server that notes when it writes each piece. What the client
then says beyond that is the client's own: it reads, splits and stamps with the code, the processes and the
machine of the load. A `Score` is what is played, `compare` sets both notes side by side. See
docs/decisions/0057-a-client-states-its-error.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.metric import fraction_of
from modeldyno.base.stats import statistics
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.serving.load.steady_window import NANO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.stats.statistics import Samples
    from modeldyno.serving.load.request_log import Column, RecordParts, Records
    from modeldyno.serving.load.steady_window import SteadyWindow

FIRST_TOKEN, GAP, LAG = "client_first_token_error", "client_gap_error", "calibration_lag"
"""Metrics of a calibration."""
WITHIN_ERROR = "within-client-error"
"""Code of the doubt that the client's own error is a large part of a figure."""
_FEWEST, _MOST = 300, 200_000
"""Pieces of a score: of a load with fewer in the time, a longer part is played faster; of one with more, a
shorter part."""
_IDLE = 0.1
"""Cores; a client that is no busier than this when a score is played faster does not queue for it."""
_FIRST_TOKENS, _SHORTEST_ANSWER = 50, 10
"""First tokens for which answers are cut, beside those that there are, and writes that a part keeps."""
_WARMUP = 0.1
"""Share of a score that is played before anything counts."""
_PAUSE = 5_000_000
"""Nanoseconds between two parts of an answer that was cut, so that its connection is free again."""
_LEAD, _CONNECTING = 0.1, 0.0005
"""Seconds before the first piece, and for each connection that is opened in them."""
_UNKNOWN_HANDLING = 50_000
"""Nanoseconds that the client is taken to need for a piece where that is not known."""
_BACK_TO_BACK = 1.5
"""Times that handling of a piece within which the next one had arrived already."""
_TWICE = 2.0
"""A figure below so many times the client's own error is doubted."""
_JUDGED = ("p50", "p90", "p99")


class PieceEvent(NamedTuple):
    """A write of the server: one piece or several of an answer."""

    due: int
    """Nanoseconds from the first request."""
    answer: int
    pieces: int
    """0: only the end of an answer that is not part of the score."""
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A moment of a load, to be played again."""

    sends: tuple[int, ...]
    """When each answer is asked for, in nanoseconds from the first one."""
    events: tuple[PieceEvent, ...]
    """What the server writes, in this order."""
    warmup: int = 0
    """Nanoseconds from the first request before which nothing counts."""

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.events[-1].due * NANO


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientError:
    """How far the client's times were from the server's, in seconds."""

    first_token: Samples
    """From the writing of each answer's first piece to when the client says that it arrived."""
    gap: Samples
    """Distance of each gap between two pieces, as the client has it, from that between their writings."""
    span: Samples
    """The same for the time from the first to the last piece of each answer."""
    lag: Samples
    """How late the server wrote what was asked for in time; no part of the error."""


def make_score(window: SteadyWindow, seconds: float) -> Score | None:
    """Return the end of a load's steady window as a score; None if no pieces came in it.

    Pieces of several answers that the client handled back to back had probably arrived together, so they are
    written together: servers write the next token of all answers at once.

    Args:
        window: the steady window of the load.
        seconds: how long the playing of it may take.
    """
    rate = _count_pieces(window) / window.seconds
    if not rate:
        return None
    seconds = min(seconds, _MOST / rate)
    length = min(max(seconds, _FEWEST / rate), window.seconds, seconds * _fastest(window))
    begin = window.end - int(length / NANO)
    answers = list(_answers_within(window.records, begin, window.end))
    if not answers:
        return None
    _write_together(answers, _handling(window, rate))
    open_before = sum(answer.sent < begin for answer in answers)
    lead = int((_LEAD + _CONNECTING * open_before) / NANO)
    speed = length / seconds
    for answer in answers:
        answer.play_from(begin, speed, lead)
    pieces = sum(len(answer.times) for answer in answers)
    cut = sorted(_cut(answers, pieces // _FIRST_TOKENS), key=lambda part: part.sent)
    first, end = cut[0].sent, max(part.times[-1] for part in cut) + _PAUSE
    events = [event for number, part in enumerate(cut) for event in part.events(number, end)]
    return Score(
        sends=tuple(part.sent - first for part in cut),
        events=tuple(event._replace(due=event.due - first) for event in sorted(events)),
        warmup=lead - first + int(_WARMUP * seconds / NANO),
    )


def _count_pieces(window: SteadyWindow) -> int:
    times = (part.pieces.times for part in window.overlapping().parts() if part.pieces is not None)
    return sum(int(((window.begin <= each) & (each < window.end)).sum()) for each in times)


def _fastest(window: SteadyWindow) -> float:
    """Return how many times faster the client can have a load without being busy."""
    return max(1.0, _IDLE / max(window.clients)) if any(window.clients) else 1.0


def _handling(window: SteadyWindow, rate: float) -> int:
    """Return the nanoseconds of a driver's work for a piece, generously."""
    busy = sum(window.clients)
    return int(_BACK_TO_BACK * busy / rate / NANO) if busy else _UNKNOWN_HANDLING


@dataclass(slots=True)
class _Answer:
    """An answer, or a part of it, as it is to be played."""

    driver: int
    sent: int
    times: list[int]
    """When a piece or several of it are written."""
    counts: list[int]
    """How many pieces then."""
    has_ended: bool
    """Whether its last piece is its last one, or it goes on after the score."""

    def play_from(self, begin: int, speed: float, lead: int) -> None:
        """Let times count from the start of the playing; what was in flight is sent in the lead."""
        self.times = [lead + int((time - begin) / speed) for time in self.times]
        self.sent = max(lead + int((self.sent - begin) / speed), 0)

    def part(self, begin: int, end: int, sent: int, *, has_ended: bool) -> _Answer:
        """Return some of its writes as an answer of its own."""
        return _Answer(self.driver, sent, self.times[begin:end], self.counts[begin:end], has_ended)

    def events(self, number: int, end: int) -> Iterator[PieceEvent]:
        """Yield its writes; what goes on after the score is ended at a time when nothing counts any more."""
        for at, (time, count) in enumerate(zip(self.times, self.counts, strict=True), 1):
            yield PieceEvent(time, number, count, self.has_ended and at == len(self.times))
        if not self.has_ended:
            yield PieceEvent(end, number, 0, is_last=True)


def _answers_within(records: RecordParts, begin: int, end: int) -> Iterator[_Answer]:
    """Yield the answers that had pieces between two times, with those pieces."""
    np = statistics.load_numpy()
    for part in records.parts():
        pieces = _by_answer(part)
        for at in np.flatnonzero((part.sent < end) & (part.end >= begin)) if pieces else ():
            within = [
                (time, len([*same])) for time, same in groupby(pieces[at].tolist()) if begin <= time < end
            ]
            if within:
                times, counts = zip(*within, strict=True)
                has_ended = bool(part.end[at] < end)
                yield _Answer(int(part.driver[at]), int(part.sent[at]), [*times], [*counts], has_ended)


def _by_answer(records: Records) -> list[Column]:
    """Return the times of the pieces of each answer; empty where none were streamed."""
    if records.pieces is None:
        return []
    return list(statistics.load_numpy().split(records.pieces.times, records.pieces.ends[:-1]))


def _write_together(answers: Sequence[_Answer], handling: int) -> None:
    """Set the times of pieces that a driver handled back to back to the first of them.

    A server writes at most one piece of each answer at once.
    """
    order = sorted(
        (answer.driver, time, number, at)
        for number, answer in enumerate(answers)
        for at, time in enumerate(answer.times)
    )
    driver, begin, last, together = -1, 0, 0, set[int]()
    for owner, time, number, at in order:
        if owner != driver or time - last > handling or number in together:
            driver, begin = owner, time
            together.clear()
        together.add(number)
        last = time
        answers[number].times[at] = begin


def _cut(answers: Sequence[_Answer], keep: int) -> Iterator[_Answer]:
    """Yield the answers, some of them cut in parts after so many writes of all, with a pause between them."""
    since = 0
    for answer in answers:
        begin, at, sent, times = 0, 0, answer.sent, answer.times
        while at < len(times):
            at, since = at + 1, since + 1
            if since < keep or at - begin < _SHORTEST_ANSWER:
                continue
            later = (number for number in range(at, len(times)) if times[number] >= times[at - 1] + _PAUSE)
            if (resumed := next(later, None)) is not None:
                yield answer.part(begin, at, sent, has_ended=True)
                sent = (times[at - 1] + times[resumed]) // 2
                begin, at, since = resumed, resumed, 0
        yield answer.part(begin, len(times), sent, has_ended=answer.has_ended)


def compare(records: Records, score: Score, begin: int, written: Sequence[int]) -> ClientError:
    """Return how far the client's times of a score are from the server's.

    Args:
        records: the client's; the message of each is the number of its answer.
        score: what was played.
        begin: when the server got the first request, in nanoseconds of the monotonic clock.
        written: of each event of the score when the server wrote it, below 0 if it had to wait for the
            request; 0 if it did not.
    """
    np = statistics.load_numpy()
    stamps: dict[int, list[int]] = {}
    early = dict.fromkeys(range(len(score.sends)), 0)
    for event, when in zip(score.events, written, strict=True):
        if when:
            stamps.setdefault(event.answer, []).extend([abs(when)] * event.pieces)
            early[event.answer] += event.pieces * (event.due < score.warmup)
    first, gaps, spans = [], [], []
    for number, arrived in zip(records.message.tolist(), _by_answer(records), strict=False):
        true, begin_at = stamps.get(number, []), early[number]
        count = min(len(true), len(arrived))
        if count > begin_at:
            late = arrived[begin_at:count] - np.array(true[begin_at:count])
            first += [late[0]] if not begin_at else []
            gaps.append(abs(np.diff(late)))
            spans.append(abs(late[-1] - late[0]))
    lag = [when - begin - event.due for event, when in zip(score.events, written, strict=True) if when > 0]
    return ClientError(
        first_token=np.array(first, "float64") * NANO,
        gap=np.concatenate([*gaps, statistics.empty_samples(0)]) * NANO,
        span=np.array(spans, "float64") * NANO,
        lag=np.array(lag, "float64") * NANO,
    )


def measurements(error: ClientError) -> Iterator[Measurement]:
    """Yield what a calibration found, as far as there were such times."""
    samples = {FIRST_TOKEN: error.first_token, GAP: error.gap, LAG: error.lag}
    for metric, seconds in samples.items():
        if seconds.size:
            yield Measurement(metric=metric, value=Distribution.of(seconds, clock="monotonic_ns"))


def doubts(figures: Mapping[str, Distribution], error: ClientError, tokens: float) -> Iterator[Doubt]:
    """Yield a doubt if percentiles of a load are below twice the client's error at the same percentile.

    Args:
        figures: times of the load, by metric.
        error: what the calibration found.
        tokens: of a usual answer; the error of a mean gap is that of the whole span, shared among its gaps.
    """
    own = {
        "time_to_first_token": error.first_token,
        "inter_token_latency": error.gap,
        "inter_chunk_latency": error.gap,
        "time_per_output_token": error.span / max(1.0, tokens - 1),
    }
    if "inter_token_latency" in figures:  # the same gaps
        del own["inter_chunk_latency"]
    small = [
        (f"{metric}.{name}", time, client)
        for metric, seconds in own.items()
        if metric in figures and seconds.size and not figures[metric].void
        for name in _JUDGED
        if 0 < (time := figures[metric].statistic(name)) < _TWICE * (client := _quantile(seconds, name))
    ]
    if small:
        (worst, time, client), *others = sorted(small, key=lambda each: each[1] / each[2])
        also = f"; so are {', '.join(name for name, *_ in others)}" if others else ""
        yield Doubt(
            code=WITHIN_ERROR,
            seen=f"{worst} is {format_quantity(time, SECONDS, 2)}, of which the client itself may be "
            f"{format_quantity(client, SECONDS, 2)}{also.replace('so are', 'so is', len(others) == 1)}",
            advice="read these times as upper bounds; add processes with `drivers`, or give the client its "
            "own cores",
        )


def _quantile(seconds: Samples, name: str) -> float:
    return statistics.quantile(seconds, fraction_of(name) or 0.0)


def uncalibrated(reason: str) -> Doubt:
    """Return the doubt of a load whose client could not be calibrated."""
    return Doubt(
        code="uncalibrated",
        seen=f"the client's own error in the times of tokens was not measured: {reason}",
        advice="measure again; `calibration=0` leaves it out",
    )
