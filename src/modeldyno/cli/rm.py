"""``modeldyno rm``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from modeldyno import plugins
from modeldyno.comparison.gate import BRANCH
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.interfaces import Store

_MOST = 1000


@click.command(name="rm")
@click.argument("results", nargs=-1, required=True)
def command(results: tuple[str, ...]) -> None:
    """Remove RESULTS (ids or prefixes) and their artifacts from the store; of a study, its trials, too.

    A tag names the one result that has it. Of a comparison and of a series of loads, the document alone:
    the results stay.
    """
    with plugins.store() as store:
        for identifier, remove in [_found(store, name) for name in results]:
            baselines = _baselines(store, identifier)
            click.echo(f"removed {remove(identifier)}{baselines and f', the baseline {baselines}'}")


def _baselines(store: Store, identifier: str) -> str:
    """Name the branches that a result is kept for as their baseline."""
    with suppress(RequestError):
        return ", ".join(tag for tag in store.tag(identifier).tags if tag.startswith(BRANCH))
    return ""


def _found(store: Store, name: str) -> tuple[str, Callable[[str], str]]:
    """Give what is meant, and how to remove it."""
    tagged = store.find(tag=name, limit=_MOST)
    if len(tagged) > 1:
        number = f"{len(tagged)} results" if len(tagged) < _MOST else f"{_MOST} results or more"
        raise RequestError(
            f"{number} have the tag '{name}'; name those to remove by their ids, which modeldyno list "
            f"--tag {name} shows."
        )
    try:
        return store.get(name).id, store.remove
    except RequestError:
        with suppress(RequestError):
            return store.study(name).id, store.remove_study
        with suppress(RequestError):
            return store.conclusion(name).id, store.remove_conclusion
        raise
