"""Old documents that nothing refers to are removed, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner
from tests.support.databases import postgres, server, url
from tests.support.sample_registry import a_figure, a_task, a_version

import modeldyno
from modeldyno.base import codec
from modeldyno.base.document import MeasuredAt
from modeldyno.base.errors import RequestError
from modeldyno.cli import cli
from modeldyno.registry.records.records import AttachedDocument
from modeldyno.stores import sql
from modeldyno.stores.rows import pack
from modeldyno.testing.sample_conversions import a_conversion
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_series import a_comparison, a_ladder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.stores.sql import SqlStore

__all__ = ["postgres", "server", "url"]
OLD, NEW = "2020-01-0{}T00:00:00.000+00:00", "2030-01-01T00:00:00.000+00:00"


@pytest.fixture
def store(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlStore]:
    """An empty store, in a file and then on a server, which commands find, too."""
    monkeypatch.setenv("MODELDYNO_STORE", url)
    with sql.open(url) as opened:
        yield opened


def put_results(store: SqlStore, letters: str) -> None:
    """Store a Result for each letter, a day after the other."""
    for day, letter in enumerate(letters, 1):
        store.put(a_result(id=letter * 12, created=OLD.format(day)), headline="")


def left(store: SqlStore) -> set[str]:
    """Return the first letters of the Results that are there."""
    return {entry.id[0] for entry in store.find(limit=100)}


def test_old_results_are_removed_except_the_newest_of_each_name(store: SqlStore) -> None:
    """What is as old as the time itself stays; of another name or backend others are the newest."""
    put_results(store, "abcde")
    other = a_result(id="f" * 12, created=OLD.format(1), name="other")
    store.put(other, headline="")
    store.put(a_result(id="1" * 12, created=NEW), headline="")

    assert [one.id[0] for one in store.prune("2020-01-04T00:00:00", keep=1, dry_run=True)] == ["a", "b", "c"]
    assert left(store) == set("abcdef1")
    removed = store.prune("2020-01-04T00:00:00", keep=1)
    assert [one.id[0] for one in removed] == ["a", "b", "c"]
    assert all(one.size > 100 for one in removed)
    assert left(store) == set("def1")
    assert store.prune("2020-01-04T00:00:00", keep=1) == []


def test_what_something_refers_to_stays(store: SqlStore) -> None:
    """A tag, a figure, and a version to which it is attached."""
    put_results(store, "abcd")
    store.tag("a" * 12, add=["@main"])
    version, _ = store.registry.add_version(a_version())
    store.registry.put_figures([replace(a_figure(a_task(version)), result="b" * 12)])
    attached = AttachedDocument(model="digits", number=1, document="c" * 12, kind="result", at=MeasuredAt())
    store.registry.attach(attached, "ada")

    assert [one.id[0] for one in store.prune("2025-01-01", keep=0)] == ["d"]
    assert left(store) == set("abc")


def test_old_comparisons_and_loads_go_and_conversions_stay(store: SqlStore) -> None:
    """A conversion says how a variant was made."""
    for document in (a_comparison(), a_ladder(), a_conversion()):
        store.put_conclusion(replace(document, created=OLD.format(1)), headline="")
    kept = [entry.kind for entry in store.conclusions() if entry.kind == "conversion"]

    assert len(store.prune("2025-01-01", keep=0)) == 2
    assert [entry.kind for entry in store.conclusions()] == kept == ["conversion"]


def test_the_command_says_how_much_and_the_file_shrinks(store: SqlStore, url: str) -> None:
    """A dry run says the same, and removes nothing."""
    rng = np.random.default_rng(0)
    for day in range(1, 4):
        noisy = a_result(id=str(day) * 12, created=OLD.format(day), samples=rng.random(50_000))
        store.put(noisy, headline="")
    path = Path(url.removeprefix("sqlite:///"))

    def size() -> int:
        return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*") if file.is_file())

    before = size() if url.startswith("sqlite") else 0

    def run(*words: str) -> str:
        done = CliRunner().invoke(cli, ["prune", "--before", "1 hour ago", *words])
        assert done.exit_code == 0, done.output
        return done.output

    planned = run("--keep", "1", "--dry-run")
    assert planned.startswith("2 documents would be removed, ")
    assert left(store) == set("123")
    assert run("--keep", "1").split("removed, ")[1] == planned.split("removed, ")[1]
    assert left(store) == {"3"}
    if before:
        assert size() < before / 2
    assert modeldyno.store.prune("2025-01-01") == ()


@pytest.mark.parametrize("before", ["soon", "it's", "", "-1 days ago"])
def test_what_is_no_time_is_refused(before: str) -> None:
    """With what to write."""
    with pytest.raises(RequestError, match=f"'{before}' is no time; write '90 days ago'"):
        modeldyno.store.prune(before)
    with pytest.raises(RequestError, match="-1 results cannot stay"):
        modeldyno.store.prune("2025-01-01", keep=-1)


def test_times_of_a_quick_model_take_a_fraction_of_their_document() -> None:
    """A million samples that a clock of nanoseconds told: an eighth of the JSON's size at most."""
    ticks = np.random.default_rng(0).geometric(0.2, 200_000) * 1e-9 + 5e-8
    data = codec.encode(a_result(samples=ticks.tolist()))
    assert len(pack(data)) < len(data) / 8
