from __future__ import annotations

import csv as reader
import io
from dataclasses import replace

import pytest
from tests.support.sample_reports import hostile_study, payloads

from modeldyno.base.metrics.measurement import Measurement
from modeldyno.reports import csv
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.views.tables import numbers
from modeldyno.testing.reporters import HOSTILE, failed_result, full_result, hostile_result

HEADER = ["metric", "scope", "statistic", "value", "low", "high", "unit", "n", "note"]


def rows(text: str) -> list[list[str]]:
    """Read CSV as other programs do."""
    return list(reader.reader(io.StringIO(text, newline="")))


def test_each_line_ends_as_the_standard_says() -> None:
    """RFC 4180: lines end with CR LF, and each has as many fields as the header."""
    text = csv.render(full_result())

    assert text.count("\n") == text.count("\r\n") == len(rows(text))
    assert rows(text)[0] == HEADER
    assert {len(row) for row in rows(text)} == {len(HEADER)}


def test_numbers_are_in_base_units_and_whole() -> None:
    """A number is written as it is in the document, without rounding."""
    document = full_result()
    by_key = {tuple(row[:3]): row for row in rows(csv.render(document))}

    assert float(by_key["latency", "", "mean"][3]) == document["latency.mean"]
    assert by_key["weight_bytes", "int64", ""][3:] == ["4096", "", "", "B", "", ""]


def test_an_uncertified_percentile_is_marked() -> None:
    """A percentile that is no claim is what was seen, with a note that it is not certified, and why."""
    by_key = {tuple(row[:3]): row for row in rows(csv.render(full_result()))}

    assert 0.0008 < float(by_key["latency", "", "p99.9"][3]) < 0.0009
    assert by_key["latency", "", "p99.9"][8].startswith("not certified: 4,236 more")


@pytest.mark.parametrize("scope", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", " =1"])
def test_text_is_no_formula(scope: str) -> None:
    """No text cell begins as a formula does."""
    document = replace(full_result(), measurements=(Measurement(metric="buffers", value=1, scope=scope),))

    assert rows(csv.render(document))[1][1] == "'" + scope.strip()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_stay_in_their_cell(text: str) -> None:
    """No name begins a formula, a row or a field of its own."""
    cells = rows(csv.render(hostile_result(text)))

    assert {len(row) for row in cells} == {len(HEADER)}
    assert not any(row[place].startswith(("=", "+", "-", "@")) for row in cells for place in (0, 1, 2, 6, 8))


def test_a_negative_number_is_a_number() -> None:
    """A number keeps its sign without a quote."""
    document = replace(full_result(), measurements=(Measurement(metric="throughput", value=-1.5),))

    assert rows(csv.render(document))[1][3] == "-1.5"


def test_a_run_without_numbers_is_a_header() -> None:
    """A failed run has no rows."""
    assert rows(csv.render(failed_result())) == [HEADER]


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_no_payload_becomes_a_formula(step: int) -> None:
    """Of attacks in every name of results and studies, none begins a cell as a formula does."""
    for text in payloads()[::step]:
        made = hostile_study(text)
        for written in (csv.render(hostile_result(text)), csv.table(numbers(made, ranking(made, 20)))):
            for row in rows(written):
                assert not [
                    cell
                    for cell in row
                    if cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not number(cell)
                ]


def number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
