"""Records beyond what memory holds: kept in a file, looked at in parts, exported."""

from __future__ import annotations

import csv
import errno
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.serving.load.test_request_log import times_of_pieces

from modeldyno.base.errors import RunFailed
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.load.request_log import COLUMNS, PieceTimes, Records, empty_records, join_records
from modeldyno.serving.loadgen import record_spool
from modeldyno.serving.loadgen.record_spool import RecordSpool, write_records

MIB = 1 << 20
LONG_LOAD = Path(__file__).parent / "long_load.py"


def block(first: int, count: int, *, streamed: bool = False, in_turns: bool = False) -> Records:
    """Requests that end one nanosecond after the other, each unlike the others; every third is a stream."""
    number = np.arange(first, first + count)
    columns: dict[str, Any] = {
        name: (number * (k + 1)).astype(t) for k, (name, t) in enumerate(COLUMNS.items())
    }
    columns |= {"end": number, "outcome": (number % len(RequestOutcome)).astype("uint8")}
    pieces = [range(n, n + 4) if n % 3 == 0 else () for n in number.tolist()]
    turns = number[:, None] * np.arange(1, 6) if in_turns else empty_records().turns
    return Records(**columns, pieces=PieceTimes.of(pieces) if streamed else None, turns=turns)


def same(one: Records, other: Records) -> bool:
    """Say whether nothing differs."""
    pieces = [each.pieces and times_of_pieces(each) for each in (one, other)]
    alike = all((getattr(one, name) == getattr(other, name)).all() for name in COLUMNS)
    alike = alike and np.array_equal(one.turns, other.turns)
    return len(one) == len(other) and alike and pieces[0] == pieces[1]


@pytest.mark.parametrize("in_turns", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("limit", [MIB // 4, 1 << 40])
def test_what_is_kept_is_given_back(limit: int, streamed: bool, in_turns: bool) -> None:
    """All of it, in the order in which requests ended, whether it lay in memory or in the file."""
    blocks = [block(1000 * n, 1000, streamed=streamed and n % 4 > 0, in_turns=in_turns) for n in range(40)]
    with RecordSpool(limit) as kept:
        for one, other in zip(blocks[::2], blocks[1::2], strict=True):
            kept.add(other)  # of a driver that tells earlier of what ended later
            kept.add(empty_records())
            kept.add(one)
        for _ in range(2):
            assert same(join_records([*kept.parts()]), join_records(blocks))
            assert (np.diff(np.concatenate([part.end for part in kept.parts()])) == 1).all()
        assert (len([*kept.parts()]) > 10) is (limit == MIB // 4)


def test_nothing_is_kept_of_nothing() -> None:
    """An empty tape has no parts."""
    with RecordSpool() as kept:
        kept.add(empty_records())
        assert not [*kept.parts()]


def test_memory_does_not_grow_with_what_is_kept() -> None:
    """Of 23 MiB little more than the bound stays in memory, and what is looked at is a part of it."""
    tracemalloc.start()
    try:
        with RecordSpool(MIB) as kept:
            for number in range(20):
                kept.add(block(20_000 * number, 20_000))
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            count = sum(len(part) for part in kept.parts())
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 400_000
    assert held < 3 * MIB
    assert peak < 6 * MIB


def test_its_file_is_gone_when_it_is_left_however_that_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing lies in the directory while it is used, nor its descriptor open afterwards."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def use() -> None:
        with RecordSpool(1000) as kept:
            kept.add(block(0, 1000))
            assert held_open(tmp_path)
            assert not [*tmp_path.iterdir()]
            raise KeyError

    with pytest.raises(KeyError):
        use()
    assert not held_open(tmp_path)


def held_open(directory: Path) -> bool:
    """Say whether this process has a file of a directory open."""
    descriptors = (each for each in Path("/proc/self/fd").iterdir() if each.is_symlink())
    return any(str(each.readlink()).startswith(str(directory)) for each in descriptors)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence, with what to do."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(record_spool, "_write_fully", full)
    with (
        RecordSpool(1000) as kept,
        pytest.raises(RunFailed, match=f"written to {tmp_path}: No space .*; set TMPDIR"),
    ):
        kept.add(block(0, 1000))


def test_it_lies_on_a_disk_where_one_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual directory is often memory: it is taken where nothing else may be written."""
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(record_spool, "_DIRECTORIES", (str(tmp_path / "none"), str(tmp_path)))
    assert record_spool._directory() == str(tmp_path)
    monkeypatch.setattr(record_spool, "_DIRECTORIES", ())
    assert record_spool._directory() is None


# --- export ----------------------------------------------------------------------------------------


def read(path: Path) -> dict[str, list[Any]]:
    """Read a file of records as columns."""
    if path.suffix == ".npz":
        with np.load(path) as columns:
            return {name: columns[name].tolist() for name in columns}
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    else:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [
                {k: v if k == "outcome" else int(v) for k, v in row.items()} for row in csv.DictReader(file)
            ]
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".npz"])
def test_an_exported_file_is_complete(tmp_path: Path, suffix: str, streamed: bool) -> None:
    """Every request of every part, with the pieces of streams where there are some."""
    path = tmp_path / f"records{suffix}"
    whole = block(0, 12_000, streamed=streamed)
    with RecordSpool(MIB // 4) as kept:
        for first in range(0, 12_000, 1000):
            kept.add(block(first, 1000, streamed=streamed and first > 0))
        assert len([*kept.parts()]) > 1
        artifact = write_records(kept, path)
    exported = read(path)
    assert artifact.path == str(path)
    assert set(exported) - set(COLUMNS) == ({"pieces", "first_piece", "last_piece"} if streamed else set())
    for name in COLUMNS:
        column = getattr(whole, name).tolist()
        written = [RequestOutcome(each).word for each in column] if (suffix, name)[1] == "outcome" else column
        assert exported[name] == (column if suffix == ".npz" else written), name
    if streamed:
        assert exported["pieces"][1000:] == [len(each) for each in times_of_pieces(whole)][1000:]
        assert exported["first_piece"][2001:2004] == [2001, 0, 0]
        assert exported["last_piece"][2001:2004] == [2004, 0, 0]


# --- a whole load ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "count",
    [pytest.param(300_000), pytest.param(5_000_000, marks=pytest.mark.slow)],
)
def test_a_long_load_takes_little_memory_and_loses_nothing(tmp_path: Path, count: int) -> None:
    """Five million requests take less than 200 MB; all are counted and exported, a million are told.

    The file that is left to itself is gone afterwards.
    """
    path, scratch = tmp_path / "records.npz", tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, str(LONG_LOAD), str(count), str(path)],
        check=True, capture_output=True, text=True, timeout=600, env={**os.environ, "TMPDIR": str(scratch)},
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["grown"] < 200e6
    assert report["requests"]["refused"] == 3
    assert report["requests"]["ok"] + 3 + report["dropped"] == count
    kept = report["requests"]["ok"]
    assert report["kept"] == kept if kept <= 1_000_000 else 900_000 < report["kept"] <= 1_000_006
    assert ("thinned" in report["doubts"]) is (kept > 1_000_000)
    assert report["latency"]["max"] == 0.5
    assert report["latency"]["p50"] == pytest.approx(0.0015, rel=0.01)
    assert report["latency"]["p99"] == pytest.approx(0.00199, rel=0.01)
    with np.load(path) as exported:
        assert exported["end"].size == count
        assert (np.sort(exported["due"]) == 1_000_000_000 + 100_000 * np.arange(count)).all()
        assert (np.diff(exported["end"]) >= 0).mean() > 0.99
    assert not [*scratch.iterdir()]


def test_requests_of_sessions_have_columns_of_their_turns(tmp_path: Path) -> None:
    """And others have none."""
    for in_turns in (True, False):
        path = tmp_path / f"{in_turns}.jsonl"
        write_records(block(1, 3, in_turns=in_turns), path)
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert [line.get("turn") for line in lines] == ([2, 4, 6] if in_turns else [None] * 3)
        assert ("session" in lines[0]) is in_turns
