"""``modeldyno tag``."""

from __future__ import annotations

import click

from modeldyno.cli import actions


@click.command(name="tag")
@click.argument("result")
@click.argument("tags", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove the tags.")
def command(result: str, tags: tuple[str, ...], remove: bool) -> None:
    """Add one or more TAGS to the stored RESULT (an id or its prefix)."""
    actions.tag.run(result, tags, remove)
