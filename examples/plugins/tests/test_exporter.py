"""The exporter passes its suite."""

from __future__ import annotations

from pathlib import Path

from dyno_plugins import exporter

from modeldyno.plugin import Exporter
from modeldyno.testing.exporters import ExporterSuite

_: Exporter = exporter  # a type checker compares the module with its Protocol


class TestExporter(ExporterSuite):
    name = "json-lines"

    def target(self, folder: Path) -> str:
        return str(folder / "history.jsonl")

    def content(self, folder: Path) -> object:
        return (folder / "history.jsonl").read_bytes()
