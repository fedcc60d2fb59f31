"""What the page on reports claims."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from modeldyno.base import plugins
from modeldyno.reports import pdf
from modeldyno.reports.interface import Content

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "howto" / "report.md").read_text(encoding="utf-8")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own, with the examples beside it."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_format_is_there() -> None:
    """Each suffix of the table is one that a reporter writes, of any document."""
    named = set(re.findall(r"^\| `(\.\w+)` \|", PAGE, re.MULTILINE))
    able = [plugins.reporter(name) for name in plugins.names("reporter")]

    assert named == {each.suffix for each in able if each.content is not Content.RESULTS} | {".json"}


def test_the_variable_is_the_one_that_is_read() -> None:
    """The browser is named in the variable that the page names."""
    assert f"`{pdf.BROWSER}`" in PAGE


@pytest.mark.pages
def test_what_is_done_from_python_works(here: Path) -> None:
    """The first example writes two pages, the second without pictures; the other one writes any documents.

    The measurement that the page leaves at its defaults is shorter here.
    """
    measure = 'modeldyno.profile("examples/digits/digits.onnx"'
    assert f"{measure})" in PAGE
    for whole_code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        code = whole_code.replace(measure, f"{measure}, max_time=0.5, min_time=0.02")
        exec(compile(code, "report.md", "exec"), {})
    whole, short = ((here / name).read_text(encoding="ascii") for name in ("out.html", "short.html"))

    assert all((here / name).is_file() for name in ("digits.html", "week.html"))
    assert "<figure data-picture" in whole
    assert "<figure" not in short
    assert len(short) < 100_000 < len(whole)
    assert "modeldyno profile" in short
