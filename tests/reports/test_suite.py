from __future__ import annotations

from modeldyno.testing.reporters import ReporterSuite


class TestTerminal(ReporterSuite):
    name = "terminal"


class TestJson(ReporterSuite):
    name = "json"


class TestCsv(ReporterSuite):
    name = "csv"


class TestMarkdown(ReporterSuite):
    name = "markdown"


class TestHtml(ReporterSuite):
    name = "html"
