"""The store as a catalog: list what it has, tag it and remove it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.document import Conclusion
from modeldyno.base.errors import ModelDynoError, RequestError
from modeldyno.base.kinds import kind_of
from modeldyno.base.result.result import Result
from modeldyno.base.result.where import CreatedSince
from modeldyno.base.result.where_text import parse
from modeldyno.stores.interface import ConclusionEntry, Entry, OldDocument, StudyEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from modeldyno.base.document import StoredDocument
    from modeldyno.stores.interface import Store

BRANCH = "@"
"""First character of baseline names kept by branch: tags of the store."""
LISTED = 20
"""Number of documents of a kind that are listed unless another is asked for."""
KEPT_OF_NAME = 10
"""Documents of a name and backend that stay, however old they are, unless another number is given."""
_MOST_TAGGED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What the store has, newest first."""

    results: tuple[Entry, ...]
    studies: tuple[StudyEntry, ...]
    conclusions: tuple[ConclusionEntry, ...]
    """Comparisons, load curves, load searches and conversions."""
    more: bool
    """Whether there are older ones beyond the limit."""

    @property
    def entries(self) -> tuple[Entry | StudyEntry | ConclusionEntry, ...]:
        """Every entry: results, then studies, then conclusions."""
        return (*self.results, *self.studies, *self.conclusions)


def list_documents(
    *, name: str | None = None, tag: str | None = None, limit: int = LISTED, where: str | None = None
) -> Listing:
    """List stored documents, at most `limit` of each kind; only Results have tags and match conditions.

    Raises:
        RequestError: the limit is below 1; `where` cannot be read, or names what no stored Result has.
    """
    if limit < 1:
        raise RequestError(f"A list of {limit} documents shows nothing; give a limit of 1 or more.")
    expression = None if where is None else parse(where, now=datetime.now(UTC))
    fetch_limit = limit + 1  # one more shows whether there are others
    with plugins.store() as store:
        results = store.find(name=name, tag=tag, limit=fetch_limit, where=expression)
        only_results = tag is not None or expression is not None
        studies = () if only_results else store.studies(name=name, limit=fetch_limit)
        conclusions = () if only_results else store.conclusions(name=name, limit=fetch_limit)
    return Listing(
        results=tuple(results[:limit]),
        studies=tuple(studies[:limit]),
        conclusions=tuple(conclusions[:limit]),
        more=max(map(len, (results, studies, conclusions))) > limit,
    )


def store_conclusion(document: Conclusion) -> None:
    """Store a comparison, a load series or a conversion, with its headline.

    Raises:
        StoreError: the store cannot be written.
    """
    with plugins.store() as store:
        store.put_conclusion(document, headline=kind_of(document).brief(document))


def store_document(store: Store, document: StoredDocument) -> None:
    """Store a document that was read from a file, unless it is a Study, which has its trials' Results.

    Raises:
        StoreError: the store cannot be written.
    """
    headline = kind_of(document).brief(document)
    if isinstance(document, Result):
        store.put(document, headline=headline)
    elif isinstance(document, Conclusion):
        store.put_conclusion(document, headline=headline)


def change_tags(result: str, tags: Sequence[str], *, remove: bool = False) -> Entry:
    """Add tags to a stored Result, or remove them; return its entry.

    Raises:
        RequestError: there is no such Result.
    """
    with plugins.store() as store:
        return store.tag(result, **{"remove" if remove else "add": tuple(tags)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedDocument:
    """A document that was removed from the store."""

    id: str
    baselines: tuple[str, ...] = ()
    """The branches whose baseline it was, such as ``@main``."""


def remove_documents(names: Sequence[str]) -> Iterator[RemovedDocument]:
    """Remove documents by id, prefix, tag or name; yield each once it is removed.

    All names are checked before the first document is removed.

    Raises:
        RequestError: a name stands for no document, or for several.
    """
    with plugins.store() as store:
        for identifier, remove in [_resolve(store, name) for name in names]:
            branches = _baseline_branches(store, identifier)
            yield RemovedDocument(id=remove(identifier), baselines=branches)


def prune_documents(before: str, *, keep: int, dry_run: bool = False) -> tuple[OldDocument, ...]:
    """Remove old documents that nothing refers to, as `Store.prune` says; return them.

    Args:
        before: a time as conditions have it: ``90 days ago`` or ``2026-09-01``.
        keep: so many of the newest of each name and backend stay.
        dry_run: remove nothing.

    Raises:
        RequestError: it is no time, or the store cannot do that.
        StoreError: the store cannot be written.
    """
    since = None
    with suppress(RequestError):
        since = parse(f"created >= '{before}'", now=datetime.now(UTC))
    if not isinstance(since, CreatedSince):
        raise RequestError(f"'{before}' is no time; write '90 days ago' or 2026-09-01.")
    with plugins.store() as store:
        return tuple(store.prune(since.time, keep=keep, dry_run=dry_run))


def _baseline_branches(store: Store, identifier: str) -> tuple[str, ...]:
    """Return the branches whose baseline a result is."""
    with suppress(RequestError):
        return tuple(tag for tag in store.tag(identifier).tags if tag.startswith(BRANCH))
    return ()


def _resolve(store: Store, name: str) -> tuple[str, Callable[[str], str]]:
    """Return the id of the named document, and the function that removes it."""
    tagged = store.find(tag=name, limit=_MOST_TAGGED)
    if len(tagged) > 1:
        number = f"{len(tagged)} results" if len(tagged) < _MOST_TAGGED else f"{_MOST_TAGGED} results or more"
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


def store_results(results: Iterable[Result], tags: Sequence[str] = ()) -> None:
    """Store Results, and remove expired artifacts from the store.

    Raises:
        StoreError: the store cannot be written.
    """
    with plugins.store() as store:
        for result in results:
            store.put(result, headline=kind_of(result).brief(result))
            if tags:
                store.tag(result.id, add=tuple(tags))
        store.expire(datetime.now(UTC))


_RESULTS_KEPT = 256


def caching_reader() -> Callable[[str], Result | None]:
    """Return a `stored_result` that keeps the last results: the tables of a study ask for the same ones."""
    return lru_cache(_RESULTS_KEPT)(stored_result)


def stored_result(identifier: str) -> Result | None:
    """Return a Result by its id, or None if the store does not have it."""
    with suppress(ModelDynoError), plugins.store() as store:
        return store.get(identifier)
    return None
