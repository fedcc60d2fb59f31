"""The search for the largest size that fits; what surrounds it is tested with the analysis."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modeldyno.models.static.other_sizes import LARGEST, largest_fitting


class TestLargest:
    @given(limit=st.integers(0, LARGEST + 5), guess=st.integers(-5, LARGEST + 5))
    def test_it_fits_and_the_next_does_not(self, limit: int, guess: int) -> None:
        """From any guess the answer is found in 41 tries, none of them beyond the end."""
        tried: list[int] = []

        def fits(size: int) -> bool:
            tried.append(size)
            return size <= limit

        assert largest_fitting(fits, guess) == min(limit, LARGEST)
        assert len(tried) == len(set(tried)) <= 41
        assert all(1 <= size <= LARGEST for size in tried)

    @given(limit=st.integers(1, LARGEST - 1))
    def test_a_right_guess_takes_two_tries(self, limit: int) -> None:
        """What is right is only verified."""
        tried: list[int] = []

        def fits(size: int) -> bool:
            tried.append(size)
            return size <= limit

        assert largest_fitting(fits, limit) == limit
        assert tried == [limit, limit + 1]
