"""The dashboard as files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.dashboard.export import _without_places, export_pages

if TYPE_CHECKING:
    from modeldyno.stores.interface import Store


def test_every_link_leads_to_a_file(filled: Store, tmp_path: Path) -> None:
    """Pages open without a server: relative links, no forms, no request."""
    number = export_pages(filled, tmp_path / "pages")

    texts = {path.name: path.read_text() for path in (tmp_path / "pages").glob("*.html")}
    assert len(texts) == number > 40
    for text in texts.values():
        named = re.findall(r' (?:href|src)="([^"#]+)"', text)
        assert [
            name for name in named if name != "data:," and not (tmp_path / "pages" / name).is_file()
        ] == []
        assert "<form" not in text
        assert "<input" not in text
        assert "dashboard.js" not in text
    assert "Needs attention" in texts["index.html"]


def test_pages_for_others_say_neither_where_nor_by_whom_they_were_made(
    filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders of the store, of the command and of its user are left out, and so is the user's name."""
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "ada"))
    monkeypatch.setattr("modeldyno.dashboard.export.actor", lambda: "ada")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    text = (
        f"<td>{tmp_path}/home/ada/net.onnx</td><td>{tmp_path}/work/x.py</td><td>/opt{tmp_path}/work</td>"
        "<td>ada</td><td>1e-3, by ada</td><td>adagrad</td><ada></ada>"
    )

    assert _without_places(text, "/data/store.db") == (
        f"<td>~/net.onnx</td><td>./x.py</td><td>/opt{tmp_path}/work</td>"
        "<td>(a user)</td><td>1e-3, by (a user)</td><td>adagrad</td><ada></ada>"
    )
    export_pages(filled, tmp_path / "pages")
    for path in (tmp_path / "pages").glob("*.html"):
        assert str(Path(filled.place).parent) not in path.read_text()


def test_a_folder_with_something_in_it_is_left_alone(filled: Store, tmp_path: Path) -> None:
    """Nothing is written over."""
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(RequestError, match="not empty"):
        export_pages(filled, tmp_path)
    with pytest.raises(RequestError, match="cannot be written"):
        export_pages(filled, tmp_path / "mine.txt")

    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
