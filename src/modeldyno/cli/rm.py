"""``modeldyno rm``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from modeldyno import plugins
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.ports import Store


@click.command(name="rm")
@click.argument("results", nargs=-1, required=True)
def command(results: tuple[str, ...]) -> None:
    """Remove RESULTS (ids or prefixes) and their artifacts from the store; of a study, its trials, too.

    Of a comparison and of a series of loads, the document alone: the results stay.
    """
    with plugins.store() as store:
        for identifier, remove in [_found(store, name) for name in results]:
            click.echo(f"removed {remove(identifier)}")


def _found(store: Store, name: str) -> tuple[str, Callable[[str], str]]:
    """Give what is meant, and how to remove it."""
    try:
        return store.get(name).id, store.remove
    except RequestError:
        with suppress(RequestError):
            return store.study(name).id, store.remove_study
        with suppress(RequestError):
            return store.conclusion(name).id, store.remove_conclusion
        raise
