"""What ``modeldyno export`` does."""

from __future__ import annotations

import click

from modeldyno import plugins
from modeldyno.core.comparison.saved_kinds import kind_of
from modeldyno.core.result.result import Result
from modeldyno.core.study.study import Study
from modeldyno.documents import export as documents_export
from modeldyno.documents.lookup import find_any
from modeldyno.errors import RequestError


def run(document: str, places: tuple[str, ...]) -> None:
    """Export a document to other tools."""
    for target in places:
        documents_export.resolve_target(target)  # check all targets before the first is written
    source = find_any(document)
    if not isinstance(source, Result | Study):
        raise RequestError(f"'{document}' is a {kind_of(source)}; export its results by their ids.")
    for target in places:
        click.echo(f"Exported to {documents_export.export(source, target, _find_result)}.")


def _find_result(name: str) -> Result | None:
    """Return a stored Result by its id, or None if it was removed."""
    with plugins.store() as store:
        try:
            return store.get(name)
        except RequestError:
            return None
