"""What a store does in a damaged file, a locked one, and a place that is read-only."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import ModelDynoError, RequestError, StoreError
from modeldyno.stores import rows, sql
from modeldyno.stores import schema as stores_schema
from modeldyno.testing.sample_results import a_result, a_small_result
from modeldyno.testing.sample_studies import a_study
from modeldyno.testing.stores import fill_store, sweep_into

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOBODY = 65534


def url_of(path: Path, timeout: float = 60) -> str:
    """Name a store in a file."""
    return f"sqlite:///{path}?timeout={timeout}"


def one_line(error: BaseException) -> bool:
    """Tell whether an error is one sentence, and not too long to read."""
    return "\n" not in str(error) and 20 < len(str(error)) < 600


def change(path: Path, statement: str, *values: object) -> None:
    """Change a database behind the store's back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


class TestDamage:
    """Files that are not as they were left."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Give the file of a store with three small Results and a full one."""
        path = tmp_path / "store.db"
        with sql.open(url_of(path)) as store:
            fill_store(store, 3)
            store.put(a_result(id="f" * 12), headline="")
            store.tag("f", add=["tagged"])
        return path

    @pytest.mark.parametrize(
        "damage",
        [
            "document = x'00'",
            "document = substr(document, 1, 40)",
            "document = 'text'",
            "document = 7",
            "checksum = ''",
        ],
    )
    def test_document(self, path: Path, damage: str) -> None:
        """A damaged document is named; the others are read, all are listed, and it can be removed."""
        change(path, f"UPDATE results SET {damage} WHERE id = ?", "0" * 12)
        with sql.open(url_of(path)) as store:
            with pytest.raises(StoreError, match=r"Result 000000000000 in the store .* is damaged") as caught:
                store.get("00")

            assert one_line(caught.value)
            assert store.get("f") == a_result(id="f" * 12)
            assert len(store.find()) == 4
            assert store.remove("00") == "0" * 12
            assert len(store.find()) == 3

    @pytest.mark.parametrize("table", ["studies", "trials"])
    def test_study(self, path: Path, table: str) -> None:
        """A damaged study is named; it is listed, all else is read, and it can be removed."""
        with sql.open(url_of(path)) as store:
            study = sweep_into(store, a_study(id="a" * 12))
        column = "id" if table == "studies" else "study_id"
        change(path, f"UPDATE {table} SET document = x'00' WHERE {column} = ?", study.id)
        with sql.open(url_of(path)) as store:
            with pytest.raises(StoreError, match=r"Study aaaaaaaaaaaa in the store .* is damaged") as caught:
                store.study("aaaa")

            assert one_line(caught.value)
            assert store.get("f") == a_result(id="f" * 12)
            assert [entry.id for entry in store.studies()] == [study.id]
            assert store.remove_study("aaaa") == study.id

    def test_lost_trial(self, path: Path) -> None:
        """A study from which a trial has vanished is damaged: it would be measured as another one."""
        with sql.open(url_of(path)) as store:
            study = sweep_into(store, a_study(id="a" * 12))
        change(path, "DELETE FROM trials WHERE number = 2 AND study_id = ?", study.id)
        with sql.open(url_of(path)) as store, pytest.raises(RequestError, match="without a gap"):
            store.study("aaaa")

    def test_no_document(self, path: Path) -> None:
        """Bytes with the right checksum that are no document are reported as damaged."""
        garbage = b"no document"
        statement = "UPDATE results SET document = ?, checksum = ? WHERE id = ?"
        change(path, statement, garbage, rows.checksum(garbage), "0" * 12)
        with sql.open(url_of(path)) as store, pytest.raises(StoreError, match="is damaged"):
            store.get("00")

    def test_config(self, path: Path) -> None:
        """A damaged configuration does not keep anything from being listed."""
        change(path, "UPDATE results SET config = '{' WHERE id = ?", "0" * 12)
        with sql.open(url_of(path)) as store:
            assert {} in [entry.config for entry in store.find()]

    def test_later_document(self, path: Path) -> None:
        """A document of a later schema is refused by its own sentence."""
        later = b'{"schema": 99}'
        statement = "UPDATE results SET document = ?, checksum = ? WHERE id = ?"
        change(path, statement, later, rows.checksum(later), "0" * 12)
        with sql.open(url_of(path)) as store, pytest.raises(RequestError, match="upgrade ModelDyno"):
            store.get("00")

    def test_later_revision(self, path: Path) -> None:
        """A database of a later ModelDyno is refused, and left alone."""
        change(path, f"UPDATE {stores_schema.VERSION_TABLE} SET version_num = '9999'")
        before = path.read_bytes()
        with pytest.raises(StoreError, match="later ModelDyno") as caught:
            sql.open(url_of(path))

        assert one_line(caught.value)
        assert before == path.read_bytes()

    @pytest.mark.parametrize(
        "content", [b"\0" * 5000, b"hello, world\n" * 500, b"SQLite format 3\0" + b"x" * 5000]
    )
    def test_no_database(self, tmp_path: Path, content: bytes) -> None:
        """A file that is no database is refused, and left alone."""
        path = tmp_path / "notes.txt"
        path.write_bytes(content)
        with pytest.raises(StoreError, match="is not a SQLite database") as caught:
            sql.open(url_of(path))

        assert one_line(caught.value)
        assert content == path.read_bytes()

    def test_no_place(self, tmp_path: Path) -> None:
        """A path through a file, or to a directory, cannot be opened."""
        (tmp_path / "file").touch()
        for path in (tmp_path / "file" / "store.db", tmp_path):
            with (
                pytest.raises(StoreError, match="cannot be opened") as caught,
                sql.open(url_of(path)) as store,
            ):
                store.put(a_result(), headline="")

            assert one_line(caught.value)

    @pytest.mark.parametrize(
        ("seed", "files"),
        [(0, 20), *(pytest.param(seed, 100, marks=pytest.mark.slow) for seed in range(1, 5))],
    )
    def test_anywhere(self, path: Path, seed: int, files: int) -> None:
        """Of databases damaged anywhere, each is read or refused in one line."""
        source = random.Random(seed)
        whole = path.read_bytes()
        for damaged in (_damaged(whole, source) for _ in range(files)):
            for suffix in ("", "-wal", "-shm"):  # unlinked, as ext4 syncs a file that was cut to nothing
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            path.write_bytes(damaged)
            for use in USES:
                try:
                    with sql.open(url_of(path, 0.1)) as store:
                        use(store)
                except ModelDynoError as error:
                    assert one_line(error)


USES: tuple[Callable[[sql.SqlStore], object], ...] = (
    lambda store: store.find(),
    lambda store: store.find(tag="tagged"),
    lambda store: store.get("f"),
    lambda store: store.get("tagged"),
    lambda store: store.tag("f", add=["new"]),
    lambda store: store.put(a_small_result(id="e" * 12), headline=""),
    lambda store: store.remove("01"),
)


def _damaged(whole: bytes, source: random.Random) -> bytes:
    """Cut a file short, or overwrite a few of its bytes, or a whole stretch."""
    kind = source.randrange(3)
    if kind == 0:
        return whole[: source.randrange(len(whole))]
    changed = bytearray(whole)
    for _ in range(source.choice((1, 5, 50))):
        place = source.randrange(len(whole))
        length = 1 if kind == 1 else source.randrange(512)
        changed[place : place + length] = source.randbytes(length)
    return bytes(changed[: len(whole)])


class TestPlace:
    """Places where not all can be done."""

    @pytest.fixture
    def place(self) -> Iterator[Path]:
        """Give a directory that everybody may enter."""
        with tempfile.TemporaryDirectory() as made:
            Path(made).chmod(0o755)
            yield Path(made)
            for inner in [Path(made), *Path(made).rglob("*")]:
                inner.chmod(0o700)

    def test_locked(self, tmp_path: Path) -> None:
        """While another process holds the lock for too long, a put fails in one line and a list does not."""
        path = tmp_path / "store.db"
        with sql.open(url_of(path, 0.2)) as store, closing(sqlite3.connect(path)) as holder:
            fill_store(store, 2)
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="is locked by another process") as caught:
                store.put(a_result(), headline="")

            assert one_line(caught.value)
            assert len(store.find()) == 2
            holder.rollback()
            store.put(a_result(), headline="")

    def test_read_only(self, place: Path) -> None:
        """A store in a place that is read-only can be read; writing it fails in one line."""
        path = place / "store.db"
        with sql.open(url_of(path)) as store:
            results = fill_store(store, 2)
        path.chmod(0o444)
        place.chmod(0o555)
        with unprivileged(), sql.open(url_of(path)) as store:
            assert results == [store.get(result.id) for result in results]
            for write in (lambda: store.put(a_result(), headline=""), lambda: store.remove("00")):
                with pytest.raises(StoreError, match="is read-only") as caught:
                    write()

                assert one_line(caught.value)

    def test_a_full_disk_is_not_called_read_only(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without room for its log SQLite opens it for reading; writing it says that the disk is full."""
        path = place / "store.db"
        with sql.open(url_of(path)) as store:
            fill_store(store, 1)
        path.chmod(0o444)
        place.chmod(0o555)
        usage = shutil.disk_usage(place)._replace(free=0)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        with unprivileged(), sql.open(url_of(path)) as store:
            assert len(store.find()) == 1
            with pytest.raises(StoreError, match="because its disk is full; free some space") as caught:
                store.put(a_result(), headline="")

        assert one_line(caught.value)

    def test_read_only_after_kill(self, place: Path) -> None:
        """What a killed writer left in its log can be read even where nothing can be written."""
        path = place / "store.db"
        code = (
            "import os, sys; from modeldyno.stores import sql; "
            "from modeldyno.testing.stores import fill_store; "
            "fill_store(sql.open(sys.argv[1]), 3); os.kill(os.getpid(), 9)"
        )
        subprocess.run([sys.executable, "-c", code, url_of(path)], check=False)
        for file in place.iterdir():
            file.chmod(0o444)
        place.chmod(0o555)
        assert (place / "store.db-wal").stat().st_size

        with unprivileged(), sql.open(url_of(path)) as store:
            assert len(store.find()) == 3

    def test_cannot_be_made(self, place: Path) -> None:
        """A new store in a place that is read-only is refused in one line."""
        place.chmod(0o555)
        with (
            unprivileged(),
            pytest.raises(StoreError, match="cannot be opened") as caught,
            sql.open(url_of(place / "new" / "store.db")) as store,
        ):
            store.put(a_result(), headline="")

        assert one_line(caught.value)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Act as nobody, where the tests are run by root, whom no permission holds back."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
