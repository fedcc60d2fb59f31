"""The dashboard as files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from modeldyno.dashboard.export import export_pages
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.interfaces.store import Store


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


def test_a_folder_with_something_in_it_is_left_alone(filled: Store, tmp_path: Path) -> None:
    """Nothing is written over."""
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(RequestError, match="not empty"):
        export_pages(filled, tmp_path)
    with pytest.raises(RequestError, match="cannot be written"):
        export_pages(filled, tmp_path / "mine.txt")

    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
