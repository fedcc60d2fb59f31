"""The reporter passes its suite."""

from __future__ import annotations

from modeldyno.testing.reporters import ReporterSuite


class TestReporter(ReporterSuite):
    name = "badge"
