"""Writes the verdict of a gate for a pipeline: as JUnit XML, SARIF, or a comment in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno import codec, plugins
from modeldyno.errors import RequestError
from modeldyno.views.comparison import ci_formats, gate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modeldyno.core.comparison.gate_report import GateReport


def render_comment(report: GateReport) -> str:
    """Render a comment; a later run finds and replaces it by its first line."""
    body = plugins.resolve("reporter", "markdown").lay_out(gate.comment(report), title=report.result.name)
    return f"{gate.comment_marker(report)}\n{body}"


FORMATS: dict[str, Callable[[GateReport], str]] = {
    "junit": ci_formats.junit,
    "sarif": ci_formats.sarif,
    "markdown": render_comment,
}
"""Name of a format to its renderer."""
_SUFFIXES = {".xml": "junit", ".sarif": "sarif", ".md": "markdown"}


def write_verdict(report: GateReport, path: Path) -> None:
    """Write a verdict in the format that the suffix of `path` names: .xml, .sarif or .md.

    Raises:
        RequestError: the suffix is none of these, or the file cannot be written.
    """
    if path.suffix not in _SUFFIXES:
        raise RequestError(f"No verdict is written as '{path.suffix}'; use one of {', '.join(_SUFFIXES)}.")
    codec.write(path, FORMATS[_SUFFIXES[path.suffix]](report).encode())
