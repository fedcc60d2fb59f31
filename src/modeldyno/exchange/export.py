"""Exports Results and Studies to other tools, by the name of an exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.kinds import kind_of
from modeldyno.base.result.result import Result
from modeldyno.stores.catalog import stored_result
from modeldyno.stores.lookup import find_any
from modeldyno.sweeps.study.study import Study

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.base.document import Document
    from modeldyno.exchange.interface import Exporter


def export(document: Result | Study, to: str, results: Callable[[str], Result | None]) -> str:
    """Export a document to another tool; return where it is.

    Args:
        document: the Result or Study.
        to: ``EXPORTER:TARGET``, such as ``mlflow:sqlite:///mlflow.db``.
        results: returns the Result of a trial by its id, or None if it was removed.

    Raises:
        RequestError: there is no such exporter, or it cannot write there.
        MissingExtra: the package of the tool is not installed.
    """
    exporter, target = resolve_target(to)
    if not isinstance(document, Study):
        return exporter.export(document, target)
    if not exporter.takes_studies:
        raise RequestError(f"'{to.partition(':')[0]}' takes single results; export the best trial by its id.")
    by_id = {trial.result: results(trial.result) for trial in document.trials if trial.result}
    stored = {name: result for name, result in by_id.items() if result is not None}
    if not stored:
        raise RequestError(
            f"The store has no results of study {document.id} any more, so there is nothing to export."
        )
    return exporter.export_study(document, stored, target)


def export_to(document: Document | str, places: Sequence[str]) -> Iterator[str]:
    """Export a document to each place, and yield where it is; all places are checked before anything else.

    Args:
        document: the Result or Study, or what it is found by; its trials are taken from the store.
        places: ``EXPORTER:TARGET`` for each.

    Raises:
        RequestError: it is of another kind, or as `export` does.
        MissingExtra: the package of a tool is not installed.
    """
    for place in places:
        resolve_target(place)
    exported = find_any(document) if isinstance(document, str) else document
    if not isinstance(exported, Result | Study):
        named = document if isinstance(document, str) else getattr(exported, "id", "") or "it"
        raise RequestError(f"'{named}' is a {kind_of(exported).name}; export its results by their ids.")
    for place in places:
        yield export(exported, place, stored_result)


def resolve_target(to: str) -> tuple[Exporter, str]:
    """Parse ``EXPORTER:TARGET`` into an exporter, whose packages are installed, and its target."""
    name, colon, target = to.partition(":")
    exporter = plugins.exporter(name)
    if not colon or not target:
        raise RequestError(f"'{to}' names no target; write {name}:TARGET, such as {name}:out.")
    plugins.require(exporter.requires, f"exporter '{name}'")
    return exporter, target
