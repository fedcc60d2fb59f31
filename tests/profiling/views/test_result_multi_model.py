"""The table of the models of one server."""

from __future__ import annotations

from dataclasses import replace

from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.result.multi_model import with_model_scope
from modeldyno.profiling.views.result.served import cohosted_table, without_cohosted
from modeldyno.testing.sample_results import a_result


def test_each_model_is_a_row_with_its_own_figures() -> None:
    """Its load, its rate, its latency as far as that is a claim; what was not measured is left empty."""
    few = Measurement(metric="latency", value=Distribution.of([0.002] * 3))
    void = Measurement(metric="latency", value=replace(Distribution.of([0.004] * 900), void="saturated"))
    own = a_result()
    job = replace(
        own.job,
        load=Load(concurrency=8),
        beside=(
            replace(own.job, name="b", load=Load(concurrency=2)),
            replace(own.job, name="c", load=None),
            replace(own.job, name="d", load=None),
        ),
    )
    theirs = [
        with_model_scope("b", observed_number("throughput", 50.0)),
        with_model_scope("b", few),
        with_model_scope("b", observed_number("queue_time", 0.001)),
        with_model_scope("c", void),
        with_model_scope("d", observed_number("latency", 0.5)),
    ]
    result = replace(own, job=job, measurements=(*own.measurements, *theirs))
    (table,) = cohosted_table(result)

    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows) == [own.name, "b", "c", "d"]
    assert rows[own.name][0] == "concurrency 8"
    assert rows["b"] == ("concurrency 2", "50.0/s", "about 2.0 ms", "about 2.0 ms", "1.00 ms", "")
    assert rows["c"] == ("", "", "saturated", "saturated", "", "")
    assert rows["d"][2] == ""
    assert without_cohosted(result).measurements == own.measurements


def test_one_model_has_no_table() -> None:
    """A result of one model is laid out as ever."""
    assert not list(cohosted_table(a_result()))
    assert without_cohosted(a_result()).measurements == a_result().measurements
