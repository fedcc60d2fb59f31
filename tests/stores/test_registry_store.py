"""The registry's tables: how they are made, and what happens where they cannot be written."""

from __future__ import annotations

import codecs
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect
from tests.support.disk_faults import largest_file
from tests.support.old_stores import migrated_to
from tests.support.sample_registry import a_figure, a_task, a_variant, a_version, a_worker

from modeldyno.base.errors import StoreError
from modeldyno.base.job.version_name import VersionName
from modeldyno.registry.interface import Outcome
from modeldyno.registry.records.policy import Policy
from modeldyno.registry.records.records import TaskState
from modeldyno.stores import results, sql
from modeldyno.stores import schema as stores_schema
from modeldyno.stores.schema import RESULTS
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.registry.store.sql_registry import SqlRegistry
    from modeldyno.stores.sql import SqlStore

NOBODY = 65534
NAME = VersionName(model="digits")


def fill(store: SqlStore) -> None:
    """Register a version with all that belongs to one."""
    registry = store.registry
    version, _ = registry.add_version(a_version())
    registry.put_variant(a_variant(version), "ada")
    registry.enqueue([a_task(version)])
    registry.put_figures([a_figure(a_task(version))])
    registry.move_alias("digits", "champion", 1, "ada")
    registry.put_policy(Policy(name="mine"), "ada")


class TestMigration:
    def test_a_store_without_a_registry_gets_one(self, url: str) -> None:
        """What it holds stays, and is found by its digest."""
        with migrated_to(url, "0003") as connection:
            assert not inspect(connection).has_table("models")
            connection.execute(RESULTS.insert(), results._row(a_result(), "kept"))
        with sql.open(url) as store:
            assert store.get("0123") == a_result()
            version, _ = store.registry.add_version(a_version(digest="sha256:" + "5a" * 32))
            assert list(store.registry.results_of([version.digest])) == [a_result().id]
            fill(store)
            with store._database.reading() as connection:
                indexes = inspect(connection).get_indexes("results")
                assert "results_digest" in {index["name"] for index in indexes}

    def test_it_makes_the_tables_that_the_program_describes(self, url: str) -> None:
        """Column by column, with their indexes and keys, whether made at once or step by step."""
        with migrated_to(url, "0003"):
            pass
        with sql.open(url) as store:
            store.put(a_result(), headline="")
            with store._database.reading() as connection:
                options = {"version_table": stores_schema.VERSION_TABLE, "compare_type": True}
                context = MigrationContext.configure(connection, opts=options)
                assert compare_metadata(context, stores_schema.METADATA) == []
                once = inspect(connection).get_indexes("tasks")
                (unique,) = [index for index in once if index["unique"]]
                assert unique["column_names"] == ["key"]
                assert "queued" in "".join(map(str, unique["dialect_options"].values()))

    def test_a_registry_of_a_later_revision_is_refused(self, url: str) -> None:
        """In a sentence that says what to do."""
        with sql.open(url) as store:
            fill(store)
        with sql.open(url) as store, store._database.writing() as connection:
            connection.exec_driver_sql(f"UPDATE {stores_schema.VERSION_TABLE} SET version_num = '0009'")
        with pytest.raises(StoreError, match=r"later ModelDyno \(revision 0009; this one supports 0008\)"):
            sql.open(url)


READS: list[Callable[[SqlRegistry], object]] = [
    lambda registry: registry.models(),
    lambda registry: registry.tasks(),
    lambda registry: registry.workers(),
    lambda registry: registry.targets(),
    lambda registry: registry.policies(),
    lambda registry: registry.events(),
    lambda registry: registry.figures("digits"),
    lambda registry: registry.with_digest(a_version().digest),
    lambda registry: registry.alias_moves("digits"),
    lambda registry: registry.first_broken_event() or (),
]
WRITES: list[Callable[[SqlRegistry], object]] = [
    lambda registry: registry.add_version(a_version(number=2)),
    lambda registry: registry.move_alias("digits", "champion", None, "ada"),
    lambda registry: registry.enqueue([a_task(a_version(), 8)]),
    lambda registry: registry.claim(a_worker()),
    lambda registry: registry.finish(a_task(a_version()), Outcome(state=TaskState.DONE), "ada"),
    lambda registry: registry.put_policy(Policy(name="other"), "ada"),
]


class TestUnwritable:
    def test_a_registry_that_is_not_there_reads_as_empty(self, tmp_path: Path) -> None:
        """And reading makes no file."""
        with sql.open(f"sqlite:///{tmp_path}/store.db") as store:
            assert [list(read(store.registry)) for read in READS] == [[]] * len(READS)  # type: ignore[call-overload]
            with pytest.raises(Exception, match="no registered model 'digits'"):
                store.registry.version(NAME)
        assert list(tmp_path.iterdir()) == []

    def test_a_read_only_one_can_be_read(self) -> None:
        """Every change of it fails in one line, and changes nothing."""
        with place() as folder:
            with sql.open(f"sqlite:///{folder}/store.db") as store:
                fill(store)
            (folder / "store.db").chmod(0o444)
            folder.chmod(0o555)
            with as_nobody(), sql.open(f"sqlite:///{folder}/store.db") as store:
                assert [entry.name for entry in store.registry.models()] == ["digits"]
                for read in READS:
                    read(store.registry)
                for write in WRITES:
                    with pytest.raises(StoreError, match="is read-only") as caught:
                        write(store.registry)
                    assert "\n" not in str(caught.value)

    def test_on_a_full_disk_a_change_is_whole_or_not_there(self, tmp_path: Path) -> None:
        """It fails in one line; what was there stays, and the history is in order."""
        with sql.open(f"sqlite:///{tmp_path}/store.db") as store:
            fill(store)
            events = len(store.registry.events())
            big = {"label": "x" * 10_000_000}
            with largest_file(2_000_000), pytest.raises(StoreError, match="full") as caught:
                store.registry.add_version(a_version(number=2, labels=big))

            assert "\n" not in str(caught.value)
            assert store.registry.version(NAME) == a_version()
            assert len(store.registry.events()) == events
            assert store.registry.first_broken_event() is None
            assert store.registry.add_version(a_version(number=2))[0].number == 2

    @pytest.mark.parametrize("seed", range(10))
    def test_a_damaged_file_is_told_in_one_line(self, tmp_path: Path, seed: int) -> None:
        """Wherever the damage is, each list is read or refused in a sentence."""
        path = tmp_path / "store.db"
        with sql.open(f"sqlite:///{path}") as store:
            fill(store)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        data = bytearray(path.read_bytes())
        begin = len(data) * (seed + 1) // 12
        data[begin : begin + 3000] = bytes((7 * n + seed) % 256 for n in range(3000))
        path.write_bytes(bytes(data))
        try:
            with sql.open(f"sqlite:///{path}") as store:
                for read in READS:
                    with _refusal_in_one_line():
                        read(store.registry)
        except StoreError as error:
            assert "\n" not in str(error)


@contextmanager
def _refusal_in_one_line() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        assert "\n" not in str(error)


@contextmanager
def place() -> Iterator[Path]:
    """Yield a folder that others may enter, which pytest's are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        folder.chmod(0o777)
        shutil.rmtree(folder)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Act as nobody, where the tests are run by root, whom no permission holds back."""
    root = os.geteuid() == 0
    codecs.lookup("ascii")  # nobody may not read the folder of Python, from which it would be imported
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
