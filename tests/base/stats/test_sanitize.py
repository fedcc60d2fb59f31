from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.stats.sanitize import clean, clean_lines, escape_json, is_writable_text, shorten


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


def test_json_keeps_its_meaning_and_moves_no_terminal() -> None:
    """What a terminal would act on is escaped as JSON escapes; all else stays."""
    assert escape_json('"\x9b31m \x7f \u202e 模"'.encode()) == '"\\u009b31m \\u007f \\u202e 模"'.encode()


def test_a_name_that_is_not_utf_8_cannot_be_written() -> None:
    """What a file system gives for it is a lone surrogate."""
    assert is_writable_text("digits né 模型")
    assert not is_writable_text("n\udcff.onnx")
