"""What exporters to other tools and importers of their files offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from modeldyno.base.plugins.contract import overrides

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.base.result.result import Result
    from modeldyno.serving.load.foreign_load import ForeignFile, ForeignLoad
    from modeldyno.sweeps.study.study import Study


class Exporter(ABC):
    """Exports Results to another tool."""

    requires: tuple[str, ...]

    @abstractmethod
    def export(self, document: Result, target: str) -> str:
        """Export a Result to `target`; return where it is. Exporting it twice does not duplicate it.

        Numbers are those of `exported_numbers`: uncertified ones have ``raw`` in their names.
        """

    @property
    def takes_studies(self) -> bool:
        """Whether it has `export_study`."""
        return overrides(self.export_study, Exporter.export_study)

    def export_study(self, study: Study, results: Mapping[str, Result], target: str) -> str:
        """Export a Study with its trials as nested runs; return where it is.

        `results` are those of its trials that are still stored, by their ids.
        """
        raise NotImplementedError


class Importer(ABC):
    """Imports files of another tool."""

    @abstractmethod
    def claims(self, file: ForeignFile) -> bool:
        """Return whether a file, which may be anything, is of this tool."""

    @abstractmethod
    def read(self, file: ForeignFile) -> Iterable[ForeignLoad]:
        """Yield each load in the file. A damaged file may raise any error."""
