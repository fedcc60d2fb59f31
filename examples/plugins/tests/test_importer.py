"""The importer passes its suite."""

from __future__ import annotations

from pathlib import Path

from dyno_plugins import importer

from modeldyno.plugin import Importer
from modeldyno.testing.importers import ImporterSuite

_: Importer = importer  # a type checker compares the module with its Protocol


class TestImporter(ImporterSuite):
    name = "hey"
    examples = (Path(__file__).parent / "importer.csv",)
