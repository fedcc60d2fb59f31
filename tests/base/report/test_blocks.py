from __future__ import annotations

import pytest

from modeldyno.base.report.blocks import (
    Align,
    Column,
    Heading,
    Notice,
    Severity,
    Table,
    choose_columns,
    drop_empty_columns,
    make_columns,
    make_table,
    note,
)


class TestBlocks:
    def test_a_notice_is_printable(self) -> None:
        """Each text of a notice is clean, and its log keeps its lines."""
        made = Notice(severity=Severity.DOUBT, text="a\nb", code="c\x07", advice="\x1b[1md", log="e\nf\x00")

        assert (made.text, made.code, made.advice, made.log) == ("a b", "c", "d", "e\nf")

    def test_a_note_only_informs(self) -> None:
        """A note is the notice of that severity."""
        assert note("a", code="c", advice="d", log="e") == Notice(
            severity=Severity.NOTE, text="a", code="c", advice="d", log="e"
        )

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

    def test_a_heading_is_printable(self) -> None:
        """The title of a heading is clean, and its level is what it was."""
        made = Heading(title="a\nb", level=2)

        assert (made.title, made.level) == ("a b", 2)


def test_a_column_is_left_out_with_its_cells() -> None:
    """The others keep their order."""
    table = Table(title="t", columns=make_columns("a", "b>", "c"), rows=(("1", "2", "3"), ("4", "5", "6")))
    narrower = table.without_column("b")

    assert narrower.columns == make_columns("a", "c")
    assert narrower.rows == (("1", "3"), ("4", "6"))


def test_a_table_is_made_of_titles_and_rows() -> None:
    """A column with a question mark is left out if it says nothing; others stay, whatever they say."""
    table = make_table("t", ("a", "b>?", "c?", "d>"), [("1", "—", "", ""), ("2", "", "3", "—")])

    assert table.columns == make_columns("a", "c", "d>")
    assert table.rows == (("1", "", ""), ("2", "3", "—"))
    assert drop_empty_columns(table).columns == make_columns("a", "c")


def test_columns_are_chosen_by_their_titles() -> None:
    """In the order of the titles; one that the table lacks is empty."""
    table = make_table("Sizes", ("name", "size>"), (("a", "1"), ("b", "2")))

    chosen = choose_columns(table, ("size", "colour", "name"))

    assert [column.title for column in chosen.columns] == ["size", "colour", "name"]
    assert chosen.rows == (("1", "", "a"), ("2", "", "b"))
    assert chosen.columns[0] == table.columns[1]
