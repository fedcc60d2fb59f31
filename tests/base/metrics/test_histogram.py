from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.metrics.histogram import BINS, FEWEST, histogram
from modeldyno.base.metrics.measurement import Distribution


def of(samples: list[float]) -> Distribution:
    """Make a Distribution of one process."""
    return Distribution.of(samples)


@given(st.lists(st.floats(min_value=1e-7, max_value=1e3), min_size=FEWEST, max_size=300))
def test_every_sample_is_counted_once(samples: list[float]) -> None:
    """What is below, in the bins and above adds up to all samples, in bins whose edges rise."""
    bins = histogram(of(samples))

    if bins is not None:
        assert bins.below + sum(bins.counts) + bins.above == len(samples)
        assert all(a < b for a, b in zip(bins.edges, bins.edges[1:], strict=False))
        assert len(bins.counts) == len(bins.edges) - 1 <= BINS + 1


@pytest.mark.parametrize("samples", [[1e-3] * 5, [1e-3] * 100, [0.0] * 40], ids=("few", "equal", "zeros"))
def test_no_shape_gives_no_histogram(samples: list[float]) -> None:
    """Few samples, or equal ones, have no shape to draw."""
    assert histogram(of(samples)) is None


def test_gaps_of_nothing_are_in_the_first_of_even_bins() -> None:
    """Pieces that arrive together have no time between them; the ratio of the others to that is no scale."""
    bins = histogram(of([0.0] * 30 + [n * 1e-4 for n in range(1, 71)]))

    assert bins is not None
    assert bins.even
    assert bins.edges[0] == 0.0
    assert bins.counts[0] >= 30


def test_edges_are_round() -> None:
    """Even bins begin at multiples of a step of 1, 2 or 5."""
    bins = histogram(of([100e-6 + n * 1e-7 for n in range(400)]))

    assert bins is not None
    assert bins.even
    assert bins.edges[:3] == (100e-6, 105e-6, 110e-6)


def test_late_calls_do_not_flatten_the_rest() -> None:
    """Samples far from the bulk are counted as above, and the bulk fills several bins."""
    bins = histogram(of([1e-3 + n * 1e-6 for n in range(98)] + [0.5, 0.6]))

    assert bins is not None
    assert bins.above == 2
    assert sum(count > 0 for count in bins.counts) >= 4


def test_a_heavy_tail_gets_growing_bins() -> None:
    """Where the bulk itself spans orders of size, each bin is wider than the one before."""
    bins = histogram(of([1e-6 * 1.1**n for n in range(100)]))

    assert bins is not None
    assert not bins.even
    assert bins.edges[-1] - bins.edges[-2] > 2 * (bins.edges[1] - bins.edges[0])
    assert bins.edges[:4] == (1e-6, 2e-6, 5e-6, 1e-5)


def test_mostly_equal_samples_have_a_range() -> None:
    """Where more than nine tenths are equal, the rest sets the range."""
    bins = histogram(of([1e-3] * 96 + [1.1e-3] * 4))

    assert bins is not None
    assert sum(bins.counts) == 100
