from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.constraints import Answer, Constraint
from modeldyno.base.metrics.measurement import CLIENT_LIMITED, SATURATED, Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Notice, Severity, Table
from modeldyno.reports import terminal
from modeldyno.serving.load.capacity import Capacity, propose
from modeldyno.serving.load.capacity_steps import RATE, CapacitySearch, NextLoad, SearchEnd
from modeldyno.serving.load.load_curve import LoadCurve, LoadPoint
from modeldyno.serving.views.page import (
    capacity_blocks,
    describe_capacity,
    describe_load_curve,
    load_curve_blocks,
)
from modeldyno.testing.sample_results import a_job

if TYPE_CHECKING:
    from modeldyno.base.job.job import Job

BOUND = Constraint.parse("latency.p99 <= 50ms")
SEARCH = CapacitySearch(bounds=(BOUND,))


def an_answer(query: str, value: float | None, error: float = 0.02) -> Answer:
    low, high = ((value or 0.0) * (1 - error), (value or 0.0) * (1 + error))
    if value is None:
        low, high = 0.04, float("inf")
    return Answer(query=Query.parse(query), value=value, interval=Interval(low=low, high=high))


def rung(load: float, **changes: object) -> LoadPoint:
    """Four workers of 10 ms in a closed loop."""
    time = 0.01 * max(load, 4) / 4
    latency = {name: an_answer(f"latency.{name}", time * part) for name, part in PARTS.items()}
    others = (
        an_answer("request_rate", 100.0 * min(load, 4)),
        an_answer("goodput", 99.0 * min(load, 4)),
        an_answer("send_lag.p99", 2e-5),
        an_answer("queue_time", max(0.0, time - 0.01)),
        an_answer("error_rate", 0.0),
        an_answer("client_cpu", 0.12),
    )
    one_rung = LoadPoint(
        load=load, answers=(*latency.values(), *others), judgements=(BOUND.on(latency["p99"]),), result="0123"
    )
    return replace(one_rung, **changes)  # type: ignore[arg-type]


PARTS = {"mean": 1.0, "p50": 0.9, "p95": 1.5, "p99": 2.0}


def a_ladder(*more: LoadPoint) -> LoadCurve:
    return LoadCurve(knob="concurrency", rungs=(*map(rung, (1, 2, 4, 8, 16)), *more))


def a_search(search: CapacitySearch = SEARCH) -> Capacity:
    history: list[LoadPoint] = []
    while isinstance(step := propose(search, history), NextLoad):
        history.append(rung(step.load, care=step.care))
    return step


def tables(blocks: object) -> list[Table]:
    return [block for block in blocks if isinstance(block, Table)]  # type: ignore[attr-defined]


def notices(blocks: object, severity: Severity) -> list[Notice]:
    items = (block for block in blocks if isinstance(block, Notice))  # type: ignore[attr-defined]
    return [block for block in items if block.severity is severity]


class TestLadder:
    def test_each_load_is_a_row_with_its_figures(self) -> None:
        """In the order of the loads, the knee and the plateau named, the bound judged."""
        curve = tables(load_curve_blocks(a_ladder()))[0]
        rows = {row[0]: row for row in curve.rows}

        assert list(rows) == ["1", "2", "4", "8", "16"]
        assert rows["4"][1:] == (
            "400/s ±2%", "9.0 ms ±2%", "15.0 ms ±2%", "20.0 ms ±2%", "held", "knee, plateau"
        )  # fmt: skip
        assert rows["16"][5:] == ("broken", "")

    def test_the_sentence_tells_the_knee_and_what_the_server_gives_there(self) -> None:
        """The most, too, unless that is at the knee."""
        assert describe_load_curve(a_ladder()) == (
            "The knee is at concurrency 4 (between 2 and 8), with 400/s and a median of 9.0 ms."
        )

    def test_the_sentence_about_a_language_model_is_of_tokens(self) -> None:
        """In all, for each user, and the first; the most only where that is elsewhere."""
        curve = a_ladder()
        tokens = (
            an_answer("token_rate", 960.0),
            an_answer("user_token_rate.p50", 240.0),
            an_answer("time_to_first_token.p50", 0.02),
        )
        rungs = tuple(replace(each, answers=(*each.answers, *tokens)) for each in curve.rungs)
        assert describe_load_curve(replace(curve, rungs=rungs)) == (
            "The knee is at concurrency 4 (between 2 and 8), with 960 tokens/s in all and 240 tokens/s for "
            "each user, the first after 20.0 ms (median)."
        )

    def test_a_ladder_without_a_knee_says_so(self) -> None:
        """Nor does one that measured nothing pretend to."""
        rising = LoadCurve(knob=RATE, rungs=(rung(1), rung(2.5)))

        assert (
            describe_load_curve(rising)
            == "The curve has no knee up to rate 2.5/s: at most 250/s, under rate 2.5/s."
        )
        assert describe_load_curve(LoadCurve(knob=RATE, rungs=())) == "No load was measured."

    def test_a_knee_at_the_first_rung(self) -> None:
        """Lies between that and the next."""
        first = LoadCurve(knob="concurrency", rungs=tuple(map(rung, (4, 8, 16))))

        assert describe_load_curve(first).startswith("The knee is at concurrency 4 (between 4 and 8)")

    def test_what_spoils_a_load_stands_beside_it(self) -> None:
        """A limited client, an overload, a failure with its sentence."""
        odd = a_ladder(
            rung(32, doubts=(CLIENT_LIMITED,)),
            rung(64, doubts=(SATURATED,)),
            rung(96, doubts=("interrupted",)),
            LoadPoint(load=128, failure="the server crashed"),
        )
        laid = list(load_curve_blocks(odd))
        marks = {row[0]: row[-1] for row in tables(laid)[0].rows}

        assert (marks["32"], marks["64"], marks["128"]) == (CLIENT_LIMITED, SATURATED, "failed")
        assert marks["96"] == "interrupted"
        assert [n.text for n in notices(laid, Severity.FAILURE)] == ["under 128: the server crashed"]

    def test_what_nobody_measured_has_no_column(self) -> None:
        """The second table shows what there is."""
        titles = [column.title for column in tables(load_curve_blocks(a_ladder()))[1].columns]
        bare = LoadCurve(knob="concurrency", rungs=(replace(rung(1), answers=rung(1).answers[:5]),))

        unbound = LoadCurve(knob="concurrency", rungs=(rung(1, judgements=()),))
        curve = [column.title for column in tables(load_curve_blocks(unbound))[0].columns]

        assert titles == ["concurrency", "goodput", "lag p99", "queue", "errors", "client CPU"]
        assert curve == ["concurrency", "requests/s", "p50", "p95", "p99", ""]
        assert len(tables(load_curve_blocks(bare))) == 1

    def test_an_uncertified_percentile_shows_what_bounds_it(self) -> None:
        """At least so much; nothing where nothing is known."""
        none = replace(
            an_answer("latency.p95", None), interval=Interval(low=float("-inf"), high=float("inf"))
        )
        point = rung(8, answers=(an_answer("latency.p99", None), none, an_answer("request_rate", 3.0, 0.0)))
        row = tables(load_curve_blocks(LoadCurve(knob="concurrency", rungs=(point,))))[0].rows[0]

        assert row[1:5] == ("3.00/s", "—", "—", ">40.0 ms")

    def test_an_uncertified_percentile_with_both_ends_shows_both(self) -> None:
        """A bound on it can be held, which a lower end alone would not explain; the title says what it is."""
        ends = replace(an_answer("latency.p99", None), interval=Interval(low=0.0083, high=0.0132))
        point = rung(8, answers=(ends, an_answer("request_rate", 3.0, 0.0)))
        table = tables(load_curve_blocks(LoadCurve(knob="concurrency", rungs=(point,))))[0]

        assert table.rows[0][4] == "8 to 13 ms"
        assert table.title.endswith("; a range or >: of too few answers")

    def test_a_knee_whose_median_is_not_certified_says_so(self) -> None:
        """A sentence has no dash in place of a number."""
        unsure = tuple(
            replace(each, answers=tuple(a for a in each.answers if a.query.statistic != "p50"))
            for each in a_ladder().rungs
        )
        curve = replace(a_ladder(), rungs=unsure)

        assert curve.knee is not None
        assert "a median of too few answers to be certified" in describe_load_curve(curve)

    def test_a_figure_that_is_hardly_known_says_no_more_than_that(self) -> None:
        """Twice its own size, or a half of a percent."""
        loose, tight = an_answer("request_rate", 50.0, 2.0), an_answer("latency.p50", 0.01, 0.005)
        by_title = tables(
            load_curve_blocks(LoadCurve(knob="concurrency", rungs=(rung(1, answers=(loose, tight)),)))
        )[0]

        assert by_title.rows[0][1].endswith(" ±>100%")
        assert by_title.rows[0][2].endswith(" ±0.5%")

    def test_several_bounds_name_the_one_that_is_not_held(self) -> None:
        """A broken one before one that is undecided."""
        wide = Constraint.parse("latency.mean <= 20ms").on(an_answer("latency.mean", 0.02))
        both = rung(16, judgements=(wide, *rung(16).judgements))
        ladder_ = LoadCurve(knob="concurrency", rungs=(both, rung(1, judgements=())))
        rows = tables(load_curve_blocks(ladder_))[0].rows

        assert [row[5] for row in rows] == ["", "broken latency.p99"]

    @pytest.mark.parametrize(
        ("answer", "job", "phrase"),
        [
            (replace(an_answer("latency.p99", None), size=331.0), a_job(),
             "has 331 of the 662 effective answers that certify it; give the search --max-time 4m"),
            (replace(an_answer("latency.p99", None), size=331.0),
             replace(a_job(), load=Load(concurrency=1, duration=4.0)), "give each load --duration 10s"),
            (an_answer("latency.p99", 0.0499), a_job(), "is too close to what was measured, 50 ms ±2%; give"),
            (an_answer("latency.p99", 0.05), a_job(), "; an hour a load would not decide it"),
        ],
    )  # fmt: skip
    def test_a_search_that_is_undecided_says_what_it_takes(
        self, answer: Answer, job: Job, phrase: str
    ) -> None:
        """The bound, at which load, and the time that decides it."""
        fresh = LoadPoint(load=4.0, judgements=(BOUND.on(answer),))
        _, text = notices(
            capacity_blocks(replace(a_search(), job=job).with_verification(fresh)), Severity.NOTE
        )
        assert text.code == "undecided"
        assert text.text.startswith("at concurrency 4, ")
        assert phrase in text.text

    def test_it_fits_into_80_columns(self) -> None:
        """A row is a line."""
        text = terminal.text(load_curve_blocks(a_ladder()))

        assert all(len(line) <= 80 for line in text.splitlines())
        assert sum(line.rstrip().endswith("knee, plateau") for line in text.splitlines()) == 1


class TestSearch:
    def test_the_answer_is_a_sentence_with_both_ends(self) -> None:
        """What holds, what breaks it and by how much, and what the server gives there."""
        capacity = a_search()
        clause = describe_capacity(capacity)

        assert capacity.passed is not None
        assert capacity.failed is not None
        assert clause.startswith(f"Concurrency {capacity.passed:.0f} holds latency.p99 <= 50 ms, and ")
        assert f"{capacity.failed:.0f} breaks it ({5 * capacity.failed:.0f} ms, " in clause
        assert f"{capacity.failed / 10 - 1:.0%} beyond); there it delivers 400/s, goodput 396/s." in clause

    def test_every_measurement_is_a_row(self) -> None:
        """In its order, with the time it took and the verdict that the search took it for."""
        capacity = a_search()
        (table,) = tables(capacity_blocks(capacity))

        assert [row[1] for row in table.rows] == [f"{each.load:.0f}" for each in capacity.rungs]
        assert [row[0] for row in table.rows] == [f"{n}" for n in range(1, len(capacity.rungs) + 1)]
        marks = {row[-1]: row for row in table.rows}
        assert marks["largest that passed"][-2] == "held"
        assert marks["smallest that failed"][-2] == "broken"

    @pytest.mark.parametrize(
        ("p99", "severity", "phrase"),
        [
            (0.03, Severity.HELD, "a freshly started server confirms it"),
            (0.09, Severity.BROKEN, "a freshly started server broke it"),
            (0.05, Severity.UNDECIDED, "a freshly started server is undecided"),
        ],
    )
    def test_a_fresh_server_has_the_last_word(self, p99: float, severity: Severity, phrase: str) -> None:
        """Until it was asked, that is a doubt."""
        capacity = a_search()
        fresh = LoadPoint(load=capacity.passed or 0.0, judgements=(BOUND.on(an_answer("latency.p99", p99)),))
        (notice,) = notices(capacity_blocks(capacity.with_verification(fresh)), severity)

        assert [n.code for n in notices(capacity_blocks(capacity), Severity.DOUBT)] == ["unverified"]
        assert notice.text.startswith(phrase)
        assert "latency.p99 <= 50 ms: " in notice.text

    def test_too_few_answers_are_no_nearness_to_the_bound(self) -> None:
        """What could not be claimed is told as that, with what to do."""
        capacity = a_search()
        answer = Answer(query=BOUND.query, value=None, interval=Interval(low=0.003, high=inf))
        few = LoadPoint(load=capacity.passed or 0.0, judgements=(BOUND.on(answer),))
        (notice,) = notices(capacity_blocks(capacity.with_verification(few)), Severity.UNDECIDED)

        assert "is undecided: too few answers to be sure; allow more time (" in notice.text

    def test_the_server_of_others_is_not_started_anew(self) -> None:
        """Where we may not start the server, nothing is said of a start."""
        capacity = a_search()
        broken = LoadPoint(
            load=capacity.passed or 0.0, judgements=(BOUND.on(an_answer("latency.p99", 0.09)),)
        )
        (notice,) = notices(
            capacity_blocks(replace(capacity.with_verification(broken), ours=False)), Severity.BROKEN
        )
        assert notice.text.startswith("another measurement broke it")
        assert "start" not in notice.text

    def test_a_fresh_server_may_fail(self) -> None:
        """Then its failure is told."""
        capacity = a_search()
        dead = capacity.with_verification(LoadPoint(load=capacity.passed or 0.0, failure="it did not start"))
        (notice,) = notices(capacity_blocks(dead), Severity.BROKEN)

        assert notice.text.endswith("(it did not start)")

    def test_what_passed_nowhere_is_not_verified(self) -> None:
        """There is nothing to doubt."""
        assert notices(capacity_blocks(replace(a_search(), passed=None)), Severity.DOUBT) == []

    def test_a_bound_that_no_load_meets_is_told(self) -> None:
        """More load would break the one, less load the other."""
        rate = Constraint.parse("request_rate >= 1000/s")
        capacity = a_search(CapacitySearch(bounds=(BOUND,)))
        judged = tuple(
            replace(each, judgements=(*each.judgements, rate.on(an_answer("request_rate", 400.0))))
            for each in capacity.rungs
        )
        (notice, *_) = notices(capacity_blocks(replace(capacity, rungs=judged)), Severity.BROKEN)

        assert notice.text.endswith("no load meets every bound")

    @pytest.mark.parametrize(
        ("changes", "phrase"),
        [
            ({"passed": None, "failed": None},
             "No load was found that clearly holds or breaks latency.p99 <= 50 ms."),
            ({"passed": None, "failed": 1.0, "broke": (), "rungs": (LoadPoint(load=1.0, failure="dead"),)},
             "Concurrency 1 breaks latency.p99 <= 50 ms (dead); no smaller load was found that holds it."),
            ({"failed": 1.0, "broke": (), "rungs": (LoadPoint(load=1.0),)}, "breaks it (saturated)"),
            ({"failed": None, "end": SearchEnd.LARGEST}, "the largest load allowed"),
            ({"failed": None, "end": SearchEnd.CLIENT}, "and beyond it the client is the limit"),
            ({"failed": None, "end": SearchEnd.MEASUREMENTS}, "and no load was found that breaks it"),
        ],
    )  # fmt: skip
    def test_an_open_answer_says_what_is_open(self, changes: dict[str, object], phrase: str) -> None:
        """No end is made up."""
        assert phrase in describe_capacity(replace(a_search(), **changes))  # type: ignore[arg-type]

    def test_among_several_bounds_the_broken_one_is_named(self) -> None:
        """The one that broke first."""
        other = Constraint.parse("error_rate <= 1%")
        capacity = replace(a_search(), search=CapacitySearch(bounds=(BOUND, other)))

        assert " breaks latency.p99 <= 50 ms (" in describe_capacity(capacity)

    def test_a_bound_of_zero_is_exceeded_by_no_share(self) -> None:
        """By how much is told as it was seen; of a percentile that is no claim, by its lower end."""
        none = Constraint.parse("error_rate <= 0%")
        zero = replace(a_search(), broke=(none.on(an_answer("error_rate", 0.02)),))
        open_ended = replace(a_search(), broke=(BOUND.on(replace(an_answer("latency.p99", None))),))

        assert "breaks it (2.00%);" in describe_capacity(zero)
        assert "breaks it (20% beyond);" in describe_capacity(open_ended)

    @pytest.mark.parametrize("end", list(SearchEnd))
    def test_every_end_is_explained(self, end: SearchEnd) -> None:
        """With the number of measurements."""
        capacity = replace(a_search(), end=end)
        (note,) = notices(capacity_blocks(capacity), Severity.NOTE)

        assert note.code == end
        assert note.text.startswith(f"ended after {len(capacity.rungs)} measurements: ")

    def test_it_fits_into_80_columns(self) -> None:
        """With two bounds as well."""
        other = Constraint.parse("latency.mean <= 1s")

        def both(each: LoadPoint) -> LoadPoint:
            return replace(each, judgements=(*each.judgements, other.on(an_answer("latency.mean", 0.02))))

        capacity = a_search()
        two = replace(
            capacity, search=CapacitySearch(bounds=(BOUND, other)), rungs=tuple(map(both, capacity.rungs))
        )
        lines = terminal.text((*capacity_blocks(capacity), *capacity_blocks(two))).splitlines()

        assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize(
    ("metric", "title"),
    [("carbon", "CO2e/1,000"), ("cost", "cost/million"), ("token_cost", "cost/million tokens")],
)
def test_carbon_and_cost_of_each_load_have_a_column(metric: str, title: str) -> None:
    """Beside where the time goes; without one there is none."""
    measured = replace(rung(1), answers=(*rung(1).answers, an_answer(metric, 0.5)))
    titles = {
        curve: [column.title for block in load_curve_blocks(curve) if isinstance(block, Table)
                for column in block.columns]
        for curve in (a_ladder(), LoadCurve(knob="concurrency", rungs=(measured,)))
    }  # fmt: skip
    assert [title in columns for columns in titles.values()] == [False, True]
