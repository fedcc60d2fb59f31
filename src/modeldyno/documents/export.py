"""Results and Studies -> the tools of the field, by the name of an exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.core.study.study import Study
from modeldyno.errors import RequestError
from modeldyno.interfaces import ExportsStudies

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.result.result import Result
    from modeldyno.interfaces import Exporter


def export(document: Result | Study, to: str, results: Callable[[str], Result | None]) -> str:
    """Put a document where another tool looks for it; say where it is.

    Args:
        document: what to put.
        to: ``EXPORTER:TARGET``, such as ``mlflow:sqlite:///mlflow.db``.
        results: gives the Result of a trial of a Study by its id, or None where it is gone.

    Raises:
        RequestError: there is no such exporter, or it cannot write there.
        MissingExtra: the package of the tool is not installed.
    """
    exporter, target = resolved(to)
    if not isinstance(document, Study):
        return exporter.export(document, target)
    if not isinstance(exporter, ExportsStudies):
        raise RequestError(f"'{to.partition(':')[0]}' takes single results; export the best trial by its id.")
    found = {trial.result: results(trial.result) for trial in document.trials if trial.result}
    known = {name: each for name, each in found.items() if each is not None}
    if not known:
        raise RequestError(
            f"No result of the study {document.id} is in the store any more; there is nothing to export."
        )
    return exporter.export_study(document, known, target)


def resolved(to: str) -> tuple[Exporter, str]:
    """Give the exporter and the target that ``EXPORTER:TARGET`` names, ready to work."""
    name, colon, target = to.partition(":")
    exporter = plugins.exporter(name)
    if not colon or not target:
        raise RequestError(f"--to {to} names no target; write {name}:TARGET, such as {name}:out.")
    plugins.require(exporter.requires, f"exporter '{name}'")
    return exporter, target
