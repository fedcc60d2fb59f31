"""The exporter passes its suite."""

from __future__ import annotations

from pathlib import Path

from modeldyno.testing.exporters import ExporterSuite


class TestExporter(ExporterSuite):
    name = "json-lines"

    def target(self, folder: Path) -> str:
        return str(folder / "history.jsonl")

    def content(self, folder: Path) -> object:
        return (folder / "history.jsonl").read_bytes()
