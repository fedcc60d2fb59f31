from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno import codec, plugins
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.errors import MissingExtra, RequestError
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from pathlib import Path

SLOW = Doubt(code="time-limit", seen="it took long", advice="give it more time with `max_time`")
EARLIER = Doubt(code="time-limit", seen="it took long", advice="give it more time with --max-time")
"""As a document has it that an earlier version wrote."""
INLINE = Doubt(code="not-isolated", seen="it ran inside the calling process", advice="save it")


def test_printing_a_result_prints_its_report() -> None:
    """Figures with their intervals and doubts, not the names of metrics alone."""
    shown = str(a_result())

    assert shown.startswith("digits answers in about 1.3 ms")
    assert "throughput" in shown
    assert not shown.endswith("\n")


@pytest.mark.parametrize("doubt", [SLOW, EARLIER])
def test_advice_is_given_in_the_words_of_python(doubt: Doubt) -> None:
    """Advice names Python arguments, also that of an earlier version; the document is unchanged."""
    result = a_result(doubts=(doubt,))

    for shown in (str(result), result._repr_html_(), result.to_html()):
        assert "with max_time=" in shown
        assert "--max-time" not in shown
    assert result.doubts == (doubt,)


def test_what_the_caller_knows_is_no_warning() -> None:
    """The report says that a live object ran in this process, where it says how it was measured."""
    shown = str(a_result(doubts=(INLINE,)))

    assert "! not-isolated" not in shown
    assert "ran         it ran inside the calling process" in shown


def test_a_result_is_saved_by_its_suffix(tmp_path: Path) -> None:
    """The document itself as JSON, reports of it as pages and tables; other suffixes are refused."""
    result = a_result(doubts=(SLOW,))
    for name in ("r.json", "r.html", "r.csv", "r.md"):
        result.save(tmp_path / name)

    assert codec.read(tmp_path / "r.json") == result
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert "latency" in (tmp_path / "r.csv").read_text()
    assert "max_time=" in (tmp_path / "r.md").read_text()
    with pytest.raises(RequestError, match="No reporter writes 'r\\.docx'; use one of \\.csv, \\.html"):
        result.save(tmp_path / "r.docx")


def test_showing_a_result_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The same report, on standard output."""
    a_result().show()

    assert "digits answers in about 1.3 ms" in capsys.readouterr().out


def test_a_table_has_a_row_for_each_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """In base units, with the interval and the unit; the class is that of pandas."""

    class Frame:
        def __init__(self, rows: list[tuple[Any, ...]], columns: list[str]) -> None:
            self.rows, self.columns = rows, columns

    pandas = type(sys)("pandas")
    pandas.DataFrame = Frame  # type: ignore[attr-defined]
    pandas.__spec__ = sys.__spec__
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    table = a_result().to_pandas()
    rows = {row[:3]: dict(zip(table.columns, row, strict=True)) for row in table.rows}

    assert rows["throughput", "", ""]["low"] == 6100.0
    assert rows["latency", "", "mean"]["unit"] == "s"


def test_a_table_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pandas, the error says what to install."""
    monkeypatch.setattr(plugins, "find_spec", lambda _name: None)

    with pytest.raises(MissingExtra, match=r"to_pandas\(\), needs pandas; install it with: pip install"):
        a_result().to_pandas()
