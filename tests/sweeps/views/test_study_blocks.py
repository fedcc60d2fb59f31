"""What a study says, in a sentence, tables and pictures."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.base.errors import RunFailed
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.report.blocks import Notice, Severity, Table
from modeldyno.base.report.charts import Parallel, Plot
from modeldyno.base.result.cost import Price
from modeldyno.base.result.result import FailureKind
from modeldyno.base.views.text import factor
from modeldyno.cli.actions.sweep_study import exit_code
from modeldyno.profiling.run import UNDECIDED
from modeldyno.profiling.views import ViewOptions
from modeldyno.reports import terminal
from modeldyno.sweeps.loop import run_trials
from modeldyno.sweeps.study.goal import Goal, Objective, Rank
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.study import Trial, TrialPurpose, TrialState
from modeldyno.sweeps.views.blocks import blocks, brief, headline
from modeldyno.sweeps.views.charts import charts
from modeldyno.sweeps.views.tables import configuration_load_table, numbers
from modeldyno.testing.sample_studies import SimulatedTrials, a_served_study, a_study

if TYPE_CHECKING:
    from modeldyno.sweeps.study.study import Study


def swept(study: Study, rate: Any, **bench: Any) -> Study:
    """Carry a study out, with figures that are a function of the point."""
    try:
        for after, _, _ in run_trials(study, rooms=SimulatedTrials(rate=rate, **bench)):
            study = after
    except RunFailed:
        pass
    return study


def goal(*bounds: str, maximize: str = "throughput", **more: Any) -> Goal:
    return Goal(
        objectives=(Objective.parse(maximize),), constraints=tuple(map(Constraint.parse, bounds)), **more
    )


def by_batch(point: dict[str, Any]) -> float:
    return 100.0 * float(point.get("batch_size", 1))


def batches(*bounds: str, **changes: Any) -> Study:
    swept_study = a_study(
        "batch_size=1,2,4", **{"goal": goal(*bounds), "default": {"batch_size": 1}, **changes}
    )
    return swept(swept_study, by_batch)


def headline_of(study: Study) -> str:
    return headline(study)


def tables(study: Study) -> list[Table]:
    return [block for block in blocks(study) if isinstance(block, Table)]


def test_the_sentence_has_the_winner_its_gain_and_its_certainty() -> None:
    """What was measured, what is best, how much better than the default it is, and how sure that is."""
    text = headline_of(batches("latency.mean <= 1s"))

    assert text.startswith("batch_size=4 gives throughput 400/s")
    assert text.endswith("measurements over 3 configurations.")
    assert re.search(r"4 times that of the default \([\d.]+ to [\d.]+\), at latency.mean", text)
    assert "; over 99% certain to be the best or within 5% of it, of all 3 points;" in text


def test_less_is_told_as_less() -> None:
    """A latency that was halved is 50 % less, and not twice as good."""
    text = headline_of(batches(goal=goal(maximize="latency.mean")))

    assert re.search(r"75% less than the default \(\d+% to \d+%\)", text)


def test_a_small_gain_is_told_in_percent() -> None:
    """Up to a factor of two, percents say more."""
    swept_study = a_study("batch_size=1,2", goal=goal(), default={"batch_size": 1})

    assert "50% more than the default (" in headline_of(
        swept(swept_study, lambda p: 100.0 + 50.0 * (p["batch_size"] == 2))
    )


def test_nothing_of_what_is_to_be_smaller_is_told_against_the_default() -> None:
    """There is no ratio to nothing."""
    aim = Goal(objectives=(Objective.parse("error_rate"),))
    swept_study = a_served_study("instances=1,2", goal=aim, default={"instances": 1})
    trials = (
        a_trial({"instances": n}, an_answer("error_rate", share), stage=stage)
        for stage in (TrialPurpose.SEARCH, TrialPurpose.VERIFY, TrialPurpose.VERIFY)
        for n, share in ((1, 0.5), (2, 0.0))
    )

    text = headline_of(add_trials(swept_study, trials))
    assert "instances=2 gives error_rate 0%, compared with 50.0% for the default; " in text


def test_what_cannot_be_told_apart_is_said_with_its_shares() -> None:
    """Rivals are named with their shares of the resamples, and the cheaper one is advised."""
    swept_study = a_study("threads=1,2", goal=goal(), default={"threads": 1})
    text = headline_of(swept(swept_study, lambda p: 100.0 + 0.1 * (p["threads"] == 2)))

    assert text.count("not distinguishable from") == 1
    assert "of 100 resamples" in text
    assert "prefer the cheaper one, the default (" in text
    assert "which is the best or within 5% of it in" in text


def test_what_is_probably_not_the_best_is_not_to_be_taken() -> None:
    """Time ended when the default alone had been measured again: what looks better is named."""
    trials = (
        a_trial({"batch_size": n}, an_answer("throughput", rate, error=0.4), stage=stage)
        for n, rate, stage in (
            (1, 200.0, TrialPurpose.SEARCH), (4, 170.0, TrialPurpose.SEARCH), (1, 100.0, TrialPurpose.VERIFY)
        )
    )  # fmt: skip
    text = headline_of(add_trials(a_study("batch_size=1,4", goal=goal(), default={"batch_size": 1}), trials))

    assert "the default (batch_size=1) gives" in text
    assert "batch_size=4 looks better (best in " in text
    assert "continue the study to choose" in text
    assert "take it" not in text


def test_nothing_cheaper_is_advised_if_there_is_nothing_cheaper() -> None:
    """The best is to be taken, with the reason."""
    swept_study = a_study("threads=1,2", goal=goal(), default={"threads": 2})
    text = headline_of(swept(swept_study, lambda p: 100.0 + 0.1 * (p["threads"] == 1)))

    assert "take it, as nothing cheaper is about as good" in text


def test_beside_a_best_that_may_break_its_bound_stands_one_that_does_not() -> None:
    """Whoever has promised the bound is told what keeps it, and at what price."""
    trials = [
        a_trial({"batch_size": n}, an_answer("throughput", rate), an_answer("latency.mean", mean, error=0.05))
        for n, rate, mean in ((1, 100.0, 0.004), (2, 200.0, 0.006), (4, 400.0, 0.0098))
    ]
    bounded = goal("latency.mean <= 10ms")
    text = headline_of(
        add_trials(a_study("batch_size=1,2,4", goal=bounded, default={"batch_size": 1}), trials)
    )

    assert "batch_size=4 gives throughput 400/s" in text
    assert "9.8 ms not certainly <= 10 ms" in text
    assert "; certain to hold the bounds: batch_size=2, which gives throughput 200/s;" in text


def test_so_it_does_where_only_the_load_varies() -> None:
    """The greatest load that surely holds the bound is told beside one that may not."""
    trials = [
        a_trial(
            {"concurrency": n},
            an_answer("throughput", 100.0 * n),
            an_answer("latency.mean", mean, error=0.05),
        )
        for n, mean in ((1, 0.004), (2, 0.006), (4, 0.0098))
    ]
    bounded = goal("latency.mean <= 10ms")
    text = headline_of(add_trials(a_served_study("concurrency=1,2,4", goal=bounded, default={}), trials))

    assert "concurrency=4 gives throughput 400/s, at latency.mean 9.8 ms not certainly <= 10 ms; " in text
    assert "; certain to hold the bounds: concurrency=2, which gives throughput 200/s;" in text


def test_when_nothing_holds_the_nearest_is_named() -> None:
    """The configuration that misses least is told, and by how much."""
    swept_study = batches("throughput >= 500/s")
    text = headline_of(swept_study)

    assert "no configuration holds throughput >= 500/s; the closest is batch_size=4, which misses" in text
    assert brief(swept_study) == "no configuration holds the bounds"


def test_nothing_is_said_to_hold_a_bound_only_where_it_is_broken() -> None:
    """Of a percentile that wants for samples it is not shown, whatever its plain quantile."""
    p99 = an_answer("latency.p99", None, size=50, interval=Interval(low=0.004, high=math.inf))
    for raw, hint in ((0.005, ""), (2.0, ", which seems to miss by 100%")):
        swept_study = add_trials(
            a_study("batch_size=1,2", goal=goal("latency.p99 <= 1s")),
            [
                a_trial(
                    {"batch_size": 1}, an_answer("throughput", 1.0), p99, an_answer("latency.p99.raw", raw)
                )
            ],
        )
        text = headline_of(swept_study)
        assert (
            "it is undecided whether any configuration holds latency.p99 <= 1 s; "
            f"the closest is batch_size=1{hint}."
        ) in text
        assert brief(swept_study) == "undecided whether the bounds hold"


def test_bounds_that_hold_are_not_undecided_for_want_of_an_objective() -> None:
    """The percentile that is asked for is not certain enough to choose by; that is what is missing."""
    p99 = an_answer("latency.p99", None, size=50, interval=Interval(low=0.004, high=math.inf))
    aim = Goal(
        objectives=(Objective.parse("latency.p99"),), constraints=(Constraint.parse("throughput >= 10/s"),)
    )
    swept_study = add_trials(
        a_study("batch_size=1,2", goal=aim),
        [a_trial({"batch_size": 1}, an_answer("throughput", 1900.0), p99)],
    )

    assert "batch_size=1 holds throughput >= 10/s, but no configuration has a value for latency.p99." in (
        headline_of(swept_study)
    )
    assert brief(swept_study) == "no value for latency.p99"


def test_a_trial_whose_rate_was_withheld_is_not_ranked_above_one_that_has_a_rate() -> None:
    """It stands below, without a value, and is never the best; where all were withheld that is the answer."""
    withheld = a_trial({"batch_size": 2}, an_answer("latency.p50", 0.5), doubts=("short-load",))
    fine = a_trial({"batch_size": 1}, an_answer("latency.p50", 0.5), an_answer("throughput", 100.0))
    begun = a_study("batch_size=1,2", goal=goal())
    ranked = ranking(add_trials(begun, [withheld, fine]))
    without = add_trials(begun, [withheld])

    assert [(row.point["batch_size"], row.objectives[0] is None) for row in ranked.rows] == [
        (1, False), (2, True),
    ]  # fmt: skip
    assert ranked.best is ranked.rows[0]
    assert ranking(without).best is None
    assert "no configuration has a value for throughput, which was withheld (short-load)." in (
        headline_of(without)
    )
    assert exit_code(without, ranking(without)) == UNDECIDED


def test_what_is_not_known_is_no_miss() -> None:
    """A percentile that is no claim yet is undecided whether the bound holds."""
    text = headline_of(batches("latency.p99 <= 1s"))

    assert "misses" not in text


def test_the_default_may_be_the_best() -> None:
    """It is called by its name, and not compared with itself."""
    swept_study = a_study("batch_size=1,2", goal=goal(), default={"batch_size": 1})
    text = headline_of(swept(swept_study, lambda p: 100.0 / float(p["batch_size"])))

    assert "the default (batch_size=1) gives throughput 100/s; " in text


def test_when_all_fails_the_cause_is_told() -> None:
    """The first failure stands for all of them, and the list says so in two words."""
    swept_study = a_study("batch_size=1,2", goal=goal(), default={"batch_size": 1})
    failed = swept(swept_study, by_batch, fails=lambda _point: FailureKind.OOM)

    assert "all failed: load: it took too much" in headline_of(failed)
    assert brief(failed) == "all failed"
    assert tables(failed)[-1].rows[0][1] == "failed: out of memory"


def test_nothing_measured_is_said_with_the_reason() -> None:
    """Where no configuration can be, that is the answer."""
    swept_study = a_study("batch_size=1", goal=goal())
    none = swept_study.add(
        Trial(number=1, point={"batch_size": 1}, state=TrialState.SKIPPED, failure="it cannot be")
    )

    assert headline_of(swept_study) == "Nothing was measured."
    assert "none of the configurations is possible (it cannot be)" in headline_of(none)
    assert brief(swept_study) == "nothing measured"


def test_the_table_has_the_best_the_default_and_the_verdicts() -> None:
    """Rows in their order, the axes that vary as columns, verdicts in words, the default named."""
    table = tables(batches("latency.mean <= 6ms", "throughput >= 150/s"))[0]
    titles = [column.title for column in table.columns]

    assert titles == ["", "", "batch_size", "throughput", "latency.mean", "bounds", "gain", "best in", ""]
    assert [row[1:3] for row in table.rows] == [("#2", "4"), ("#1", "2"), ("", "1")]
    assert [row[5] for row in table.rows] == ["held", "undecided", "broken"]
    assert table.rows[-1][-1].startswith("default, misses throughput by")


def test_many_axes_become_one_text() -> None:
    """Where the axes would not fit a narrow page, each row tells them in words, and stays within it."""
    axes = (
        "graph_optimization=all,basic,extended",
        "batch_size=1,2",
        "threads=1,2",
        "parallel=false,true",
    )
    made = a_study(*axes, goal=goal("latency.mean <= 1s"), default={"batch_size": 1, "parallel": False})
    swept_study = swept(made, lambda p: by_batch(p) + float(p["threads"]) if "threads" in p else 50.0)
    text = terminal.text(blocks(swept_study))

    assert tables(swept_study)[0].columns[-1].title == "at"
    assert "graph_optimization=" in text
    assert all(len(line) <= terminal.WIDTH for line in text.splitlines())


def test_failures_are_counted_by_their_reason() -> None:
    """What cannot be and what went wrong is grouped, the most frequent first, with an example."""
    swept_study = a_study("batch_size=1..8*2", goal=goal())
    oom = (
        Trial(
            number=n, point={"batch_size": n}, state=TrialState.FAILED, failure="load: too much", kind="oom"
        )
        for n in (4, 8)
    )
    odd = Trial(number=3, point={"batch_size": 3}, state=TrialState.SKIPPED, failure="odd")
    skipped = swept_study.add(odd, *oom)
    rows = tables(skipped)[-1].rows

    assert [row[:2] for row in rows] == [("2", "failed: out of memory"), ("1", "skipped")]
    assert "such as batch_size=4" in rows[0][2]
    assert "odd (at batch_size=3)" in rows[1][2]


def test_few_reasons_stand_for_many() -> None:
    """Beyond six reasons the rest is a number."""
    swept_study = a_study("batch_size=1..20", goal=goal())
    many = swept_study.add(
        *(
            Trial(number=n, point={"batch_size": n}, state=TrialState.SKIPPED, failure=f"why {n}")
            for n in range(1, 11)
        )
    )

    assert tables(many)[-1].rows[-1][:2] == ("4", "others")


def test_a_bound_that_holds_without_a_certified_value_is_told_alone() -> None:
    """A percentile of too few samples has no value, though the slowest of them show that it holds."""
    slowest = an_answer("latency.p99", None, interval=Interval(low=0.3, high=0.7), size=100.0)
    raw = an_answer("latency.p99.raw", 0.5)
    trial = a_trial({"concurrency": 1}, an_answer("throughput", 60.0), slowest, raw)
    study = a_served_study("concurrency=1,2", goal=goal("latency.p99 <= 1s"), default={})

    shown = add_trials(study, [trial])
    best = next(t for t in tables(shown) if t.title.startswith("The configuration at its best load"))

    assert "gives throughput 60/s, at latency.p99 <= 1 s" in headline_of(shown)
    assert "300 to 700 ms" in best.rows[0]
    assert best.title.endswith("; a range, > or <: of too few samples")


def test_an_objective_of_too_few_samples_is_marked() -> None:
    """It has its place in the table, and neither a half-width nor a sentence without "about"."""
    raw = an_answer("latency.p99.raw", 0.5, interval=Interval(low=0.3, high=math.inf))
    trial = a_trial({"concurrency": 1}, an_answer("latency.p99", None, size=9.0), raw)
    least = Goal(objectives=(Objective.parse("latency.p99"),))
    shown = add_trials(a_served_study("concurrency=1,2", goal=least, default={}), [trial])
    best = next(t for t in tables(shown) if t.title.startswith("The configuration at its best load"))

    assert "gives latency.p99 about 500 ms" in headline_of(shown)
    assert "~500 ms" in best.rows[0]
    assert best.title.endswith("; ~: of too few samples")


def test_the_best_is_shown_under_each_of_its_loads() -> None:
    """A curve as a table: every load that was measured of the best configuration, the chosen one marked."""
    bounds = goal("latency.mean <= 25ms")
    made = a_served_study(
        "instances=1,2", "concurrency=4,1", goal=bounds, default={"instances": 1}, strategy="grid"
    )
    swept_study = swept(made, lambda p: 50.0 * float(p["concurrency"]) * float(p["instances"]))
    table = next(t for t in tables(swept_study) if t.title == "instances=2 under each load")

    assert [(row[0], row[-1]) for row in table.rows] == [("1", ""), ("4", "best")]
    assert table.rows[1][1].startswith("400/s")
    assert [row[3] for row in table.rows] == ["undecided", "held"]
    open_ = replace(swept_study, goal=goal("latency.p99 <= 1s"))
    unknown = next(iter(configuration_load_table(open_, ranking(open_).rows[0])))
    assert [row[3] for row in unknown.rows] == ["undecided", "undecided"]


def test_one_configuration_is_compared_with_nothing() -> None:
    """Where only the load varies, its best is told without a gain, a default or a certainty."""
    made = a_served_study("concurrency=1,4,16", goal=goal("latency.mean <= 9ms"), strategy="grid")
    swept_study = swept(made, lambda p: 100.0 * float(p["concurrency"]))
    texts = [table.title for table in tables(swept_study)]

    assert "concurrency=16 gives throughput 1,600/s, at latency.mean" in headline_of(swept_study)
    assert headline_of(swept_study).endswith("<= 9 ms; 5 measurements over 1 configuration.")
    assert texts[0].startswith("The configuration at its best load")
    assert texts[1] == "Under each load"


def test_each_load_has_a_best_of_its_own() -> None:
    """Ranked by each load, the table of loads has a row for each, with its certainty."""
    made = a_served_study(
        "instances=1,2", "concurrency=1,4", goal=goal(rank=Rank.EACH), default={"instances": 1}
    )
    rate = {1: 100.0, 4: 300.0}
    swept_study = swept(
        made, lambda p: rate[p["concurrency"]] * (1 + (p.get("instances") == 2 and p["concurrency"] == 4))
    )
    table = next(t for t in tables(swept_study) if t.title == "The best at each load")

    assert [row[:2] for row in table.rows] == [("", "1"), ("#1", "4")]
    assert table.rows[1][-1] == "instances=2"


def test_doubts_about_the_best_are_told() -> None:
    """A winner that was not measured again is a rumour, and what its trials doubt is said."""
    swept_study = batches()
    searched = replace(
        swept_study, trials=tuple(t for t in swept_study.trials if t.stage is not TrialPurpose.VERIFY)
    )
    doubted = replace(searched, trials=tuple(replace(t, doubts=("interference",)) for t in searched.trials))
    codes = [
        block.code
        for block in blocks(doubted)
        if isinstance(block, Notice) and block.severity is Severity.DOUBT
    ]

    assert codes == ["interference", "unverified"]
    kept, unkept = (
        " ".join(terminal.text(blocks(doubted, ViewOptions(stored=stored))).split())
        for stored in (True, False)
    )
    assert "in turns with its rivals: modeldyno sweep --resume" in kept
    assert "go on with the study" not in unkept
    assert "Other processes used the same cores during the timed pass" in kept


def test_several_doubts_are_one_line() -> None:
    """With the command that explains them, which says each in its sentence."""
    doubted = batches()
    doubted = replace(
        doubted, trials=tuple(replace(t, doubts=("interference", "unsettled")) for t in doubted.trials)
    )
    brief, full = (
        " ".join(terminal.text(blocks(doubted, ViewOptions(verbose=verbose))).split())
        for verbose in (False, True)
    )
    assert "trust limited: other processes used the same cores during the timed pass; 1 more" in brief
    assert f"unsettled; modeldyno show {doubted.id[:6]} -v explains them" in brief
    assert "Other processes used the same cores during the timed pass" in full


@pytest.mark.parametrize(
    ("times", "digits", "text"),
    [(1.93, 2, "1.9"), (154.0, 2, "154"), (99.6, 2, "100"), (0.13, 2, "0.13"), (1540.0, 3, "1,540")],
)
def test_a_factor_has_no_exponent(times: float, digits: int, text: str) -> None:
    """A search over configurations a hundred times as fast said "1.5e+02 times"."""
    assert factor(times, digits) == text


def test_a_doubt_says_how_many_measurements_it_is_about() -> None:
    """Where the best has several."""
    swept_study = batches()
    best = ranking(swept_study).best
    assert best is not None
    *_, last = (t for t in swept_study.trials if t.point in best.promising and t.stage is TrialPurpose.VERIFY)
    trials = tuple(
        replace(t, doubts=("drift",), result="abcdef123456") if t is last else t for t in swept_study.trials
    )
    doubted = replace(swept_study, trials=trials)
    text_shown = " ".join(terminal.text(blocks(doubted)).split())

    assert f"in 1 of {best.verified} measurements" in text_shown
    assert "modeldyno show abcdef" in text_shown


@pytest.mark.parametrize("name", ["=1+1", "a\x1b[31mb", "x\ny"])
def test_what_a_model_says_is_harmless(name: str) -> None:
    """A failure's text from outside stays in its cell."""
    swept_study = a_study("batch_size=1,2", goal=goal())
    failed = swept_study.add(
        Trial(number=1, point={"batch_size": 1}, state=TrialState.FAILED, failure=name, kind="odd")
    )

    assert "\x1b" not in terminal.text(blocks(failed))


# --- numbers ---------------------------------------------------------------------------------------


def test_every_trial_is_a_row_of_numbers() -> None:
    """Axes, values with their ends, verdicts and the place of its candidate, in base units."""
    swept_study = batches("throughput >= 150/s")
    table = numbers(swept_study)
    titles = [column.title for column in table.columns]
    first = dict(zip(titles, table.rows[0], strict=True))

    assert len(table.rows) == len(swept_study.trials)
    assert float(first["throughput"]) == 100.0
    assert float(first["throughput.low"]) == 99.0
    assert first["throughput >= 150/s"] == "broken"
    assert (first["trial"], first["stage"], first["state"]) == ("1", "default", "done")
    assert first["batch_size"] == "1"
    assert first["rank"] == "3"
    assert float(first["gain"]) == 1.0
    assert len(set(titles)) == len(titles)


def test_a_failure_is_a_row_as_well() -> None:
    """It has its kind and its cause, and no numbers."""
    swept_study = a_study("batch_size=1,2", goal=goal(), default={"batch_size": 1})
    failed = swept(swept_study, by_batch, fails=lambda p: FailureKind.OOM if p["batch_size"] == 2 else None)
    table = numbers(failed)
    titles = [column.title for column in table.columns]
    row = next(dict(zip(titles, r, strict=True)) for r in table.rows if "failed" in r)

    assert (row["kind"], row["throughput"], row["throughput.high"]) == ("oom", "", "")
    assert row["failure"].startswith("load: it took too much")


# --- pictures --------------------------------------------------------------------------------------


def test_throughput_is_drawn_against_latency_with_the_bound() -> None:
    """Each configuration is a line through its loads in their order; the bound is a vertical line."""
    made = a_served_study(
        "instances=1,2", "concurrency=1,4,16", goal=goal("latency.p99 <= 10ms"), default={"instances": 1}
    )
    swept_study = swept(made, lambda p: float(p["concurrency"]) * 10 * float(p.get("instances", 1)))
    picture = next(charts(swept_study, ranking(swept_study)))

    assert isinstance(picture, Plot)
    assert [(rule.at, rule.vertical) for rule in picture.rules] == [(0.01, True)]
    assert {"the default", "instances=2"} >= {series.name for series in picture.series}
    for series in picture.series:
        assert list(series.y) == sorted(series.y)
        assert len(series.labels) == len(series.x) == len(series.y)


def test_the_objective_is_drawn_against_each_knob() -> None:
    """Every candidate is a point, and a line joins the best of each value; words have places."""
    made = a_study("batch_size=1,2", "graph_optimization=all,basic", goal=goal(), default={"batch_size": 1})
    swept_study = swept(made, by_batch)
    plots = {p.title: p for p in charts(swept_study, ranking(swept_study)) if isinstance(p, Plot)}
    plot = plots["throughput against graph_optimization"]

    assert plots["throughput against batch_size"].series[1].y == pytest.approx((100.0, 200.0))
    assert plot.x.categories == ("all", "basic")
    assert set(plot.series[0].x) <= {0.0, 1.0}


def test_the_front_is_what_nothing_beats_in_both() -> None:
    """With two objectives, larger batches and smaller latencies are on the front, the rest is not."""
    objectives = (Objective.parse("throughput"), Objective.parse("cpu_utilization", maximize=False))
    made = a_study("batch_size=1,2,4", goal=Goal(objectives=objectives), default={"batch_size": 1})
    swept_study = swept(a_study("batch_size=1,2,4", goal=goal(), default={"batch_size": 1}), by_batch)
    both = replace(
        swept_study,
        goal=Goal(
            objectives=(Objective.parse("throughput"), Objective.parse("latency.mean", maximize=False))
        ),
    )
    plot = next(p for p in charts(both, ranking(both)) if p.title == "throughput against latency.mean")

    assert isinstance(plot, Plot)
    assert [series.name for series in plot.series] == ["Pareto front", "others"]
    assert plot.series[0].labels == ("batch_size=4",)
    assert not [p for p in charts(made, ranking(made)) if p.title.startswith("throughput against cpu")]


def test_each_candidate_is_a_line_across_its_knobs() -> None:
    """A line has a place on every axis that matters to it; the best one is marked."""
    swept_study = batches("latency.mean <= 1s")
    picture = next(p for p in charts(swept_study, ranking(swept_study)) if isinstance(p, Parallel))

    assert [scale.label for scale in picture.scales] == ["batch_size", "throughput", "latency.mean"]
    assert [line.name for line in picture.lines if line.marked] == ["batch_size=4"]
    assert {len(line.x) for line in picture.lines} == {3}


def test_a_study_without_figures_has_no_pictures() -> None:
    """Nothing is drawn of nothing."""
    swept_study = a_study("batch_size=1,2", goal=goal())

    assert list(charts(swept_study, ranking(swept_study))) == []


def test_a_cost_is_told_in_money() -> None:
    """The answer begins with the cheapest, every table has the cost, and the export its ends."""
    priced = batches(goal=Goal(
        objectives=(Objective.parse("cost"),), constraints=(Constraint.parse("cost <= 0.9"),),
        price=Price.parse("$1.20/h"),
    ))  # fmt: skip
    assert re.search(r"cheapest: batch_size=4 at \$0\.83\d* per million inferences", headline_of(priced))
    assert "prefer the cheaper" not in headline_of(priced)
    assert brief(priced).startswith("$0.83")
    (best, *_) = tables(priced)
    assert "cost is of a million inferences at $1.20 per hour" in best.title
    assert "cost" in [column.title for column in best.columns]
    titles = [column.title for column in numbers(priced).columns]
    assert {"cost", "cost.low", "cost.high"} < {*titles}


def test_a_price_without_a_goal_for_it_is_a_column() -> None:
    """And behind the answer; the objective stays what it is."""
    priced = batches(goal=goal(price=Price.parse("1.20 EUR/h")))
    assert re.search(
        r"batch_size=4 gives throughput 400/s, 0\.83\d* EUR per million inferences", headline_of(priced)
    )
    (best, *_) = tables(priced)
    row = dict(zip([column.title for column in best.columns], best.rows[0], strict=True))
    assert row["cost"].startswith("0.83")
    bare = tables(batches())[0]
    assert "cost" not in [column.title for column in bare.columns]
