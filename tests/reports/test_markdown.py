from __future__ import annotations

import re

import pytest

from modeldyno.base.report.blocks import clean
from modeldyno.reports import markdown
from modeldyno.testing.reporters import HOSTILE, failed_result, full_result, hostile_result

_FENCE = re.compile(r"^( *)(`{3,})text$.*?^\1\2$\n", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_no_markup(text: str) -> None:
    """Outside quoted logs no name opens a tag, a link, code, a cell or a mention."""
    written = _FENCE.sub("", markdown.render(hostile_result(text)))

    assert not re.search(r"<(?!!-- -->)", written)
    assert not re.search(r"(?<!\\)[\[\]`]", written)
    assert not re.search(r"(?<!\w)@\w", written)
    assert not re.search(r"https?:", written)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_every_row_has_the_cells_of_its_header(text: str) -> None:
    """Pipes in names make no cells."""
    for table in re.findall(r"(?:^\|.*\|\n)+", markdown.render(hostile_result(text)), re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}

        assert len(counts) == 1


def test_a_log_cannot_close_its_fence() -> None:
    """The fence around a log is longer than any run of backticks in it."""
    assert "  `````text\n  ````\n  <b>\n  `````" in markdown.render(hostile_result("````\n<b>"))


def test_a_log_stands_below_its_failure() -> None:
    """A log is indented, so that it belongs to its item."""
    assert "  ```text\n" in markdown.render(failed_result())


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("snake_case p99.9 (ok)", "snake_case p99.9 (ok)"),
        ("_emphasis_ *bold*", r"\_emphasis\_ \*bold\*"),
        ("a <b> & c", "a &lt;b&gt; &amp; c"),
        ("@team a@b.c", "@<!-- -->team a@b.c"),
        ("https://x www.y", "https<!-- -->://x www<!-- -->.y"),
    ],
)
def test_only_what_has_a_meaning_is_escaped(text: str, escaped: str) -> None:
    """Plain names stay readable in the source; what Markdown would act on is escaped."""
    assert markdown.escape(clean(text)) == escaped


def test_the_verdict_comes_first() -> None:
    """A report begins with its verdict, in bold."""
    assert markdown.render(full_result()).startswith("**digits.onnx answers in 413 us")
