"""What a reader is told of a server under load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base.job.job import Job
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.model_ref import ModelIdentity, ModelRef
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.base.report.blocks import Notice, Table
from modeldyno.base.result.result import Result
from modeldyno.profiling.views.result.served import (
    breakdown,
    by_group,
    composing_models,
    describe_client,
    server_clause,
)
from modeldyno.profiling.views.result.table import brief_results, results

STAGES = (
    observed_number("queue_time", 0.004),
    observed_number("compute_time", 0.005),
    observed_number("network_time", 0.001),
    observed_number("formed_batch", 3.5),
    observed_number("executions", 7, scope="batch 4"),
    observed_number("executions", 2, scope="batch 1"),
)


def result(*measurements: Measurement, load: Load | None = Load(concurrency=16)) -> Result:  # noqa: B008 - frozen
    """Make a Result of a load on a server."""
    return Result(
        id="0" * 12,
        created="2026-01-01T00:00:00.000+00:00",
        job=Job(model=ModelRef(scheme="onnx", locator="m.onnx"), backend="triton", load=load),
        model=ModelIdentity(name="m", digest="sha256:0", framework="onnx"),
        measurements=measurements,
    )


def spread(metric: str, count: int = 2000, **more: str) -> Measurement:
    """Make times around 10 ms."""
    return Measurement(
        metric=metric,
        value=Distribution.of([0.009 + 0.000001 * (617 * n % count) for n in range(count)], **more),
    )


RATE = observed_number("request_rate", 1234.0, interval=Interval(low=1230, high=1238))


def test_the_sentence_gives_rate_and_latency_at_the_load() -> None:
    """One sentence says how much, at which load, and how fast."""
    clause = server_clause(result(RATE, spread("latency")))
    assert clause.startswith("answers 1,234 requests/s at concurrency 16 on triton: latency ")
    assert clause.endswith(" (p99)")


def test_a_void_latency_is_not_told() -> None:
    """Where the load was too much, the sentence says so in the place of a number."""
    clause = server_clause(result(RATE, spread("latency", void="saturated"), load=None))
    assert clause.endswith("under load on triton, but was saturated, so its latency is not meaningful")


@pytest.mark.parametrize(("count", "tail"), [(20, False), (2000, True)])
def test_a_tail_that_is_no_claim_is_left_out(count: int, tail: bool) -> None:
    """The p99 is told once there are samples enough."""
    assert ("p99" in server_clause(result(RATE, spread("latency", count)))) is tail


STREAM = (
    RATE,
    observed_number("token_rate", 4936.0, interval=Interval(low=4930, high=4942)),
    spread("time_to_first_token"),
    spread("time_per_output_token"),
    spread("inter_chunk_latency"),
    spread("latency"),
)


def test_the_sentence_of_a_language_model_is_of_its_tokens() -> None:
    """How many, when the first one comes, and how fast the others follow; then the requests."""
    clause = server_clause(result(*STREAM))
    begin = "generates 4,936 tokens/s (1,234 requests/s) at concurrency 16 on triton: first token after "
    assert clause.startswith(begin)
    assert " (p99), then one every " in clause
    few = server_clause(
        result(*STREAM[:2], spread("time_to_first_token", 5), spread("time_per_output_token", 5), STREAM[-1])
    )
    assert "first token after about" in few
    assert "then one about every" in few


def test_tokens_that_come_at_once_have_no_time_of_their_own() -> None:
    """The sentence says that they came with the first."""
    at_once = Measurement(metric="time_per_output_token", value=Distribution.of([0.0] * 200))
    assert ", all others with it" in server_clause(result(*STREAM[:3], at_once, STREAM[-1]))


def test_a_stream_whose_tokens_nobody_counts_has_its_first_token() -> None:
    """The rate is that of requests then; where there is no time of a token, none is told."""
    clause = server_clause(result(RATE, STREAM[2], STREAM[-1]))
    assert clause.startswith("answers 1,234 requests/s at concurrency 16 on triton: first token after ")
    assert "every" not in clause
    void = server_clause(result(*STREAM[:3], spread("latency", void="saturated")))
    assert void.startswith("generates 4,936 tokens/s (1,234 requests/s) at ")
    assert void.endswith("was saturated, so its latency is not meaningful")


def test_tokens_come_first_in_the_table() -> None:
    """With their percentiles; gaps between tokens stand for those between pieces, where they are the same."""
    (table,) = results(result(*STREAM), ())
    names = [row[0] for row in table.rows]
    assert names[:3] == [f"time_to_first_token.{each}" for each in ("p50", "p90", "p99")]
    assert names[3:8] == [
        "time_per_output_token.p50", "time_per_output_token.p99", "inter_chunk_latency.p50",
        "inter_chunk_latency.p99", "token_rate",
    ]  # fmt: skip
    assert table.rows[5][3] == "2,000 gaps, converged"
    (table,) = results(result(*STREAM, spread("inter_token_latency")), ())
    assert not [row for row in table.rows if row[0].startswith("inter_chunk")]


def test_without_a_rate_nothing_was_served() -> None:
    """A run within a process has another sentence; a load that nobody answered has no latency."""
    assert server_clause(result(spread("latency"))) == ""
    assert server_clause(result(RATE)) == "answers 1,234 requests/s at concurrency 16 on triton"


def test_the_stages_of_a_request_sum_to_the_whole() -> None:
    """The table divides the mean service time; the batches that were formed are named beside it."""
    service = Measurement(metric="service_time", value=Distribution.of([0.01] * 20))
    table, note = breakdown(result(service, *STAGES))
    assert isinstance(table, Table)
    assert [row[:3] for row in table.rows] == [
        ("queue", "4.00 ms", "40.0%"),
        ("compute: model", "5.00 ms", "50.0%"),
        ("network, protocol and client", "1.00 ms", "10.0%"),
        ("total", "10.0 ms", "100%"),
    ]
    assert isinstance(note, Notice)
    assert note.text == "the server ran batches of 3.50 on average: 4 (7 calls), 1 (2 calls)"


def test_the_client_says_what_it_adds_to_the_times_of_tokens() -> None:
    """Of each what is known, and nothing of a load that has no such times."""
    first, gap = spread("client_first_token_error"), spread("client_gap_error")
    assert describe_client(result(first, gap)) == (
        "adds 10 ms (p99 11 ms) to a first token, 10 ms (p99 11 ms) to a gap"
    )
    assert describe_client(result(gap)) == "adds 10 ms (p99 11 ms) to a gap"
    assert not describe_client(result(RATE))


def test_what_a_server_of_language_models_reports_is_a_sentence() -> None:
    """Its phases, its requests at once, its cache and speculation, as far as it says."""
    gauges = [
        Measurement(metric=metric, value=Distribution.of([low, high]))
        for metric, low, high in (
            ("running_requests", 4, 8),
            ("waiting_requests", 0, 2),
            ("kv_cache_usage", 0.2, 0.5),
        )
    ]
    counters = [
        observed_number("prefill_time", 0.002),
        observed_number("decode_time", 0.003),
        observed_number("preempted_requests", 1),
        observed_number("accepted_token_share", 0.6),
    ]
    *_, sentence = breakdown(result(spread("service_time"), *STAGES[:3], *gauges, *counters))
    assert isinstance(sentence, Notice)
    assert sentence.text == (
        "by the server's metrics a request takes 2.00 ms of prefill and 3.00 ms of decode; on average 6 "
        "(at most 8) running and 1 (at most 2) waiting; the cache 50% full at most; 1 request preempted; "
        "60.0% of the speculated tokens accepted"
    )


def test_a_stage_with_an_interval_shows_it() -> None:
    """The column of intervals is there if one of the stages has one."""
    service = Measurement(metric="service_time", value=Distribution.of([0.01] * 20))
    queue = replace(STAGES[0], interval=Interval(low=0.0039, high=0.0041))
    table, *_ = breakdown(result(service, queue, *STAGES[1:]))
    assert isinstance(table, Table)
    assert [column.title for column in table.columns] == ["stage", "time", "95 % interval", "share", "metric"]
    assert [row[2] for row in table.rows] == ["3.9 to 4.1 ms", "", "", ""]


def test_each_model_of_an_ensemble_has_a_row() -> None:
    """With its stages, batch and instances; without any there is no table."""
    parts = (
        observed_number("queue_time", 0.002, scope="double"),
        observed_number("compute_time", 0.003, scope="double"),
        observed_number("queue_time", 0.001, scope="add"),
        observed_number("instances", 2, scope="double"),
    )
    (table,) = composing_models(result(*STAGES, *parts))
    assert isinstance(table, Table)
    assert [column.title for column in table.columns] == ["model", "queue", "model", "instances"]
    assert table.rows == (("double", "2.00 ms", "3.00 ms", "2"), ("add", "1.00 ms", "—", "—"))
    assert not list(composing_models(result(*STAGES)))


def test_shares_of_a_request_add_up_where_the_window_cuts_requests() -> None:
    """The server answered slow requests that were due before the window, whose mean is larger."""
    due = Measurement(metric="service_time", value=Distribution.of([0.008] * 20))
    table, _ = breakdown(result(due, *STAGES))
    assert isinstance(table, Table)
    assert [row[2] for row in table.rows] == ["40.0%", "50.0%", "10.0%", "100%"]


def test_a_server_that_tells_nothing_has_no_table() -> None:
    """Without the server's account there is nothing to divide; without batches, no note."""
    service = Measurement(metric="service_time", value=Distribution.of([0.01] * 20))
    assert not list(breakdown(result(service)))
    assert not list(breakdown(result(*STAGES)))
    assert len(list(breakdown(result(service, STAGES[0])))) == 1
    (_, note) = breakdown(result(service, STAGES[0], replace(STAGES[3])))
    assert isinstance(note, Notice)
    assert note.text.endswith("3.50 on average")


def test_times_of_a_language_model_are_a_line_each() -> None:
    """With their percentiles beside each other; of too few answers about, of a void one nothing."""
    void = spread("inter_token_latency", void="the client was late")
    stream = result(*STREAM[:-2], void, spread("latency", 8))

    times, others = brief_results(stream, ())

    assert [column.title for column in times.columns] == ["time", "p50", "p90", "p99"]
    by_name = {row[0]: row[1:] for row in times.rows}
    assert by_name["time_to_first_token"][0].startswith("10.00 ms ±")
    assert by_name["latency"][2].startswith("about ")
    assert by_name["inter_token_latency"] == ("—", "—", "—")
    assert not {"time_to_first_token.p50", "latency.p50"} & {row[0] for row in others.rows}
    (only,) = brief_results(result(*STREAM[1:]), ())
    assert only.rows


def test_times_that_another_tool_reported_stand_in_the_same_line() -> None:
    """Of its statistics those that are shown; one that it did not report is not known."""
    reported = [observed_number("time_to_first_token", 0.02, scope="p50")]
    times, *_ = brief_results(result(*STREAM[:2], *reported, spread("latency")), ())

    first = next(row for row in times.rows if row[0] == "time_to_first_token")
    assert first[1].endswith("20.0 ms")
    assert first[2:] == ("—", "—")


def test_turns_of_chats_have_a_table() -> None:
    """A line each, with what the server counts; a load without sessions has none."""
    latency, first = spread("latency"), spread("time_to_first_token", count=10)
    (table,) = by_group(
        result(
            RATE,
            latency,
            replace(latency, scope="turn=1"),
            replace(first, scope="turn=1"),
            observed_number("prompt_tokens", 128, scope="turn=1"),
            observed_number("cached_prompt_share", 0.5, scope="turn=1"),
            replace(spread("latency", count=20), scope="turn=9..16"),
        )
    )
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["1", "9..16"]
    one, many = (
        dict(zip((column.title for column in table.columns), row, strict=True)) for row in table.rows
    )
    assert (one["answers"], one["prompt tokens"], one["cached"]) == ("2,000", "128", "50.0%")
    assert one["first token p50"].startswith("about 9")
    assert (many["answers"], many["first token p50"], many["cached"]) == ("20", "", "")
    assert not [*by_group(result(RATE, latency))]
