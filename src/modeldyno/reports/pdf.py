"""PDF: the HTML page, printed by an installed Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import MissingExtra, RunFailed
from modeldyno.reports import html

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.report.blocks import Block
    from modeldyno.base.result.result import Result

suffix = ".pdf"
BROWSER = "CHROME_PATH"
"""Environment variable with the path of the browser, if it is not on PATH."""
_NAMES = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
    "chrome-headless-shell", "chromium-headless-shell", "microsoft-edge",
)  # fmt: skip
_INSTALLED = (
    "chromium-*/chrome-linux*/chrome",
    "chromium_headless_shell-*/chrome-*/*headless*shell",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
)
"""Where Playwright installs browsers."""
_TIMEOUT = 120.0
"""Seconds within which a page must be printed."""


def render(document: Result, *, judgements: Sequence[Judgement] = ()) -> bytes:
    """Print a Result as a page."""
    return print_to_pdf(html.render(document, judgements=judgements))


def lay_out(blocks: Iterable[Block], *, title: str, foot: str = "") -> bytes:
    """Print blocks as a page, whose sheets have a foot and their number."""
    return print_to_pdf(html.lay_out(blocks, title=title, foot=foot))


def print_to_pdf(page: str) -> bytes:
    """Print an HTML page to PDF.

    Raises:
        MissingExtra: no browser was found.
        RunFailed: the browser did not print the page.
    """
    program = find_browser()
    with tempfile.TemporaryDirectory(prefix="modeldyno-pdf-") as name:
        folder = Path(name)
        source, target = folder / "page.html", folder / "page.pdf"
        source.write_text(page, encoding="ascii")
        command = [
            program, *_browser_flags(), f"--user-data-dir={folder / 'profile'}", f"--print-to-pdf={target}",
            source.as_uri(),
        ]  # fmt: skip
        try:
            process = subprocess.run(command, capture_output=True, timeout=_TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RunFailed(f"{program} did not print the page: {error}.") from error
        if process.returncode or not target.is_file():
            stderr_lines = process.stderr.decode(errors="replace").strip().splitlines()
            reason = stderr_lines[-1] if stderr_lines else "it wrote nothing to stderr"
            raise RunFailed(f"{program} did not print the page: {reason}.")
        return target.read_bytes()


def _browser_flags() -> Iterator[str]:
    yield from (
        "--headless", "--disable-gpu", "--disable-extensions", "--disable-background-networking",
        "--no-first-run", "--no-pdf-header-footer", "--hide-scrollbars",
    )  # fmt: skip
    if hasattr(os, "geteuid") and not os.geteuid():
        yield "--no-sandbox"  # Chromium refuses to run as root with a sandbox; the page loads nothing


def find_browser() -> str:
    """Find a browser that can print.

    Raises:
        MissingExtra: there is none.
    """
    program = next(_browser_candidates(), None)
    if program is None:
        raise MissingExtra(
            "Writing a .pdf needs Chromium, which was not found; install it (on Debian: apt install "
            f"chromium), set {BROWSER} to its program, or write .html and print that."
        )
    return program


def check_tools() -> None:
    """Find a browser.

    Raises:
        MissingExtra: there is none.
    """
    find_browser()


def _browser_candidates() -> Iterator[str]:
    if named := os.environ.get(BROWSER):
        yield named
    yield from filter(None, map(shutil.which, _NAMES))
    folder = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache/ms-playwright")
    for pattern in _INSTALLED:
        yield from (str(path) for path in sorted(folder.glob(pattern), reverse=True) if path.is_file())
