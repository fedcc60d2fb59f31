"""Test suite that every exporter must pass.

Inherit, name the exporter, and say where to export to and what is there::

    from modeldyno.testing.exporters import ExporterSuite

    class TestMyTool(ExporterSuite):
        name = "mytool"

        def target(self, folder: Path) -> str:
            return str(folder / "results.mytool")

        def content(self, folder: Path) -> object:
            return (folder / "results.mytool").read_bytes()
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pytest

from modeldyno.base import plugins
from modeldyno.testing.loaders import imported_frameworks
from modeldyno.testing.reporters import HOSTILE, full_result
from modeldyno.testing.sample_results import a_failed_result, a_result

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.result.result import Result
    from modeldyno.exchange.interface import Exporter


class ExporterSuite:
    """Inherit, set `name`, and provide `target` and `content`."""

    name: ClassVar[str]
    """The name of the exporter's entry point."""

    def target(self, folder: Path) -> str:
        """Return what the user writes after ``--to NAME:``; it lies in a folder of the test."""
        raise NotImplementedError

    def content(self, folder: Path) -> object:
        """Return all that the tool has of what was exported to `target`, to be compared."""
        raise NotImplementedError

    @pytest.fixture
    def exporter(self) -> Exporter:
        """Return the plugin, by its entry point; skip if its requirements are not installed."""
        plugin = plugins.exporter(self.name)
        for module in plugin.requires:
            pytest.importorskip(module)
        return plugin

    def test_importing_it_is_cheap(self) -> None:
        """Importing the plugin imports no framework."""
        assert imported_frameworks("exporter", self.name) == []

    def test_it_says_where_it_exported_to(self, exporter: Exporter, tmp_path: Path) -> None:
        """The answer is text for the user, and something is there."""
        assert exporter.export(full_result(), self.target(tmp_path)).strip()
        assert self.content(tmp_path)

    def test_the_same_result_is_not_doubled(self, exporter: Exporter, tmp_path: Path) -> None:
        """As when a command is repeated after an interruption."""
        exporter.export(a_result(), self.target(tmp_path))
        before = self.content(tmp_path)
        exporter.export(a_result(), self.target(tmp_path))

        assert self.content(tmp_path) == before

    @pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
    def test_any_name_can_be_exported(self, exporter: Exporter, tmp_path: Path, name: str) -> None:
        """Of a model, whatever it is called."""
        exporter.export(_renamed(a_result(), name), self.target(tmp_path))

    def test_a_failed_run_can_be_exported(self, exporter: Exporter, tmp_path: Path) -> None:
        """It has few numbers, and no latency."""
        exporter.export(a_failed_result(), self.target(tmp_path))


def _renamed(result: Result, name: str) -> Result:
    return replace(result, job=replace(result.job, name=name))
