from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_reports import a_large_study, a_measured_comparison

from modeldyno.base.job.knob import Knob
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.base.report.blocks import Heading, Notice, Severity, Table, make_columns
from modeldyno.base.report.charts import Bins, Forest, Parallel, Picture, Plot, Stack, Tree
from modeldyno.comparison.views import page as comparison_page
from modeldyno.profiling.findings.finding import Finding, Saving
from modeldyno.profiling.views import ViewOptions, page
from modeldyno.profiling.views.findings import finding_cards
from modeldyno.profiling.views.result.charts import call_timeline, memory_chart, request_stage_chart
from modeldyno.profiling.views.result.page import summary
from modeldyno.reports.write import Page, combine_pages
from modeldyno.sweeps.views import page as study_page
from modeldyno.testing.reporters import DOCUMENTS, full_result, sample_judgements
from modeldyno.testing.sample_results import a_result, an_activity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.report.blocks import Block


def headings(blocks: Iterable[Block], level: int = 1) -> list[str]:
    return [block.title for block in blocks if isinstance(block, Heading) and block.level == level]


def notices(blocks: Iterable[Block], severity: Severity) -> list[str]:
    return [block.text for block in blocks if isinstance(block, Notice) and block.severity is severity]


def tiles(*measured: Measurement) -> dict[str, tuple[str, str]]:
    """Return the key figures of a result, by name, with their notes."""
    blocks = page(replace(a_result(), measurements=measured))
    return {
        name: (value, text)
        for block in blocks
        if isinstance(block, Table) and block.tiles
        for name, value, text in block.rows
    }


class TestKeyFigures:
    """What stands in large letters on a page says no more than the table below."""

    def test_a_saturated_load_has_no_latency(self) -> None:
        """However many requests there were; more of them would change nothing."""
        times = replace(Distribution.of([1.0 + i % 7 / 100 for i in range(2000)]), void="saturated")
        shown = tiles(Measurement(metric="latency", value=times))

        assert (shown["median latency"], shown["p99 latency"]) == (("—", "saturated"),) * 2

    def test_from_the_memory_of_a_server_nothing_is_subtracted(self) -> None:
        """It stands beside that of the idle server; only a model in a process has a baseline."""
        used = Measurement(metric="process_memory", value=Distribution.of([3e7, 4e7]))
        rate = observed_number("throughput", 9.0)
        idle = observed_number("process_memory", 2e7, scope="idle")
        baseline = observed_number("process_memory", 2e7, scope="baseline")

        assert tiles(used, rate, idle)["peak memory"][1] == "measured, 19.1 MiB idle"
        assert tiles(used, rate, baseline)["peak memory"][1] == "measured, above baseline"
        assert tiles(used, rate)["peak memory"][1] == "measured"


def test_a_page_begins_with_one_mark_and_then_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark is what would stay if the largest saving that a measurement bounds came true."""
    saving = Saving(of="time of a call", low=0.1, high=0.38, basis="as measured")
    items = (
        Finding(code="unbounded", seen="something", why="who knows", do="try it"),
        Finding(code="small", seen="s", why="w", do="d", saving=replace(saving, high=0.12)),
        Finding(code="layers", seen="one layer waits", why="it is copied", do="leave it out", saving=saving),
    )
    monkeypatch.setattr("modeldyno.profiling.views.result.page.findings", lambda _result, _knobs: items)
    blocks = list(page(a_result()))
    verdict, figures = blocks[:2]
    heading = next(block for block in blocks if isinstance(block, Heading))
    cards = [block for block in blocks if isinstance(block, Notice) and block.gain]

    assert isinstance(verdict, Notice)
    assert isinstance(figures, Table)
    assert figures.rows[0][:2] == ("mark", "62 of 100")
    assert heading.title == "What to try"
    assert [(card.code, card.gain) for card in cards] == [
        ("layers", "saves 10% to 38% of the time of a call"),
        ("small", "saves 10% to 12% of the time of a call"),
        ("unbounded", "gain not bounded by a measurement"),
    ]
    assert cards[0].advice == "leave it out"
    assert cards[0].risk == "none for the outputs, which change by rounding at most"
    monkeypatch.setattr("modeldyno.profiling.views.result.page.findings", lambda _result, _knobs: items[:1])
    assert not any(isinstance(block, Table) and block.rows[0][0] == "mark" for block in page(a_result()))
    assert "mark" not in tiles(Measurement(metric="parameters", value=3))


@pytest.mark.parametrize(
    ("low", "high", "changes", "gain", "risk"),
    [
        (
            None,
            0.5,
            False,
            "saves up to 50% of the latency",
            "it may cost time instead, which only a trial shows",
        ),
        (
            0.0,
            0.5,
            False,
            "saves up to 50% of the latency",
            "it may cost time instead, which only a trial shows",
        ),
        (
            0.5,
            0.5,
            False,
            "saves 50% of the latency",
            "none for the outputs, which change by rounding at most",
        ),
        (0.5, 0.5, True, "saves 50% of the latency", "outputs may change beyond rounding: compare them"),
    ],
)
def test_a_card_says_its_gain_and_its_risk(
    low: float | None, high: float, changes: bool, gain: str, risk: str
) -> None:
    """What may be a loss, and what may change outputs, is a risk."""
    saving = Saving(of="latency", low=low, high=high, basis="as measured")
    item = Finding(seen="s", why="w", do="d", saving=saving, changes_outputs=changes)
    *_, card = finding_cards(a_result(), [item])

    assert (card.gain, card.risk) == (gain, risk)


class TestResult:
    def test_the_verdict_comes_first_then_bounds_then_doubts(self) -> None:
        """What must be known stands above the first heading, with the key figures right below the verdict."""
        document = full_result()
        blocks = list(page(document, ViewOptions(judgements=sample_judgements(document))))
        first = next(place for place, block in enumerate(blocks) if isinstance(block, Heading))
        items = [block.severity for block in blocks[:first] if isinstance(block, Notice)]

        assert items[0] is Severity.VERDICT
        assert items[1:] == sorted(items[1:], key=lambda severity: severity is Severity.DOUBT)
        assert len(items) == 1 + 4 + 2
        assert first == len(items) + 1
        assert isinstance(blocks[1], Table)
        assert [row[0] for row in blocks[1].rows] == [
            "median latency", "p99 latency", "throughput", "peak memory", "parameters",
        ]  # fmt: skip

    def test_the_command_leaves_out_what_is_usual(self) -> None:
        """A knob that has the value of its default is no part of what to type again."""
        knob = Knob(name="device", kind=str, default="cpu", sentence="s")
        settings = replace(full_result().job, config={"device": "cpu", "threads": 2})
        (*_, last) = page(replace(full_result(), job=settings), ViewOptions(knobs=lambda _: (knob,)))

        assert isinstance(last, Notice)
        assert "--set threads=2" in last.log
        assert "device" not in last.log

    @pytest.mark.parametrize("kind", DOCUMENTS)
    def test_every_page_says_how_it_was_made(self, kind: str) -> None:
        """Whatever a run gave, its page ends with how it was measured and what to type."""
        blocks = list(page(DOCUMENTS[kind]()))

        assert headings(blocks)[-1] == "How it was measured"
        assert isinstance(blocks[-1], Notice)
        assert blocks[-1].log.startswith("modeldyno ")

    def test_a_summary_is_shorter(self) -> None:
        """Without details there are the figures, and how they were measured."""
        document = a_result(activity=an_activity())

        assert headings(summary(document)) == ["Results", "How it was measured"]
        assert len(list(summary(document))) < len(list(page(document)))

    def test_calls_are_drawn_in_their_order(self) -> None:
        """Few calls are drawn one by one, many by the median and the slowest of each few."""
        few = a_result(samples=[1e-3 + n * 1e-6 for n in range(50)])
        (each,) = call_timeline(few)
        (many,) = call_timeline(full_result())

        assert [len(series.x) for series in each.series] == [50]
        assert [series.name for series in many.series] == [
            "median of each 4 calls",
            "slowest of each 4 calls",
        ]
        assert not many.bands  # its times are not kept
        assert many.note == "the warm-up, 43 calls in 400 ms, is not included"

    def test_processes_are_lines_of_their_own(self) -> None:
        """Each process is a line, and those beyond six are counted."""
        runs = [[1e-3 + n * 1e-6 for n in range(30)] for _ in range(8)]
        document = a_result(measurements=(Measurement(metric="latency", value=Distribution.of(*runs)),))
        (picture,) = call_timeline(document)

        assert [series.name for series in picture.series[:2]] == [
            "process 1: each call",
            "process 2: each call",
        ]
        assert len(picture.series) == 6
        assert picture.note == "2 more processes not drawn"

    def test_memory_is_drawn_beyond_what_was_given(self) -> None:
        """Weights and inputs are no part of the picture, and are named below it."""
        document = a_result(activity=an_activity())
        (picture,) = memory_chart(document)

        assert picture.stacked
        assert not {"weights", "inputs"} & {series.name for series in picture.series}

    def test_stages_of_a_request_are_parts_of_a_bar(self) -> None:
        """The server's own account is one bar, in the order in which a request passes."""
        document = a_result(
            measurements=(observed_number("queue_time", 0.002), observed_number("compute_time", 0.003))
        )
        (picture,) = request_stage_chart(document)

        assert [(part.name, part.y) for part in picture.parts] == [
            ("queue", (0.002,)),
            ("compute: model", (0.003,)),
        ]
        assert not list(request_stage_chart(full_result()))


class TestStudy:
    def test_it_has_what_a_summary_of_a_sweep_has(self) -> None:
        """Curves with the bound, memory, knobs, all configurations with their verdicts, winners in detail."""
        swept_study = a_large_study(200)
        blocks = list(study_page.page(swept_study))
        plots = {block.title: block for block in blocks if isinstance(block, Plot)}
        (every,) = (
            block for block in blocks if isinstance(block, Table) and block.title == "Each at its best load"
        )

        assert headings(blocks) == [
            "The best configurations", "What each knob does", "Every configuration",
            "Rank 1 in detail", "Rank 2 in detail", "Rank 3 in detail", "The default in detail",
            "How it was measured",
        ]  # fmt: skip
        assert [rule.name for rule in plots["Throughput against latency"].rules] == ["latency.p99 <= 50 ms"]
        assert len(plots["Throughput against latency"].series) == 5
        assert "Process memory against latency" in plots
        assert len([title for title in plots if title.startswith("throughput against")]) == 6
        assert sum(isinstance(block, Parallel) for block in blocks) == 1
        assert {row[-1].split(",")[0] for row in every.rows} <= {"held", "broken", "undecided", "failed"}
        assert sum(isinstance(block, Stack) for block in blocks) == 4

    def test_a_result_that_is_gone_is_said_to_be(self) -> None:
        """Where the store has forgotten a trial's result, the page says so; else it shows it."""
        swept_study = a_large_study(50)
        gone = list(study_page.page(swept_study))
        there = list(study_page.page(swept_study, ViewOptions(load_result=lambda _: full_result())))

        assert len([text for text in notices(gone, Severity.NOTE) if "is not in the store" in text]) == 4
        assert not [text for text in notices(there, Severity.NOTE) if "is not in the store" in text]
        assert sum(isinstance(block, Bins) for block in there) == 4

    def test_it_can_be_made_again(self) -> None:
        """The command has the space, the goal and the seed."""
        swept_study = a_large_study(10)
        last = list(study_page.page(swept_study))[-1]

        assert isinstance(last, Notice)
        assert "--space precision=fp32,fp16,int8" in last.log
        assert "--maximize throughput --require 'latency.p99 <= 50 ms'" in last.log


class TestComparison:
    def test_differences_are_a_forest(self) -> None:
        """Each difference stands with its interval, its verdict and what is too small to matter."""
        blocks = list(comparison_page.page(a_measured_comparison()))
        (forest,) = (block for block in blocks if isinstance(block, Forest))

        assert [(effect.name, effect.outcome) for effect in forest.effects][:2] == [
            ("latency.p50", "worse"), ("latency.p99", "undecided"),
        ]  # fmt: skip
        assert {effect.smallest for effect in forest.effects} == {0.03}
        assert isinstance(blocks[0], Notice)
        assert blocks[0].severity is Severity.VERDICT
        assert headings(blocks)[0] == "digits-2.onnx against digits.onnx"
        assert len([title for title in headings(blocks) if title.endswith("in detail")]) == 2

    def test_an_interval_that_bounds_nothing_leaves_room_for_the_others(self) -> None:
        """The axis of all differences would reach to dozens of digits; such ends are drawn as open."""
        one = a_measured_comparison()
        first, *rest = one.contrasts[0].changes
        wide = replace(first, interval=Interval(low=-1.0, high=9e43))
        contrast = replace(one.contrasts[0], changes=(wide, *rest))
        blocks = comparison_page.page(replace(one, contrasts=(contrast,)))
        (forest,) = (block for block in blocks if isinstance(block, Forest))

        assert (forest.effects[0].low, forest.effects[0].high) == (-inf, inf)
        assert all(isfinite(effect.low) and isfinite(effect.high) for effect in forest.effects[1:])

    def test_equal_metrics_are_listed_below_the_forest(self) -> None:
        """A row of points on the line of no change would hide the changes."""
        one = a_measured_comparison()
        first, *rest = one.contrasts[0].changes
        equal = replace(first, difference=0.0, interval=None)
        contrast = replace(one.contrasts[0], changes=(equal, *rest))
        blocks = comparison_page.page(replace(one, contrasts=(contrast,)))
        (forest,) = (block for block in blocks if isinstance(block, Forest))

        assert str(first.query) not in [effect.name for effect in forest.effects]
        assert forest.note.endswith(f"; equal: {first.query}")

    def test_several_candidates_have_a_part_each(self) -> None:
        """Beside an overview, each candidate has its own verdict and its own forest."""
        one = a_measured_comparison()
        blocks = list(comparison_page.page(replace(one, contrasts=one.contrasts * 2)))

        assert sum(isinstance(block, Forest) for block in blocks) == 2
        assert len(notices(blocks, Severity.VERDICT)) == 3
        assert headings(blocks)[0] == "All candidates"


def test_several_documents_are_one_page() -> None:
    """Each document has a part of its own, and a line in the table at the top."""
    pages = [Page(title=name, blocks=tuple(page(full_result()))) for name in ("one", "two")]
    combined = combine_pages(pages)

    assert headings(combined.blocks) == ["one", "two"]
    assert "Results" in headings(combined.blocks, 2)
    table = combined.blocks[1]
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["one", "two"]


def test_layers_are_a_tree() -> None:
    """Where layers were watched they are drawn in each other; what is too thin to see is left out."""
    items = [block for block in page(a_result(activity=an_activity())) if isinstance(block, Picture)]

    assert not [block for block in items if isinstance(block, Tree) and block.root.value <= 0]


def test_unchanged_metrics_of_a_comparison_are_folded() -> None:
    """Where others have changed; a table without verdicts, or of one kind of them, stays whole."""
    columns = make_columns("metric", "verdict")
    table = Table(title="t", columns=columns, rows=(("a", "same"), ("b", "worse"), ("c", "same")))
    same = replace(table, rows=table.rows[:1])
    plain = replace(table, columns=make_columns("x", "y"))

    changed, unchanged = comparison_page.fold_unchanged(table)

    assert isinstance(changed, Table)
    assert isinstance(unchanged, Table)
    assert (changed.rows, changed.folded) == ((("b", "worse"),), False)
    assert (unchanged.rows, unchanged.folded) == ((("a", "same"), ("c", "same")), True)
    assert [*comparison_page.fold_unchanged(same), *comparison_page.fold_unchanged(plain)] == [same, plain]
    assert list(comparison_page.fold_unchanged(Heading(title="t"))) == [Heading(title="t")]
