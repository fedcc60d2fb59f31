"""Records that are too many: chosen, counted and sampled a part at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.serving.load.request_log import (
    COLUMNS,
    FilteredRecords,
    PieceTimes,
    Records,
    empty_records,
    join_records,
    sample_records,
    sampling_step,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def requests(count: int, *, pieces: int = 0, batch: int = 8) -> Records:
    """One each millisecond, which ends with its batch: the first of a batch waits for the last."""
    number = np.arange(count)
    columns: dict[str, Any] = {name: np.zeros(count, dtype) for name, dtype in COLUMNS.items()}
    columns |= {"due": number * 1_000_000, "sent": number * 1_000_000 + 10, "message": number}
    columns["end"] = (number // batch + 1) * batch * 1_000_000
    return Records(
        **columns, pieces=PieceTimes.of([range(n, n + pieces) for n in range(count)]) if pieces else None
    )


def times_of_pieces(records: Records) -> list[tuple[int, ...]]:
    """Give the times of each answer's pieces."""
    pieces = records.pieces
    assert pieces is not None
    return [tuple(times.tolist()) for times in np.split(pieces.times, pieces.ends[:-1])]


@dataclass
class Cut:
    """Records in parts of so many."""

    whole: Records
    size: int

    def parts(self) -> Iterator[Records]:
        """Give them."""
        for first in range(0, len(self.whole), self.size):
            place = np.arange(len(self.whole))
            yield self.whole.chosen((place >= first) & (place < first + self.size))


def test_what_is_chosen_is_the_same_in_parts_and_in_one() -> None:
    """Choosing, and choosing again among that, counts and gives the same."""
    whole = requests(1000)
    for records in (whole, Cut(whole, 300)):
        even = FilteredRecords(records=records, holds=lambda part: part.message % 2 == 0)
        both = even.where(lambda part: part.message % 3 == 0)
        assert (len(even), len(both)) == (500, 167)
        assert sample_records(both).message.tolist() == list(range(0, 1000, 6))


def test_what_is_not_too_much_is_given_whole() -> None:
    """In its order, with its pieces, from however many parts; of nothing, nothing."""
    whole = requests(1000, pieces=2)
    for size in (1000, 170):
        sample = sample_records(Cut(whole, size))
        assert sample.message.tolist() == list(range(1000))
        assert times_of_pieces(sample) == times_of_pieces(whole)
    assert len(sample_records(Cut(empty_records(), 10))) == len(sample_records(empty_records())) == 0


def test_pieces_are_kept_in_step_with_parts_that_have_none() -> None:
    """A part without streams has an empty tuple for each of its answers."""

    class Mixed:
        def parts(self) -> Iterator[Records]:
            yield requests(3)
            yield requests(2, pieces=1)

    assert times_of_pieces(sample_records(Mixed())) == [(), (), (), (0,), (1,)]


@pytest.mark.parametrize("size", [100_000, 7_000])
def test_a_sample_is_even_and_has_the_extremes(size: int) -> None:
    """One of eight, where each eighth request is the slow one: their mean is that of all, not of a place."""
    whole = requests(100_000)
    whole.end[77_777] += 10**12
    whole.sent[5] -= 10
    records = Cut(whole, size)
    sample = sample_records(records, most=12_500)
    assert sampling_step(records, 12_500) == 8
    assert 12_300 < len(sample) < 12_520
    assert (np.diff(sample.message) > 0).all()
    latency = (sample.end - sample.due) / 1e6
    assert latency.max() == ((whole.end - whole.due) / 1e6).max()
    assert latency.min() == 1.0
    assert (sample.sent - sample.due).min() == 0
    assert np.sort(latency)[:-1].mean() == pytest.approx(4.5, rel=0.02)
    assert np.bincount(sample.message // 10_000).min() > 1200


def test_streams_are_sampled_by_their_pieces() -> None:
    """Ten pieces each weigh as ten requests."""
    whole = requests(1000, pieces=10)
    assert sampling_step(whole, 1000) == 10
    sample = sample_records(whole, most=1000)
    assert 90 <= len(sample) <= 106
    pieces, of_all = times_of_pieces(sample), times_of_pieces(whole)
    assert all(pieces[i] == of_all[n] for i, n in enumerate(sample.message))


def test_gaps_are_between_the_pieces_of_one_answer() -> None:
    """Each with when it ended, whatever answers without pieces stand between."""
    pieces = PieceTimes.of([(), (1, 3), (), (10,), (20, 25, 27), ()])
    gaps, when = pieces.gaps()
    assert (gaps.tolist(), when.tolist()) == ([2, 5, 2], [3, 25, 27])
    assert pieces.first().tolist() == [0, 1, 0, 10, 20, 0]
    assert pieces.last().tolist() == [0, 3, 0, 10, 27, 0]
    assert PieceTimes.of(()).gaps()[0].size == 0


def test_turns_of_sequences_go_with_their_requests() -> None:
    """Whatever is chosen, joined or sorted; without sequences there are none."""
    whole = requests(12, batch=1)
    rows = np.arange(60).reshape(12, 5)
    log = replace(whole, turns=rows)

    assert log.turn("turn").tolist() == rows[:, 1].tolist()
    assert not whole.turn("turn").any()
    assert log.chosen(log.message % 2 == 0).turns.tolist() == rows[::2].tolist()
    parts = [log.at(np.arange(6, 12)), log.at(np.arange(6))]
    assert join_records(parts).turns.tolist() == rows.tolist()
    assert sample_records(Cut(log, 5)).turns.tolist() == rows.tolist()
    assert not len(join_records([whole, empty_records()]).turns)
