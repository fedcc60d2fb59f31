"""What a store of documents offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import KnobValue

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Self

    from modeldyno.base.document import Conclusion
    from modeldyno.base.result.live_load import LiveLoad
    from modeldyno.base.result.result import Result
    from modeldyno.base.result.where import Expression
    from modeldyno.registry.interface import Registry
    from modeldyno.sweeps.study.study import Study


def place_in_list(created: str, identifier: str) -> str:
    """Return the place of a document in a list, newest first: the page after it begins there."""
    return f"{created}/{identifier}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Summary of a stored Result."""

    id: str
    created: str
    name: str
    digest: str
    backend: str
    config: dict[str, KnobValue]
    tags: tuple[str, ...]
    headline: str
    """The outcome in a few words."""
    failed: bool

    @property
    def mark(self) -> str:
        """Its place in the list, for the page after it."""
        return place_in_list(self.created, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredName:
    """A name of stored Results; two are the same as long as its Results are."""

    name: str
    results: int
    """How many have it, trials included."""
    newest: str
    """When the newest of them was created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEntry:
    """Summary of a stored Study."""

    id: str
    created: str
    name: str
    digest: str
    """Digest of the model; empty before the first trial."""
    headline: str
    """The outcome in a few words."""
    trials: int
    """Number of measurements, including failed ones."""
    skipped: int
    """Number of impossible points."""

    @property
    def mark(self) -> str:
        """Its place in the list, for the page after it."""
        return place_in_list(self.created, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConclusionEntry:
    """Summary of a stored Conclusion."""

    id: str
    created: str
    kind: str
    name: str
    """Name of the model."""
    headline: str
    """The outcome in a few words."""

    @property
    def mark(self) -> str:
        """Its place in the list, for the page after it."""
        return place_in_list(self.created, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldDocument:
    """A document that nothing refers to."""

    id: str
    size: int
    """Bytes that it takes in the store."""


class Store(ABC):
    """Keeps Results, Studies and Conclusions; a context manager that closes it.

    Each method raises StoreError if the database cannot be read or written, and is unchanged then, or if a
    document is damaged; and RequestError if a prefix names nothing, or several.
    """

    place: str
    """Where it is, for messages; without a password."""

    @property
    @abstractmethod
    def registry(self) -> Registry:
        """The models that are registered in it."""

    @abstractmethod
    def __enter__(self) -> Self:
        """Return the open store."""

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Close the store."""

    @abstractmethod
    def put(self, result: Result, *, headline: str) -> None:
        """Store a Result; on return it is on disk. The same id replaces an earlier one, whose tags stay."""

    @abstractmethod
    def get(self, prefix: str) -> Result:
        """Return the Result with this id, or the newest with this tag, or whose id begins with `prefix`."""

    @abstractmethod
    def change_mark(self) -> str:
        """Return a text that is another one after every write of any process; cheap enough to ask often."""

    @abstractmethod
    def find(
        self,
        *,
        name: str | None = None,
        tag: str | None = None,
        limit: int = 50,
        where: Expression | None = None,
        before: str = "",
    ) -> Sequence[Entry]:
        """List Results, newest first: all, those of a name, or those with a tag; of trials, only these.

        `before` is the `mark` of the last one of the page before. `where` holds as
        `modeldyno.base.result.where.matches` says. Raises RequestError if it names a setting or a scope that
        no stored Result has, as a mistake would otherwise read as an empty list.
        """

    @abstractmethod
    def names(self, *, least: int = 1) -> Sequence[StoredName]:
        """List the names of at least so many Results, the one with the newest Result first."""

    @abstractmethod
    def tag(self, prefix: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Entry:
        """Add and remove tags; adding an existing tag or removing a missing one changes nothing.

        Without tags it only reads, and waits for no writer. Raises RequestError for a tag that is empty or
        too long.
        """

    @abstractmethod
    def remove(self, prefix: str) -> str:
        """Delete a Result and its artifacts; return its id."""

    @abstractmethod
    def expire(self, now: datetime) -> Sequence[str]:
        """Delete the artifacts whose time is over, and return their paths; the Results stay."""

    @abstractmethod
    def put_study(self, study: Study, *, headline: str) -> None:
        """Store a Study, with those of its trials that are not stored yet."""

    @abstractmethod
    def add_trial(self, study: Study, result: Result | None, *, headline: str, brief: str = "") -> None:
        """Store the last trial of a study with its Result atomically; on return they are on disk.

        Other changes of the study since its last trial are stored, too. `headline` is that of the study,
        `brief` that of the Result. Raises StoreError if another process has continued the study meanwhile.
        """

    @abstractmethod
    def study(self, prefix: str) -> Study:
        """Return the Study whose id begins with `prefix`, or the newest of that name, with ordered trials."""

    @abstractmethod
    def studies(self, *, name: str | None = None, limit: int = 50, before: str = "") -> Sequence[StudyEntry]:
        """List Studies, newest first: all, or those of a name.

        `before` is the `mark` of the last one of the page before.
        """

    @abstractmethod
    def remove_study(self, prefix: str) -> str:
        """Delete a Study with its trials, and their Results that have no tag; return its id."""

    @abstractmethod
    def put_conclusion(self, conclusion: Conclusion, *, headline: str) -> None:
        """Store a Conclusion; the same id replaces an earlier one."""

    @abstractmethod
    def conclusion(self, prefix: str) -> Conclusion:
        """Return the Conclusion whose id begins with `prefix`."""

    @abstractmethod
    def conclusions(
        self, *, name: str | None = None, kinds: Sequence[str] = (), limit: int = 50, before: str = ""
    ) -> Sequence[ConclusionEntry]:
        """List Conclusions, newest first: all, or those of a name, or of kinds such as ``comparison``.

        `before` is the `mark` of the last one of the page before.
        """

    @abstractmethod
    def remove_conclusion(self, prefix: str) -> str:
        """Delete a Conclusion, but not its Results; return its id."""

    # What a store need not have

    def document(self, identifier: str) -> bytes | None:
        """Return the JSON of the Result or Conclusion of this id, as written; None if it is not kept."""
        return None

    def head(self, identifier: str) -> Result:
        """Return the Result of this id; measurements, outline and activity may be left out, for speed."""
        return self.get(identifier)

    def prune(self, before: str, *, keep: int, dry_run: bool = False) -> Sequence[OldDocument]:
        """Remove Results, comparisons, loads and explanations from before a time of UTC; return them.

        The `keep` newest of each name and backend stay, and so does what has a tag, belongs to a study, is a
        figure of a registered model or is attached to one. A dry run removes nothing. By default it raises a
        RequestError.
        """
        raise RequestError(f"The store {self.place} removes documents by name only: modeldyno rm.")

    def put_live_load(self, load: LiveLoad) -> None:
        """Store a load that goes on, for others to see; the same id replaces it.

        One that was not heard of for ten minutes is forgotten. Raises StoreError if it cannot be written.
        """

    def live_loads(self) -> Sequence[LiveLoad]:
        """Return the loads that go on or ended less than ten minutes ago, the newest first."""
        return ()


class OpensStores(ABC):
    """What a plugin for stores has; the name of its entry point is the scheme of the URLs that it opens."""

    @abstractmethod
    def open(self, url: str) -> Store:
        """Open a store. Raises StoreError if that is impossible, RequestError for a wrong URL."""
