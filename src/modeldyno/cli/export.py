"""``modeldyno export``."""

from __future__ import annotations

import click

from modeldyno import plugins
from modeldyno.core.comparison.saved_kinds import kind_of
from modeldyno.core.result.result import Result
from modeldyno.core.study.study import Study
from modeldyno.documents import export as documents_export
from modeldyno.documents.lookup import find_any
from modeldyno.errors import RequestError


@click.command(name="export")
@click.argument("document")
@click.option(
    "--to", "places", multiple=True, required=True, metavar="TOOL:TARGET",
    help="mlflow:URI|DIR, tensorboard:DIR, wandb:DIR, perfetto:FILE or prometheus:FILE; repeatable.",
)  # fmt: skip
def command(document: str, places: tuple[str, ...]) -> None:
    """Put DOCUMENT (a JSON file, or a stored id, tag or study) where other tools look for it.

    What the samples do not certify is exported under names with .raw, or left out.
    """
    for place in places:
        documents_export.resolved(place)  # all are known to work before the first is written
    found = find_any(document)
    if not isinstance(found, Result | Study):
        raise RequestError(f"'{document}' is a {kind_of(found)}; export its results, by their ids.")
    for place in places:
        click.echo(f"Exported to {documents_export.export(found, place, _result)}.")


def _result(name: str) -> Result | None:
    """Give a stored Result by its id; None where it is gone."""
    with plugins.store() as store:
        try:
            return store.get(name)
        except RequestError:
            return None
