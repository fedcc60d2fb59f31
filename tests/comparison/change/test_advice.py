from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.output_agreement import OutputAgreement
from modeldyno.comparison.change.advice import (
    CandidateSettings,
    TriedSetting,
    best_finalist,
    candidates,
    final_candidates,
    format_settings,
    relative_gain,
    which_helped,
    with_outputs,
    worth_rounds,
)
from modeldyno.comparison.change.comparison import Change, ChangeVerdict
from modeldyno.profiling.findings.finding import Finding
from modeldyno.sweeps.study.search_space import parse_axis
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from modeldyno.base.job.knob import KnobValue

RATE, TIME = Query.parse("throughput"), Query.parse("latency.p50")


def change(
    difference: float | None, outcome: ChangeVerdict = ChangeVerdict.BETTER, query: Query = RATE
) -> Change:
    interval = None if difference is None else Interval(low=difference - 0.01, high=difference + 0.01)
    return Change(
        query=query, baseline=1.0, candidate=2.0, difference=difference, interval=interval, outcome=outcome
    )


def tried(
    difference: float | None = 0.2,
    outcome: ChangeVerdict = ChangeVerdict.BETTER,
    rounds: int = 5,
    **settings: KnobValue,
) -> TriedSetting:
    code = next(iter(settings), "none")
    candidate = CandidateSettings(codes=(code,), settings=settings)
    return TriedSetting(candidate=candidate, change=change(difference, outcome), rounds=rounds)


def agreeing(error: float) -> OutputAgreement:
    return OutputAgreement(output="y", largest=error, relative=error, cosine=1.0)


class TestCandidates:
    def test_findings_come_first_and_each_settings_once(self) -> None:
        """What a finding and the usual space both suggest has the codes of both."""
        base = a_result()
        finding = Finding(seen="", why="", code="short", job=base.job.at({"threads": 1}))
        axes = (parse_axis("threads=1,2,4"), parse_axis("batch_size=1,8,16"))
        proposed = candidates((finding,), axes, base, "throughput")

        assert [(each.codes, each.settings) for each in proposed] == [
            (("short", "threads"), {"threads": 1}),
            (("threads",), {"threads": 4}),
            (("batch-size",), {"batch_size": 16}),
        ]

    def test_a_finding_without_a_job_or_about_another_metric_is_no_candidate(self) -> None:
        """There is nothing to run, or it would not show."""
        base = a_result()
        job = base.job.at({"threads": 1})
        unfit = (Finding(seen="", why="", do="x"), Finding(seen="", why="", job=job, metric="load_time"))
        assert candidates(unfit, (), base, "throughput") == ()

    def test_what_takes_minutes_to_start_is_tried_last(self) -> None:
        """A compiler is not to take the time of all others."""
        axes = (parse_axis("compile=default"), parse_axis("threads=1"))
        proposed = candidates((), axes, a_result(), "throughput")
        assert [each.settings for each in proposed] == [{"threads": 1}, {"compile": "default"}]

    def test_another_batch_is_no_candidate_for_a_time(self) -> None:
        """A call of another batch does other work."""
        axes = (parse_axis("batch_size=1,8,16"), parse_axis("precision=fp32,bf16"))
        proposed = candidates((), axes, a_result(), "latency")
        assert [each.settings for each in proposed] == [{"precision": "bf16"}]

    @pytest.mark.parametrize(
        ("spec", "sizes"),
        [
            (InputSpec(name="x", shape=(8, 3)), []),
            (InputSpec(name="x", shape=("batch", 3)), [{"batch_size": 16}]),
            (InputSpec(name="x", shape=()), [{"batch_size": 16}]),
            (InputSpec(name="x", source="x.npz"), [{"batch_size": 16}]),
        ],
    )
    def test_a_shape_that_fixes_the_batch_leaves_no_other(
        self, spec: InputSpec, sizes: list[dict[str, int]]
    ) -> None:
        """None of them could run; a name in its place, one number and a file leave it free."""
        base = replace(a_result(), job=replace(a_result().job, inputs=(spec,)))
        proposed = candidates((), (parse_axis("batch_size=1,8,16"),), base, "throughput")
        assert [each.settings for each in proposed] == sizes


class TestGain:
    def test_it_is_how_much_more_is_done(self) -> None:
        """Of a rate its growth; of a time how many more calls fit into it."""
        assert relative_gain(change(0.5)) == 0.5
        assert relative_gain(change(-0.5, query=TIME)) == pytest.approx(1.0)
        assert relative_gain(change(-1.0, query=TIME)) == inf
        assert relative_gain(change(None)) == relative_gain(None) == -inf

    def test_only_what_ran_and_is_not_far_worse_is_promising(self) -> None:
        """The best first."""
        looked = (
            tried(-0.2, threads=1), tried(-0.6, threads=2), tried(0.3, threads=4),
            TriedSetting(candidate=CandidateSettings(codes=(), settings={}), failure="it crashed"),
        )  # fmt: skip
        assert [each.candidate.settings for each in worth_rounds(looked)] == [{"threads": 4}, {"threads": 1}]

    def test_what_one_look_leaves_open_is_promising(self) -> None:
        """A busy machine may make anything look bad; a time is judged by its lower end."""
        wide = replace(change(-0.6), interval=Interval(low=-0.9, high=0.5))
        slow = replace(change(1.5, query=TIME), interval=Interval(low=0.2, high=9.0))
        looked = tuple(replace(tried(), change=each) for each in (wide, slow))
        assert len(worth_rounds(looked)) == 2
        assert worth_rounds((replace(tried(), change=replace(slow, interval=None)),)) == ()


class TestHelped:
    def test_what_is_surely_better_within_the_tolerance(self) -> None:
        """Neither what ran once, nor what changes the outputs too much."""
        exact, loose = tried(0.2, threads=1), with_outputs(tried(0.5, precision="bf16"), (agreeing(0.02),))
        once, same = tried(0.9, rounds=0, threads=2), tried(0.0, ChangeVerdict.SAME, threads=4)
        looked = (exact, loose, once, same)

        assert which_helped(looked, 0.01) == (exact,)
        assert which_helped(looked, 0.05) == (loose, exact)
        assert (loose.error, exact.error) == (0.02, 0.0)
        assert once.outcome is ChangeVerdict.UNDECIDED
        assert best_finalist(looked, 0.01) == exact
        assert best_finalist((same,), 0.01) is None

    def test_the_best_of_each_knob_are_combined(self) -> None:
        """And measured beside the best alone; of one knob only its best counts."""
        better = (tried(0.5, batch_size=8), tried(0.4, batch_size=4), tried(0.1, compile="default"))
        whole, alone = final_candidates(better)

        assert whole.settings == {"batch_size": 8, "compile": "default"}
        assert whole.codes == ("batch_size", "compile")
        assert alone == better[0].candidate

    def test_one_alone_is_measured_again(self) -> None:
        """Of nothing there is nothing to measure."""
        better = (tried(0.5, batch_size=8), tried(0.4, batch_size=4))
        assert final_candidates(better) == (better[0].candidate,)
        assert final_candidates(()) == ()


def test_settings_are_written_as_they_are_typed() -> None:
    """As `--set` takes them."""
    assert (
        format_settings({"threads": 1, "compile": "default", "arena": False})
        == "threads=1 compile=default arena=false"
    )


def test_why_outputs_are_not_known_is_kept() -> None:
    """Beside what is known."""
    assert with_outputs(tried(), (), "another batch").unlike == "another batch"
    assert replace(tried(), change=None).outcome is ChangeVerdict.UNDECIDED
