"""The SQL store, on SQLite and on a PostgreSQL server, and what is particular to it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text
from tests.support.old_stores import migrated_to

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError, StoreError
from modeldyno.stores import rows, sql
from modeldyno.stores import schema as stores_schema
from modeldyno.testing.sample_results import a_result, a_small_result, an_artifact
from modeldyno.testing.sample_studies import a_study
from modeldyno.testing.stores import StoreSuite, ids, sweep_into

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.stores.sql import SqlStore

NOW = datetime(2026, 6, 1, tzinfo=UTC)
BEFORE = "2026-05-31T23:59:59+00:00"
AFTER = "2026-06-01T00:00:01+00:00"


def url_of(path: Path) -> str:
    """Name a store in a file."""
    return f"sqlite:///{path}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    """Give an empty store in a file."""
    with sql.open(url_of(tmp_path / "store.db")) as opened:
        yield opened


class TestSqlite(StoreSuite):
    """SQLite passes the examination."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqlStore]:
        """Give an empty store in a file."""
        with sql.open(url_of(tmp_path / "store.db")) as opened:
            yield opened


@pytest.mark.engine
class TestPostgresql(StoreSuite):
    """PostgreSQL passes the examination."""

    @pytest.fixture
    def store(self, server: str) -> Iterator[SqlStore]:
        """Give an empty store on a server."""
        with sql.open(server) as opened:
            yield opened

    def test_writers(self, server: str) -> None:
        """Eight processes that begin at once make one store, and lose nothing of what they put."""
        code = (
            "import sys\n"
            "from modeldyno.stores import sql\n"
            "from modeldyno.testing.sample_results import a_small_result\n"
            "with sql.open(sys.argv[1]) as store:\n"
            "    for n in range(25): store.put(a_small_result(id=f'{sys.argv[2]}{n:04x}'), headline='')\n"
        )
        writers = [subprocess.Popen([sys.executable, "-c", code, server, f"{n}"]) for n in range(8)]

        assert [writer.wait(60) for writer in writers] == [0] * 8
        with sql.open(server) as store:
            assert len(store.find(limit=1000)) == 200

    def test_lock(self, server: str) -> None:
        """A row that another transaction holds for too long is reported as a locked store."""
        with sql.open(server) as store:
            store.put(a_small_result(), headline="")
        holder = create_engine(server.replace("postgresql://", "postgresql+psycopg://", 1))
        with holder.connect() as connection, sql.open(f"{server}&timeout=0.2") as store:
            connection.execute(text("UPDATE results SET headline = 'held'"))
            with pytest.raises(StoreError, match="is locked by another process"):
                store.put(a_small_result(), headline="")
        holder.dispose()

    def test_artifacts(self, store: SqlStore) -> None:
        """Files are deleted when their time is over, or with their Result."""
        store.artifacts.mkdir(parents=True)
        for name in ("over", "kept"):
            (store.artifacts / name).touch()
        files = (an_artifact("over", keep_until=BEFORE), an_artifact("kept", keep_until=AFTER))
        store.put(a_result(artifacts=files), headline="")

        assert store.expire(NOW) == ["over"]
        assert [path.name for path in store.artifacts.iterdir()] == ["kept"]
        store.remove("0123")
        assert list(store.artifacts.iterdir()) == []

    def test_later_revision(self, server: str) -> None:
        """A database of a later ModelDyno is refused."""
        sql.open(server).close()
        engine = create_engine(server.replace("postgresql://", "postgresql+psycopg://", 1))
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE {stores_schema.VERSION_TABLE} SET version_num = '9999'"))
        engine.dispose()

        with pytest.raises(StoreError, match="later ModelDyno"):
            sql.open(server)


class TestUrl:
    """Where a store is."""

    def test_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The user's store lies in the data directory of the user."""
        monkeypatch.delenv("MODELDYNO_STORE", raising=False)
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setenv("HOME", "/home/me")
        monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")

        assert sql.default_url() == "sqlite:////home/me/.local/share/modeldyno/store.db"

        monkeypatch.setenv("XDG_DATA_HOME", "/data")

        assert sql.default_url() == "sqlite:////data/modeldyno/store.db"

    def test_default_on_macos(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On macOS it lies where applications keep their data."""
        monkeypatch.delenv("MODELDYNO_STORE", raising=False)
        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setenv("HOME", "/Users/me")

        assert sql.default_url() == "sqlite:////Users/me/Library/Application%20Support/modeldyno/store.db"

    def test_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """MODELDYNO_STORE names another."""
        monkeypatch.setenv("MODELDYNO_STORE", "postgresql://host/db")

        assert sql.default_url() == "postgresql://host/db"

    def test_made_where_nothing_is(self, tmp_path: Path) -> None:
        """The directory of a new store is made."""
        with sql.open(url_of(tmp_path / "a" / "b%2520%3F" / "c d.db")) as store:
            store.put(a_result(), headline="")

        assert (tmp_path / "a" / "b%20?" / "c d.db").is_file()

    def test_reading_makes_nothing(self, tmp_path: Path) -> None:
        """A store that is not there is empty, and stays away until something is written."""
        path = tmp_path / "a" / "store.db"
        with sql.open(url_of(path)) as reader, sql.open(url_of(path)) as writer:
            assert [*reader.find(), *reader.studies(), *reader.conclusions()] == []
            with pytest.raises(RequestError, match="no result whose id begins with 'abc'"):
                reader.get("abc")
            assert not path.parent.exists()

            writer.put(a_result(), headline="")

            assert ids(reader.find()) == ids(writer.find()) == [a_result().id]

    def test_an_empty_file_reads_as_an_empty_store(self, tmp_path: Path) -> None:
        """A store that a full disk left without tables can be read, and reading writes nothing."""
        path = tmp_path / "store.db"
        path.touch()
        with sql.open(url_of(path)) as reader, sql.open(url_of(path)) as writer:
            assert [*reader.find(), *reader.studies(), *reader.conclusions()] == []
            assert path.stat().st_size == 0

            writer.put(a_result(), headline="")

            assert ids(reader.find()) == [a_result().id]

    @pytest.mark.parametrize(
        "url",
        ["", "store.db", "mysql://host/db", "sqlite://", "sqlite:///:memory:", "sqlite:///x?timeout=soon"],
    )
    def test_not_understood(self, url: str) -> None:
        """A URL that names no store is refused in a line that shows how one is written."""
        with pytest.raises(RequestError, match=r"sqlite:///path/to/store\.db"):
            sql.open(url)

    def test_without_psycopg(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """PostgreSQL without psycopg is a missing extra."""
        monkeypatch.setattr(plugins, "find_spec", lambda _name: None)

        with pytest.raises(MissingExtra, match=r"pip install 'psycopg\[binary\]'"):
            sql.open("postgresql://127.0.0.1:1/x")

    def test_silent_server(self) -> None:
        """A server that is not there is one line without the password."""
        with pytest.raises(StoreError) as caught:
            sql.open("postgresql://me:secret@127.0.0.1:1/x?sslpassword=secret")

        assert "postgresql://me@127.0.0.1:1/x" in str(caught.value)
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_plugins(self) -> None:
        """Both kinds of URL lead here, by the names of their plugins."""
        assert plugins.resolve("store", "sqlite").open is sql.open
        assert plugins.resolve("store", "postgresql").open is sql.open


def definitions(path: Path) -> dict[str, str]:
    """Return what each table and index was made by, and the revision."""
    with closing(sqlite3.connect(path)) as connection:
        made = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL").fetchall()
        (revision,) = connection.execute(f"SELECT version_num FROM {stores_schema.VERSION_TABLE}").fetchone()
    return {"revision": revision, **{name: " ".join(definition.split()) for name, definition in made}}


class TestDatabase:
    """How it is kept."""

    def test_discipline(self, store: SqlStore, tmp_path: Path) -> None:
        """The file has a write-ahead log, and every connection of the store syncs it in full."""
        store.put(a_result(), headline="")
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        with store._database.writing() as inside:
            assert inside.exec_driver_sql("PRAGMA synchronous").scalar() == 2
            assert inside.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1

    def test_revision(self) -> None:
        """The newest migration is the revision that the store knows."""
        config = Config()
        config.set_main_option("script_location", str(Path(sql.__file__).with_name("migrations")))
        config.set_main_option("path_separator", "os")

        assert ScriptDirectory.from_config(config).get_current_head() == stores_schema.REVISION

    def test_migrations_make_the_tables(self, store: SqlStore, tmp_path: Path) -> None:
        """A migrated database has the tables that the program describes; a new one is equal to it."""
        with migrated_to(url_of(tmp_path / "migrated.db"), "head") as connection:
            context = MigrationContext.configure(
                connection, opts={"version_table": stores_schema.VERSION_TABLE}
            )
            assert compare_metadata(context, stores_schema.METADATA) == []
        store.put(a_result(), headline="")

        assert definitions(tmp_path / "store.db") == definitions(tmp_path / "migrated.db")

    def test_store_without_studies(self, tmp_path: Path) -> None:
        """A store of the first revision is brought up to date when it is opened, with all that it holds."""
        path = tmp_path / "store.db"
        with sql.open(url_of(path)) as store:
            store.put(a_result(), headline="kept")
        first = {"results", "tags", "artifacts"}
        later = [table.name for table in reversed(stores_schema.METADATA.sorted_tables)]
        drops = [f"DROP TABLE {name};" for name in later if name not in first]
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(
                f"PRAGMA foreign_keys=OFF; {' '.join(drops)} DROP INDEX results_digest; "
                f"UPDATE {stores_schema.VERSION_TABLE} SET version_num = '0001';"
            )
        with sql.open(url_of(path)) as store:
            assert store.get("0123") == a_result()
            assert sweep_into(store, a_study(id="a" * 12)) == store.study("aaaa")

    def test_alembic_only_when_needed(self, tmp_path: Path) -> None:
        """Neither a new store nor one that is up to date imports Alembic."""
        url = url_of(tmp_path / "store.db")
        code = (
            "import sys; from modeldyno.stores import sql; "
            "from modeldyno.testing.sample_results import a_small_result\n"
            "for _ in range(2):\n"
            "    with sql.open(sys.argv[1]) as store:\n"
            "        store.put(a_small_result(), headline='')\n"
            "sys.exit('alembic' in sys.modules)"
        )

        assert subprocess.run([sys.executable, "-c", code, url], check=False).returncode == 0

    @pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.slow)])
    def test_made_at_once(self, tmp_path: Path, count: int) -> None:
        """Several processes that make the same store at the same time all succeed."""
        code = (
            "import sys; from modeldyno.stores import sql; "
            "from modeldyno.testing.sample_results import a_small_result; "
            "print(flush=True); sys.stdin.readline(); "
            "store = sql.open(sys.argv[1]); store.put(a_small_result(id=sys.argv[2]), headline='x'); "
            "store.close()"
        )
        url = url_of(tmp_path / "new" / "store.db")
        makers = [
            subprocess.Popen(
                [sys.executable, "-c", code, url, f"{n:012x}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for n in range(count)
        ]
        for maker in makers:
            assert maker.stdout is not None
            maker.stdout.readline()
        for maker in makers:
            maker.communicate(b"go\n", timeout=60)

        assert [maker.returncode for maker in makers] == [0] * count
        with sql.open(url) as store:
            assert len(store.find()) == count

    def test_compression(self) -> None:
        """A document is compressed where that makes it smaller, and only there."""
        assert rows.pack(b"{}") == b"{}"
        assert len(rows.pack(b"{" + b" " * 1000 + b"}")) < 100


class TestArtifacts:
    """Files that belong to Results."""

    @pytest.fixture(autouse=True)
    def folder(self, store: SqlStore) -> Path:
        """Give the directory of the store's artifacts, made."""
        store.artifacts.mkdir()
        return store.artifacts

    def test_expire(self, store: SqlStore, folder: Path) -> None:
        """Files are deleted once their time is over, and not before."""
        kept, over = folder / "kept.log", folder / "run" / "over.log"
        over.parent.mkdir()
        for path in (kept, over):
            path.touch()
        files = (an_artifact("kept.log", keep_until=AFTER), an_artifact(str(over), keep_until=BEFORE))
        store.put(a_result(artifacts=files), headline="")

        assert [str(over)] == store.expire(NOW)
        assert kept.exists()
        assert not over.exists()
        assert store.expire(NOW) == []
        assert ids(store.find()) == ["0123456789ab"]

    @pytest.mark.parametrize("keep_until", [None, "", "later", AFTER])
    def test_kept(self, store: SqlStore, folder: Path, keep_until: str | None) -> None:
        """A file without a time, or whose time cannot be read, stays as long as its Result."""
        (folder / "a.log").touch()
        store.put(a_result(artifacts=(an_artifact("a.log", keep_until=keep_until),)), headline="")

        assert store.expire(NOW) == []
        assert (folder / "a.log").exists()
        store.remove("0123")
        assert not (folder / "a.log").exists()

    @pytest.mark.parametrize(
        "keep_until", ["2026-05-31", "2026-05-31T23:59:59Z", "2026-06-01T01:00:00+02:00"]
    )
    def test_times(self, store: SqlStore, folder: Path, keep_until: str) -> None:
        """Times are read as ISO 8601 writes them; without a zone they are of UTC."""
        (folder / "a.log").touch()
        store.put(a_result(artifacts=(an_artifact("a.log", keep_until=keep_until),)), headline="")

        assert store.expire(NOW) == ["a.log"]

    def test_replaced(self, store: SqlStore, folder: Path) -> None:
        """Files that the new Result no longer has go with the one that it replaces."""
        for name in ("old", "both"):
            (folder / name).touch()
        store.put(a_result(artifacts=(an_artifact("old"), an_artifact("both"))), headline="")
        store.put(a_result(artifacts=(an_artifact("both"),)), headline="")

        assert [path.name for path in folder.iterdir()] == ["both"]

    def test_shared(self, store: SqlStore, folder: Path) -> None:
        """A file that another Result has too is kept until that goes as well."""
        (folder / "shared").touch()
        for n in "12":
            store.put(a_result(id=n * 12, artifacts=(an_artifact("shared"),)), headline="")
        store.remove("1")

        assert (folder / "shared").exists()

        store.remove("2")

        assert not (folder / "shared").exists()

    def test_nothing_outside_is_deleted(self, store: SqlStore, folder: Path, tmp_path: Path) -> None:
        """Of a thousand hostile paths, none leads to a file outside the store's directory."""
        precious = tmp_path / "precious"
        precious.touch()
        inner = folder / "inner"
        inner.mkdir()
        (inner / "file").touch()
        (folder / "way-out").symlink_to(tmp_path)
        (folder / "link").symlink_to(precious)
        (folder / "inward").symlink_to(inner)
        hostile = sorted(_hostile(precious, folder))
        for number in range(25):  # each Result with some of them: to put a thousand takes long
            files = tuple(an_artifact(path, keep_until=BEFORE) for path in hostile[number::25])
            store.put(a_small_result(id=f"{number:012x}", artifacts=files), headline="")

        assert len(hostile) >= 1000
        assert store.expire(NOW) == []
        for number in range(0, 25, 2):
            store.remove(f"{number:012x}")
        assert precious.exists()
        assert (tmp_path / "store.db").exists()
        assert (inner / "file").exists()
        assert (folder / "link").is_symlink()
        assert inner.is_dir()


def _hostile(precious: Path, folder: Path) -> set[str]:
    """Spell a thousand ways out of a directory."""
    ups = ["../" * n for n in range(1, 26)] + [
        f"{a}../" for a in ("./", "inner/../", "inner//../", "way-out/../")
    ]
    ends = [
        "precious",
        "store.db",
        "",
        ".",
        "./precious",
        "precious/",
        "precious\0",
        "etc/passwd",
        "%2e%2e/precious",
    ]
    starts = ["", "./", str(folder) + "/", "/", "//"]
    made = {f"{start}{up}{end}" for start in starts for up in ups for end in ends}
    fixed = {
        str(precious), f"{folder}", ".", "", "/", "link", "way-out", "way-out/precious", "inward/file",
        f"{folder}/way-out/precious", f"{folder}/../precious", "~/precious", "C:\\precious", "..\\precious",
        "file:///" + str(precious), "\0", "inner/\0", "way-out/../precious", "x" * 5000, "missing", "inner",
    }  # fmt: skip
    return made | fixed
