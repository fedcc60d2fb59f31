from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.metrics.metric import (
    EVERYDAY,
    METRICS,
    STATISTICS,
    Better,
    MetricRow,
    MetricTable,
    Query,
    canonical_statistic,
    fraction_of,
)
from modeldyno.base.stats.units import COUNT, FRACTION, RATE, SECONDS

PARTS = (None, "ci", "raw")
PERCENTILES = ("p50", "p1", "p99", "p99.9", "p0.5", "p99.999")


class TestQuery:
    @pytest.mark.parametrize(
        ("text", "metric", "statistic", "part", "scope"),
        [
            ("throughput", "throughput", None, None, ""),
            (" latency.p99 ", "latency", "p99", None, ""),
            ("latency:p99", "latency", "p99", None, ""),
            ("latency.p99.9", "latency", "p99.9", None, ""),
            ("latency.p99.9.ci", "latency", "p99.9", "ci", ""),
            ("latency:p99.9.raw", "latency", "p99.9", "raw", ""),
            ("latency.p99.90", "latency", "p99.9", None, ""),
            ("latency.p05", "latency", "p5", None, ""),
            ("latency.p50.0", "latency", "p50", None, ""),
            ("latency.median", "latency", "p50", None, ""),
            ("latency.mean.ci", "latency", "mean", "ci", ""),
            ("latency.n_eff", "latency", "n_eff", None, ""),
            ("throughput.ci", "throughput", None, "ci", ""),
            ("latency:p99@a.b.c", "latency", "p99", None, "a.b.c"),
            ("latency.p50.ci@encoder.layer.3", "latency", "p50", "ci", "encoder.layer.3"),
            ("weight_bytes@float32", "weight_bytes", None, None, "float32"),
            ("weight_bytes@a@b", "weight_bytes", None, None, "a@b"),
        ],
    )
    def test_the_grammar_is_read(
        self, text: str, metric: str, statistic: str | None, part: str | None, scope: str
    ) -> None:
        """A query is a metric, perhaps a statistic, a part, and a scope that may hold dots."""
        assert Query.parse(text) == Query(metric=metric, statistic=statistic, part=part, scope=scope)

    @given(
        st.sampled_from(sorted(METRICS)),
        st.sampled_from((None, *STATISTICS, *PERCENTILES)),
        st.sampled_from(PARTS),
        st.sampled_from(("", "a.b.c", "encoder.layer.3", "GPU 0")),
    )
    def test_a_query_reads_itself(
        self, metric: str, statistic: str | None, part: str | None, scope: str
    ) -> None:
        """What a query is written as is read as the same query."""
        query = Query(metric=metric, statistic=statistic, part=part, scope=scope)

        assert Query.parse(str(query)) == query

    @pytest.mark.parametrize(
        "text", ["", ".p99", "latency.", "latency..p99", "Latency", "latency:ci", "latency p99"]
    )
    def test_what_is_no_query_is_refused(self, text: str) -> None:
        """Text outside the grammar is refused, with the grammar and an example."""
        with pytest.raises(RequestError, match=r"is not a query; write metric\[\.statistic\]"):
            Query.parse(text)

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            ("latenzy.p99", "There is no metric 'latenzy'; did you mean 'latency'?"),
            ("speed", "There is no metric 'speed'; did you mean 'throughput'?"),
            ("ttft.p99", "There is no metric 'ttft'; did you mean 'time_to_first_token'?"),
            ("foo", "There is no metric 'foo'; modeldyno plugins metrics lists all of them"),
            ("p99", "There is no metric 'p99'; did you mean 'latency.p99'?"),
            ("median", "There is no metric 'median'; did you mean 'latency.p50'?"),
            ("latency.medain", "There is no statistic 'medain'; did you mean 'median'?"),
            ("latency.p999", "There is no statistic 'p999'; did you mean 'p99.9'?"),
            ("latency.percentile99", "There is no statistic 'percentile99'"),
            (
                "latency.end_to_end",
                "There is no statistic 'end_to_end'; did you mean 'latency.p50@end_to_end'?",
            ),
        ],
    )
    def test_an_unknown_name_gets_the_nearest(self, text: str, hint: str) -> None:
        """A misspelt metric or statistic is refused with the nearest that exists."""
        with pytest.raises(UnknownName) as caught:
            Query.parse(text)

        assert str(caught.value).startswith(hint)

    @pytest.mark.parametrize(
        ("text", "unit"),
        [
            ("latency.p99", SECONDS),
            ("latency.std", SECONDS),
            ("latency.n", COUNT),
            ("latency.n_eff", COUNT),
            ("latency.cv", FRACTION),
            ("throughput", RATE),
        ],
    )
    def test_an_answer_has_a_unit(self, text: str, unit: str) -> None:
        """An answer is in the unit of its metric, unless the statistic is a count or a ratio."""
        assert Query.parse(text).unit == unit


class TestStatistics:
    @pytest.mark.parametrize(
        ("name", "fraction"), [("p50", 0.5), ("p99.9", 0.999), ("p0.5", 0.005), ("p99.999", 0.99999)]
    )
    def test_a_percentile_names_a_fraction(self, name: str, fraction: float) -> None:
        """The number of a percentile is a hundredth, exactly."""
        assert fraction_of(name) == fraction

    @pytest.mark.parametrize("name", ["mean", "p", "p0", "p0.0", "p100", "p-1", "p99.99999999999999"])
    def test_other_names_have_none(self, name: str) -> None:
        """What is no percentile strictly between 0 and 100 has no fraction."""
        assert fraction_of(name) is None

    @pytest.mark.parametrize("name", ["p0", "p100", "average", ""])
    def test_no_statistic_has_such_a_name(self, name: str) -> None:
        """A name that is no statistic is refused."""
        with pytest.raises(UnknownName):
            canonical_statistic(name)


def test_what_people_say_is_a_metric_here() -> None:
    """An everyday word is no metric itself, and leads to one, or to a statistic of one."""
    assert not EVERYDAY.keys() & METRICS.keys()
    assert METRICS.keys() >= {Query.parse(meant).metric for meant in EVERYDAY.values()}


def test_each_metric_is_named_as_queries_allow() -> None:
    """Each row stands under its name, without dots, and has a sentence."""
    assert all(
        name == row.name and "." not in name and row.sentence.endswith(".") for name, row in METRICS.items()
    )


SPARSITY = MetricRow(name="sparsity", unit=FRACTION, better=Better.HIGHER, sentence="Share of zeros.")


def test_a_table_asks_for_further_metrics_once_and_only_when_it_must() -> None:
    """Looking for plugins takes time: a name that is known costs none, one that is not is looked for once."""
    calls: list[str] = []

    def find() -> dict[str, MetricRow]:
        calls.append("plugins")
        return {"sparsity": SPARSITY}

    table = MetricTable([("latency", METRICS["latency"])])
    table.complete_from(find)
    assert "latency" in table
    assert not calls

    assert table["sparsity"] is SPARSITY
    assert "nonsense" not in table
    assert calls == ["plugins"]
    assert list(table) == ["latency", "sparsity"]


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("sparsity", replace(SPARSITY, name="other"), "write a MetricRow of that name"),
        ("latency", replace(SPARSITY, name="latency"), "The name of the metric 'latency' is taken"),
        ("fps", replace(SPARSITY, name="fps"), "The name of the metric 'fps' is taken"),
        ("a.b", replace(SPARSITY, name="a.b"), "A metric cannot be named 'a.b'"),
        ("sparsity", replace(SPARSITY, unit="zeros"), "'sparsity' is in 'zeros', which is no base unit"),
    ],
)
def test_a_metric_that_cannot_be_is_refused(name: str, row: MetricRow, says: str) -> None:
    """Whoever wrote the plugin is told what is wrong with it."""
    table = MetricTable([("latency", METRICS["latency"])])
    table.complete_from(lambda: {name: row})

    with pytest.raises(RequestError, match=says):
        table.complete()


def test_a_user_adds_a_metric_once() -> None:
    """The same one again changes nothing; another one of its name is refused, even one of a plugin."""
    table = MetricTable([("latency", METRICS["latency"])])
    table.complete_from(lambda: {"loudness": replace(SPARSITY, name="loudness")})
    table.register(SPARSITY)
    table.register(SPARSITY)

    assert list(table) == ["latency", "loudness", "sparsity"]
    assert table.registered == (SPARSITY,)
    for name in ("sparsity", "loudness"):
        with pytest.raises(RequestError, match=f"The name of the metric '{name}' is taken"):
            table.register(replace(SPARSITY, name=name, better=Better.LOWER))


def test_a_metric_that_is_not_installed_has_the_row_of_a_document() -> None:
    """It is not in the table, so no request may name it; without a description it is a bare number."""
    table = MetricTable([("latency", METRICS["latency"])])
    assert (table["sparsity"].unit, table["sparsity"].better) == (COUNT, Better.NEITHER)

    table.describe(SPARSITY)
    table.describe(replace(SPARSITY, name="loudness", unit="dB"))

    assert table["sparsity"] is SPARSITY
    assert table["loudness"].unit == COUNT
    assert list(table) == ["latency"]
    assert "sparsity" not in table
    assert table.further(["latency", "sparsity"]) == (SPARSITY,)


def test_a_part_of_a_changed_document_is_refused() -> None:
    """A query of a document has the interval, the raw quantile or neither."""
    with pytest.raises(UnknownName, match=r"no part of a statistic '0.5'"):
        Query(metric="latency", statistic="p50", part=0.5)  # type: ignore[arg-type]


def test_a_query_may_name_a_metric_of_its_document() -> None:
    """Which the table need not have."""
    assert str(Query.parse("vibes@encoder", {"vibes"})) == "vibes@encoder"
    with pytest.raises(UnknownName):
        Query.parse("vibes", {"moods"})


def test_what_stands_for_a_metric() -> None:
    """The median of a distribution, the most of memory, the least of what is left, and a number itself."""
    names = ("latency", "process_memory", "memory_available", "device_free", "macs")
    assert [METRICS[name].statistic for name in names] == ["p50", "max", "min", "min", None]


def test_there_is_a_top_metric_for_every_number() -> None:
    """One is listed; the others have its row, and one output or none is no metric."""
    assert METRICS["top_12"].unit == METRICS["top_5"].unit
    assert "12 largest outputs" in METRICS["top_12"].sentence
    assert "top_12" not in list(METRICS)
    assert [name in METRICS for name in ("top_2", "top_12", "top_1", "top_0", "top_x")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert Query.parse("top_3").metric == "top_3"
