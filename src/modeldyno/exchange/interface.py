"""What exporters to other tools and importers of their files offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.base.result.result import Result
    from modeldyno.serving.load.foreign_load import ForeignFile, ForeignLoad
    from modeldyno.sweeps.study.study import Study


class Exporter(Protocol):
    """Exports Results to another tool."""

    requires: tuple[str, ...]

    def export(self, document: Result, target: str) -> str:
        """Export a Result to `target`; return where it is. Exporting it twice does not duplicate it.

        Numbers are those of `exported_numbers`: uncertified ones have ``raw`` in their names.
        """


@runtime_checkable
class ExportsStudies(Protocol):
    """An Exporter that can also export a Study, with its trials as nested runs."""

    def export_study(self, study: Study, results: Mapping[str, Result], target: str) -> str:
        """Export a Study, with the Results of its trials that are still stored, by their ids."""


class Importer(Protocol):
    """Imports files of another tool."""

    def claims(self, file: ForeignFile) -> bool:
        """Return whether a file, which may be anything, is of this tool."""

    def read(self, file: ForeignFile) -> Iterable[ForeignLoad]:
        """Yield each load in the file. A damaged file may raise any error."""
