"""``modeldyno rm``."""

from __future__ import annotations

import click

from modeldyno.cli import actions


@click.command(name="rm")
@click.argument("results", nargs=-1, required=True)
def command(results: tuple[str, ...]) -> None:
    """Remove RESULTS (ids or prefixes) and their artifacts from the store; with a study, also its trials.

    A tag must belong to one result. Removing a comparison or a load series keeps its results.
    """
    actions.rm.run(results)
