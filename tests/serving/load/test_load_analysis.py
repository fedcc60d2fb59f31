"""What a load showed, from records whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.serving.load.test_request_log import times_of_pieces

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.measurement import CLIENT_LIMITED, SATURATED, Distribution, Measurement
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.server_stats import CounterReading, ServedWindow, ServerCounters
from modeldyno.profiling import latency_breakdown
from modeldyno.serving.load import load_analysis
from modeldyno.serving.load.request_log import (
    COLUMNS,
    PieceTimes,
    Records,
    empty_records,
    join_records,
    sample_records,
    sampling_step,
)
from modeldyno.serving.load.steady_window import SteadyWindow

if TYPE_CHECKING:
    from numpy import ndarray

SECOND = 1_000_000_000
MILLI = 1_000_000
OPEN = Load(arrivals=Arrivals.POISSON, rate=100)


def records(due: Any, service: Any, *, lag: Any = 0, **columns: Any) -> Records:
    """Make records of requests that took `service` nanoseconds each."""
    times: ndarray[Any, Any] = np.asarray(due, dtype=np.int64)
    sent = times + np.asarray(lag, dtype=np.int64)
    moments = {
        "due": times,
        "sent": sent,
        "first": sent,
        "end": sent + np.asarray(service, dtype=np.int64),
    }
    pieces = columns.pop("pieces", None)
    filled = {
        name: np.broadcast_to(np.asarray(moments.get(name, columns.get(name, 0)), dtype), times.shape)
        for name, dtype in COLUMNS.items()
    }
    return Records(**filled, pieces=pieces if pieces is None else PieceTimes.of(pieces))


def window(records: Records, load: Load = OPEN, seconds: float = 10, **more: Any) -> SteadyWindow:
    """Cut a window of so many seconds from the first."""
    return SteadyWindow(records=records, begin=0, end=int(seconds * SECOND), load=load, **more)


def measured(cut: SteadyWindow) -> dict[str, Measurement]:
    """Give measurements by metric and scope."""
    return {f"{m.metric}@{m.scope}" if m.scope else m.metric: m for m in load_analysis.measurements(cut)}


def spread(measurement: Measurement) -> Distribution:
    """Give a distribution as such."""
    assert isinstance(measurement.value, Distribution)
    return measurement.value


def steady(count: int = 1000, service: Any = 5 * MILLI, **columns: Any) -> Records:
    """Make requests at equal steps over ten seconds."""
    due = np.arange(count) * (10 * SECOND // count)
    noise = np.random.default_rng(0).integers(0, MILLI, count)
    return records(due, service + noise, **columns)


def test_latency_counts_from_the_due_time() -> None:
    """A request that was sent late was slow, though its server was not."""
    measurements = measured(window(steady(lag=20 * MILLI), load=Load(concurrency=1)))
    assert spread(measurements["latency"]).statistic("min") == pytest.approx(0.025, rel=0.2)
    assert spread(measurements["service_time"]).statistic("min") == pytest.approx(0.005, rel=0.2)
    assert spread(measurements["send_lag"]).statistic("p50") == pytest.approx(0.02)


def test_rates_count_what_was_answered_well_in_the_window() -> None:
    """Throughput counts samples, the request rate requests, the goodput those within their bound."""
    outcome = np.where(np.arange(1000) % 10 == 0, RequestOutcome.REJECTED, RequestOutcome.OK)
    load = Load(arrivals=Arrivals.CONSTANT, rate=100, within=0.0055)
    measurements = measured(window(steady(outcome=outcome), load=load, samples=4))
    assert measurements["request_rate"].value == pytest.approx(90, abs=0.2)
    assert measurements["throughput"].value == pytest.approx(360, abs=1)
    assert measurements["offered_rate"].value == pytest.approx(100)
    assert measurements["goodput"].value == pytest.approx(45, abs=5)
    interval = measurements["request_rate"].interval
    assert interval is not None
    assert interval.low <= 90 <= interval.high


def test_failures_are_counted_once_and_in_no_latency() -> None:
    """Each kind of failure is a row of its own, and a doubt names them."""
    outcome = np.zeros(1000)
    outcome[::10], outcome[1::10] = RequestOutcome.TIMEOUT, RequestOutcome.RESET
    cut = window(steady(outcome=outcome, retries=np.arange(1000) == 5))
    measurements = measured(cut)
    assert [measurements[f"requests@{word}"].value for word in ("ok", "timeout", "reset")] == [800, 100, 100]
    assert measurements["requests@retried"].value == 1
    assert measurements["error_rate"].value == pytest.approx(0.2)
    assert len(spread(measurements["latency"])) == 800
    (doubt,) = load_analysis.doubts(cut)
    assert doubt.code == "failed-requests"
    assert "200 of 1,000 requests failed: 100 timeout, 100 reset" in doubt.seen


def test_requests_that_the_end_of_a_load_cut_off_are_a_doubt() -> None:
    """They are the slowest, and no failures: the share of errors does not know them."""
    outcome = np.where(np.arange(1000) % 100 == 99, RequestOutcome.CANCELLED, RequestOutcome.OK)
    cut = window(steady(outcome=outcome, service=np.where(outcome == RequestOutcome.OK, 5, 800) * MILLI))
    (doubt,) = load_analysis.doubts(cut)

    assert measured(cut)["error_rate"].value == 0
    assert doubt.code == "unanswered"
    assert doubt.seen == (
        "10 of 1,000 requests had no answer when the load ended, one of them after 800 ms; they are not in "
        "the latency"
    )


@pytest.mark.parametrize("load", [OPEN, Load(concurrency=1)])
def test_a_window_is_cut_to_the_first_so_many_requests(load: Load) -> None:
    """Failed ones count; it ends where the next one is due, whatever was waiting then."""
    cut = replace(window(steady(outcome=np.arange(1000) % 10 == 0), load=load, backlog=7), begin=SECOND // 2)
    exact = cut.first(100)
    assert (exact.begin, exact.end, exact.backlog) == (SECOND // 2, 3 * SECOND // 2, 0)
    measurements = measured(exact)
    assert [measurements[f"requests@{word}"].value for word in ("ok", "timeout")] == [90, 10]
    assert cut.first(950) is cut
    assert cut.first(10_000) is cut


def test_requests_that_are_due_together_are_measured_together() -> None:
    """Of bursts of eight, ten requests are two; also where no further one is due."""
    bursts = records(np.repeat(np.arange(3) * SECOND, 8), MILLI)
    assert len(window(bursts).first(10).due()) == 16
    assert len(window(bursts).first(20).due()) == 24
    assert len(window(empty_records()).first(1).due()) == 0


def test_a_closed_loop_that_is_never_answered_is_not_called_limited_by_its_client() -> None:
    """Its slots pause, as they fail."""
    failed = records(
        np.arange(20) * SECOND // 2, MILLI, lag=MILLI, outcome=np.full(20, RequestOutcome.SERVER_ERROR)
    )
    assert [each.code for each in load_analysis.doubts(window(failed, load=Load()))] == ["failed-requests"]


def test_a_window_without_requests_gives_rates_alone() -> None:
    """Where nothing was due there is no latency, and no division by nothing."""
    measurements = measured(window(empty_records()))
    assert "latency" not in measurements
    assert measurements["request_rate"].value == 0
    assert not list(load_analysis.doubts(window(empty_records(), clients=(0.1,))))


def test_the_share_of_errors_is_unknown_where_no_request_has_ended() -> None:
    """Neither an empty window nor one of cancelled requests is free of errors; one bad answer is all."""
    assert "error_rate" not in measured(window(empty_records()))
    assert "error_rate" not in measured(window(steady(10, outcome=RequestOutcome.CANCELLED)))
    assert measured(window(steady(1, outcome=RequestOutcome.TIMEOUT)))["error_rate"].value == 1


def test_requests_due_in_the_window_are_followed_beyond_it() -> None:
    """A slow request at the end of the window is in its latency, and with a third of its time in its rate."""
    due = np.array([0, 9 * SECOND, 11 * SECOND])
    measurements = measured(window(records(due, 3 * SECOND), load=Load()))
    assert len(spread(measurements["latency"])) == 2
    assert measurements["request_rate"].value == pytest.approx((1 + 1 / 3) / 10)


def test_in_flight_is_the_time_on_the_way_over_the_window() -> None:
    """Requests on their way at once, by the time that each spends there within the window."""
    measurements = measured(window(steady(service=50 * MILLI)))
    assert measurements["in_flight"].value == pytest.approx(5, rel=0.05)


# --- overload and client -------------------------------------------------------------------------


def overloaded(factor: float, count: int = 4000) -> Records:
    """Ask a server that takes 2.5 ms a request for `factor` times what it can do."""
    rng = np.random.default_rng(1)
    due = np.cumsum(rng.exponential(2.5 * MILLI / factor, count)).astype(np.int64)
    end = np.zeros(count, np.int64)
    free = 0
    for i, when in enumerate(due):
        free = max(free, int(when)) + int(2.5 * MILLI)
        end[i] = free
    return records(due, end - due)


@pytest.mark.parametrize(("factor", "code"), [(1.5, SATURATED), (1.1, SATURATED), (0.7, ""), (0.5, "")])
def test_an_overload_is_saturated(factor: float, code: str) -> None:
    """When more is due than the server can do, its latency is void: it only grows."""
    cut = window(overloaded(factor), seconds=5)
    assert load_analysis.void_reason(cut) == code
    assert [doubt.code for doubt in load_analysis.doubts(cut)] == ([code] if code else [])
    latency = spread(measured(cut)["latency"])
    assert latency.void == code
    interval = latency.interval("p50")
    assert interval is not None
    assert (interval.high == np.inf) is bool(code)
    assert (latency.certified("p50") is None) is bool(code)


def test_what_was_given_up_in_an_overload_tells_how_long_it_had_waited() -> None:
    """Requests that were cancelled at the end are no errors, and bound the latency from below."""
    due = np.arange(1000) * 10 * MILLI
    outcome = np.where(np.arange(1000) < 100, RequestOutcome.OK, RequestOutcome.CANCELLED)
    cut = window(records(due, 11 * SECOND - due, outcome=outcome))
    measurements = measured(cut)
    assert measurements["error_rate"].value == 0
    interval = spread(measurements["latency"]).interval("p50")
    assert interval is not None
    assert interval.low == pytest.approx(6, rel=0.01)
    assert [doubt.code for doubt in load_analysis.doubts(cut)] == [SATURATED]


def test_a_little_work_that_is_left_is_no_overload() -> None:
    """Where hardly more is waiting at the end than before, a high latency alone says nothing."""
    due = np.arange(1000) * 10 * MILLI
    cut = window(records(due, np.linspace(5, 400, 1000).astype(int) * MILLI))
    assert load_analysis.void_reason(cut) == SATURATED
    falling = window(records(due, np.linspace(400, 400, 1000).astype(int) * MILLI))
    assert load_analysis.void_reason(falling) == ""


def test_a_closed_loop_is_never_saturated() -> None:
    """In a closed loop no more is due than is answered."""
    assert load_analysis.void_reason(window(overloaded(1.5), load=Load(concurrency=4), seconds=5)) == ""


def test_what_was_due_and_never_sent_counts_as_load() -> None:
    """A backlog at the limit of requests in flight is an overload, not the client's fault."""
    load = Load(arrivals=Arrivals.CONSTANT, rate=200, concurrency=1)
    cut = window(steady(lag=50 * MILLI), load=load, backlog=1000)
    assert load_analysis.void_reason(cut) == SATURATED
    assert measured(cut)["offered_rate"].value == pytest.approx(200)


@pytest.mark.parametrize(
    ("records", "load", "clients", "sentence"),
    [
        (steady(lag=20 * MILLI), OPEN, (0.2,), "half of the requests were sent 20 ms late or later"),
        (steady(), Load(concurrency=1), (0.97,), "a driver kept 0.97 cores busy"),
        (steady(lag=20 * MILLI), Load(concurrency=4), (0.2,), "of the slots were idle"),
    ],
)
def test_a_client_that_holds_requests_up_voids_its_latency(
    records: Records, load: Load, clients: tuple[float, ...], sentence: str
) -> None:
    """Where the client is the limit, nothing is claimed of the server."""
    cut = window(records, load=load, clients=clients)
    assert load_analysis.void_reason(cut) == CLIENT_LIMITED
    (doubt,) = load_analysis.doubts(cut)
    assert sentence in doubt.seen
    interval = spread(measured(cut)["latency"]).interval("p50")
    assert interval is not None
    assert (interval.low, interval.high) == (-np.inf, np.inf)


def test_a_client_that_has_fallen_behind_is_the_limit() -> None:
    """Where what was sent in the window was due before it, and nothing due in it was sent, we were slow."""
    early = records(np.arange(100) * MILLI, 2 * SECOND, lag=3 * SECOND)
    cut = SteadyWindow(records=early, begin=2 * SECOND, end=6 * SECOND, load=OPEN, clients=(0.3,))
    assert not len(cut.due())
    assert load_analysis.void_reason(cut) == CLIENT_LIMITED
    measurements = measured(cut)
    assert spread(measurements["latency"]).void == CLIENT_LIMITED
    assert len(spread(measurements["latency"])) == 100
    assert "offered_rate" not in measurements
    unanswered = SteadyWindow(records=early, begin=2 * SECOND, end=4 * SECOND, load=OPEN, clients=(0.3,))
    assert load_analysis.void_reason(unanswered) == CLIENT_LIMITED
    assert "latency" not in measured(unanswered)


def test_what_was_due_and_not_sent_without_any_limit_is_the_clients_fault() -> None:
    """A driver that stood still at the end sent nothing late: the rest of what was due shows it."""
    stalled = steady(900)
    assert load_analysis.void_reason(window(stalled, backlog=9)) == ""
    assert load_analysis.void_reason(window(stalled, backlog=100)) == CLIENT_LIMITED
    (doubt,) = load_analysis.doubts(window(stalled, backlog=100))
    assert doubt.seen.startswith("100 requests that were due had not been sent at the end")


def test_of_too_many_requests_a_sample_is_told_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand, of which one in four is told; the slowest is among them, and the doubt says so."""
    monkeypatch.setattr(sample_records, "__defaults__", (250,))
    monkeypatch.setattr(sampling_step, "__defaults__", (250,))
    service = np.full(1000, 5 * MILLI)
    service[321] = SECOND
    measurements = measured(cut := window(steady(service=service)))
    latency = spread(measurements["latency"])
    assert 230 < len(latency) < 257
    assert latency.statistic("max") > 1
    assert latency.statistic("p50") == pytest.approx(0.0055, rel=0.1)
    assert measurements["requests@ok"].value == 1000
    assert measurements["request_rate"].value == 100
    (doubt,) = load_analysis.doubts(cut)
    assert doubt.code == "thinned"
    assert "one of every 4 was drawn at random" in doubt.seen


def test_waiting_for_a_slot_is_no_lateness_of_the_client() -> None:
    """With a limit of requests in flight, what waits for it waits for the server."""
    load = Load(arrivals=Arrivals.CONSTANT, rate=100, concurrency=1)
    assert load_analysis.void_reason(window(steady(lag=20 * MILLI), load=load, clients=(0.2,))) == ""
    assert load_analysis.void_reason(window(steady(), load=OPEN, clients=(0.95,))) == ""


def test_a_few_late_requests_make_the_tail_doubtful() -> None:
    """Where one in fifty was sent late, the latency stands, and its tail is doubted."""
    cut = window(steady(lag=(np.arange(1000) % 50 == 0) * 20 * MILLI))
    assert load_analysis.void_reason(cut) == ""
    (doubt,) = load_analysis.doubts(cut)
    assert doubt.code == "sent-late"
    assert not list(load_analysis.doubts(window(steady(lag=MILLI // 100), load=Load())))


def test_drivers_are_told_one_by_one() -> None:
    """What each driver kept busy is a number of its own."""
    measurements = measured(window(steady(), clients=(0.25, 0.5)))
    assert [measurements[f"client_cpu@driver {n}"].value for n in range(2)] == [0.25, 0.5]


# --- streams -------------------------------------------------------------------------------------


def streamed(tokens: int, each: int = 4) -> Records:
    """Make answers of `each` pieces, 10 ms apart."""
    due = np.arange(100) * 100 * MILLI
    pieces = tuple(tuple(int(when) + (n + 1) * 10 * MILLI for n in range(each)) for when in due)
    plain = records(due, each * 10 * MILLI, tokens=tokens, pieces=pieces)
    return Records(
        **{name: getattr(plain, name) for name in COLUMNS if name != "first"},
        first=due + 10 * MILLI,
        pieces=PieceTimes.of(pieces),
    )


def test_tokens_of_prompts_are_counted_where_all_are_known() -> None:
    """By message, or of a chat by request; a prompt of unknown length withholds their rate."""
    load = window(streamed(4))
    assert "prompt_token_rate" not in measured(load)
    assert measured(replace(load, prompt_tokens=(30,)))["prompt_token_rate"].value == pytest.approx(300)
    chats = replace(streamed(4), turns=np.tile([1, 1, 0, 50, 0], (100, 1)))
    assert measured(window(chats))["prompt_token_rate"].value == pytest.approx(500)
    chats.turns[50, 3] = -1
    assert "prompt_token_rate" not in measured(window(chats))


def test_a_piece_is_a_token_only_where_the_counts_agree() -> None:
    """The gap between tokens is told where every piece is one; else that between pieces alone."""
    measurements = measured(window(streamed(4)))
    assert spread(measurements["time_to_first_token"]).statistic("p50") == pytest.approx(0.01)
    assert spread(measurements["inter_token_latency"]).statistic("p50") == pytest.approx(0.01)
    assert measurements["token_rate"].value == pytest.approx(40)
    several = measured(window(streamed(7)))
    assert "inter_token_latency" not in several
    assert spread(several["inter_chunk_latency"]).statistic("p50") == pytest.approx(0.01)
    assert spread(several["time_per_output_token"]).statistic("p50") == pytest.approx(0.005)


def test_an_answer_is_good_if_it_keeps_every_bound() -> None:
    """Of its first token, of its tokens and of its whole; what came whole has its first token at its end."""
    stream = streamed(4)
    late = stream.due + np.where(np.arange(100) % 4 == 0, 20 * MILLI, 0)  # their first token takes 30 ms
    slow = replace(stream, due=stream.due - (late - stream.due), sent=stream.sent - (late - stream.due))
    load = Load(concurrency=1, also_within={"time_to_first_token": 0.02, "time_per_output_token": 0.011})
    good = measured(window(slow, load=load))["goodput"].value
    assert good == pytest.approx(7.5, abs=0.2)
    assert measured(window(slow, load=replace(load, within=0.03)))["goodput"].value == 0
    pace = load.with_good_answers({"time_per_output_token": 0.009})
    assert measured(window(slow, load=pace))["goodput"].value == 0
    whole = replace(slow, pieces=None)
    assert measured(window(whole, load=load))["goodput"].value == 0
    assert measured(window(whole, load=pace))["goodput"].value == pytest.approx(10, abs=0.2)
    output = load.with_good_answers({"time_to_first_output_token": 0.02})
    assert measured(window(whole, load=output))["goodput"].value == 0


def test_the_answer_itself_begins_after_the_reasoning() -> None:
    """Its first piece is told where some answers reason; one that does nothing else has none."""
    stream = streamed(4)
    assert "time_to_first_output_token" not in measured(window(stream))
    half = np.where(np.arange(100) % 2, 2, 0).astype("int32")
    first = spread(measured(window(replace(stream, reasoning=half)))["time_to_first_output_token"])
    assert sorted({round(time, 3) for time in first.samples().tolist()}) == [0.01, 0.03]
    only = replace(stream, reasoning=np.full(100, 4, "int32"))
    assert "time_to_first_output_token" not in measured(window(only))
    late = Load(also_within={"time_to_first_output_token": 0.02})
    assert measured(window(replace(stream, reasoning=half), load=late))["goodput"].value == pytest.approx(
        5, abs=0.2
    )


def test_tokens_are_told_for_each_user() -> None:
    """Those after the first over their time; the latency is spread over all of them."""
    measurements = measured(window(streamed(4)))
    assert spread(measurements["user_token_rate"]).statistic("p50") == pytest.approx(100)
    assert spread(measurements["normalized_latency"]).statistic("p50") == pytest.approx(0.01)


def test_gaps_are_in_the_order_of_time_and_in_blocks_that_no_answer_outlasts() -> None:
    """Two streams at once share what slows the server, so their gaps are not independent."""
    stream = streamed(4)
    both = join_records([stream, stream])
    gaps = spread(measured(window(both))["inter_token_latency"])
    assert len(gaps.blocks[0]) == 64
    assert sum(gaps.blocks[0]) == len(gaps) == 600
    slower = 10 * MILLI + np.arange(100) % 2 * MILLI
    pieces = np.stack([stream.due, stream.due + slower, stream.due + 2 * slower], axis=1).tolist()
    twice = replace(stream, pieces=PieceTimes.of(pieces), tokens=stream.tokens - 1)
    few = spread(measured(window(join_records([twice] * 8)))["inter_token_latency"])
    assert few.effective_size("p50") < len(few) / 3


def test_a_stream_whose_tokens_are_not_told_has_pieces_alone() -> None:
    """Without a count of tokens there is no time of one; one piece has no gap."""
    assert "time_per_output_token" not in measured(window(streamed(-1)))
    assert "inter_chunk_latency" not in measured(window(streamed(-1, each=1)))


def test_the_first_token_is_the_first_piece_and_not_the_first_byte() -> None:
    """A role that comes before the prompt is read is no token; an answer without tokens has no first one."""
    stream = streamed(4)
    early = replace(stream, first=stream.sent, pieces=PieceTimes.of([(), *times_of_pieces(stream)[1:]]))
    first = spread(measured(window(early))["time_to_first_token"])
    assert len(first) == 99
    assert first.statistic("min") == pytest.approx(0.01)
    empty = replace(stream, pieces=PieceTimes.of([()] * 100))
    assert not {"time_to_first_token", "inter_chunk_latency"} & set(measured(window(empty)))


def test_tokens_that_come_all_at_once_have_no_time_each() -> None:
    """Nothing is known of when they were made; that they were is counted."""
    measurements = measured(window(streamed(7, each=1)))
    assert "time_per_output_token" not in measurements
    assert measurements["token_rate"].value == pytest.approx(70)
    interval = measurements["token_rate"].interval
    assert interval is not None
    assert interval.low <= 70 <= interval.high


def test_what_the_server_says_of_a_failure_stands_in_the_doubt() -> None:
    """So that nobody has to look for it."""
    outcome = np.where(np.arange(1000) % 10 == 0, RequestOutcome.SERVER_ERROR, RequestOutcome.OK)
    (doubt,) = load_analysis.doubts(window(steady(outcome=outcome)), "the server answered 500: no memory")
    assert "they are not in the latency (the server answered 500: no memory)" in doubt.seen


# --- records -------------------------------------------------------------------------------------


def test_joined_records_are_in_the_order_of_their_ends() -> None:
    """The records of several drivers come in one order, with their pieces."""
    one = records([0, 10], [50, 5], pieces=((1,), (2,)), driver=0)
    other = records([20], [1], pieces=((3,),), driver=1)
    both = join_records([one, other])
    assert both.end.tolist() == [15, 21, 50]
    assert both.driver.tolist() == [0, 1, 0]
    assert times_of_pieces(both) == [(2,), (3,), (1,)]
    assert len(join_records([])) == len(empty_records()) == 0
    assert join_records([records([1], [1])]).pieces is None


def test_records_without_pieces_stay_in_step_with_those_that_have_some() -> None:
    """While nothing comes of a stream but failures, a driver tells of no pieces at all."""
    both = join_records([records([0, 1], [9, 5]), records([2], [1], pieces=((3,),))])
    assert both.end.tolist() == [3, 6, 9]
    assert times_of_pieces(both) == [(3,), (), ()]


def test_outcomes_have_words() -> None:
    """An outcome is told in lower case."""
    assert RequestOutcome.CLIENT_ERROR.word == "client-error"


# --- the server's account ------------------------------------------------------------------------


def test_an_account_is_what_was_added_between_two_looks() -> None:
    """Counters only grow: the difference is that of the window; what is not told stays untold."""
    before = ServerCounters(requests=10, queue=1.0, compute=2.0, batches={1: 10})
    after = ServerCounters(requests=30, queue=1.5, compute=4.0, batches={1: 10, 4: 5}, compute_input=None)
    assert after.since(before) == ServerCounters(requests=20, queue=0.5, compute=2.0, batches={4: 5})


def served(account: ServerCounters, service_time: float, answers: int = 20) -> ServedWindow:
    return ServedWindow(account=account, answers=answers, service=answers * service_time)


def simulated_windows(seed: int, count: int, alike: float = 0.0) -> list[ServedWindow]:
    """Return windows of a server whose queue rises and falls: 2 ms of queue and 3 ms of work on average."""
    rng = np.random.default_rng(seed)
    level, windows = rng.standard_normal(), []
    for _ in range(count):
        level = alike * level + (1 - alike**2) ** 0.5 * rng.standard_normal()
        requests = int(rng.poisson(60)) + 1
        queue = float(rng.exponential(0.002, requests).sum()) * math.exp(level / 4 - 1 / 32)
        compute = float(rng.gamma(20, 0.003 / 20, requests).sum())
        network = float(rng.gamma(4, 0.001 / 4, requests).sum())
        account = ServerCounters(requests=requests, queue=queue, compute=compute)
        windows.append(ServedWindow(account=account, answers=requests, service=queue + compute + network))
    return windows


@pytest.mark.no_cover
@pytest.mark.parametrize(("count", "alike"), [(8, 0.0), (20, 0.0), (80, 0.6)])
def test_the_interval_of_a_servers_stage_covers_the_truth(count: int, alike: float) -> None:
    """In 94 of 100 loads or more the true mean lies within; of windows that are alike it takes many."""
    truth = {"queue_time": 0.002, "compute_time": 0.003, "network_time": 0.001}
    covered = dict.fromkeys(truth, 0)
    for seed in range(400):
        for measurement in latency_breakdown.measurements(simulated_windows(seed, count, alike)):
            assert measurement.interval is not None
            covered[measurement.metric] += (
                measurement.interval.low <= truth[measurement.metric] <= measurement.interval.high
            )
    least = 0.94 - 2 * (0.95 * 0.05 / 400) ** 0.5  # what is drawn scatters as well
    assert min(covered.values()) / 400 > least, covered


def test_the_windows_of_a_stage_add_up_to_its_number() -> None:
    """The mean of a stage is that of the whole window, however it was cut; the cuts give the interval."""
    windows = simulated_windows(0, 12)
    empty = ServedWindow(
        account=ServerCounters(requests=0, queue=0.0, compute=0.0, batches={1: 2}), answers=0, service=0.0
    )
    ends = [empty, *windows[:5], empty, *windows[5:], empty]
    by_metric = {m.metric: m for m in latency_breakdown.measurements(ends)}
    total = sum(w.account.queue or 0.0 for w in windows) / sum(w.answers for w in windows)
    assert by_metric["queue_time"].value == pytest.approx(total, rel=1e-12)
    assert by_metric["queue_time"].windows[0].ratio() == by_metric["queue_time"].value
    assert (
        len(by_metric["queue_time"].windows[0].counts) == 8 * 12
    )  # one without an answer joins its neighbour
    assert by_metric["executions"].value == 6


def test_counters_that_ran_backwards_have_no_interval() -> None:
    """A server that was restarted meanwhile still has a mean of the whole, but its windows say nothing."""
    back = ServedWindow(account=ServerCounters(requests=-3, queue=0.1, compute=0.1), answers=4, service=0.3)
    all_stages = list(latency_breakdown.measurements([*simulated_windows(0, 12), back]))
    assert [m.interval for m in all_stages] == [None] * 3


def test_a_network_that_took_no_time_is_zero() -> None:
    """Stages longer than the service time leave nothing for the network, and no interval."""
    over = served(ServerCounters(requests=20, queue=0.3), 0.01)
    (network,) = (m for m in latency_breakdown.measurements([over] * 5) if m.metric == "network_time")
    assert (network.value, network.interval) == (0.0, None)


def test_a_served_window_has_the_answers_between_two_readings() -> None:
    """An answer belongs to the window in which it ended; those before the first reading belong to none."""
    counts = {10: 0, 20: 3, 30: 4}
    readings = [CounterReading(when=when, counters=ServerCounters(requests=n)) for when, n in counts.items()]
    times = np.array([9, 10, 15, 19, 25, 30])
    cut = window(records(times - 4, 2, lag=2), seconds=40e-9)
    first, second = load_analysis.served_windows(readings, cut)
    assert (first.answers, second.answers) == (3, 1)
    assert first.service == pytest.approx(6e-9)
    assert (first.account.requests, second.account.requests) == (3, 1)


def test_a_server_that_counts_no_requests_has_answered_ours() -> None:
    """What it sums over requests is divided by those."""
    readings = [
        CounterReading(when=at, counters=ServerCounters(requests=0, compute=at / 10)) for at in (10, 30)
    ]
    (only,) = load_analysis.served_windows(readings, window(records(np.array([15, 20]), 2), seconds=40e-9))
    assert (only.account.requests, only.account.compute) == (2, 2.0)


def test_a_language_model_has_its_phases_as_parts_of_its_work() -> None:
    """They are no stages beside it: the sum is the same without them."""
    account = ServerCounters(requests=10, queue=0.1, compute=0.5, prefill=0.1, decode=0.4)
    parts = {m.metric: m.value for m in latency_breakdown.measurements([served(account, 0.08)])}
    assert parts == pytest.approx(
        {
            "queue_time": 0.01,
            "compute_time": 0.05,
            "network_time": 0.02,
            "prefill_time": 0.01,
            "decode_time": 0.04,
        }
    )


def test_what_a_server_of_language_models_reports_is_measured() -> None:
    """Counters by their growth, gauges by every reading; what it does not report is left out."""
    readings = [
        CounterReading(
            when=at,
            counters=ServerCounters(
                requests=at, preemptions=5 + at, drafted_tokens=100 * at, accepted_tokens=60 * at,
                cache_usage=0.25 * at, running=at, waiting=None,
            ),
        )
        for at in (1, 2, 3)
    ]  # fmt: skip
    by_metric = {m.metric: m.value for m in latency_breakdown.generation_measurements(readings)}
    assert by_metric["preempted_requests"] == 2
    assert by_metric["accepted_token_share"] == pytest.approx(0.6)
    usage = by_metric["kv_cache_usage"]
    assert isinstance(usage, Distribution)
    assert (usage.statistic("mean"), usage.statistic("max")) == (0.5, 0.75)
    assert "running_requests" in by_metric
    assert "waiting_requests" not in by_metric
    bare = [CounterReading(when=at, counters=ServerCounters(requests=at)) for at in (1, 2)]
    assert not list(latency_breakdown.generation_measurements(bare))


def test_the_parts_of_a_request_sum_to_the_whole() -> None:
    """What the server's account leaves of the service time is network, protocol and client."""
    account = ServerCounters(requests=20, queue=0.02, compute=0.1, samples=40, executions=10, batches={4: 10})
    parts = {f"{m.metric}{m.scope}": m.value for m in latency_breakdown.measurements([served(account, 0.01)])}
    assert parts == pytest.approx(
        {
            "queue_time": 0.001,
            "compute_time": 0.005,
            "network_time": 0.004,
            "formed_batch": 4,
            "executionsbatch 4": 10,
        }
    )
    assert not list(latency_breakdown.doubts(account, 0.01, 20))


def test_each_model_of_an_ensemble_has_its_own_stages() -> None:
    """Per request to that model, with its name as the scope, beside those of the whole."""

    def counters(n: int) -> ServerCounters:
        double = ServerCounters(requests=2 * n, queue=0.01 * n, compute=0.02 * n, samples=2 * n, executions=n)
        parts = {"double": double, "late": ServerCounters(requests=n)}
        if n < 10:  # it was loaded meanwhile
            parts.pop("late")
        return ServerCounters(requests=n, compute=0.04 * n, models=parts)

    windows = [served(counters(n + 20).since(counters(n)), 0.1) for n in (5, *range(20, 260, 20))]
    stages = {f"{m.metric}@{m.scope}": m for m in latency_breakdown.measurements(windows[1:])}
    assert stages["queue_time@double"].value == pytest.approx(0.005)
    assert stages["queue_time@double"].interval is not None
    assert stages["compute_time@double"].value == pytest.approx(0.01)
    assert stages["formed_batch@double"].value == pytest.approx(2.0)
    assert stages["compute_time@"].value == pytest.approx(0.04)
    assert not [name for name in stages if name.endswith("@late")]
    few = {f"{m.metric}@{m.scope}": m for m in latency_breakdown.measurements(windows[:2])}
    assert few["queue_time@double"].value == pytest.approx(0.005)
    assert few["queue_time@double"].interval is None


def test_a_server_that_tells_nothing_has_no_breakdown() -> None:
    """Without requests or times there is no stage, and the network is not blamed for all."""
    assert not list(latency_breakdown.measurements([served(ServerCounters(requests=0, queue=0.0), 0.01)]))
    assert not list(latency_breakdown.measurements([served(ServerCounters(requests=5), 0.01)]))


def test_an_account_that_contradicts_the_client_is_doubted() -> None:
    """More requests than ours, or more time than the whole, are reasons to doubt."""
    account = ServerCounters(requests=20, queue=0.02, compute=0.3)
    assert [d.code for d in latency_breakdown.doubts(account, 0.01, 10)] == [
        "foreign-requests",
        "account-differs",
    ]


def test_requests_that_the_load_gives_up_are_no_failures() -> None:
    """They are counted, and are in neither the error rate nor the latency."""
    outcome = np.where(np.arange(1000) % 10 == 0, RequestOutcome.ABANDONED, RequestOutcome.OK)
    cut = window(steady(outcome=outcome))
    measurements = measured(cut)

    assert measurements["error_rate"].value == 0
    assert measurements["requests@abandoned"].value == 100
    assert len(spread(measurements["latency"])) == 900
    assert not [doubt for doubt in load_analysis.doubts(cut) if doubt.code == "failed-requests"]
    assert not cut.records.failed.any()  # type: ignore[attr-defined]
