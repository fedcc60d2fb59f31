from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RunFailed
from modeldyno.reports import pdf
from modeldyno.testing.reporters import full_result

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a browser."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "browsers"))
    monkeypatch.delenv(pdf.BROWSER, raising=False)
    return tmp_path


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


PRINTS = 'for word in "$@"; do case $word in --print-to-pdf=*) echo "%PDF-1.7" > "${word#*=}";; esac; done'


def test_without_a_browser_it_says_what_to_install(nowhere: Path) -> None:
    """One sentence says what is missing, and what to do instead."""
    del nowhere
    with pytest.raises(MissingExtra, match=r"not found; install it .* or write \.html and print that"):
        pdf.render(full_result())


def test_what_nothing_here_can_print_is_refused_beforehand(nowhere: Path) -> None:
    """Before a model is measured; a file of another kind is written as before."""
    with pytest.raises(MissingExtra, match="needs Chromium"):
        plugins.check_reporter(nowhere / "report.pdf")
    plugins.check_reporter(nowhere / "report.html")


def test_the_named_browser_prints(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment names is run on the page, and what it writes is given."""
    monkeypatch.setenv(pdf.BROWSER, str(program(nowhere / "mine", PRINTS)))

    assert pdf.render(full_result()) == b"%PDF-1.7\n"


def test_a_browser_is_found_by_its_name(nowhere: Path) -> None:
    """A program on the path is found, before those that Playwright has installed."""
    kept = program(nowhere / "browsers" / "chromium-1" / "chrome-linux" / "chrome", PRINTS)

    assert pdf.find_browser() == str(kept)
    assert pdf.find_browser() != str(program(nowhere / "chromium", PRINTS)) or os.access(kept, os.X_OK)
    assert pdf.find_browser() == str(nowhere / "chromium")


@pytest.mark.parametrize(
    ("text", "message"), [("echo no display >&2; exit 3", "no display"), ("exit 0", "nothing")]
)
def test_a_browser_that_fails_is_told(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    """The last line of what it said stands in the error."""
    monkeypatch.setenv(pdf.BROWSER, str(program(nowhere / "mine", text)))

    with pytest.raises(RunFailed, match=message):
        pdf.render(full_result())


def test_what_is_no_program_is_told(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is no program gives one sentence."""
    monkeypatch.setenv(pdf.BROWSER, str(nowhere / "absent"))

    with pytest.raises(RunFailed, match="did not print the page"):
        pdf.render(full_result())
