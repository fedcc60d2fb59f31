"""Reports as people see them, kept whole: look at these files when a report changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from modeldyno.profiling import views
from modeldyno.reports import csv, html, markdown, terminal
from modeldyno.testing.reporters import DOCUMENTS, full_result, sample_judgements

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_terminal(golden: Callable[[str, str], None], kind: str) -> None:
    """Each kind of Result reads well at 80 columns."""
    golden(f"terminal-{kind.replace(' ', '-')}.txt", terminal.render(DOCUMENTS[kind]()))


def test_terminal_with_bounds(golden: Callable[[str, str], None]) -> None:
    """Bounds stand right below the verdict, with their figures."""
    document = full_result()

    golden("terminal-judged.txt", terminal.render(document, judgements=sample_judgements(document)))


def test_narrow_terminal(golden: Callable[[str, str], None]) -> None:
    """At 50 columns notes stand below their rows."""
    document = full_result()

    golden("terminal-50-columns.txt", terminal.text(views.blocks(document), width=50))


def test_markdown(golden: Callable[[str, str], None]) -> None:
    """A report in a pull request."""
    document = full_result()

    golden("report.md", markdown.render(document, judgements=sample_judgements(document)))


def test_csv(golden: Callable[[str, str], None]) -> None:
    """Numbers for a spreadsheet."""
    golden("report.csv", csv.render(full_result()))


def test_html(golden: Callable[[str, str], None]) -> None:
    """A whole page, but for its style and its scripts."""
    document = full_result()
    page = html.render(document, judgements=sample_judgements(document))
    bare = re.sub(r"(<(style|script)>).*?(</\2>)", r"\1\3", page, flags=re.DOTALL)

    golden("report.html", re.sub(r"'sha256-[^']*'", "'sha256-...'", bare))


def test_fragment(golden: Callable[[str, str], None]) -> None:
    """What a notebook shows."""
    golden("fragment.html", html.fragment_of(views.blocks(full_result())))
