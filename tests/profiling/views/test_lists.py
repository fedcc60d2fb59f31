"""Tables of many: what a store holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.metrics.measurement import SATURATED, Distribution, Interval, Measurement, observed_number
from modeldyno.base.report.blocks import Column, Table, drop_empty_columns
from modeldyno.base.views.text import shorten_ids
from modeldyno.profiling import views
from modeldyno.profiling.views.lists import settings_of
from modeldyno.reports import terminal
from modeldyno.stores.interface import Entry
from modeldyno.testing.reporters import full_result
from modeldyno.testing.sample_results import a_failed_result, a_result, an_inspection

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

SATURATED_TIMES = replace(Distribution.of([1.0 + i / 100 for i in range(100)]), void=SATURATED)


def an_entry(**changes: object) -> Entry:
    """Make what a store tells of a Result."""
    entry = Entry(
        id="0123456789ab", created="2026-01-02T03:04:05.678901+00:00", name="digits", digest="sha256:5a",
        backend="onnxruntime", config={}, tags=(), headline="38.3 k parameters, 338 kMACs", failed=False,
    )  # fmt: skip
    return replace(entry, **changes)  # type: ignore[arg-type]


def open_ended() -> Result:
    """Make an inspection with operators that were not counted."""
    macs = Measurement(metric="macs", value=5_000_000, interval=Interval(low=5e6, high=9e6))
    return an_inspection(measurements=(macs,))


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (a_result(), "onnxruntime, batch 8: about 1.3 ms, 6,200/s"),
        (an_inspection(), "22.7 M parameters, at least 1.41 GMACs"),
        (open_ended(), "at least 5.00 MMACs"),
        (a_failed_result(), "failed in load: out of memory"),
        (an_inspection(measurements=()), "nothing measured"),
    ],
)
def test_a_result_is_told_in_a_few_words(result: Result, says: str) -> None:
    """How fast it is on what, or what it has and costs, or where it failed."""
    assert views.brief(result) == says


@pytest.mark.parametrize(
    ("times", "says"), [(Distribution.of([0.02] * 5), "about 20 ms"), (SATURATED_TIMES, "saturated")]
)
def test_a_median_that_is_not_certified_is_told_as_that(times: Distribution, says: str) -> None:
    """Of too few samples it is about so much; under a load that was saturated there is none."""
    measured = (Measurement(metric="latency", value=times), observed_number("throughput", 47.0))

    assert views.brief(replace(a_result(), measurements=measured)).endswith(f": {says}, 47.0/s")


def test_a_language_model_under_load_is_told_by_its_tokens() -> None:
    """How many, and when the first one came."""
    measured = (
        Measurement(metric="latency", value=Distribution.of([0.3] * 40)),
        Measurement(metric="time_to_first_token", value=Distribution.of([0.02] * 5)),
        *(observed_number(name, 470.0) for name in ("request_rate", "token_rate")),
    )

    assert views.brief(replace(a_result(), measurements=measured)).endswith(
        ": 470 tokens/s, first after about 20 ms"
    )


def test_a_long_load_does_not_push_its_figures_out_of_the_list() -> None:
    """What was loaded is shortened, what came of it stays; a long sentence without figures is shortened."""
    load = "remote, concurrency 2 in sequences of 3, thinking 0.1s, giving up 10% after 0.02s"
    headlines = (f"{load}: 290 tokens/s, first after 5.8 ms", "word " * 40)
    entries = [an_entry(headline=headline) for headline in headlines]
    table = views.listing(entries)
    assert table.rows[0][-1] == "remote, concurrency 2 in sequences of…: 290 tokens/s, first after 5.8 ms"
    assert len(table.rows[1][-1]) <= 72
    assert settings_of(entries)[0].startswith("remote, concurrency 2 in sequences of 3, thinking 0.1s")


def test_a_load_that_was_saturated_has_no_statistic_in_a_file() -> None:
    """Neither the mean, which needs no certificate, nor the extremes: all grow as long as the load lasts."""
    measured = (Measurement(metric="latency", value=SATURATED_TIMES),)
    table = views.numbers(replace(a_result(), measurements=measured))
    value = [column.title for column in table.columns].index("value")

    assert {(row[value], row[-1]) for row in table.rows} == {("", "the load was saturated")}


def test_a_listing_takes_a_line_for_each() -> None:
    """Within 80 columns, with tags behind the name."""
    entries = [an_entry(), an_entry(tags=("claim",)), an_entry(name="all-MiniLM-L6-v2-and-more")]
    lines = terminal.text([views.listing(entries)]).splitlines()

    assert len(lines) == 4
    assert lines[1].split() == [
        "012345", "2026-01-02", "03:04", "digits", "38.3", "k", "parameters,", "338", "kMACs",
    ]  # fmt: skip
    assert "digits (claim)" in lines[2]
    assert "all-MiniLM-L6-v2-…" in lines[3]
    assert all(len(line) <= 80 for line in lines)


def test_ids_are_as_long_as_tells_them_apart() -> None:
    """Six characters, more where these are alike, and never more than there are."""
    assert shorten_ids(["0123456789ab", "ffffff000000"]) == ["012345", "ffffff"]
    assert shorten_ids(["0123456789ab", "0123457789ab"]) == ["0123456", "0123457"]
    assert shorten_ids(["0123456789ab", "0123456789ab"]) == ["012345", "012345"]
    assert shorten_ids(["0123456789ab", "0123456789ac", "0123"]) == ["0123456789ab", "0123456789ac", "0123"]
    assert shorten_ids([]) == []


def test_a_sentence_from_before_is_told_without_its_name() -> None:
    """What an older release wrote into a store begins with the name, which has a column."""
    (row,) = views.listing([an_entry(headline="digits answers in 1 ms (median) on torch.")]).rows

    assert row == ("012345", "2026-01-02 03:04", "digits", "answers in 1 ms (median) on torch.")


def test_numbers_of_modules_may_be_left_out() -> None:
    """Those of the whole, of dtypes and of devices stay."""
    whole = views.numbers(an_inspection(), modules=False)
    scopes = {row[1] for row in whole.rows}

    assert scopes == {"", "float32", "int64", "a100"}
    assert {row[1] for row in views.numbers(full_result()).rows} >= {"baseline"}


def test_columns_without_any_text_may_be_left_out() -> None:
    """What is left has the room then, so that no name is broken."""
    table = Table(
        title="t", columns=tuple(Column(title=t) for t in "abc"), rows=(("1", "", "2"), ("", "", "3"))
    )
    kept = drop_empty_columns(table)

    assert [column.title for column in kept.columns] == ["a", "c"]
    assert kept.rows == (("1", "2"), ("", "3"))
