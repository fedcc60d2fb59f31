"""How a comparison is shown."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Notice, Severity, Table
from modeldyno.base.result.output_agreement import OutputAgreement
from modeldyno.base.result.result import Failure, FailureKind
from modeldyno.base.views.text import short_model_names
from modeldyno.comparison.change.comparison import (
    CandidateComparison,
    Cause,
    CausePart,
    Change,
    ChangeVerdict,
    Comparison,
    SettingDiff,
)
from modeldyno.comparison.views.blocks import _differences_table, headline, numbers, title
from modeldyno.comparison.views.blocks import blocks as lay_out
from modeldyno.comparison.views.changes import sentence, times_sentence
from modeldyno.comparison.views.page import latency_cdf
from modeldyno.profiling.views import ViewOptions
from modeldyno.reports import terminal
from modeldyno.testing.reporters import HOSTILE
from modeldyno.testing.sample_results import a_failed_result, a_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.report.blocks import Block
    from modeldyno.base.result.result import Result

NAMES = ("old", "new")
SHAPE = InputSpec(name="x", shape=(1, 8))
P50 = Query.parse("latency.p50")


def change(
    query: str,
    outcome: ChangeVerdict,
    difference: float | None = 0.123,
    spread: float | None = 0.02,
    **more: Any,
) -> Change:
    """Make a change from 1 of the unit, with an interval of so much either way."""
    interval = None
    if difference is not None and spread is not None:
        interval = Interval(low=difference - spread, high=difference + spread)
    made: dict[str, Any] = {
        "baseline": 1.0,
        "candidate": None if difference is None else 1.0 + difference,
        "why": "5 rounds, paired",
    }
    made |= {"difference": difference, "interval": interval}
    return Change(query=Query.parse(query), outcome=outcome, **(made | more))


WORSE = change("latency.p50", ChangeVerdict.WORSE)
BETTER = change("process_memory.max", ChangeVerdict.BETTER, -0.2)
SAME = change("latency.p50", ChangeVerdict.SAME, 0.001, 0.004)
OPEN = change("latency.p50", ChangeVerdict.UNDECIDED, 0.03, 0.05, why="further processes are needed")
COUNT = change("parameters", ChangeVerdict.WORSE, 0.5, 0.0)


def compared(*changes: Change, baseline: Result | None = None, **more: Any) -> Comparison:
    """Make a comparison of two with these changes."""
    comparison = several(
        CandidateComparison(candidate=a_result(name="new", id="b" * 12), changes=changes, **more)
    )
    return comparison if baseline is None else replace(comparison, baseline=baseline)


def several(*contrasts: CandidateComparison, **more: Any) -> Comparison:
    """Make a comparison with these contrasts."""
    made: dict[str, Any] = {"baseline": a_result(name="old", id="a" * 12), "contrasts": contrasts}
    return Comparison(id="c" * 12, created="2026-01-02T03:04:05.678+00:00", **(made | more))


def texts_of(blocks: Sequence[Block], severity: Severity) -> list[str]:
    """Return what is said with such weight."""
    return [block.text for block in blocks if isinstance(block, Notice) and block.severity is severity]


@pytest.mark.parametrize(
    ("inputs", "advice"),
    [((), ""), ((SHAPE,), "; give each model its own with --baseline-input and --candidate-input")],
)
def test_a_model_that_failed_is_not_judged(inputs: tuple[InputSpec, ...], advice: str) -> None:
    """The verdict says that it failed, not how its memory compares; with shared inputs, how to part them."""
    failure = Failure(where="first call", kind=FailureKind.ERROR, message="expected 4 dimensions.")
    candidate = a_result(name="new", id="b" * 12, failures=(failure,))
    both = [replace(side, job=replace(side.job, inputs=inputs)) for side in (a_result(name="old"), candidate)]
    worse = CandidateComparison(
        candidate=both[1], changes=(change("process_memory.max", ChangeVerdict.WORSE),)
    )

    text = f"new failed in first call, so it is not judged: expected 4 dimensions{advice}."
    assert headline(several(worse, baseline=both[0])) == text
    assert texts_of(lay_out(several(worse, baseline=both[0])), Severity.VERDICT) == [text]
    assert headline(several(worse, replace(worse, candidate=a_result(name="other")), baseline=both[0])) == (
        "Compared with old, new failed and other is worse."
    )


def table(blocks: Sequence[Block], title: str) -> Table:
    """Return the table of a title that begins so."""
    return next(block for block in blocks if isinstance(block, Table) and block.title.startswith(title))


def _rows(block: Block) -> tuple[tuple[str, ...], ...]:
    assert isinstance(block, Table)
    return block.rows


EITHER = "It is undecided whether new is better or worse than old"
OPENED = f"{EITHER}: latency.p50 may be between 2.0% lower and 8.0% higher"
SLOW, LEAN = "latency.p50 12.3% higher (10.3% to 14.3%)", "process_memory.max 20.0% lower (18.0% to 22.0%)"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((WORSE,), "new is worse than old: latency.p50 12.3% higher (10.3% to 14.3%)."),
        (
            (WORSE, BETTER),
            f"new is worse than old: {SLOW}, but better: {LEAN}.",
        ),
        (
            (BETTER, SAME),
            f"new is better than old: {LEAN}; unchanged: latency.p50.",
        ),
        ((BETTER,), "new is better than old: process_memory.max 20.0% lower (18.0% to 22.0%)."),
        ((SAME,), "new performs the same as old: latency.p50 within 3.0%."),
        (
            (change("macs", ChangeVerdict.SAME, 0.0, 0.0), SAME),
            "new performs the same as old: latency.p50 within 3.0% and macs equal.",
        ),
        (
            (OPEN,),
            f"{OPENED}.",
        ),
        (
            (OPEN, BETTER),
            f"new is partly better than old: {LEAN}. Undecided: {OPENED.removeprefix(EITHER)[2:]}.",
        ),
        (
            (change("latency.p50", ChangeVerdict.UNDECIDED, None, why="not measured in the candidate"),),
            f"{EITHER}: latency.p50 cannot be judged (not measured in the candidate).",
        ),
        (
            (change("latency.p50", ChangeVerdict.UNDECIDED, 5.0, None, why=""),),
            f"{EITHER}: latency.p50 cannot be judged (no data).",
        ),
        (
            (
                change(
                    "latency.p50",
                    ChangeVerdict.UNDECIDED,
                    None,
                    why="p50 is not certified: 4 samples are missing; latency.p50.raw gives the quantile.",
                ),
            ),
            f"{EITHER}: latency.p50 cannot be judged (p50 is not certified: 4 samples are missing).",
        ),
        (
            (change("throughput", ChangeVerdict.UNDECIDED, 2.0, interval=Interval(low=-1.0, high=9e43)),),
            f"{EITHER}: throughput may have changed by any amount.",
        ),
        (
            (change("throughput", ChangeVerdict.UNDECIDED, 2.0, interval=Interval(low=-0.5, high=9e43)),),
            f"{EITHER}: throughput may be between 50.0% lower and over 1,000,000 times as much.",
        ),
        (
            (change("latency.p50", ChangeVerdict.UNDECIDED, 2.0, interval=Interval(low=-0.99, high=672.0)),),
            f"{EITHER}: latency.p50 may be between 100 times less and 673 times as much.",
        ),
        (
            (change("latency.p50", ChangeVerdict.UNDECIDED, 0.1, interval=Interval(low=0.0, high=0.2)),),
            f"{EITHER}: latency.p50 may be between unchanged and 20.0% higher.",
        ),
        ((), "new and old have no metric that could be compared."),
        ((COUNT,), "new is worse than old: parameters 50.0% higher."),
        (
            (change("error_rate", ChangeVerdict.WORSE, None, baseline=0.0, candidate=0.1),),
            "new is worse than old: error_rate 10.0% instead of 0%.",
        ),
        (
            (change("latency.p50", ChangeVerdict.WORSE, 1.5, None),),
            "new is worse than old: latency.p50 150% higher.",
        ),
        (
            (change("latency.p50", ChangeVerdict.WORSE, 51.0, None),),
            "new is worse than old: latency.p50 52 times slower.",
        ),
        (
            (change("latency.p50", ChangeVerdict.BETTER, 1 / 2600 - 1, 1e-5),),
            "new is better than old: latency.p50 2,600 times faster (2,534 to 2,669).",
        ),
        (
            (change("latency.p50", ChangeVerdict.BETTER, -0.92, interval=Interval(low=-0.947, high=-0.88)),),
            "new is better than old: latency.p50 13 times faster (8.3 to 19).",
        ),
        (
            (change("throughput", ChangeVerdict.BETTER, 51.0, 0.0),),
            "new is better than old: throughput 52 times faster.",
        ),
        (
            (change("throughput", ChangeVerdict.WORSE, -0.98, 0.0),),
            "new is worse than old: throughput 50 times slower.",
        ),
        (
            (
                change("flops", ChangeVerdict.BETTER, -0.95, 0.0),
                change("parameters", ChangeVerdict.BETTER, 19.0, 0.0),
            ),
            "new is better than old: flops 20 times less and parameters 20 times as much.",
        ),
        (
            (change("latency.p50", ChangeVerdict.WORSE, 12.0, interval=Interval(low=3.0, high=50.0)),),
            "new is worse than old: latency.p50 13 times slower (4.0 to 51).",
        ),
        (
            (change("latency.p50", ChangeVerdict.WORSE, 4.0, interval=Interval(low=0.5, high=50.0)),),
            "new is worse than old: latency.p50 400% higher (1.50x to 51x more).",
        ),
    ],
)
def test_the_verdict_is_one_sentence(changes: tuple[Change, ...], expected: str) -> None:
    """With figures, and what speaks against it."""
    assert sentence(CandidateComparison(candidate=a_result(), changes=changes), NAMES) == expected


def test_only_what_differs_is_in_the_table() -> None:
    """What is the same, and what moves with others, is named below it."""
    comparison = compared(
        WORSE,
        change("load_time", ChangeVerdict.SAME, 0.0),
        change("parameters", ChangeVerdict.SAME, 0.0004, 0.0),
        change("first_call", ChangeVerdict.UNDECIDED, 0.1, 0.2),
        change("macs", ChangeVerdict.WORSE, 0.5, 0.0),
        change("throughput", ChangeVerdict.UNDECIDED, 0.05, 0.01),
        judged=(P50,),
    )

    blocks = lay_out(comparison)

    assert [row[0] for row in table(blocks, "What has changed").rows] == ["latency.p50", "throughput"]
    (rest,) = texts_of(blocks, Severity.NOTE)
    assert rest == (
        "also changed: macs +50.0%; changed too little to matter: parameters +0.04%; unchanged: load_time; "
        "undecided: first_call"
    )
    everything = table(lay_out(comparison, ViewOptions(verbose=True)), "What has changed")
    assert len(everything.rows) == 6


SLOW_CALLS = (
    "slow calls count in throughput and not in latency.p50: a call takes on average 91 us with "
    "old (median 10 us) and 42 us with new (median 9.2 us)"
)


@pytest.mark.parametrize(
    ("rate", "notes"),
    [
        (
            (11e3, 24e3),
            [SLOW_CALLS],
        ),
        ((90e3, 98e3), []),
        ((0.0, 98e3), []),
    ],
)
def test_a_rate_that_is_not_that_of_the_median_is_explained(
    rate: tuple[float, float], notes: list[str]
) -> None:
    """A median is 8 % lower and the rate 117 % higher: both are right, and it is said why."""
    median = change("latency.p50", ChangeVerdict.BETTER, -0.08, baseline=10e-6, candidate=9.2e-6)
    rates = change("batch_rate", ChangeVerdict.BETTER, 1.17, baseline=rate[0], candidate=rate[1])

    assert texts_of(lay_out(compared(median, rates)), Severity.NOTE) == notes
    unsure = change("batch_rate", ChangeVerdict.UNDECIDED, 1.17, 3.0, baseline=11e3, candidate=24e3)
    assert "slow calls" not in str(texts_of(lay_out(compared(median, unsure)), Severity.NOTE))


def test_a_row_has_both_values_the_change_and_the_verdict() -> None:
    """With the interval, where there is one that tells anything."""
    rows = {
        row[0]: row[1:]
        for row in table(
            lay_out(
                compared(
                    WORSE,
                    COUNT,
                    change("load_time", ChangeVerdict.WORSE, 20.0, 1.0),
                    change("first_call", ChangeVerdict.WORSE, 5.0, interval=Interval(low=-0.92, high=1005.0)),
                    change("buffers", ChangeVerdict.WORSE, None, baseline=0.0, candidate=3.0),
                    change("throughput", ChangeVerdict.WORSE, None, baseline=None),
                    change("energy", ChangeVerdict.BETTER, 0.0, None),
                )
            ),
            "What has changed",
        ).rows
    }

    assert rows["latency.p50"] == ("1.00 s", "1.12 s", "+12.3% (+10.3 to +14.3%)", "worse")
    assert rows["parameters"][2] == "+50.0%"
    assert rows["load_time"][2] == "21x more (20x to 22x more)"
    assert rows["first_call"][2] == "+500% (13x less to 1,006x more)"
    assert rows["buffers"][2] == "new"
    assert rows["throughput"][0] == rows["throughput"][2] == "—"
    assert rows["energy"][2] == "0%"


def test_what_keeps_it_open_is_said() -> None:
    """Beside the metric that it is about."""
    (notice,) = (
        b for b in lay_out(compared(OPEN)) if isinstance(b, Notice) and b.severity is Severity.UNDECIDED
    )

    assert (notice.code, notice.text) == ("latency.p50", "further processes are needed")


def test_what_else_differs_stands_beside_it() -> None:
    """Settings but for those of the plan, software, hardware; --all has every one."""
    settings = (
        SettingDiff(name="model", baseline="old", candidate="new"),
        SettingDiff(name="content", baseline="ab", candidate="cd"),
        SettingDiff(name="plan.max_time", baseline=5.0, candidate=9.0),
        *(SettingDiff(name=f"knob{n}", baseline=n, candidate=None) for n in range(14)),
    )
    comparison = compared(
        WORSE,
        settings=settings,
        software=(SettingDiff(name="torch", baseline="2.1", candidate="2.2"),),
        hardware=(SettingDiff(name="cores", baseline=2, candidate=8),),
    )

    shown_table = table(lay_out(comparison), "Other differences")

    assert shown_table.rows[0] == ("setting", "model", "old", "new")
    assert shown_table.rows[1] == ("setting", "knob0", "0", "—")
    assert "3 more settings differ; --all shows them" in texts_of(lay_out(comparison), Severity.NOTE)
    fewer = compared(WORSE, settings=settings[3:], software=comparison.contrasts[0].software)
    assert "1 more setting differs; --all shows it" in texts_of(lay_out(fewer), Severity.NOTE)
    whole = table(lay_out(comparison, ViewOptions(verbose=True)), "Other differences")
    assert len(whole.rows) == 19
    assert whole.rows[-1] == ("hardware", "cores", "2", "8")


def test_outputs_are_told_by_their_differences() -> None:
    """Whether they are the same, or how far they are apart."""
    comparison = compared(
        SAME,
        outputs=(
            OutputAgreement(output="y", largest=0.0, relative=0.0, cosine=1.0),
            OutputAgreement(output="z", largest=0.00123, relative=0.0456, cosine=0.999),
            OutputAgreement(output="w", largest=inf, relative=inf, cosine=0.5),
        ),
    )

    texts_shown = texts_of(lay_out(comparison), Severity.NOTE)

    assert "the output 'y' is identical in both" in texts_shown
    assert (
        "the output 'z' differs by at most 0.0012 (0.046 of the largest value), cosine 0.999000"
        in texts_shown
    )
    assert "the output 'w' differs by at most infinite, cosine 0.500000" in texts_shown


PARTS = (
    CausePart(scope="body.fc2", kind="Linear", baseline=4e-3, candidate=8e-3),
    CausePart(scope="body.norm", kind="LayerNorm", baseline=0.0, candidate=1e-3),
    *(CausePart(scope=f"l{n}", kind="Linear", baseline=1e-3, candidate=1.01e-3) for n in range(8)),
    CausePart(scope="", kind="Net", baseline=2e-3, candidate=1.5e-3),
)


def test_a_cause_sums_to_the_change() -> None:
    """The largest parts, the others together, and a rest that has its name."""
    cause = Cause(query=P50, by="layers", total=5e-3, parts=PARTS)

    blocks = lay_out(compared(WORSE, causes=(cause,)))

    shown_table = table(blocks, "Where the change of latency.p50, +5.00 ms, comes from, by layer")
    assert shown_table.rows[0] == ("body.fc2 (Linear)", "4.00 ms", "8.00 ms", "+4.00 ms", "80.0%")
    assert shown_table.rows[1] == ("body.norm (LayerNorm)", "—", "1.00 ms", "+1.00 ms", "20.0%")
    assert ("the model itself (Net)", "2.00 ms", "1.50 ms", "-500 us", "—") in shown_table.rows
    assert shown_table.rows[-2][0] == "5 others"
    assert shown_table.rows[-1][0] == "not attributed"
    assert shown_table.rows[-1][3:] == ("+420 us", "8.4%")
    assert (
        "most of the change of latency.p50 is in layer body.fc2 (Linear): +4.00 ms of +5.00 ms"
        in texts_of(blocks, Severity.NOTE)
    )


def test_parts_that_cancel_each_other_out_have_no_shares() -> None:
    """A part that is more than the whole is told with what all the others come to."""
    gone = CausePart(scope="b", kind="workspace", baseline=4e-3, candidate=0.0)
    new = CausePart(scope="a", kind="workspace", baseline=0.0, candidate=2e-3)
    some = CausePart(scope="a", kind="", baseline=1e-3, candidate=1.4e-3)
    more = CausePart(scope="c", kind="", baseline=1e-3, candidate=1.4e-3)

    def lay_out_parts(total: float, *parts: CausePart) -> tuple[Table, str]:
        cause = Cause(query=P50, by="places", total=total, parts=parts)
        blocks = lay_out(compared(WORSE, causes=(cause,)))
        sentence = next(text for text in texts_of(blocks, Severity.NOTE) if "latency.p50" in text)
        return table(blocks, "Where"), sentence

    places, sentence = lay_out_parts(-2e-3, gone, new)
    assert [column.title for column in places.columns] == ["places", "baseline", "candidate", "difference"]
    assert [row[0] for row in places.rows] == ["b (workspace)", "a (workspace)"]
    assert sentence == (
        "latency.p50 changed by -2.00 ms: -4.00 ms in b (workspace), gone, and +2.00 ms in everything else"
    )
    assert lay_out_parts(0.0, new, gone)[1].startswith(
        "latency.p50 changed by 0 s: +2.00 ms in a (workspace), new, and"
    )
    places, sentence = lay_out_parts(1e-3, some, more)
    assert sentence == "the largest part of the change of latency.p50 is in a: +400 us of +1.00 ms"
    assert [row[-1] for row in places.rows] == ["40.0%", "40.0%", "20.0%"]


def test_a_part_that_may_be_noise_is_told_as_one() -> None:
    """Be it the first of all, for nothing has surely moved, or a row of the table."""
    noise = CausePart(
        scope="fc", kind="Linear", baseline=4e-3, candidate=5e-3, interval=Interval(low=-1e-3, high=3e-3)
    )
    surely = replace(noise, scope="act", interval=Interval(low=0.5e-3, high=1.5e-3))
    one, other = (
        Cause(query=P50, by="layers", total=5e-3, parts=parts) for parts in ((noise,), (surely, noise))
    )

    blocks = lay_out(compared(WORSE, causes=(one,)))
    assert any(
        text.startswith(
            "no layer clearly explains the change of latency.p50 (+5.00 ms); the largest difference, in"
        )
        for text in texts_of(blocks, Severity.NOTE)
    )
    assert table(blocks, "Where").rows[0][3] == "+1.00 ms (or noise)"

    blocks = lay_out(compared(WORSE, causes=(other,)))
    assert not any("noise" in text for text in texts_of(blocks, Severity.NOTE))
    assert [row[3] for row in table(blocks, "Where").rows[:2]] == ["+1.00 ms", "+1.00 ms (or noise)"]


def test_the_first_part_of_a_cause_is_shown_though_others_are_larger() -> None:
    """What surely contributes stands before larger ones that may be noise."""
    first = CausePart(scope="first", kind="", baseline=0.0, candidate=1e-4)

    blocks = lay_out(
        compared(WORSE, causes=(Cause(query=P50, by="layers", total=5e-3, parts=(first, *PARTS)),))
    )

    assert table(blocks, "Where").rows[0][0] == "first"


def test_counts_have_no_order_of_runs_and_no_intervals() -> None:
    """They are the same however often they are taken."""

    def titles(options: ViewOptions) -> list[list[str]]:
        return [[row[0] for row in _rows(lay_out(compared(each), options)[-1])] for each in (COUNT, WORSE)]

    whole = ["baseline", "candidate", "runs", "intervals"]
    assert titles(ViewOptions()) == [["results"], ["results", "measured"]]
    assert titles(ViewOptions(verbose=True)) == [whole[:2], whole]


def test_a_list_tells_the_verdict() -> None:
    """Of one candidate in a sentence with figures, of several in a word each."""
    assert headline(compared(COUNT)) == "new is worse than old: parameters 50.0% higher."
    both = [
        CandidateComparison(candidate=a_result(name=name), changes=(each,))
        for name, each in (("b", COUNT), ("c", SAME))
    ]
    assert headline(several(*both)) == "Compared with old, b is worse and c is the same."


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("old", "new"), ("old", "new")),
        (("net", "net"), ("net (1)", "net (2)")),
        (("", "a" * 30), ("the model", "a" * 17 + "…")),
        (
            ("modelsofmine.factory.wide", "modelsofmine.factory.deep"),
            ("…mine.factory.wide", "…mine.factory.deep"),
        ),
        (("a" * 30, "a" * 30), ("a" * 13 + "… (1)", "a" * 13 + "… (2)")),
    ],
)
def test_names_that_begin_alike_are_told_by_their_ends(
    names: tuple[str, str], expected: tuple[str, str]
) -> None:
    """What does not fit into a column is cut where the two are the same; equal names are numbered."""
    assert short_model_names([a_result(name=name) for name in names]) == expected


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        (({"batch_size": 1}, {"batch_size": 8}), ("batch_size=1", "batch_size=8")),
        (({}, {"threads": 1}), ("the default", "threads=1")),
        (({"arena": True}, {"arena": False}), ("arena=true", "arena=false")),
        (({"a": 1, "b": 1}, {"a": 2, "b": 2}), ("digits (1)", "digits (2)")),
        (({}, {"a_knob_of_a_long_name": 1}), ("digits (1)", "digits (2)")),
        (({}, {}), ("digits (1)", "digits (2)")),
        (({}, {}, {"threads": 1}), ("digits (1)", "digits (2)", "digits (3)")),
    ],
)
def test_equal_names_are_told_by_the_setting_that_differs(
    configs: tuple[dict[str, KnobValue], ...], expected: tuple[str, ...]
) -> None:
    """If it is a single one, and fits; else by numbers."""
    results = [a_result() for _ in configs]
    pairs = zip(results, configs, strict=True)
    changed = [replace(result, job=replace(result.job, config=config)) for result, config in pairs]

    assert short_model_names(changed) == expected


def test_operators_new_and_gone_are_told() -> None:
    """An operator has no class; what is new or gone is said so."""
    new = CausePart(scope="aten::copy_", kind="operator", baseline=0.0, candidate=1e-3)
    gone = CausePart(scope="aten::relu", kind="operator", baseline=1e-3, candidate=0.0)
    causes = (
        Cause(query=P50, by="operators", total=1e-3, parts=(new,)),
        Cause(query=P50, by="operators", total=-1e-3, parts=(gone,)),
        Cause(query=P50, by="operators", total=0.0, parts=(new,)),
    )

    texts_shown = texts_of(lay_out(compared(WORSE, causes=causes)), Severity.NOTE)

    assert "the change of latency.p50, +1.00 ms, is in operator aten::copy_, new" in texts_shown
    assert "the change of latency.p50, -1.00 ms, is in operator aten::relu, gone" in texts_shown


def test_counts_are_explained_in_a_sentence() -> None:
    """They have no table but with --all."""
    part = CausePart(scope="fc", kind="Linear", baseline=1e6, candidate=4e6)
    comparison = compared(
        COUNT, causes=(Cause(query=Query.parse("flops"), by="layers", total=3e6, parts=(part,)),)
    )

    assert any(
        "flops, +3.00 M, is in layer fc (Linear)" in text
        for text in texts_of(lay_out(comparison), Severity.NOTE)
    )
    assert not [b for b in lay_out(comparison) if isinstance(b, Table) and b.title.startswith("Where")]
    assert table(lay_out(comparison, ViewOptions(verbose=True)), "Where").rows[0][0] == "fc (Linear)"


def test_doubts_and_failures_are_told() -> None:
    """Those about the comparison with their advice, those about a side in a line, or by their meaning."""
    own = Doubt(code="not-in-turns", seen="they ran apart", advice="run them in turns")
    many = tuple(Doubt(code=code, seen="s", advice="a") for code in ("drift", "steal", "mine", "other"))
    contrast = CandidateComparison(
        candidate=replace(a_failed_result(id="b" * 12), doubts=many), changes=(), doubts=(own,)
    )

    blocks = lay_out(several(contrast))

    (failure,) = (b for b in blocks if isinstance(b, Notice) and b.severity is Severity.FAILURE)
    assert failure.text == "The child took 2 GiB."
    about, *_, of_side = (b for b in blocks if isinstance(b, Notice) and b.severity is Severity.DOUBT)
    assert about.text == "they ran apart"
    assert of_side.code.endswith(": trust limited")
    assert of_side.text == "s; 3 more: drift, mine, other; --all explains them"
    everything = texts_of(lay_out(several(contrast), ViewOptions(verbose=True)), Severity.DOUBT)
    assert any(text.endswith(": see its result") for text in everything)


def test_several_candidates_stand_side_by_side() -> None:
    """The reference is named, and each has its own verdict."""
    comparison = several(
        CandidateComparison(candidate=a_result(name="new"), changes=(WORSE, COUNT), judged=(P50,)),
        CandidateComparison(candidate=a_result(name="newer"), changes=(BETTER,)),
        CandidateComparison(
            candidate=a_result(name="odd"),
            changes=(change("latency.p50", ChangeVerdict.UNDECIDED, None, why="x"),),
        ),
        order="alternating",
        sequence=(0, 1, 2, 3, 3, 2, 1, 0, 30),
    )

    blocks = lay_out(comparison)

    verdict = texts_of(blocks, Severity.VERDICT)[0]
    assert verdict == "Compared with old, new is worse, newer is better and odd is undecided."
    together = table(blocks, "Side by side")
    assert [column.title for column in together.columns] == [
        "metric",
        "old (reference)",
        "new",
        "newer",
        "odd",
    ]
    assert together.rows[0] == ("latency.p50", "1.00 s", "1.12 s (+12.3% worse)", "—", "—")
    assert title(comparison) == "new, newer, odd against old"
    whole = lay_out(comparison, ViewOptions(verbose=True))
    assert ("runs", "in turns: A B C D D C B A 30") in _rows(whole[-1])
    assert _rows(blocks[-1])[1][1].startswith("1 process each, in turns; 95.0% intervals")


def test_how_it_was_run_stands_at_the_end() -> None:
    """Ids, processes, order, and what the intervals hold."""
    rows = lay_out(compared(WORSE), ViewOptions(verbose=True))[-1]

    assert isinstance(rows, Table)
    assert rows.rows[0] == ("baseline", f"old: {'a' * 12}, 1 process, 2026-01-02 03:04:05 UTC")
    assert ("runs", "measured separately") in rows.rows
    assert ("intervals", "95.0%, simultaneous for all metrics of a candidate") in rows.rows


def test_in_brief_it_is_two_lines() -> None:
    """Which results, and how many processes each had."""
    comparison = compared(WORSE)
    measured = Measurement(metric="load_time", value=1.0, runs=(1.0, 1.0, 1.0))
    candidate = replace(comparison.contrasts[0].candidate, measurements=(measured,))
    uneven = replace(comparison, contrasts=(replace(comparison.contrasts[0], candidate=candidate),))

    assert _rows(lay_out(comparison)[-1])[0] == ("results", "aaaaaa (old), bbbbbb (new)")
    assert _rows(lay_out(uneven)[-1])[1][1].startswith("1 and 3 processes, measured separately; 95.0% int")


def test_a_setting_that_names_the_candidate_is_told_once() -> None:
    """A table that only repeats the name is left out, but for --all."""
    setting = SettingDiff(name="threads", baseline=None, candidate=1)
    contrast = CandidateComparison(candidate=a_result(), changes=(WORSE,), settings=(setting,))
    titles = {
        verbose: [
            block.title
            for block in _differences_table(contrast, ("the default", "threads=1"), everything=verbose)
            if isinstance(block, Table)
        ]
        for verbose in (False, True)
    }

    assert titles == {False: [], True: ["Other differences"]}


def test_one_reason_of_several_metrics_is_told_once() -> None:
    """With the metrics that it is of."""
    open_ones = [
        change(name, ChangeVerdict.UNDECIDED, why="too few") for name in ("latency.p50", "load_time")
    ]
    contrast = CandidateComparison(candidate=a_result(), changes=tuple(open_ones))
    (notice,) = [b for b in lay_out(several(contrast)) if isinstance(b, Notice) and b.text == "too few"]

    assert notice.code == "latency.p50, load_time"


def test_models_of_one_name_are_numbered() -> None:
    """So that a reader can tell them apart."""
    comparison = several(CandidateComparison(candidate=a_result(name="old"), changes=(WORSE,)))

    assert texts_of(lay_out(comparison), Severity.VERDICT)[0].startswith("old (2) is worse than old (1): ")


def test_it_fits_eighty_columns_and_nothing_is_obeyed() -> None:
    """Whatever models, layers and outputs are called."""
    for text in HOSTILE:
        part = CausePart(scope=text, kind=text, baseline=1e-3, candidate=2e-3)
        comparison = several(
            CandidateComparison(
                candidate=a_result(name=text),
                changes=(WORSE, change("load_time", ChangeVerdict.WORSE, why=text)),
                settings=(SettingDiff(name=text, baseline=text, candidate=None),),
                outputs=(OutputAgreement(output=text, largest=0.1, relative=0.1, cosine=0.9),),
                causes=(Cause(query=P50, by="layers", total=1e-3, parts=(part,)),),
            ),
            baseline=a_result(name=text),
        )

        text_shown = terminal.text(lay_out(comparison, ViewOptions(verbose=True)))

        assert max(map(terminal.display_width, text_shown.splitlines())) <= 80
        assert not set(text_shown) & {"\x1b", "\x07", "\u202e"}


def test_its_numbers_are_a_table_for_other_programs() -> None:
    """In base units, unrounded; what is not bounded or not there is empty."""
    unbounded = Interval(low=-0.5, high=inf)
    comparison = compared(WORSE, replace(COUNT, interval=unbounded), replace(OPEN, interval=None))

    rows = numbers(comparison).rows

    assert rows[0][:4] == ("new", "latency.p50", "s", "worse")
    assert rows[0][5:] == ("1", "1.123", "0.123", "0.103", "0.143", "0.03")
    assert rows[1][8:10] == ("-0.5", "")
    assert rows[2][8:10] == ("", "")


def test_an_interruption_is_said_first() -> None:
    """Of what was run for it, with the rounds that were made; of what was stored it is said nowhere."""
    cut = replace(a_result(name="old"), doubts=(Doubt(code="interrupted", seen="s", advice="a"),))
    pair, stored = compared(OPEN, baseline=cut), compared(OPEN, baseline=cut)
    pair = replace(pair, order="alternating")

    first, other = lay_out(pair)[0], lay_out(replace(stored, order="stored"))[0]
    assert isinstance(first, Notice)
    assert isinstance(other, Notice)
    assert first.text == headline(pair)
    assert first.text.startswith(
        "Interrupted after 1 round; it is undecided whether new is better or worse than old"
    )
    assert other.text.startswith("It is undecided")
    beside = replace(several(*compared(WORSE).contrasts * 2, baseline=cut), order="alternating")
    assert headline(beside).startswith("Interrupted after 1 round; compared with old")


@pytest.mark.parametrize(
    ("difference", "low", "high", "words"),
    [
        (0.17, 0.12, 0.22, "new is 1.170 ± 0.050 times slower than old (95 % interval)."),
        (-0.2, -0.24, -0.16, "new is 1.250 ± 0.063 times faster than old (95 % interval)."),
        (11.0, 10.0, 12.0, "new is 12.0 ± 1.0 times slower than old (95 % interval)."),
        (20.0, 5.3, 73.0, "new is 6.3 to 74 times slower than old (95 % interval)."),
        (0.2, 0.02, 0.62, "new is 1.02 to 1.62 times slower than old (95 % interval)."),
        (
            0.01,
            -0.02,
            0.04,
            "new may be faster or slower than old: 0.98 to 1.04 times as long (95 % interval).",
        ),
        (
            -0.1,
            -0.7,
            11.0,
            "new may be faster or slower than old: 0.3 to 12 times as long (95 % interval).",
        ),
        (0.2, -1.0, 3.0, "new took 1.2 times as long as old, in too few processes to say how certain"),
        (0.2, -0.9, inf, "new took 1.2 times as long as old, in too few processes to say how certain"),
    ],
)
def test_a_quick_look_says_how_many_times(difference: float, low: float, high: float, words: str) -> None:
    """A ratio with half of its interval; one that says nothing is called that, and so is a draw."""
    measured = change("latency.p50", ChangeVerdict.UNDECIDED, difference, None)
    measured = replace(measured, interval=Interval(low=low, high=high))
    contrast = CandidateComparison(candidate=a_result(), changes=(measured,), judged=(P50,))
    assert times_sentence(a_result(), contrast, NAMES, 0.95).startswith(words)


def test_a_quick_look_at_few_calls_says_about_how_many_times() -> None:
    """Without a certified median the ratio of what was seen is given, and called that."""
    slow, fast = (
        replace(
            a_result(), measurements=(Measurement(metric="latency", value=Distribution.of([seconds] * 3)),)
        )
        for seconds in (0.3, 0.2)
    )
    contrast = CandidateComparison(candidate=slow, changes=(), judged=(P50,))
    assert times_sentence(fast, contrast, NAMES, 0.95).startswith(
        "new took about 1.5 times as long as old, by too few independent calls to say how certain"
    )


def test_parts_that_explain_less_than_nothing_are_hidden() -> None:
    """Where what no part explains exceeds the change, one sentence says so, and no table suggests causes."""
    part = CausePart(scope="body.fc2", kind="Linear", baseline=4e-3, candidate=8e-3)
    cause = Cause(query=P50, by="layers", total=1e-3, parts=(part,))

    blocks = lay_out(compared(WORSE, causes=(cause,)))

    assert (
        "the parts do not explain the change of latency.p50 (+1.00 ms): -3.00 ms lies outside every layer"
        in texts_of(blocks, Severity.NOTE)
    )
    assert not any(isinstance(block, Table) and block.title.startswith("Where") for block in blocks)


def test_a_cumulative_distribution_ends_where_its_bulk_does() -> None:
    """A few calls ten times as slow are told in words, and do not squeeze the others."""
    bulk = [1e-5 * (1 + step / 1000) for step in range(200)]
    results = [a_result(samples=[*bulk, *([1e-4] * slow)]) for slow in (6, 0)]
    (chart,) = latency_cdf(results, ("before", "now"))

    assert max(x for line in chart.series for x in line.x) < 2e-5
    assert chart.note == "from the 1st to the 99th percentile; the tail up to 100 us is not drawn"
    (whole,) = latency_cdf([results[1], results[1]], ("a", "b"))
    assert whole.note == "from the 1st to the 99th percentile"
    (equal,) = latency_cdf([a_result(samples=[1e-5] * 30)] * 2, ("a", "b"))
    assert len(equal.series[0].x) == 99
