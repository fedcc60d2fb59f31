"""The reporter passes its suite."""

from __future__ import annotations

from dyno_plugins import reporter

from modeldyno.plugin import Reporter
from modeldyno.testing.reporters import ReporterSuite

_: Reporter = reporter  # a type checker compares the module with its Protocol


class TestReporter(ReporterSuite):
    name = "badge"
