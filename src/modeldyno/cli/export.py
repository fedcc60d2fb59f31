"""``modeldyno export``."""

from __future__ import annotations

import click

from modeldyno.cli import actions


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
    actions.export.run(document, places)
