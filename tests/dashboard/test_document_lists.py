"""Lists of loads, sweeps and comparisons have their figures in columns, and their bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.dashboard.conftest import visitor_of

from modeldyno.base import plugins
from modeldyno.base.kinds import kind_of
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.dashboard.document_lists import load_list, study_list
from modeldyno.serving.load.capacity_steps import SearchEnd
from modeldyno.serving.load.load_curve import LoadPoint
from modeldyno.stores.interface import StudyEntry
from modeldyno.testing.sample_results import a_job
from modeldyno.testing.sample_series import a_capacity, a_comparison, a_ladder, a_rung

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from modeldyno.stores.interface import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store without anything."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


def listed(store: Store, *documents: Any) -> list[dict[str, str]]:
    """Store documents, and return the rows of their list by title, the newest first."""
    for document in documents:
        store.put_conclusion(document, headline=kind_of(document).brief(document))
    table = load_list(store, store.conclusions(limit=9), ())
    titles = [column.title for column in table.columns]
    return [dict(zip(titles, row, strict=True)) for row in table.rows]


def test_a_load_curve_is_listed_with_the_largest_load_within_its_bounds(store: Store) -> None:
    """Its figures stand in columns, and a bound says where it holds and where it breaks, and how."""
    (row,) = listed(store, a_ladder())

    assert (row["at"], row["rate"], row["p50"], row["p99"]) == (
        "concurrency 4 (largest within bounds)", "400/s", "10.0 ms", "20.0 ms",
    )  # fmt: skip
    assert row["bounds"] == "latency.p99 <= 30 ms ✓ up to 4, ✗ at 8: 40.0 ms"
    assert "outcome" not in row


def test_a_load_curve_without_bounds_is_listed_with_its_knee(store: Store) -> None:
    """Or with the load that delivers the most, where there is none."""
    rungs = tuple(replace(rung, judgements=()) for rung in a_ladder().rungs)
    short = replace(a_ladder(), id="ab" * 6, rungs=rungs[:2], created="2026-02-01T00:00:00+00:00")
    without, knee = listed(store, replace(a_ladder(), rungs=rungs), short)

    assert knee["at"] == "concurrency 4 (knee)"
    assert without["at"] == "concurrency 2 (fastest)"
    assert "bounds" not in knee


def test_a_load_curve_that_breaks_its_bound_everywhere_is_listed_with_its_smallest_load(store: Store) -> None:
    """The figure there is what breaks it."""
    (row,) = listed(store, replace(a_ladder(), rungs=(a_rung(8), a_rung(16))))

    assert row["at"] == "concurrency 8 (smallest)"
    assert row["bounds"] == "latency.p99 <= 30 ms ✗ at 8: 40.0 ms"


def test_a_search_is_listed_with_the_largest_load_that_passed(store: Store) -> None:
    """And with its settings behind the name of the model; one that found none, with the smallest it tried."""
    none = replace(
        a_capacity(), id="ba" * 6, rungs=(a_rung(8),), passed=None, verified=None, end=SearchEnd.SMALLEST,
        created="2026-02-01T00:00:00+00:00",
    )  # fmt: skip
    job = replace(a_job(), backend="triton", config={"batch_size": 8})
    nothing, passed = listed(store, replace(a_capacity(), job=job), none)

    assert passed["model"] == "mlp · triton, batch 8"
    assert passed["at"] == "concurrency 4 (largest within bounds)"
    assert passed["bounds"] == "latency.p99 <= 30 ms ✓ up to 4, ✗ at 8: 40.0 ms"
    assert nothing["at"] == "concurrency 8 (smallest)"
    assert nothing["bounds"] == "latency.p99 <= 30 ms ✗ at 8: 40.0 ms"


def test_a_bound_that_nothing_is_known_of_is_a_question(store: Store) -> None:
    """It is neither held nor broken."""
    search = replace(a_capacity().search, bounds=(Constraint.parse("error_rate <= 1%"),))
    (row,) = listed(store, replace(a_capacity(), search=search, passed=None, failed=None, broke=()))

    assert row["bounds"] == "error_rate <= 1% ?"


def test_a_load_that_was_not_measured_is_listed_by_its_sentence(store: Store) -> None:
    """So is a document that is damaged: its own page says how."""
    failed = LoadPoint(load=1.0, failure="refused")
    document = replace(a_ladder(), rungs=(failed,))
    (row,) = listed(store, document)

    assert row["outcome"] == kind_of(document).brief(document)


@pytest.mark.parametrize(
    ("headline", "cells"),
    [
        (
            "throughput 9/s at latency.p99 35 ms <= 50 ms (best of 20 of 99 tried): b=8, over 99% certain",
            ("m · b=8", "throughput 9/s", "✓ latency.p99 35 ms <= 50 ms", "over 99%, 20 of 99 tried"),
        ),
        (
            "throughput 3/s at latency.p99 63 ms breaking <= 50 ms (best of all 2): a=1, 60% certain",
            ("m · a=1", "throughput 3/s", "✗ latency.p99 63 ms <= 50 ms", "60%, all 2"),
        ),
        (
            "throughput 3/s at latency.p99 not certainly <= 50 ms: a=1",
            ("m · a=1", "throughput 3/s", "? latency.p99 <= 50 ms"),
        ),
        ("latency.p50 9.2 us: batch_size=1", ("m · batch_size=1", "latency.p50 9.2 us")),
        ("no configuration holds the bounds", ("m", "no configuration holds the bounds")),
    ],
)  # fmt: skip
def test_a_sweep_is_listed_by_its_best_configuration(headline: str, cells: tuple[str, ...]) -> None:
    """The configuration stands behind the name of the model; what found none is told in a sentence."""
    entry = StudyEntry(
        id="a" * 12,
        created="2026-01-01T00:00:00+00:00",
        name="m",
        digest="",
        headline=headline,
        trials=1,
        skipped=0,
    )
    (row,) = study_list([entry]).rows

    assert row[:-2] == cells


def test_a_comparison_is_listed_with_its_verdict(store: Store) -> None:
    """As a chip, and its sentence beside it."""
    document = a_comparison()
    store.put_conclusion(document, headline=kind_of(document).brief(document))
    page = visitor_of(store).read("/comparisons")

    assert '<span class="chip undecided">undecided</span>' in page
    assert "It is undecided whether" in page
