"""Two models side by side."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import pytest

from modeldyno import views
from modeldyno.core.block import Notice, Severity, Table
from modeldyno.core.measurement import Distribution, Interval, Measurement
from modeldyno.core.outline import Module
from modeldyno.reporters import terminal
from modeldyno.testing.results import a_failed_result, an_inspection, an_outline
from modeldyno.views.compare import ratio

if TYPE_CHECKING:
    from modeldyno.core.result import Result

FEWER = ("fewer", "more")


def smaller(factor: float, name: str = "student", **changes: object) -> Result:
    """Make an inspection of a model whose every number is smaller."""
    teacher = an_inspection()
    measurements = tuple(
        replace(m, value=m.value / factor, interval=None)
        for m in teacher.measurements
        if not isinstance(m.value, Distribution)
    )
    return an_inspection(name=name, **{"measurements": measurements, **changes})


def test_a_student_is_compared_with_its_teacher() -> None:
    """Each metric has both numbers and how the second compares with the first, in words."""
    sentence, table, *_ = views.comparison(an_inspection(name="teacher"), smaller(4.2))

    assert isinstance(sentence, Notice)
    assert sentence.text == (
        "student against teacher: parameters 4.2x fewer, MACs 4.2x fewer, memory at the peak 4.2x smaller."
    )
    assert isinstance(table, Table)
    assert [column.title for column in table.columns] == [
        "metric", "teacher", "student", "second against first",
    ]  # fmt: skip
    assert [row[0] for row in table.rows] == [
        "parameters", "weight_bytes", "file_bytes", "macs", "flops", "memory_peak", "activation_peak",
    ]  # fmt: skip
    assert table.rows[3] == ("macs", "1.41 G", "336 M", "4.2x fewer")


def test_it_fits_eighty_columns() -> None:
    """Names of any length leave room for the numbers."""
    blocks = views.comparison(an_inspection(name="t" * 90), smaller(2, "s" * 90))

    lines = terminal.text(blocks).splitlines()

    assert max(map(len, lines)) <= 80
    assert any(line.startswith("macs ") and line.endswith("x fewer") for line in lines)


def test_what_only_one_has_is_told() -> None:
    """Classes of modules, sizes, and counts that are open are noted."""
    outline = replace(
        an_outline(),
        sizes={"batch": 2},
        modules=(Module(path="", kind="M"), Module(path="a", kind="Linear"), Module(path="b", kind="Gate")),
    )
    blocks = views.comparison(an_inspection(name="teacher"), smaller(1, outline=outline))
    notes = [b.text for b in blocks if isinstance(b, Notice) and b.severity is Severity.NOTE]

    assert notes == [
        "teacher has operators that are not counted: it takes between 1.41 GMACs and 1.44 GMACs",
        "only teacher has Attention, Dropout, Embedding, Embeddings, Encoder, Layer, ModuleList",
        "only student has Gate",
        "the two were analysed at different sizes; see --json",
    ]


def test_what_nothing_bounds_is_at_least_what_was_counted() -> None:
    """Past unknown shapes a count is a lower bound, in the table and in words, and has no ratio."""
    teacher = an_inspection(name="teacher")
    open_ = tuple(
        replace(m, interval=Interval(low=1_412_628_480, high=inf)) if m.metric == "macs" else m
        for m in teacher.measurements
    )
    blocks = views.comparison(replace(teacher, measurements=open_), smaller(2))
    (table,) = (b for b in blocks if isinstance(b, Table))

    assert isinstance(blocks[0], Notice)
    assert blocks[0].text == (
        "student against teacher: parameters 2.0x fewer, memory at the peak 2.0x smaller."
    )
    assert ("macs", "≥ 1.41 G", "706 M", "—") in table.rows
    assert any(
        b.text == "teacher has operators that are not counted: it takes at least 1.41 GMACs"
        for b in blocks
        if isinstance(b, Notice)
    )


def test_models_of_one_name_are_numbered() -> None:
    """The same name twice would tell nobody which is which."""
    (sentence, *_) = views.comparison(an_inspection(), smaller(1, "mini"))

    assert isinstance(sentence, Notice)
    assert sentence.text.startswith("mini (2) against mini (1): parameters equal")


def test_a_failure_is_told() -> None:
    """Where one of them failed its numbers are dashes, and the failure is shown."""
    blocks = views.comparison(an_inspection(), a_failed_result())
    (failure,) = (b for b in blocks if isinstance(b, Notice) and b.severity is Severity.FAILURE)
    (table,) = (b for b in blocks if isinstance(b, Table))

    assert failure.text == "The child took 2 GiB."
    assert {row[2] for row in table.rows} == {row[3] for row in table.rows} == {"—"}


def test_nothing_to_compare_is_said() -> None:
    """Two failures have no table."""
    blocks = views.comparison(a_failed_result(), a_failed_result(name="other"))

    assert isinstance(blocks[0], Notice)
    assert blocks[0].text.endswith("have nothing that can be compared.")
    assert not any(isinstance(block, Table) for block in blocks)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (420, 100, "4.2x fewer"),
        (100, 130, "1.3x more"),
        (100, 100, "equal"),
        (0, 0, "equal"),
        (7, 0, "none"),
        (0, 7, "more, the first has none"),
        (1000, 999, "0.1% fewer"),
        (100, 104, "4% more"),
        (1e9, 1, "1,000,000,000x fewer"),
        (123, 10, "12x fewer"),
    ],
)
def test_ratios_are_words(first: float, second: float, words: str) -> None:
    """More or fewer is said, never a number below one; small differences are percents."""
    assert ratio(first, second, FEWER) == words


class TestSummary:
    def test_two_models_have_an_enhancement(self) -> None:
        """Sizes are decimal, multiply-accumulates are called so, and what is better is said."""
        found = views.summary([an_inspection(name="teacher"), smaller(2)])

        assert [column.title for column in found.columns] == [
            "Evaluation metric", "teacher", "student", "Enhancement",
        ]  # fmt: skip
        assert found.rows == (
            ("Model size", "90.9 MB", "45.4 MB", "2.00x smaller"),
            ("Computational complexity", "1.41 GMACs", "706 MMACs", "2.00x fewer"),
            ("Total parameters", "22.7 M", "11.4 M", "2.00x fewer"),
            ("Memory footprint", "92.8 MB", "46.4 MB", "2.00x smaller"),
            ("Execution time", "—", "—", "—"),
        )

    def test_one_model_has_none(self) -> None:
        """There is nothing to be better than; small sizes are bytes."""
        tiny = an_inspection(measurements=(Measurement(metric="weight_bytes", value=512),))
        found = views.summary([tiny])

        assert [column.title for column in found.columns] == ["Evaluation metric", "mini"]
        assert found.rows[0] == ("Model size", "512 B")

    def test_a_latency_is_an_execution_time(self) -> None:
        """Where both were timed the medians are compared."""
        timed = [
            an_inspection(measurements=(Measurement(metric="latency", value=Distribution.of([t] * 9)),))
            for t in (0.004, 0.001)
        ]

        assert views.summary(timed).rows[-1] == ("Execution time", "4.00 ms", "1.00 ms", "4.00x faster")
