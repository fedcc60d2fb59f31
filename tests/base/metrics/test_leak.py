"""What is a leak, from readings: what rises with the calls, to the end, and again in further blocks."""

from __future__ import annotations

import pytest

from modeldyno.base.metrics.leak import (
    ResourceReading,
    block_length,
    confirmed_leaks,
    leak_doubts,
    suspected_leaks,
    without_others,
)


def readings(*levels: float, name: str = "descriptors", apart: int = 100) -> list[ResourceReading]:
    """Return readings of one resource, so many calls apart."""
    return [
        ResourceReading(calls=number * apart, amounts={name: level}) for number, level in enumerate(levels)
    ]


def sentences(rates: dict[str, float]) -> str:
    return "".join(doubt.seen for doubt in leak_doubts(rates))


def test_what_rises_with_the_calls_is_suspected_at_its_rate() -> None:
    """A descriptor in each of 800 calls."""
    assert suspected_leaks(readings(*range(5, 806, 100)), 0) == {"descriptors": 1.0}


@pytest.mark.parametrize(
    "levels",
    [
        [0, 300, 500, 500, 500, 500, 500, 500, 500],  # a cache that fills and stays
        [0, 0, 0, 0, 0, 0, 0, 0, 500],  # one step
        [0, 90, 0, 90, 0, 90, 0, 90, 0],  # a saw
        [500, 400, 300, 200, 100, 50, 20, 10, 0],
        [7, 7, 7, 7, 7, 7, 7, 7, 8],
        [0, 100, 200, 300],  # too few readings
    ],
)
def test_what_does_not_rise_to_the_end_is_not_suspected(levels: list[float]) -> None:
    """A cache, a step, a saw, a fall, next to nothing, and too few readings."""
    assert suspected_leaks(readings(*levels), 0) == {}


def test_the_warm_up_is_left_out_where_enough_follows() -> None:
    """What rises in it alone is no leak; of few calls all readings are taken."""
    levels = [0, 1000, 2000, 3000, 3000, 3000, 3000, 3000, 3000]
    assert suspected_leaks(readings(*levels), 300) == {}
    assert suspected_leaks(readings(0, 100, 200, 300, 400), 300) == {"descriptors": 1.0}


def test_memory_needs_more_than_our_own_samples_take() -> None:
    """Eight bytes of each call are ours; half a mebibyte altogether says something."""
    assert suspected_leaks(readings(*range(0, 900_000, 100_000), name="memory", apart=12_500), 0) == {}
    assert suspected_leaks(readings(*range(0, 90_000, 10_000), name="memory"), 0) == {}
    assert suspected_leaks(readings(*range(0, 900_000, 100_000), name="memory"), 0) == {"memory": 1000.0}


def test_what_was_suspected_must_rise_in_every_further_block() -> None:
    """Garbage that was collected, and our own samples, do not."""
    suspected = {"descriptors": 1.0, "objects": 3.0}
    assert confirmed_leaks(readings(10, 20, 30, 40, apart=10), suspected) == {"descriptors": 1.0}
    assert confirmed_leaks(readings(10, 40, 40, 40, apart=10), suspected) == {}
    assert confirmed_leaks(readings(10, 10, 10, 10, apart=10), suspected) == {}


def test_blocks_are_as_long_as_makes_a_leak_visible() -> None:
    """Within a sixteenth of the calls that were made, and one at least."""
    assert block_length({"descriptors": 1.0}, 1000) == 8
    assert block_length({"memory": 1024.0}, 1_000_000) == 1024
    assert block_length({"memory": 1024.0}, 1600) == 100
    assert block_length({"memory": 1024.0}, 10) == 1


def test_a_doubt_says_what_a_call_leaves_and_how_much() -> None:
    """Each resource once: what is used is mapped too, and so is the stack of a thread."""
    assert sentences({}) == ""
    assert sentences({"memory": 2048.0, "mapped": 4096.0, "descriptors": 1.0}) == (
        "on average a call left 2.00 KiB of memory and 1 open file or socket behind, which no later call "
        "released"
    )
    assert "64.0 KiB of mapped memory behind" in sentences({"mapped": 65536.0})
    assert "1 thread behind" in sentences({"mapped": 8e6, "threads": 1.0})
    assert "0.25 processes behind" in sentences({"processes": 0.25})
    assert "1,200 Python allocations and 3 temporary files behind" in sentences(
        {"objects": 1200.0, "files": 3.0}
    )


def test_what_a_reading_itself_leaves_is_no_leak() -> None:
    """Two allocations a reading, where blocks are of one call: of slow calls there are few."""
    assert confirmed_leaks(readings(0, 2, 4, 6, name="objects", apart=1), {"objects": 2.0}) == {}
    assert confirmed_leaks(readings(0, 20, 40, 60, name="objects", apart=10), {"objects": 2.0}) != {}


@pytest.mark.parametrize(("risen", "left"), [(0, {"files": 1.0}), (24, {"files": 1.0}), (25, {})])
def test_what_rises_a_quarter_as_fast_without_calls_is_of_others(risen: int, left: dict[str, float]) -> None:
    """A file in each of a hundred calls, and some in a pause as long as they took."""
    pause = readings(100, 100 + risen, name="files")

    assert without_others({"files": 1.0}, 100, *pause) == left


def test_what_our_own_threads_add_meanwhile_is_no_leak() -> None:
    """Readings that they take rise in a pause, too; what a call leaves behind does not."""
    rates = {"objects": 1.2}
    assert without_others(rates, 100, *readings(0, 40, name="objects")) == {}
    assert without_others(rates, 100, *readings(0, 8, name="objects")) == rates
