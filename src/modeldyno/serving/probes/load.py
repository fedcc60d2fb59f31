"""The probe ``load``: a server under load, as its clients see it and as its own statistics report it.

The load runs in processes of its own; here its records are read as they arrive. The same stop rule as for
calls within a process decides when requests have warmed up and are measured precisely enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, cast

from modeldyno.base.clock import perf_counter
from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import BY_DATA, Arrivals, Load
from modeldyno.base.metrics.doubt import Doubt, distribution_doubts
from modeldyno.base.metrics.measurement import SATURATED, Distribution, Measurement, observed_number
from modeldyno.base.metrics.stop_rule import StopRuleResult
from modeldyno.base.result.multi_model import with_model_scope
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.result.result import Artifact, Failure, FailureKind
from modeldyno.base.result.trace_data import TraceReport
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.engine.data import outputs
from modeldyno.engine.data.trace_file import read_trace
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.engine.interfaces.request_target import Target
from modeldyno.engine.interfaces.session import (
    RequestSession,
    ServedSession,
    ThreadSession,
    load_target,
)
from modeldyno.engine.probes import timing_loop
from modeldyno.models.interface import ExpectedOutputs
from modeldyno.models.load_stages import WatchStage
from modeldyno.profiling import latency_breakdown
from modeldyno.serving.load import by_server, load_analysis, request_stages, stream_doubts, turns
from modeldyno.serving.load.load_seconds import load_seconds, slowest_answers
from modeldyno.serving.load.steady_window import NANO
from modeldyno.serving.load.stream_doubts import TextRequest
from modeldyno.serving.loadgen.record_spool import RecordSpool
from modeldyno.serving.loadgen.running_load import LoadEnd
from modeldyno.serving.probes import client_calibration
from modeldyno.serving.probes.load_monitor import SILENCE, LoadMonitor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.engine.interfaces.probe import ProbeContext
    from modeldyno.engine.interfaces.request_target import Reply, Target
    from modeldyno.engine.interfaces.server_stats import CounterReading, ServerCounters
    from modeldyno.serving.load.request_log import RecordParts
    from modeldyno.serving.load.steady_window import SteadyWindow
    from modeldyno.serving.loadgen.calibration import PlaybackServer
    from modeldyno.serving.loadgen.running_load import RunningLoad

needs = ServedSession
pass_ = Pass.TIMED


def measure(
    subject: ProbeContext, plan: Plan
) -> Iterator[Measurement | Doubt | Failure | TraceReport | Artifact]:
    """Put the server under load until its latency reaches the plan's precision; then let it drain.

    If there are co-hosted models, each is under its own load until all of them are measured precisely enough;
    the steady window of all begins when the last of them is steady.
    """
    with ExitStack() as stack:
        loads = list(_run_loads(subject, plan, stack))
        since = max(finished.monitor.steady_since(finished.paced) for finished in loads)
        server = stack.enter_context(
            client_calibration.standing_by([finished.target for finished in loads], loads[0].monitor.load)
        )
        times: dict[str, Distribution] = {}
        for finished in loads:
            measurements = _report(finished, plan, since)
            if finished.name:
                measurements = (with_model_scope(finished.name, measurement) for measurement in measurements)
            yield from _noting_times(measurements, times)
        if seconds := load_seconds(loads[0].monitor.tape):
            yield TraceReport(seconds=seconds, slowest=slowest_answers(loads[0].monitor.tape))
        if path := subject.observation.records:
            from modeldyno.serving.loadgen.record_spool import write_records  # rarely needed

            yield write_records(loads[0].monitor.tape, Path(path))
        if server is not None:
            yield from _calibrate(loads[0], since, times, subject, server, plan)


def _calibrate(
    finished: _FinishedLoad,
    since: int,
    times: Mapping[str, Distribution],
    subject: ProbeContext,
    server: PlaybackServer,
    plan: Plan,
) -> Iterator[Measurement | Doubt]:
    """Yield the client's own error in a load of streamed answers, if there is time left to measure it."""
    target, ending = finished.target, finished.ending
    assert target is not None
    window, _ = finished.monitor.window(finished.paced, since=since, samples=1, unsent=ending.unsent)
    end = finished.monitor.begin + window.load.longest(plan.max_time)
    left = math.inf if plan.may_extend else end - perf_counter()
    if not subject.interrupted():
        subject.mark(WatchStage.SECOND)  # what the samplers see from now on is not of the load
        yield from client_calibration.calibrate(
            server, window, target.protocol, ending.replies, times, left=left, interrupted=subject.interrupted
        )


def _noting_times(
    measurements: Iterator[Measurement | Doubt | Failure], times: dict[str, Distribution]
) -> Iterator[Measurement | Doubt | Failure]:
    """Pass on measurements, and keep the distributions of the whole load by their metrics."""
    for measurement in measurements:
        match measurement:
            case Measurement(metric=metric, scope="", value=Distribution() as value):
                times[metric] = value
        yield measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class _FinishedLoad:
    """A finished load on one model."""

    name: str
    """Name of a co-hosted model; empty for the measured one."""
    samples: int
    """Samples in a request."""
    monitor: LoadMonitor
    paced: StopRuleResult | None
    ending: LoadEnd
    messages: int
    """Number of distinct requests."""
    text_request: TextRequest
    turns: float = 0.0
    """Turns of a session, on average; 0 if requests are of no chats."""
    target: Target | None = None
    """What was sent to; None if requests were calls in this process."""
    expected: Sequence[ExpectedOutputs] = ()
    """Of each message the answer that is expected."""
    shared: Sequence[int] = ()
    """Of each message the tokens with which it is to begin as an earlier one does; empty: none is."""
    primed: bool = False
    """Whether the server may have the prompts in a prefix cache."""
    of_trace: bool = False
    """Whether the messages are the requests of the trace that was replayed."""
    of_own_length: bool = False
    """Whether the load lasts as long as its trace, as nobody wished for another length."""


def _run_loads(subject: ProbeContext, plan: Plan, spools: ExitStack) -> Iterator[_FinishedLoad]:
    """Put every model under its load, all at the same time."""
    subjects = (("", subject), *subject.beside)
    done = [Event() for _ in subjects]

    def drive(index: int, spool: RecordSpool) -> _FinishedLoad:
        name, model_subject = subjects[index]
        session, original = (
            cast("RequestSession | ThreadSession", model_subject.session),
            model_subject.load or Load(),
        )
        load = _whole_trace(original, plan)
        try:
            unlimited = replace(load, requests=None)
            with _start_load(session, model_subject, unlimited, plan.seed) as (
                driven,
                messages,
                text_request,
                target,
            ):
                monitor = LoadMonitor(driven=driven, session=session, load=load, tape=spool)
                monitor.trace, monitor.messages = session.trace, messages
                monitor.turns = _session_turns(load, target)
                if not name:  # a page shows the measured model; others are on the same server
                    monitor.watch = model_subject.watch
                paced = monitor.pace_load(model_subject, client_calibration.sparing_time(plan, load, target))
                done[index].set()
                while not all(other.is_set() for other in done):
                    monitor.keep_going()
                monitor.take_snapshot()
                ending = monitor.stop()
        finally:
            done[index].set()  # whatever went wrong, the others must not wait for it
        own = session.samples if isinstance(session, ThreadSession) else None
        samples = model_subject.samples if own is None else own
        return _FinishedLoad(
            name=name,
            samples=samples,
            monitor=monitor,
            paced=paced,
            ending=ending,
            messages=messages,
            text_request=text_request,
            turns=_session_turns(load, target),
            target=target,
            expected=_expected(model_subject, load),
            shared=() if model_subject.streams is None else model_subject.streams.shared,
            primed=model_subject.primed,
            of_trace=model_subject.streams is not None and model_subject.streams.of_trace,
            of_own_length=load.duration != original.duration,
        )

    first_spool, *other_spools = [spools.enter_context(RecordSpool()) for _ in subjects]
    if not other_spools:
        yield drive(0, first_spool)
        return
    with ThreadPoolExecutor(len(other_spools)) as pool:
        futures = [pool.submit(drive, index, spool) for index, spool in enumerate(other_spools, 1)]
        yield drive(0, first_spool)
        yield from (future.result() for future in futures)


def _report(finished: _FinishedLoad, plan: Plan, since: int) -> Iterator[Measurement | Doubt | Failure]:
    """Yield the results of a load from a time on."""
    monitor, ending = finished.monitor, finished.ending
    full_window, readings = monitor.window(
        finished.paced, since=since, samples=finished.samples, unsent=ending.unsent
    )
    window = replace(monitor.requested_window(full_window), prompt_tokens=_prompt_tokens(finished))
    error_text = _first_error(ending.faults, monitor.session) or ending.failure
    measured = list(_window_measurements(window, finished.paced, plan, error_text))
    yield from measured
    for name, count in (monitor.session.instances or {}).items():
        yield observed_number("instances", count, scope=name)
    if not readings and monitor.session.has_statistics:
        yield _NO_ACCOUNT
    elif readings and load_analysis.void_reason(window) != SATURATED:
        # when saturated, its work is not that of the requested load
        yield from _server_measurements(readings, full_window)
        yield from request_stages.measurements(window, monitor.stamps)
    yield from stream_doubts.stream_doubts(window, _text_request(finished))
    account = readings[-1].counters.since(readings[0].counters) if readings else None
    yield from _by_turn(finished, window, account)
    yield from _by_server(finished, window)
    if finished.messages == 1:
        yield _REPEATED
    if monitor.load.trace and not finished.of_trace:
        yield from _unused_of_trace(monitor.load.trace)
    if finished.of_own_length:
        yield from _cut_of_trace(monitor.load)
    yield from _answer_failures(monitor.tape, ending.replies, monitor.session, error_text)
    yield from _expected_answers(finished.expected, ending.replies, monitor.session)
    failures = list(_end_failures(monitor))
    yield from failures
    if not failures and not any(
        isinstance(item, Measurement) and item.metric == "latency" for item in measured
    ):
        yield from _nothing_measured(window)


def _text_request(finished: _FinishedLoad) -> TextRequest:
    """Return what requests ask for, with what is known of their answers."""
    session, replies = finished.monitor.session, finished.ending.replies
    uncounted = all(session.prompt_tokens(reply) < 0 for reply in replies)
    return replace(
        finished.text_request,
        reasons=tuple(map(session.finish_reason, replies)),
        tokenizer=finished.target.tokenizer if finished.target is not None and uncounted else "",
    )


def _prompt_tokens(finished: _FinishedLoad) -> tuple[int, ...]:
    """Return the tokens of each message's prompt, as the answers to it say; -1 of one that none says."""
    counted = dict.fromkeys(range(finished.messages), -1)
    for reply in finished.ending.replies:
        counted[reply.message] = max(counted[reply.message], finished.monitor.session.prompt_tokens(reply))
    return tuple(counted.values())


def _by_turn(
    finished: _FinishedLoad, window: SteadyWindow, account: ServerCounters | None
) -> Iterator[Measurement | Doubt]:
    """Yield what the server had of the prompts, and of chats the figures of each turn."""
    session = finished.monitor.session
    if finished.turns:
        yield from turns.turn_measurements(window, load_analysis.void_reason(window))
        yield from turns.session_doubts(window, finished.turns)
        first = turns.first_prompts(window)
        shared = [*finished.shared[:1]] * len(first)  # all prompts begin alike
        yield from stream_doubts.cached_prompts(first, shared, first_turns=True, primed=finished.primed)
        return
    sent = sum(map(len, finished.monitor.tape.parts()))
    rounds = max(1.0, sent / max(1, finished.messages))
    counts = []
    answered = set[int]()
    for reply in finished.ending.replies:
        if reply.message:  # the first call sent the first one
            share = rounds - 1 if reply.message in answered else 1.0  # the last is like all but the first
            counts.append((session.cached_tokens(reply), session.prompt_tokens(reply), share, reply.message))
            answered.add(reply.message)
    yield from stream_doubts.cached_prompts(
        [(cached, tokens) for cached, tokens, _, _ in counts],
        [finished.shared[message] for *_, message in counts] if finished.shared else (),
        account,
        weights=[share for _, _, share, _ in counts],
        primed=finished.primed,
    )


def _by_server(finished: _FinishedLoad, window: SteadyWindow) -> Iterator[Measurement | Doubt]:
    """Yield the figures of each of several servers."""
    if finished.target is None or not finished.target.replicas:
        return
    names = by_server.server_names(finished.target)
    measured = [*by_server.server_measurements(window, names, load_analysis.void_reason(window))]
    yield from measured
    yield from by_server.server_doubts(measured)


def _window_measurements(
    window: SteadyWindow, paced: StopRuleResult | None, plan: Plan, error_text: str
) -> Iterator[Measurement | Doubt]:
    """Yield the measurements of the steady window and their doubts."""
    latency = None
    for measurement in load_analysis.measurements(window):
        latency = measurement.value if measurement.metric == "latency" else latency
        yield measurement
    yield from load_analysis.doubts(window, error_text)
    if not load_analysis.void_reason(window):
        yield from _latency_doubts(latency, paced, plan, window.load)


def _unused_of_trace(path: str) -> Iterator[Doubt]:
    """Yield a doubt for what a trace has beside its times, which were all that was used."""
    trace = read_trace(path)
    if not (trace.lengths or trace.others):
        return
    yield Doubt(
        code="trace-reduced",
        seen=f"the trace also has {', '.join(sorted((*trace.lengths, *trace.others)))} of its requests; only "
        "their arrival times were used",
        advice="give the model's tokenizer, as `tokenizer=DIR`, and neither `inputs` nor lengths of your "
        "own, so that prompts and answers have the lengths of the trace"
        if trace.prompt_tokens
        else "set the size of requests with `inputs`, or lengths with the server's knobs",
    )


def _cut_of_trace(load: Load) -> Iterator[Doubt]:
    """Yield a doubt if a long trace was replayed in part, which nobody asked for."""
    if (seconds := _trace_seconds(load)) > _LONGEST_TRACE:
        yield Doubt(
            code="trace-reduced",
            seen=f"the trace takes {format_quantity(seconds, SECONDS, 2)}, of which the first "
            f"{format_quantity(_LONGEST_TRACE, SECONDS, 2)} were replayed",
            advice="say how much with `duration` or `replay_window`, or replay it faster with `replay_speed`",
        )


def _nothing_measured(window: SteadyWindow) -> Iterator[Failure]:
    """Yield a failure for a load whose steady window has no answer, though the warm-up had some."""
    if not _has_answers(window.records):
        return  # a failure of its own
    settled = window.due().where(lambda part: part.outcome != RequestOutcome.CANCELLED)
    count, answered = len(settled), sum(int(part.fine.sum()) for part in window.records.parts())
    how = (
        f"none of the {count:,} requests of the steady window succeeded"
        if count
        else "the load ended before a request of the steady window was answered; "
        f"in the warm-up {answered:,} were answered"
    )
    yield Failure(where="load", kind=FailureKind.SERVER, message=how)


def _end_failures(monitor: LoadMonitor) -> Iterator[Failure]:
    """Yield a failure for a load that ended unexpectedly."""
    messages = (
        monitor.describe_silence() if monitor.ending == SILENCE and _has_answers(monitor.tape) else "",
        f"the server ended by itself: {reason}" if (reason := monitor.session.ended()) else "",
    )
    yield from (
        Failure(where="load", kind=FailureKind.SERVER, message=message) for message in messages if message
    )


def _has_answers(records: RecordParts) -> bool:
    return any(part.fine.any() for part in records.parts())


def _whole_trace(load: Load, plan: Plan) -> Load:
    """Return a load that lasts as long as its trace, if nobody wished for another length."""
    if load.trace is None or not plan.may_extend or load.duration is not None or load.requests is not None:
        return load
    return replace(load, duration=min(_trace_seconds(load), _LONGEST_TRACE))


_LONGEST_TRACE = 600.0
"""Seconds of a trace that are replayed if nobody wished for more or less."""


def _trace_seconds(load: Load) -> float:
    """Return how long the replay of a trace takes."""
    times = read_trace(load.trace or "").until(load.window).times
    return max(times[-1] * NANO / load.speed, 0.001) if times else 0.001


@contextmanager
def _start_load(
    session: RequestSession | ThreadSession, subject: ProbeContext, load: Load, seed: int
) -> Iterator[tuple[RunningLoad, int, TextRequest, Target | None]]:
    """Start the load; yield it, its number of distinct requests, their text, and the target."""
    if isinstance(session, ThreadSession):
        if load.sequence is not None:
            raise RequestError("Calls in this process send no sequences; leave `sequence` out.")
        if load.cancel is not None:
            raise RequestError("Calls in this process cannot be given up; leave `cancel` out.")
        if load.prefill_concurrency is not None:
            raise RequestError("Calls in this process have no first token; leave `prefill_concurrency` out.")
        from modeldyno.serving.loadgen.thread_load import run_threads  # only a server is sent to

        calls = session.calls(subject.feeds)
        with run_threads(calls, load, seed=seed) as driven:
            yield driven, len(calls), TextRequest(), None
    else:
        from modeldyno.serving.loadgen.driver_pool import run_load_drivers  # only a server is sent to

        target, load = _prepare_target(session, subject, load)
        with run_load_drivers(target, load, seed=seed) as driven:
            yield (
                driven,
                len(target.messages),
                TextRequest(streamed=target.stream, tokens=target.token_limits),
                target,
            )


def _prepare_target(session: RequestSession, subject: ProbeContext, load: Load) -> tuple[Target, Load]:
    """Return what is sent, and the load, which may have fewer requests than were asked for.

    Raises:
        RequestError: the load does not go with these requests.
    """
    from modeldyno.serving.loadgen import fresh_prompts  # only a server is sent to

    target = load_target(session, subject.feeds, load)
    if load.prefill_concurrency is not None and not target.stream:
        raise RequestError(
            "Only a streamed answer has a first token before its end; leave `prefill_concurrency` out, "
            "or set stream=true."
        )
    if subject.streams is not None:
        if subject.streams.of_trace and load.sequence is not None:
            raise RequestError(
                "Prompts of a trace have the lengths of its requests, and turns of a session grow; leave "
                "out `sequence`, or the trace."
            )
        target = replace(target, streams=subject.streams.lengths)
        if subject.streams.of_trace and load.trace:  # the memory for prompts may hold fewer
            load = replace(load, requests=len(target.messages))
    if subject.first_words is not None and load.sequence is None:
        target = fresh_prompts.mark_first_words(target, subject.first_words)
    if target.think_times and not (load.closed or load.arrivals is Arrivals.SEQUENCES):
        raise RequestError(
            "The data says after which pause turns are due (its field delay), but requests at a rate "
            "wait for no answer; leave the pauses out, or write `rate=5:sequences`."
        )
    return target, load


def _session_turns(load: Load, target: Target | None) -> float:
    """Return the turns of a session one after the other, on average; 0 if requests are of no chats."""
    if target is None or not target.turn_ends or load.sequence is None:
        return 0.0
    if load.sequence == BY_DATA:
        return _turns_of_data(target) / len(target.streams)
    return sum(load.sequence) / 2


def _turns_of_data(target: Target) -> int:
    """Return the turns of all sessions of data; of an agent's session the longest chain of them."""
    if not target.links:
        return sum(target.streams)
    from modeldyno.serving.loadgen.session_graph import longest_chain  # few targets have agents

    ends = [*accumulate(target.streams)]
    return sum(
        longest_chain(target.links[end - count : end])
        for end, count in zip(ends, target.streams, strict=True)
    )


def _latency_doubts(latency: object, paced: StopRuleResult | None, plan: Plan, load: Load) -> Iterator[Doubt]:
    """Yield the doubts of the latency: of its stability, unless the load ended before it, and of its values.

    If the load sets its own length, the advice names that field instead of ``max_time``.
    """
    field = (
        "duration" if load.duration is not None else "requests" if load.requests is not None else "max_time"
    )
    if paced is not None:
        yield from timing_loop.stability_doubts("latency", paced, field)
    if isinstance(latency, Distribution):
        yield from distribution_doubts("latency", latency, plan.percentiles, field)


def _server_measurements(
    readings: Sequence[CounterReading], window: SteadyWindow
) -> Iterator[Measurement | Doubt]:
    windows = load_analysis.served_windows(readings, window)
    answers = sum(each.answers for each in windows)
    if answers:
        account = readings[-1].counters.since(readings[0].counters)
        yield from latency_breakdown.measurements(windows)
        yield from latency_breakdown.generation_measurements(readings)
        yield from latency_breakdown.doubts(account, sum(each.service for each in windows) / answers, answers)


_NO_ACCOUNT = Doubt(
    code="no-account",
    seen="the server's own statistics could not be read at both ends of the steady window",
    advice="check the server's log and the address of its metrics",
)
_REPEATED = Doubt(
    code="repeated-request",
    seen="every request was the same",
    advice="give more data with `inputs`, unless the server is known not to cache",
)


_STATEFUL = "correlation id"
"""What Triton asks for if requests to a stateful model are of no sequence."""
_NEEDS_SEQUENCE = "; the model has state: say how long its sequences are with `sequence`, such as 20"


def _first_error(failed_replies: Sequence[Reply], session: RequestSession | ThreadSession) -> str:
    """Return the server's error message for the first failed request, if it sent one."""
    for reply in failed_replies:
        try:
            session.arrays(reply)
        except ValueError as error:
            return f"{error}{_NEEDS_SEQUENCE if _STATEFUL in str(error).lower() else ''}"
    return ""


def _expected(subject: ProbeContext, load: Load) -> Sequence[ExpectedOutputs]:
    """Return the expected answer to each message; none for sequences that are not those of the file."""
    if subject.streams is None or (load.sequence is not None and any(load.sequence)):
        return ()
    return subject.streams.expected


def _expected_answers(
    expected: Sequence[ExpectedOutputs], replies: Sequence[Reply], session: RequestSession | ThreadSession
) -> Iterator[Measurement | Failure]:
    """Yield how many answers were compared with expected ones, and a failure for the first wrong one."""
    checked, wrong = 0, dict[int, str]()
    for reply in replies if expected else ():
        try:
            arrays = session.arrays(reply)
        except ValueError:
            continue  # a failure of its own
        checked += 1
        if difference := outputs.describe_difference(arrays, expected[reply.message]):
            wrong.setdefault(reply.message, difference)
    if checked:
        yield observed_number("checked_calls", checked)
    if wrong:
        message, difference = next(iter(sorted(wrong.items())))
        yield Failure(
            where="load",
            kind=FailureKind.INVALID_OUTPUT,
            message=f"the answers to {len(wrong):,} of {len(expected):,} requests are not the expected ones; "
            f"that to request {message + 1}: {difference}",
        )


_CHECK_TIME = 5.0
"""Seconds after which no further answer is checked: it may be a kilobyte that decompresses to a gigabyte."""


def _answer_failures(
    records: RecordParts, replies: Sequence[Reply], session: RequestSession | ThreadSession, error_text: str
) -> Iterator[Failure]:
    """Yield failures: no request succeeded, or an answer is invalid."""
    first_outcomes = [RequestOutcome(int(part.outcome[0])) for part in records.parts()]
    if first_outcomes and not _has_answers(records):
        count = sum(map(len, records.parts()))
        yield Failure(
            where="load",
            kind=FailureKind.SERVER,
            message=f"none of {count:,} requests succeeded; the first one ended as {first_outcomes[0].word}"
            f"{error_text and f': {error_text}'}",
        )
    messages: dict[str, None] = {}
    began = perf_counter()
    for reply in replies:
        try:
            messages |= dict.fromkeys(outputs.describe_faults(session.arrays(reply)))
        except ValueError as error:
            messages[f"an answer cannot be read: {error}"] = None
        if perf_counter() - began > _CHECK_TIME:
            break
    for message in messages:
        yield Failure(where="load", kind=FailureKind.INVALID_OUTPUT, message=message)
