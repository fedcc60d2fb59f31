from __future__ import annotations

import random
from dataclasses import replace

import pytest

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.report.blocks import Block, Notice, Severity, Table
from modeldyno.base.report.charts import Bins
from modeldyno.base.result.result import Failure, FailureKind, Result
from modeldyno.base.views.text import LOG_LINES
from modeldyno.profiling import views
from modeldyno.profiling.views.result.table import COMPUTED, MEASURED
from modeldyno.stores.interface import Entry
from modeldyno.testing.reporters import (
    HOSTILE,
    call_times,
    failed_result,
    full_result,
    hostile_result,
    partly_failed_result,
    result_without_measurements,
    sample_judgements,
    static_result,
    uncertified_result,
)


def measured(*measurements: Measurement) -> Result:
    """Make a run that gave these measurements."""
    return replace(full_result(), doubts=(), measurements=measurements)


def results(document: Result, *bounds: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of the table of results by their first cell."""
    judgements = [Constraint.parse(bound).judge(document.measurements) for bound in bounds]
    items = [
        block
        for block in views.blocks(document, views.ViewOptions(judgements=tuple(judgements)))
        if isinstance(block, Table)
    ]
    return {row[0]: row[1:] for each in items if each.title in {MEASURED, COMPUTED} for row in each.rows}


def table(blocks: tuple[Block, ...], title: str) -> Table:
    """Find a table by its title."""
    return next(block for block in blocks if isinstance(block, Table) and block.title == title)


def footer(document: Result) -> dict[str, str]:
    """Return what is said of how it was measured."""
    rows = table(views.blocks(document), "How it was measured").rows
    return {row[0]: row[1] for row in rows}


class TestHeadline:
    @pytest.mark.parametrize(
        ("document", "sentence"),
        [
            (
                full_result(),
                (
                    "digits.onnx answers in 413 us (median, 95 % interval 411 to 415 us) at batch 32 "
                    "on onnxruntime; on average 77,600 samples/s."
                ),
            ),
            (
                uncertified_result(),
                "digits.onnx answers in about 390 us (median of only 5 calls) at batch 32 on onnxruntime.",
            ),
            (static_result(), "digits.onnx has 22.7 M parameters (86.6 MiB)."),
            (
                failed_result(),
                (
                    "onnx:models/digits.onnx failed in load (out of memory): "
                    "tried to allocate 2.00 GiB, 1.21 GiB were free."
                ),
            ),
            (
                partly_failed_result(),
                (
                    "digits.onnx answers in 413 us (median, 95 % interval 411 to 415 us) at batch 32 "
                    "on onnxruntime; on average 77,600 samples/s, but failed in throughput (crash): "
                    "signal 11 (SIGSEGV)."
                ),
            ),
            (result_without_measurements(), "onnx:models/digits.onnx was not measured."),
            (measured(Measurement(metric="file_bytes", value=2048)), "digits.onnx takes 2.00 KiB on disk."),
            (measured(Measurement(metric="parameters", value=4810)), "digits.onnx has 4,810 parameters."),
        ],
        ids=["full", "uncertified", "static", "failed", "partly", "empty", "file", "count"],
    )
    def test_it_says_in_one_sentence_what_came_out(self, document: Result, sentence: str) -> None:
        """The verdict names the model and the figure that matters most of those there are."""
        assert views.headline(document) == sentence

    def test_what_it_scores_on_labelled_samples_is_told(self) -> None:
        """With every metric that was evaluated, on how many."""
        full = full_result()
        scores = (
            Measurement(metric="accuracy", value=0.9917, interval=Interval(low=0.976, high=0.997)),
            Measurement(metric="f1", value=0.9911, interval=Interval(low=0.98, high=0.9965)),
            Measurement(metric="evaluated_samples", value=360),
        )

        sentence = views.headline(replace(full, measurements=(*full.measurements, *scores)))
        assert sentence.endswith("; accuracy 99.2%, f1 99.1% on 360 labelled samples.")
        alone = views.headline(replace(full, measurements=(*full.measurements, scores[0])))
        assert alone.endswith("; accuracy 99.2%.")

    def test_bounds_that_are_not_held_are_named(self) -> None:
        """Bounds that are broken or undecided follow the verdict; held ones do not."""
        document = full_result()

        assert views.headline(document, sample_judgements(document)).endswith(
            "samples/s. Broken: latency.p50 < 400 us. Undecided: latency.p99.9 <= 1 ms."
        )

    def test_further_failures_are_counted(self) -> None:
        """The first failure is told, the others are counted."""
        failure = Failure(where="latency", kind=FailureKind.TIMEOUT, message="")

        assert "failed in latency (time-out, and 1 more)." in views.headline(
            replace(result_without_measurements(), failures=(failure, failure))
        )

    def test_a_median_without_interval_is_told_plainly(self) -> None:
        """Equal samples have an interval of no width; a batch of one is not told."""
        document = measured(Measurement(metric="latency", value=Distribution.of([1e-3] * 50)))
        one = (InputSpec(name="x", shape=(1, 64)),)
        document = replace(document, inputs=one, job=replace(document.job, config={}))

        assert views.headline(document) == (
            "digits.onnx answers in 1.00 ms (median, 95 % interval 1.00 to 1.00 ms) on onnxruntime."
        )

    @pytest.mark.parametrize(
        ("shape", "at"), [((8, 64), " at x=8x64"), ((1, 64), ""), ((), ""), (("batch", 64), "")]
    )
    def test_a_batch_that_only_a_shape_gives_is_told(self, shape: tuple[int | str, ...], at: str) -> None:
        """A call with eight samples says so, though the knob of the batch size was not used."""
        document = measured(Measurement(metric="latency", value=Distribution.of([1e-3] * 50)))
        inputs = (InputSpec(name="x", shape=shape),)
        document = replace(document, inputs=inputs, job=replace(document.job, config={}))

        assert f"1.00 ms){at} on onnxruntime" in views.headline(document)

    def test_a_distribution_of_throughput_is_told_by_its_mean(self) -> None:
        """A throughput that was measured in blocks is told by their mean."""
        blocks = Distribution.of([990.0, 1000.0, 1010.0] * 20)
        document = measured(
            Measurement(metric="latency", value=Distribution.of(call_times())),
            Measurement(metric="throughput", value=blocks),
        )

        assert views.headline(document).endswith("; on average 1,000 samples/s.")
        assert results(document)["throughput.mean"][0] == "1,000/s"

    @pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
    def test_names_are_cut_and_cleaned(self, text: str) -> None:
        """A name of any length and content gives one printable line."""
        line = views.headline(hostile_result(text), sample_judgements(hostile_result(text)))

        assert len(line) < 1000
        assert "\n" not in line
        assert "\x1b" not in line


class TestResults:
    def test_rows_come_in_the_order_of_interest(self) -> None:
        """Latency comes first, what the model is comes last, and evidence of noise is no result."""
        names = list(results(full_result()))

        assert names == [
            "latency.p50", "latency.p90", "latency.p95", "latency.p99", "latency.p99.9", "latency.mean",
            "latency.std", "latency.min", "throughput", "batch_rate", "load_time", "first_call",
            "process_memory.max", "process_memory@baseline", "cpu_utilization", "parameters", "buffers",
            "weight_bytes", "file_bytes",
        ]  # fmt: skip

    def test_an_uncertified_percentile_is_shown_as_such(self) -> None:
        """Below its floor a percentile is what was seen, to two digits, with what is missing."""
        assert results(full_result())["latency.p99.9"] == (
            "about 880 us", "at least 710 us", "not certified, 4,236 more effective samples needed",
        )  # fmt: skip

    def test_a_percentile_of_a_bound_is_shown(self) -> None:
        """A percentile that was asked for is in the table, in its place."""
        names = list(results(full_result(), "latency.p75 <= 1s"))

        assert names[:3] == ["latency.p50", "latency.p75", "latency.p90"]

    def test_a_statistic_of_a_bound_is_no_second_row(self) -> None:
        """A bound on the mean adds nothing to the rows that are there."""
        assert list(results(full_result(), "latency.mean <= 1s")) == list(results(full_result()))

    def test_the_first_row_says_what_it_rests_on(self) -> None:
        """The median's note has the number of calls and why measuring ended."""
        assert results(full_result())["latency.p50"][2] == "2,400 calls, converged"
        assert results(full_result())["latency.p90"][2] == ""

    def test_what_was_seen_once_is_marked(self) -> None:
        """A time of one process has no interval; over processes it has one."""
        once = observed_number("load_time", 0.125)
        twice = once.pooled(observed_number("load_time", 0.135))

        assert results(measured(once))["load_time"] == ("125 ms", "", "measured once")
        assert results(measured(twice))["load_time"] == ("130 ms", "125 to 135 ms", "")

    def test_weights_are_told_by_dtype(self) -> None:
        """The dtypes stand beside the sum, the largest first; one dtype alone needs no figure."""
        weights = [
            Measurement(metric="weight_bytes", value=n, scope=s)
            for n, s in ((3072, ""), (1024, "a"), (2048, "b"))
        ]

        assert results(measured(*weights))["weight_bytes"][2] == "b 2.00 KiB, a 1.00 KiB"
        assert results(measured(*weights[:2]))["weight_bytes"][2] == "a"
        assert results(measured(*weights[1:2]))["weight_bytes@a"][0] == "1.00 KiB"

    def test_the_time_to_load_is_told_in_parts(self) -> None:
        """The stages of loading stand beside their sum, and have no rows of their own."""
        stages = (
            observed_number("load_time", 0.125, scope="load"),
            observed_number("load_time", 0.5, scope="import"),
        )
        tables_shown = results(measured(observed_number("load_time", 0.625), *stages))

        assert tables_shown == {"load_time": ("625 ms", "", "measured once, import 500 ms, load 125 ms")}

    def test_memory_is_told_above_its_baseline(self) -> None:
        """The peak is above the baseline where there is one; the baseline has a row of its own."""
        memory = Measurement(metric="process_memory", value=Distribution.of([2048.0, 4096.0]))
        plain = Measurement(metric="process_memory", value=2048, scope="worker")

        assert results(full_result())["process_memory.max"] == ("41.2 MiB", "", "peak above baseline")
        assert results(full_result())["process_memory@baseline"][2] == "before loading"
        assert results(measured(memory))["process_memory.max"] == ("4.00 KiB", "", "peak")
        assert results(measured(plain))["process_memory@worker"] == ("2.00 KiB", "", "")

    def test_nothing_measured_gives_no_table(self) -> None:
        """A run without measurements has no empty table."""
        assert not any(
            isinstance(block, Table) and block.title == "Measured" for block in views.blocks(failed_result())
        )

    def test_an_unusual_metric_has_a_row(self) -> None:
        """A metric at a scope is shown under the query that gives it."""
        layer = Measurement(metric="latency", value=Distribution.of(call_times(100)), scope="encoder.layer.3")

        assert "latency.p50@encoder.layer.3" in results(measured(layer))


class TestNotices:
    def test_the_verdict_comes_first(self) -> None:
        """The first block is the verdict."""
        first = views.blocks(full_result())[0]

        assert isinstance(first, Notice)
        assert first.severity is Severity.VERDICT

    def test_bounds_come_with_their_figures(self) -> None:
        """Each bound is told with its verdict."""
        document = full_result()
        items = [
            b
            for b in views.blocks(document, views.ViewOptions(judgements=sample_judgements(document)))
            if isinstance(b, Notice)
        ][1:5]

        assert [str(notice.severity) for notice in items] == ["held", "broken", "undecided", "held"]
        assert items[0].text == "latency.p99 <= 50 ms: held (520 us, 95 % interval 510 to 580 us)"

    def test_a_failure_comes_with_the_end_of_its_log(self) -> None:
        """A failure shows where and what, and the last lines of the log; its message is not told twice."""
        verdict, failure = (block for block in views.blocks(failed_result()) if isinstance(block, Notice))

        assert verdict.text == "onnx:models/digits.onnx failed in load (out of memory)."
        assert failure.code == "load: out of memory"
        assert failure.log.splitlines()[-1] == "Killed"
        assert len(failure.log.splitlines()) == LOG_LINES

    def test_a_crash_comes_with_where_it_happened(self) -> None:
        """A stack that begins with the last call is shown from there on, and no list of modules after it."""
        head = "Current thread 0x1 (most recent call first):"
        log = ["Fatal Python error", "", head, '  File "nets.py", line 7', "", "Extension modules: a, b"]
        deep = [*log[:3], *(f"  frame {n}" for n in range(99))]

        def log_lines(lines: list[str]) -> list[str]:
            failure = Failure(where="latency", kind=FailureKind.CRASH, message="m", log="\n".join(lines))
            blocks = views.blocks(replace(full_result(), failures=(failure,)))
            (notice,) = (b for b in blocks if isinstance(b, Notice) and b.severity is Severity.FAILURE)
            return notice.log.splitlines()

        assert log_lines(log) == [head, '  File "nets.py", line 7']
        assert log_lines(deep) == [head, *(f"  frame {n}" for n in range(LOG_LINES - 1))]

    @pytest.mark.parametrize("kind", FailureKind)
    def test_every_kind_of_failure_has_words(self, kind: FailureKind) -> None:
        """No kind of failure is without a name for people."""
        failure = Failure(where="load", kind=kind, message="m")

        assert "failed in load (" in views.headline(
            replace(result_without_measurements(), failures=(failure,))
        )

    def test_a_doubt_comes_with_advice(self) -> None:
        """A doubt of any code is told with what was seen and what to do."""
        document = replace(full_result(), doubts=(Doubt(code="new", seen="s", advice="a"),))
        (notice,) = (
            b for b in views.blocks(document) if isinstance(b, Notice) and b.severity is Severity.DOUBT
        )

        assert (notice.code, notice.text, notice.advice) == ("new", "s", "a")


class TestHistogram:
    def test_it_shows_the_bulk_and_names_the_rest(self) -> None:
        """The picture has all calls but those that it says it leaves out; the tail is apart from its bins."""
        (chart,) = (block for block in views.blocks(full_result()) if isinstance(block, Bins))

        assert sum(chart.counts) + chart.beyond == 2400 - 1
        assert chart.note == "above 620 us: 11 calls, up to 1.24 ms; not drawn: 1 below, down to 316 us"
        assert chart.beyond == 11
        assert [mark.name for mark in chart.marks] == ["p50", "p99"]

    def test_growing_bins_are_explained(self) -> None:
        """Bins of unlike width are said to be so."""
        times = random.Random(0).sample([1e-6 * 1.1**n for n in range(100)], 100)
        document = measured(Measurement(metric="latency", value=Distribution.of(times)))
        (chart,) = (block for block in views.blocks(document) if isinstance(block, Bins))

        assert chart.note.endswith("logarithmic bins")
        assert [mark.name for mark in chart.marks] == ["p50"]

    def test_few_calls_have_no_picture(self) -> None:
        """Five calls have no shape."""
        assert not any(isinstance(block, Bins) for block in views.blocks(uncertified_result()))


class TestFooter:
    def test_it_tells_what_the_figures_depend_on(self) -> None:
        """Model, inputs, settings, machine and the way of measuring are told in a line each."""
        facts = footer(full_result())

        assert list(facts) == [
            "model", "inputs", "backend", "measured", "noise", "hardware", "software", "conditions", "result",
        ]  # fmt: skip
        assert facts["model"] == "digits.onnx, sha256:1a2b3c4d5e6f, onnx"
        assert facts["inputs"].startswith(
            "image 32x64 float32, random in 0..16, 16 distinct; scale scalar int64"
        )
        assert facts["backend"] == "onnxruntime, batch_size 32, device cpu, threads 2, io_binding off"
        constant = replace(full_result().inputs[0], low=1, high=1)
        assert footer(replace(full_result(), inputs=(constant,)))["inputs"].startswith(
            "image 32x64 float32, all 1"
        )
        assert facts["noise"] == "others 0.121 cores, stolen 0 cores, preemptions 31"
        assert facts["hardware"].endswith("x86_64, cores 8, cores allowed 2, cpu quota 2, memory 8.00 GiB")
        assert facts["conditions"] == "load average 0.25, governor performance, turbo off"
        assert facts["result"] == "0123456789ab, 2026-01-02 03:04:05 UTC"

    def test_how_it_was_measured_names_every_shortcoming(self) -> None:
        """Processes, correlation, what was left out, and what was not reached are told."""
        drifting = [1e-3 + n * 1e-6 for n in range(40)]
        value = Distribution.of(drifting, drifting, stop="time limit", unmet=("precision 2 %",), rejected=3)
        facts = footer(measured(Measurement(metric="latency", value=value)))["measured"]

        assert facts.startswith("80 calls in 2 processes, equivalent to ")
        assert facts.endswith(
            " independent ones for the median, no warm-up, 3 rejected as invalid, "
            "stop: time limit (precision 2 %)"
        )

    def test_what_is_unknown_is_left_out(self) -> None:
        """A model that never loaded has no digest, and inputs without a shape have none to show."""
        inputs = (InputSpec(name="text", source="README.md"), InputSpec(name="x"))
        facts = footer(replace(result_without_measurements(), inputs=inputs))

        assert list(facts) == ["model", "inputs", "backend", "result"]
        assert facts["inputs"] == "text, from README.md; x"

    def test_inputs_that_are_alike_are_one(self) -> None:
        """A decoder has two for each layer; two that are alike are named, and the order stays."""
        cache = [InputSpec(name=f"past.{layer}", shape=(1, 4), dtype="float32") for layer in range(24)]
        ids, mask = (InputSpec(name=name, shape=(1, 8), dtype="int64") for name in ("ids", "mask"))

        shown = footer(replace(full_result(), inputs=(ids, *cache, mask)))["inputs"]

        assert shown == "ids 1x8 int64; past.0 and 23 like it, each 1x4 float32; mask 1x8 int64"

    def test_a_digest_without_a_scheme_is_cut(self) -> None:
        """A digest is shown by its first twelve digits, with its scheme where it has one."""
        document = full_result()
        assert document.model is not None
        bare = replace(document, model=replace(document.model, digest="5a" * 32))

        assert "5a5a5a5a5a5a," in footer(bare)["model"]


class TestNumbers:
    def test_every_number_has_a_row(self) -> None:
        """A number has one row, a distribution one for each statistic."""
        numbers_table = views.numbers(
            measured(
                Measurement(metric="latency", value=Distribution.of(call_times(100))),
                observed_number("load_time", 2.0),
            )
        )

        assert [row[2] for row in numbers_table.rows] == [
            "p50",
            "p90",
            "p95",
            "p99",
            "p99.9",
            "mean",
            "std",
            "min",
            "max",
            "",
        ]
        assert numbers_table.rows[-1] == ("load_time", "", "", "2.0", "", "", "s", "1", "")

    def test_an_unbounded_end_is_empty(self) -> None:
        """An end of an interval that is not bounded is no number."""
        interval = Interval(low=1.0, high=float("inf"))
        numbers_table = views.numbers(
            measured(Measurement(metric="throughput", value=2.0, interval=interval))
        )

        assert numbers_table.rows[0][3:6] == ("2.0", "1.0", "")


def test_a_store_is_listed() -> None:
    """Each entry has a row: its id, when, its name and tags, and what came out."""
    entry = Entry(
        id="0123456789ab",
        created="2026-01-02T03:04:05+00:00",
        name="digits",
        digest="sha256:00",
        backend="onnxruntime",
        config={},
        tags=("a", "b"),
        headline="digits answers.\x1b[1m",
        failed=False,
    )

    assert views.listing([entry]).rows == (("012345", "2026-01-02 03:04", "digits (a, b)", "answers."),)


def test_requested_percentiles_belong_to_latency() -> None:
    """A percentile that the plan asks for is a row of latency and of nothing else."""
    document = measured(
        Measurement(metric="latency", value=Distribution.of(call_times(100))),
        Measurement(metric="throughput", value=Distribution.of(call_times(100))),
    )
    document = replace(document, job=replace(document.job, plan=Plan(percentiles=("p97",))))
    names = list(results(document))

    assert "latency.p97" in names
    assert "throughput.p97" not in names
