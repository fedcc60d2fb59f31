from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base.metrics.constraints import Answer, Constraint, Verdict
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Heading, Notice, Severity, Table
from modeldyno.base.report.charts import Plot, Stack
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.capacity_steps import CapacitySearch, SearchEnd
from modeldyno.serving.load.load_curve import LoadCurve, LoadPoint
from modeldyno.serving.views.page import blocks, headline, numbers, page, pictures

BOUND = Constraint.parse("latency.p99 <= 30ms")


def an_answer(query: str, value: float | None) -> Answer:
    ends = Interval(low=0.04, high=float("inf"))
    if value is not None:
        ends = Interval(low=0.9 * value, high=1.1 * value)
    return Answer(query=Query.parse(query), value=value, interval=ends)


def rung(load: float) -> LoadPoint:
    """Four workers of 10 ms in a closed loop; its slowest requests are no claim under one slot."""
    time = 0.01 * max(load, 4) / 4
    answers = (
        an_answer("request_rate", 100.0 * min(load, 4)),
        an_answer("latency.p50", time),
        an_answer("latency.mean", time),
        an_answer("latency.p99", 2 * time if load > 1 else None),
        an_answer("queue_time", max(1e-4, time - 0.01)),
        an_answer("compute_time", 0.008),
        an_answer("service_time.mean", time + 0.001),
    )
    return LoadPoint(load=load, answers=answers, judgements=(BOUND.on(answers[3]),), result="0123")


LADDER = LoadCurve(
    knob="concurrency",
    rungs=(*map(rung, (16, 1, 2, 4, 8)), LoadPoint(load=32, failure="no answer", result="45")),
)
SEARCH = Capacity(
    search=CapacitySearch(bounds=(BOUND,)),
    rungs=tuple(map(rung, (1, 4, 8))),
    end=SearchEnd.RESOLVED,
    passed=4.0,
    failed=8.0,
)


def test_a_ladder_is_drawn() -> None:
    """Throughput and latency rise from the least load to the greatest, with their intervals and the knee."""
    rates, times, stages = pictures(LADDER)

    assert isinstance(rates, Plot)
    assert rates.series[0].x == (1.0, 2.0, 4.0, 8.0, 16.0)
    assert rates.series[0].low[0] == 90.0
    assert [(rule.name, rule.vertical) for rule in rates.rules] == [("knee", True)]
    assert isinstance(times, Plot)
    assert {line.name: len(line.x) for line in times.series} == {"p50": 5, "p99": 4}
    assert isinstance(stages, Stack)
    assert stages.bars[0] == "concurrency 1"
    assert [part.name for part in stages.parts] == ["queue", "compute: model", "network, protocol and client"]


def test_a_search_is_drawn_with_its_bound_and_its_answer() -> None:
    """The bound lies across the latencies, and what passed and failed across the throughput."""
    rates, times, _ = pictures(SEARCH)

    assert isinstance(rates, Plot)
    assert isinstance(times, Plot)
    assert [(rule.name, rule.at) for rule in rates.rules] == [
        ("largest that passed", 4.0), ("smallest that failed", 8.0),
    ]  # fmt: skip
    assert [(rule.name, rule.at) for rule in times.rules] == [("latency.p99 <= 30 ms", 0.03)]


def test_a_page_begins_with_the_answer() -> None:
    """The sentence comes first, then what went wrong, then pictures, then the tables."""
    blocks = list(page(LADDER))

    assert isinstance(blocks[0], Notice)
    assert (blocks[0].severity, blocks[0].text) == (Severity.VERDICT, headline(LADDER))
    assert [block.title for block in blocks if isinstance(block, Heading)] == [
        "Throughput and latency by load", "The numbers",
    ]  # fmt: skip
    assert isinstance(blocks[-1], Table)
    assert headline(SEARCH) in {block.text for block in page(SEARCH) if isinstance(block, Notice)}


def test_numbers_are_in_base_units() -> None:
    """Each answer is a row; what is no claim has no value, and a load that failed says why."""
    table = numbers(LADDER)

    assert (table.rows[0][0].removesuffix(".0"), *table.rows[0][1:3]) == ("16", "request_rate", "400.0")
    assert list(next(r for r in table.rows if r[:2] == ("1", "latency.p99"))[2:5]) == ["", "0.04", ""]
    assert table.rows[-1] == ("32", "", "", "", "", "no answer")


def test_nothing_measured_is_not_drawn() -> None:
    """A ladder of failures has no pictures."""
    assert not list(pictures(replace(LADDER, rungs=LADDER.rungs[-1:])))


def test_loads_of_a_language_model_show_tokens_and_first_tokens() -> None:
    """As charts and as a table; of other models there are neither."""
    tokens = (
        an_answer("token_rate", 960.0),
        an_answer("time_to_first_token.p50", 0.02),
        an_answer("time_to_first_token.p99", 0.04),
        an_answer("time_per_output_token.p50", 0.005),
        an_answer("inter_chunk_latency.p99", 0.009),
    )
    paces = (an_answer("user_token_rate.p50", 200.0), an_answer("user_token_rate.p50", 240.0))
    plain = LoadCurve(knob="concurrency", rungs=(rung(1), rung(4)))
    rungs = tuple(
        replace(each, answers=(*each.answers, *tokens, pace))
        for each, pace in zip(plain.rungs, paces, strict=True)
    )
    drawn = [*pictures(replace(plain, rungs=rungs))]
    assert [picture.title for picture in drawn[:4]] == [
        "Tokens of all users against those of one", "Tokens by load", "Time to the first token by load",
        "Latency by load",
    ]  # fmt: skip
    assert isinstance(drawn[0], Plot)
    assert drawn[0].series[0].labels == ("concurrency 1", "concurrency 4")
    assert not any("oken" in picture.title for picture in pictures(plain))
    (table,) = (
        block
        for block in page(replace(plain, rungs=rungs))
        if isinstance(block, Table) and "Tokens" in block.title
    )
    assert [cell.split(" \u00b1")[0] for cell in table.rows[1]] == [
        "4", "960/s", "240/s", "20 ms", "40 ms", "5.0 ms", "9.0 ms",
    ]  # fmt: skip
    assert not any(isinstance(block, Table) and "Tokens" in block.title for block in page(plain))


LIMIT = Constraint.parse("latency.p99 <= 50ms")


def a_judged_ladder(**times: float | None) -> LoadCurve:
    """Return a ladder by its p99 in milliseconds at each load; None where too few answers certify it."""
    rungs = []
    for name, time in times.items():
        answer = an_answer("latency.p99", None if time is None else time / 1e3)
        rungs.append(LoadPoint(load=float(name[1:]), answers=(answer,), judgements=(LIMIT.on(answer),)))
    return LoadCurve(knob="concurrency", rungs=tuple(rungs))


@pytest.mark.parametrize(
    ("times", "severity", "text"),
    [
        (
            {"c4": 20, "c16": 42, "c32": 63, "c64": 99},
            Severity.BROKEN,
            "holds up to concurrency 16 (42 ms); broken at 32 (63 ms), 64",
        ),
        ({"c4": 20, "c32": 42}, Severity.HELD, "holds at every load, up to concurrency 32 (42 ms)"),
        ({"c4": 63}, Severity.BROKEN, "is broken at concurrency 4 (63 ms)"),
        (
            {"c4": 63, "c8": 70},
            Severity.BROKEN,
            "is broken at concurrency 4, the smallest load, (63 ms) and at every larger one",
        ),
        (
            {"c4": 20, "c8": 63, "c16": 42},
            Severity.BROKEN,
            "holds up to concurrency 4 (20 ms); broken at 8 (63 ms); yet it holds at 16",
        ),
        (
            {"c1": None, "c4": 20},
            Severity.HELD,
            "holds up to concurrency 4 (20 ms); undecided at 1 (>40.0 ms)",
        ),
        (
            {"c1": 50, "c4": 63},
            Severity.BROKEN,
            "is broken at concurrency 4 (63 ms); undecided at 1 (50 ms)",
        ),
        ({"c1": 50, "c4": None}, Severity.UNDECIDED, "is undecided at every load (>40.0 ms)"),
    ],
)
def test_a_bound_of_a_ladder_has_a_verdict(
    times: dict[str, float | None], severity: Severity, text: str
) -> None:
    """A line below the answer says up to which load it holds and where it breaks, with the figures."""
    ladder = a_judged_ladder(**times)
    verdict, notice, *_ = blocks(ladder)

    assert isinstance(verdict, Notice)
    assert isinstance(notice, Notice)
    assert (notice.severity, notice.text) == (severity, f"latency.p99 <= 50 ms {text}")
    assert Severity(ladder.verdict) == severity


def test_a_ladder_without_bounds_has_no_verdict_on_them() -> None:
    """Nothing was asked of it, so nothing is broken."""
    (verdict, *others) = blocks(replace(LADDER, rungs=(LoadPoint(load=1.0),)))

    assert isinstance(verdict, Notice)
    assert not any(isinstance(block, Notice) for block in others)
    assert LoadCurve(knob="concurrency", rungs=()).verdict is Verdict.HELD


def test_a_chart_of_a_ladder_has_its_bounds() -> None:
    """A dashed line at the bound; loads that break it are hollow, of that percentile alone."""
    _, times, *_ = pictures(LADDER)

    assert isinstance(times, Plot)
    assert [(rule.name, rule.at) for rule in times.rules] == [("latency.p99 <= 30 ms", 0.03)]
    assert {line.name: line.hollow for line in times.series} == {"p50": (), "p99": (2, 3)}
    assert times.note.endswith("hollow: breaks a bound")
