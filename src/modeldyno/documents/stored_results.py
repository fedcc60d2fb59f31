"""Keeps Results in the store and gets them back, without importing any other kind of document."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from modeldyno import plugins, views
from modeldyno.errors import ModelDynoError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from modeldyno.core.result.result import Result


def store_results(results: Iterable[Result], tags: Sequence[str] = ()) -> None:
    """Store Results, and remove expired artifacts from the store.

    Raises:
        StoreError: the store cannot be written.
    """
    with plugins.store() as store:
        for result in results:
            store.put(result, headline=views.brief(result))
            if tags:
                store.tag(result.id, add=tuple(tags))
        store.expire(datetime.now(UTC))


def stored_result(identifier: str) -> Result | None:
    """Return a Result by its id, or None if the store does not have it."""
    with suppress(ModelDynoError), plugins.store() as store:
        return store.get(identifier)
    return None
