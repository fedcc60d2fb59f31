from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.core.block import (
    Align,
    Chart,
    ChartKind,
    Column,
    Mark,
    Notice,
    Severity,
    Table,
    clean,
    clean_lines,
    shorten,
)


class TestClean:
    @pytest.mark.parametrize(
        ("text", "printable"),
        [
            ("plain", "plain"),
            ("  in \t between\r\n ", "in between"),
            ("\x1b[1;31mred\x1b[0m", "red"),
            ("\x1b]8;;http://example.invalid\x07link\x1b]8;;\x1b\\", "link"),
            ("\x1b]0;a title that never ends", ""),
            ("\x1bMup", "up"),
            ("\x9b31mred", "31mred"),
            ("null\x00 bell\x07", "null bell"),
            ("\u202egpj.exe\u2066", "gpj.exe"),
            ("zero\u200bwidth", "zerowidth"),
            ("half \udcff", "half \ufffd"),
            ("模型 🧪", "模型 🧪"),
        ],
    )
    def test_what_acts_is_taken_out(self, text: str, printable: str) -> None:
        """Escape sequences, control characters and changes of direction are gone; the rest stays."""
        assert clean(text) == printable

    @given(st.text())
    def test_cleaning_is_done_once(self, text: str) -> None:
        """Clean text is on one line, can be written, and stays as it is when cleaned again."""
        printable = clean(text)

        assert clean(printable) == printable
        assert all(character.isprintable() or ord(character) > 127 for character in printable)
        assert printable.encode().decode() == printable

    def test_lines_of_a_log_stay(self) -> None:
        """A log keeps its lines and indentation."""
        assert clean_lines("a\r\n  b\tc\x1b[2J\n\x07d  \n") == "a\n  b c\n d"


def test_a_text_is_cut_at_its_limit() -> None:
    """An ellipsis stands for what was cut off, within the limit; shorter text stays whole."""
    assert (shorten("abcdef", 4), shorten("ab  cd", 4), shorten("abcd", 4)) == ("abc…", "ab…", "abcd")


class TestBlocks:
    def test_a_notice_is_printable(self) -> None:
        """Each text of a notice is clean, and its log keeps its lines."""
        made = Notice(severity=Severity.DOUBT, text="a\nb", code="c\x07", advice="\x1b[1md", log="e\nf\x00")

        assert (made.text, made.code, made.advice, made.log) == ("a b", "c", "d", "e\nf")

    def test_a_table_is_printable(self) -> None:
        """Each title and each cell of a table is clean."""
        column = Column(title="x\ny", align=Align.RIGHT)
        made = Table(title="\ta", columns=(column,), rows=(("1\x00",), ("\x1b[2J2",)))

        assert (made.title, column.title, made.rows) == ("a", "x y", (("1",), ("2",)))
        assert column.align is Align.RIGHT

    def test_a_ragged_table_is_refused(self) -> None:
        """A row with another number of cells than there are columns is a mistake."""
        with pytest.raises(ValueError, match="must have 1 cells"):
            Table(title="t", columns=(Column(title="a"),), rows=(("1", "2"),))

    def test_a_chart_is_printable(self) -> None:
        """The words of a chart are clean; its numbers are what they were."""
        made = Chart(
            kind=ChartKind.HISTOGRAM,
            title="a\nb",
            x=(0.0, 1.0),
            y=(3.0,),
            x_label="x",
            y_label="y",
            x_unit="s",
            marks=(Mark(name="p50\x07", x=0.5),),
        )

        assert (made.title, made.marks[0].name, made.y) == ("a b", "p50", (3.0,))
