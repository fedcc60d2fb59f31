"""What ``modeldyno rm`` does."""

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


def run(results: tuple[str, ...]) -> None:
    """Remove documents from the store."""
    with plugins.store() as store:
        for identifier, remove in [_resolve(store, name) for name in results]:
            baselines = _baseline_branches(store, identifier)
            click.echo(f"removed {remove(identifier)}{baselines and f', the baseline {baselines}'}")


def _baseline_branches(store: Store, identifier: str) -> str:
    """Return the branches whose baseline a result is, separated by commas."""
    with suppress(RequestError):
        return ", ".join(tag for tag in store.tag(identifier).tags if tag.startswith(BRANCH))
    return ""


def _resolve(store: Store, name: str) -> tuple[str, Callable[[str], str]]:
    """Return the id of the named document, and the function that removes it."""
    tagged = store.find(tag=name, limit=_MOST)
    if len(tagged) > 1:
        number = f"{len(tagged)} results" if len(tagged) < _MOST else f"{_MOST} results or more"
        raise RequestError(
            f"{number} have the tag '{name}'; give their ids; modeldyno list --tag {name} shows them."
        )
    try:
        return store.get(name).id, store.remove
    except RequestError:
        with suppress(RequestError):
            return store.study(name).id, store.remove_study
        with suppress(RequestError):
            return store.conclusion(name).id, store.remove_conclusion
        raise
