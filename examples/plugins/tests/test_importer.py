"""The importer passes its suite."""

from __future__ import annotations

from pathlib import Path

from modeldyno.testing.importers import ImporterSuite


class TestImporter(ImporterSuite):
    name = "hey"
    examples = (Path(__file__).parent / "importer.csv",)
