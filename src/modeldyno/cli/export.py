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
    """Export DOCUMENT (a JSON file, or a stored id, tag or study) to other tools.

    Percentiles that the samples do not certify are exported under names with .raw, or left out.
    """
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
