"""What a terminal shows of a profile unasked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.doubt import rate_doubts
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.report.blocks import Notice, Severity, Table
from modeldyno.base.report.charts import Stack
from modeldyno.base.result.trace_data import RedundancyKind, RedundantOp, TraceReport
from modeldyno.profiling import views
from modeldyno.profiling.views.lists import brief
from modeldyno.profiling.views.result.blocks import overview
from modeldyno.profiling.views.result.headline import headline
from modeldyno.profiling.views.result.page import page
from modeldyno.profiling.views.result.table import COMPUTED, MEASURED, reached_flops
from modeldyno.reports import terminal
from modeldyno.testing.reporters import full_result, sample_judgements
from modeldyno.testing.sample_results import an_inspection

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result


def test_it_fits_a_screen_and_keeps_what_is_asked_first() -> None:
    """At most 26 lines at 80 columns, with the figures that a reader looks for first."""
    lines = terminal.text(overview(full_result())).splitlines()
    names = [line.split()[0] for line in lines if line.startswith(("latency", "throughput", "process_"))]

    assert len(lines) <= 26
    assert max(map(len, lines)) <= 80
    assert names == [
        "latency.p50", "latency.p90", "latency.p99", "latency.p99.9", "throughput", "process_memory.max",
    ]  # fmt: skip


def test_doubts_are_one_line() -> None:
    """The most serious one with its sentence, and the codes of the others, each once; -v has the rest."""
    result = full_result()
    again = replace(result, doubts=(*result.doubts, result.doubts[0]))
    (several,) = [b for b in overview(again) if isinstance(b, Notice) and b.severity is Severity.DOUBT]
    first = replace(result, doubts=result.doubts[:1])
    (single,) = [b for b in overview(first) if isinstance(b, Notice) and b.severity is Severity.DOUBT]

    assert several.code == single.code == "trust limited"
    assert several.text.startswith(f"{result.doubts[1].seen}; 2 more: few-samples (2); -v explains them")
    assert single.text.startswith(f"{result.doubts[0].seen}; -v explains it")


def a_rate_after(latency: float, rate: float, mean: float) -> str:
    """Return the first sentence of a profile of a median, a rate of calls and a mean latency."""
    measured = (
        Measurement(metric="latency", value=Distribution.of([latency] * 80 + [mean * 5 - latency * 4] * 20)),
        Measurement(metric="throughput", value=rate),
        Measurement(metric="batch_rate", value=rate),
    )
    result = replace(full_result(), measurements=measured, doubts=tuple(rate_doubts(mean, rate)))
    return str(next(b.text for b in overview(result) if isinstance(b, Notice)))


def test_a_rate_that_is_not_that_of_the_median_says_why() -> None:
    """Slow calls count in full where the mean agrees; where not even the mean does, it is a contradiction."""
    assert "20 ms a call, as slow calls count in full" in a_rate_after(0.010, 50.0, 0.020)
    contradiction = "a call, which was measured after the median and contradicts it"
    assert f"14 ms {contradiction}" in a_rate_after(0.032, 73.0, 0.032)
    assert f"100 ms {contradiction}" in a_rate_after(0.010, 10.0, 0.020)
    assert "a call" not in a_rate_after(0.010, 99.0, 0.010)


def test_a_bound_is_shown_with_its_figure() -> None:
    """A metric that is not among the usual ones is shown where a bound is of it."""
    document = full_result()
    text_shown = terminal.text(overview(document, views.ViewOptions(judgements=sample_judgements(document))))

    assert "latency.p50 < 400 us" in text_shown
    assert "latency.p99.9" in text_shown


def test_of_an_inspection_the_costs_and_the_modules_are_shown() -> None:
    """What few ask for, and small modules, are left to -v, which a line says."""
    text = terminal.text(list(overview(an_inspection())))
    (tree,) = (b for b in overview(an_inspection()) if isinstance(b, Table) and b.title.startswith("Modules"))
    outline = an_inspection().outline
    assert outline is not None
    without = replace(an_inspection(), outline=replace(outline, modules=outline.modules[:3]))

    assert "memory_peak" in text
    assert "bytes_read" not in text
    assert "Formulas" not in text
    assert "-v shows bytes moved" in text
    assert len(tree.rows) <= 14
    assert "Most expensive" not in terminal.text(list(overview(without)))


def test_what_was_measured_stands_apart_from_what_was_computed() -> None:
    """No metric of the analysis stands among the measured ones."""
    counted = observed_number("macs", 1e6)
    document = replace(full_result(), measurements=(*full_result().measurements, counted))
    tables = {b.title: b for b in views.blocks(document) if isinstance(b, Table)}

    assert "macs" in {row[0] for row in tables[COMPUTED].rows}
    assert "macs" not in {row[0] for row in tables[MEASURED].rows}


def test_operations_per_second_are_told_with_their_share_of_the_peak() -> None:
    """The operations of a call over its median, and over the peak of this machine where that is known."""
    document = replace(
        full_result(), measurements=(*full_result().measurements, observed_number("flops", 413e3))
    )
    with_peak = replace(
        document, measurements=(*document.measurements, observed_number("peak_flops", 1e10, scope="here"))
    )

    few = replace(full_result(), measurements=(*full_result().measurements, observed_number("flops", 93.0)))

    assert reached_flops(full_result()) == ""
    assert reached_flops(few) == "225,000 FLOP/s in the median call"
    assert reached_flops(document) == "1.00 GFLOP/s in the median call"
    assert reached_flops(with_peak) == "1.00 GFLOP/s in the median call, 10.0% of this machine's peak"


def test_the_headline_names_what_is_needless() -> None:
    """The cost of needless steps follows the speed in the one sentence that everybody reads."""
    waste = RedundantOp(
        kind=RedundancyKind.COPY,
        name="Tensor.clone",
        scope="norm",
        calls=1.0,
        time=1e-3,
        bytes=1.0,
        reason="r",
    )
    document = replace(full_result(), activity=TraceReport(wastes=(waste,)))

    assert views.headline(document).endswith(
        "samples/s. Unnecessary copies and waits take 1.00 ms of a call, Tensor.clone in norm."
    )


def test_the_stages_of_a_call_have_a_table_of_their_own() -> None:
    """In the order of the call, with shares of the mean; the first sentence names the longest stage."""
    seconds = {"end_to_end": 8.0, "compute": 6.0, "preprocess": 2.0}
    stages = tuple(
        Measurement(metric="latency", scope=scope, value=Distribution.of(np.full(200, mean)))
        for scope, mean in seconds.items()
    )
    document = replace(full_result(), measurements=(*full_result().measurements, *stages))
    for laid_out in (overview(document), views.blocks(document), page(document)):
        tables = [block for block in laid_out if isinstance(block, Table)]
        (table,) = (table for table in tables if "end to end" in table.title)
        assert [(row[0], row[-1]) for row in table.rows] == [
            ("preprocess", "25.0%"), ("compute", "75.0%"), ("end_to_end", "100%"),
        ]  # fmt: skip
        assert "latency.p50@compute" not in {row[0] for table in tables for row in table.rows}
    assert "takes 8.00 s (median) end to end, on average 75.0% of it in compute" in headline(document)
    (chart,) = (b for b in page(document) if isinstance(b, Stack) and b.title == "A call end to end")
    assert [(part.name, part.y) for part in chart.parts] == [("preprocess", (2.0,)), ("compute", (6.0,))]
    alone = replace(document, measurements=stages)
    assert headline(alone).endswith("on average 75.0% of it in compute.")
    assert brief(alone).endswith("8.00 s end to end")


def a_loaded(errors: float) -> Result:
    """Return a load of which a share of the requests failed."""
    measured = (
        Measurement(metric="latency", value=Distribution.of([0.01] * 12_345)),
        observed_number("error_rate", errors),
        observed_number("load_time", 2.0),
    )
    loaded = full_result()
    return replace(loaded, job=replace(loaded.job, load=Load(concurrency=4)), measurements=measured)


def test_a_load_in_brief_says_what_failed_and_not_how_it_started() -> None:
    """Errors have a row where there are any; the number of requests is whole."""
    names = {
        errors: [
            row[0] for block in overview(a_loaded(errors)) if isinstance(block, Table) for row in block.rows
        ]
        for errors in (0.0, 0.02)
    }
    text = terminal.text(overview(a_loaded(0.0)))

    assert "error_rate" not in names[0.0]
    assert "error_rate" in names[0.02]
    assert "load_time" not in names[0.0]
    assert "12,345 " in text
    assert len(text.splitlines()) <= 32
