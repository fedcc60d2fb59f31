from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from modeldyno.serving.servers import file_cache

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "modeldyno" / "exports"


def made(folder: Path, text: str = "weights") -> Path:
    """Write a file to be kept."""
    folder.mkdir(exist_ok=True)
    path = folder / "model.pt2"
    path.write_text(text)
    return path


def test_what_is_kept_is_found(tmp_path: Path) -> None:
    """The entry of a key has the files, and takes no second place on the disk; other keys have none."""
    path = made(tmp_path / "a")
    assert file_cache.find_cached("one") is None
    file_cache.cache_files("one", [path])
    entry = file_cache.find_cached("one")
    assert entry is not None
    assert (entry / path.name).samefile(path)
    assert file_cache.find_cached("two") is None


def test_who_is_first_wins(tmp_path: Path, place: Path) -> None:
    """A second entry of the same key, made at the same time, changes nothing and leaves nothing."""
    file_cache.cache_files("one", [made(tmp_path / "a", "first")])
    file_cache.cache_files("one", [made(tmp_path / "b", "second")])
    assert (place / "one" / "model.pt2").read_text() == "first"
    assert [path.name for path in place.iterdir()] == ["one"]


def test_what_was_not_used_for_long_goes(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All entries stay within the bound: the one used last stays, and so does a file that is in use."""
    monkeypatch.setattr(file_cache, "BOUND", 20)
    for number, name in enumerate(("one", "two")):
        file_cache.cache_files(name, [made(tmp_path / name)])
        os.utime(place / name, (number, number))
    assert file_cache.find_cached("one") is not None
    file_cache.cache_files("three", [made(tmp_path / "three")])
    assert sorted(path.name for path in place.iterdir()) == ["one", "three"]
    assert (tmp_path / "two" / "model.pt2").read_text() == "weights"
    file_cache.cache_files("large", [made(tmp_path / "large", "x" * 21)])
    assert file_cache.find_cached("large") is None


def test_what_was_abandoned_goes(tmp_path: Path, place: Path) -> None:
    """An entry that somebody began long ago is removed; one that was begun just now is not."""
    for name, age in ((".new-old", 100_000), (".new-young", 10)):
        (place / name).mkdir(parents=True)
        os.utime(place / name, (time.time() - age,) * 2)
    file_cache.cache_files("one", [made(tmp_path / "a")])
    assert sorted(path.name for path in place.iterdir()) == [".new-young", "one"]


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    """Nothing is kept where a file lies in the way, and nothing is raised."""
    (tmp_path / "cache").write_text("no directory")
    file_cache.cache_files("one", [made(tmp_path / "a")])
    assert file_cache.find_cached("one") is None
