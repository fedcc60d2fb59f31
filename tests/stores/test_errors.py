"""What may happen to a store: many writers, kill -9, a full disk."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError
from tests.support.disk_faults import largest_file

from modeldyno.base.errors import RequestError, StoreError, StoreUnavailable
from modeldyno.stores import sql
from modeldyno.stores.errors import as_store_error
from modeldyno.sweeps.study.study import TrialRequest
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_studies import a_study
from modeldyno.testing.stores import add_sample_trial, fill_store, ids, sweep_into

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.result.result import Result

WRITER = """
import sys
from modeldyno.stores import sql
from modeldyno.testing.sample_results import a_small_result

url, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with sql.open(url) as store:
    for number in range(first, first + count):
        store.put(a_small_result(id=f"{number:012x}"), headline="")
        print(f"{number:012x}", flush=True)
"""


def url_of(path: Path) -> str:
    """Name a store in a file."""
    return f"sqlite:///{path}"


def write(path: Path, first: int, count: int) -> subprocess.Popen[str]:
    """Start a process that puts so many Results and prints the id of each that was acknowledged."""
    arguments = [sys.executable, "-c", WRITER, url_of(path), str(first), str(count)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def examine(path: Path) -> str:
    """Let SQLite examine a database."""
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


def kept(path: Path) -> set[str]:
    """Give the ids that a store holds."""
    with sql.open(url_of(path)) as store:
        return set(ids(store.find(limit=1_000_000)))


def one_line(error: BaseException) -> bool:
    """Tell whether an error is one sentence, and not too long to read."""
    return "\n" not in str(error) and 20 < len(str(error)) < 600


class TestWriters:
    """Several processes that write at once."""

    @pytest.mark.parametrize(("processes", "each"), [(3, 10), pytest.param(16, 240, marks=pytest.mark.slow)])
    def test_at_once(self, tmp_path: Path, processes: int, each: int) -> None:
        """Of processes that put so many Results each, every one of all is acknowledged and there."""
        path = tmp_path / "store.db"
        writers = [write(path, 1000 * n, each) for n in range(processes)]
        acknowledged = [line for writer in writers for line in writer.communicate(timeout=280)[0].split()]

        assert [writer.returncode for writer in writers] == [0] * processes
        assert len(acknowledged) == processes * each
        assert kept(path) == set(acknowledged)

    @pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.slow)])
    def test_killed(self, tmp_path: Path, kills: int) -> None:
        """Writers killed by kill -9 at random moments, two at a time, lose nothing that was acknowledged."""
        path = tmp_path / "store.db"
        moments = random.Random(kills)
        acknowledged: set[str] = set()
        for n in range(0, kills, 2):
            pair = [write(path, 1_000_000 * (n + other), 100_000) for other in range(2)]
            for writer in pair:
                acknowledged |= _kill(writer, moments)

            assert examine(path) == "ok"
            assert acknowledged <= kept(path)
        assert len(acknowledged) > kills


def _kill(writer: subprocess.Popen[str], moments: random.Random) -> set[str]:
    """Kill a writer, mostly while it puts and sometimes while it begins; give what it had acknowledged."""
    assert writer.stdout is not None
    begun = writer.stdout.readline().split() if moments.random() < 0.8 else []
    time.sleep(moments.uniform(0, 0.2))
    writer.kill()
    lines = writer.communicate()[0].splitlines(keepends=True)
    assert writer.returncode == -signal.SIGKILL
    return {*begun, *(line.strip() for line in lines if line.endswith("\n"))}


class TestFullDisk:
    """Writes that fail part of the way."""

    @pytest.fixture
    def old(self, tmp_path: Path) -> tuple[Path, list[Result]]:
        """Give a store with Results in it."""
        path = tmp_path / "old" / "store.db"
        with sql.open(url_of(path)) as store:
            return path, fill_store(store, 5)

    @pytest.fixture
    def large(self) -> Result:
        """Give a Result of a hundred pages or so."""
        source = random.Random(2)
        return a_result(id="f" * 12, samples=[source.random() for _ in range(30_000)])

    @pytest.mark.parametrize("points", [10, pytest.param(200, marks=pytest.mark.slow)])
    def test_put(self, old: tuple[Path, list[Result]], large: Result, tmp_path: Path, points: int) -> None:
        """At each of many write points of a put, it fails in one line; what was there stays readable."""
        path, results = old
        failed = 0
        for size in _points(_log_size(path, large, tmp_path / "whole"), points):
            copy = tmp_path / f"{size}" / "store.db"
            shutil.copytree(path.parent, copy.parent)
            with sql.open(url_of(copy)) as store:
                with largest_file(size), pytest.raises(StoreError, match="free some space") as caught:
                    store.put(large, headline="")
                failed += one_line(caught.value)

                assert results == [store.get(result.id) for result in results]
            assert examine(copy) == "ok"
            assert kept(copy) == {result.id for result in results}
            shutil.rmtree(copy.parent)
        assert failed == points

    @pytest.mark.parametrize("points", [6, pytest.param(30, marks=pytest.mark.slow)])
    def test_trial(self, large: Result, tmp_path: Path, points: int) -> None:
        """A trial that does not fit whole is not there, and its Result is not; what was before is."""
        path = tmp_path / "old" / "store.db"
        with sql.open(url_of(path)) as store:
            study = sweep_into(store, a_study())
        further, _ = add_sample_trial(study, large, TrialRequest(point={"batch_size": 2}))
        for size in _points(_log_size(path, large, tmp_path / "whole"), points):
            copy = tmp_path / f"{size}" / "store.db"
            shutil.copytree(path.parent, copy.parent)
            with sql.open(url_of(copy)) as store:
                with largest_file(size), pytest.raises(StoreError, match="free some space"):
                    store.add_trial(further, large, headline="")

                assert store.study(study.id) == study
                with pytest.raises(RequestError):
                    store.get(large.id)
                store.add_trial(further, large, headline="")
                assert store.study(study.id) == further
                assert store.get(large.id) == large
            shutil.rmtree(copy.parent)

    @pytest.mark.parametrize("points", [10, pytest.param(50, marks=pytest.mark.slow)])
    def test_open(self, old: tuple[Path, list[Result]], large: Result, tmp_path: Path, points: int) -> None:
        """A store that is opened on a full disk can be read, whatever still fits on it."""
        path, results = old
        for size in _points(_log_size(path, large, tmp_path / "whole"), points):
            with largest_file(size), sql.open(url_of(path)) as store:
                assert results == [store.get(result.id) for result in results]
                with pytest.raises(StoreError) as caught:
                    store.put(large, headline="")

                assert one_line(caught.value)
            assert kept(path) == {result.id for result in results}

    @pytest.mark.parametrize("step", [6007, pytest.param(1201, marks=pytest.mark.slow)])
    def test_make(self, tmp_path: Path, large: Result, step: int) -> None:
        """A new store that did not fit fails in one line, and can be made once there is room."""
        for size in range(0, 60_000, step):
            path = tmp_path / f"{size}.db"
            with largest_file(size), pytest.raises(StoreError) as caught, sql.open(url_of(path)) as store:
                store.put(large, headline="")

            assert one_line(caught.value)
            with sql.open(url_of(path)) as store:
                store.put(large, headline="")
                assert large == store.get("f")

    @pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
    def test_no_space_left(self, step: int) -> None:
        """On a file system of its own that is full to the last page, it is the same."""
        allow = ["unshare", "--user", "--map-root-user", "--mount"]
        if shutil.which("unshare") is None or subprocess.run([*allow, "true"], check=False).returncode:
            pytest.skip("this system does not let users mount")
        ran = subprocess.run(
            [*allow, sys.executable, "-W", "error", "-c", FULL, str(step)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.split() == [str(50 // step)]


FULL = """
import os, pathlib, random, subprocess, sys, tempfile
from modeldyno.base.errors import StoreError
from modeldyno.stores import sql
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.stores import fill_store

failed = 0
with tempfile.TemporaryDirectory() as place:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], check=True)
    url, ballast = f"sqlite:///{place}/store.db", pathlib.Path(place, "ballast")
    source = random.Random(2)
    large = a_result(id="f" * 12, samples=[source.random() for _ in range(30_000)])
    with sql.open(url) as store:
        results = fill_store(store, 5)
    for free in range(0, 50, int(sys.argv[1])):
        with sql.open(url) as store:
            store.find()
            room = os.statvfs(place).f_bfree - free
            ballast.write_bytes(bytes(4096 * room))
            try:
                store.put(large, headline="")
            except StoreError as error:
                failed += "its disk is full" in str(error) and "\\n" not in str(error)
            assert results == [store.get(result.id) for result in results]
        with sql.open(url) as store:
            assert len(store.find()) == 5
        ballast.unlink()
    subprocess.run(["umount", place], check=True)
print(failed)
"""


def _points(end: int, count: int) -> list[int]:
    return [end * n // count for n in range(count)]


def _log_size(path: Path, result: Result, folder: Path) -> int:
    """Measure how far the log is written when a put succeeds."""
    shutil.copytree(path.parent, folder)
    with sql.open(url_of(folder / "store.db")) as store:
        store.put(result, headline="")
        return (folder / "store.db-wal").stat().st_size


def of_server(state: str | None, kind: type[DBAPIError] = OperationalError) -> DBAPIError:
    """An error of PostgreSQL with its SQLSTATE; None for what the client sees itself."""
    cause = psycopg.Error("it failed")
    cause.sqlstate = state
    return kind("SELECT 1", {}, cause)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (None, "cannot be reached (it failed); check that its server runs"),
        ("08006", "cannot be reached"),
        ("57P01", "cannot be reached"),
        ("57P03", "cannot be reached"),
        ("53100", "its disk is full"),
        ("55P03", "is locked by another process"),
    ],
)
def test_what_may_be_over_in_a_while_can_be_waited_for(state: str | None, sentence: str) -> None:
    with pytest.raises(StoreUnavailable) as caught, as_store_error("here"):
        raise of_server(state)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            "42501",
            "may not be read or written so by the role that MODELDYNO_STORE names (it failed);",
        ),
        ("42P01", "cannot be used (it failed); check MODELDYNO_STORE"),
    ],
)
def test_what_stays_as_it_is_ends_whoever_meets_it(state: str, sentence: str) -> None:
    with pytest.raises(StoreError) as caught, as_store_error("here"):
        raise of_server(state, ProgrammingError)
    assert not isinstance(caught.value, StoreUnavailable)
    assert sentence in str(caught.value)
