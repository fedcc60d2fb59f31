"""What the registry of a store offers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from modeldyno.base.result.result import Result
from modeldyno.comparison.change.comparison import Comparison
from modeldyno.conversion.agreement.conversion import Conversion
from modeldyno.registry.records.records import Task, TaskKind, TaskState, Variant, VariantFigure, Version
from modeldyno.registry.records.staleness import Confirmation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from modeldyno.base.job.version_name import VersionName
    from modeldyno.base.result.where import KeptNumber
    from modeldyno.registry.records.policy import Policy, UnreadablePolicy
    from modeldyno.registry.records.records import (
        AliasMove,
        AttachedDocument,
        HardwareTarget,
        RegistryEvent,
        VersionMeasurement,
        Worker,
    )
    from modeldyno.registry.records.webhooks import Delivery, Webhook


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """Summary of a registered model."""

    name: str
    versions: int
    """Number of its versions."""
    touched: str
    """UTC time of the last version, ISO 8601."""
    newest: Version
    aliases: dict[str, int] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """Its place in the list, for the page after it."""
        return f"{self.touched}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a task ended, all of it stored in one transaction."""

    state: TaskState
    """Done or failed; or deferred: what came of it is kept, and the task is done again; or queued, as nothing
    was begun."""
    why: str = ""
    again_in: float = 0.0
    """Seconds until a deferred task may be done again."""
    result: Result | None = None
    """What was measured; stored with the other Results."""
    comparison: Comparison | None = None
    """What was measured in turns; stored with its Results."""
    headline: str = ""
    """Of the Result or the comparison, for lists."""
    figure: VariantFigure | None = None
    confirmation: Confirmation | None = None
    """The stale figure that this one replaces, against it."""
    variant: Variant | None = None
    """The variant in its new state."""
    conversion: Conversion | None = None
    """What made the variant; stored with the other documents."""
    next: tuple[Task, ...] = ()
    """What is to be done now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedMeasurements:
    """What was ever to be measured."""

    versions: frozenset[tuple[str, int]]
    """Model and number of each version of which something was, on any target."""
    keys: frozenset[str]
    """Keys of the tasks and figures of one target."""


class Registry(Protocol):
    """Keeps registered models in a store; every change is an event, in the same transaction."""

    weights: Path
    """The folder for copies of models' files."""

    def add_version(self, draft: Version, *, number: int | None = None) -> tuple[Version, bool]:
        """Store a version under its number or the next free one; return it, and whether it is new.

        The same digest, task and dataset under the same name is the same version. Raises RequestError if
        another version has the number.
        """

    def version(self, name: VersionName) -> Version:
        """Return the version that is named; raise RequestError if there is none."""

    def models(
        self, *, text: str = "", framework: str = "", task: str = "", limit: int = 50, before: str = ""
    ) -> Sequence[ModelEntry]:
        """List models, the last touched first; `before` is the `mark` of the last one of the page before."""

    def versions(self, model: str, *, limit: int = 50, below: int | None = None) -> Sequence[Version]:
        """List the versions of a model, newest first; `below` is the last number of the page before."""

    def find_versions(
        self,
        model: str = "",
        *,
        framework: str = "",
        task: str = "",
        number: int | None = None,
        parent: str = "",
        engine: str = "",
        limit: int = 50,
    ) -> Sequence[Version]:
        """List the versions that hold every condition that is given; an engine runs them as `is_run_by` says.

        Of a model, all of them, newest first; without one, the newest of each model, the last touched first.
        """

    def with_digest(self, digest: str) -> Sequence[Version]:
        """Return the versions that have this digest, or a variant that has it."""

    def change_version(self, version: Version, actor: str, **changes: Any) -> Version:
        """Change task, dataset, metrics, labels or policy of a version; raise RequestError if it is gone."""

    def remove_version(self, version: Version, actor: str) -> None:
        """Remove a version with its variants, tasks and figures; Results stay. Its aliases name nothing."""

    def put_variant(self, variant: Variant, actor: str, *, task: Task | None = None) -> bool:
        """Store a variant, or its new state; with a task, only while its lease is held, else return False."""

    def variants(self, version: Version) -> Sequence[Variant]:
        """Return the variants of a version, the source first."""

    def move_alias(self, model: str, alias: str, number: int | None, actor: str) -> AliasMove:
        """Let an alias name a version; None removes it. Raise RequestError if there is no such version."""

    def roll_back(self, model: str, alias: str, actor: str) -> AliasMove:
        """Let an alias name what it named before its last move; raise RequestError if that is nothing."""

    def aliases(self, model: str) -> dict[str, int]:
        """Return alias to version."""

    def alias_moves(self, model: str, alias: str | None = None) -> Sequence[AliasMove]:
        """Return the moves of aliases, the oldest first."""

    def results_of(self, digests: Sequence[str]) -> Sequence[str]:
        """Return the ids of the Results of these digests, newest first."""

    def studies_of(self, digests: Sequence[str]) -> Sequence[str]:
        """Return the ids of the studies of these digests, newest first."""

    def result(self, identifier: str) -> Result | None:
        """Return a Result by its whole id, or None."""

    def numbers(self, identifiers: Sequence[str], queries: Sequence[str]) -> dict[str, dict[str, KeptNumber]]:
        """Return the kept numbers of Results by id and query; a Result that is gone has no entry."""

    def attach(self, document: AttachedDocument, actor: str, *, replace: bool = False) -> tuple[str, ...]:
        """List a document under a version; return the ids of those in whose place it is.

        With `replace`, others of the same host, device, engine and batch size are listed no more. Raise
        RequestError if there is no such version.
        """

    def detach(self, version: Version, documents: Sequence[str], actor: str) -> int:
        """List attached documents no more; return how many were. They stay in the store."""

    def attached(self, version: Version) -> Sequence[AttachedDocument]:
        """Return what is attached to a version."""

    def measurements(
        self, version: Version, digests: Sequence[str], *, limit: int
    ) -> Sequence[VersionMeasurement]:
        """Return documents of these digests and those that are attached to the version, newest first."""

    def enqueue(self, tasks: Sequence[Task]) -> int:
        """Queue tasks whose keys are not queued yet; return the number of new ones.

        What was to be done with a version that has been removed is left out.
        """

    def claim(
        self, worker: Worker, *, leave: Sequence[int] = (), kinds: Collection[TaskKind] = ()
    ) -> Task | None:
        """Lease the first task for this worker, but none of those to leave; of `kinds`, if any are given."""

    def renew(self, task: Task) -> bool:
        """Prolong a lease; return False if it was lost."""

    def finish(self, task: Task, outcome: Outcome, actor: str) -> bool:
        """End or defer a task and store what came of it, or neither; False if the lease was lost.

        One that is queued again was never begun: it keeps its place, and nobody is told. To end a task once
        more in the same way changes nothing, and is True.
        """

    def change_tasks(self, ids: Sequence[int], state: TaskState, actor: str) -> int:
        """Cancel open tasks, or queue ended ones again; return the number changed."""

    def tasks(
        self,
        *,
        states: Sequence[TaskState] = (),
        model: str | None = None,
        number: int | None = None,
        limit: int = 1000,
        after: tuple[int, int, int] | None = None,
    ) -> Sequence[Task]:
        """List tasks: those that are being done, then those that will be, then ended ones.

        `after` is the `place` of the last one of the page before.
        """

    def count_tasks(self, states: Sequence[TaskState], most: int) -> int:
        """Return how many tasks are in these states; `most` stands for more, too."""

    def targets_waited_for(self, soon: float) -> frozenset[str]:
        """Return the targets of the tasks that could be claimed now, or once some seconds have passed.

        Empty stands for those that any machine may do.
        """

    def asked_for(self, target: str) -> RequestedMeasurements:
        """Return what was ever to be measured on a target, and of which versions on any."""

    def announce(self, worker: Worker, target: HardwareTarget) -> None:
        """Write that a worker is there, and what it does."""

    def leave(self, worker: str) -> None:
        """Write that a worker has gone."""

    def workers(self) -> Sequence[Worker]:
        """Return the workers that are there."""

    def put_target(self, target: HardwareTarget) -> None:
        """Store a target, unless it is there."""

    def targets(self) -> Sequence[HardwareTarget]:
        """Return all targets."""

    def figures(self, model: str, number: int | None = None) -> Sequence[VariantFigure]:
        """Return the figures of a model, or of one version."""

    def figures_of(self, models: Sequence[str]) -> Mapping[str, Sequence[VariantFigure]]:
        """Return the figures of several models, those of each as `figures` does; none has no entry."""

    def figures_on(
        self, target: str, state: str, *, limit: int | None = None, oldest: bool = False
    ) -> Sequence[VariantFigure]:
        """Return the figures of a target in a state, as stored: all, or the newest or oldest ones."""

    def put_figures(self, figures: Sequence[VariantFigure]) -> None:
        """Store figures; each replaces the one of its key, unless that was taken later."""

    def put_policy(self, policy: Policy, actor: str) -> None:
        """Store a policy; it replaces the one of its name."""

    def remove_policy(self, name: str, actor: str) -> None:
        """Remove a stored policy; raise RequestError if there is none, or versions have it.

        A stored ``default`` may be in use, as the built-in one comes back.
        """

    def policies(self) -> Sequence[Policy | UnreadablePolicy]:
        """Return the stored policies; one that cannot be read stops none of the others."""

    def add_webhook(self, webhook: Webhook, actor: str) -> Webhook:
        """Store an address that is told of events from now on; raise RequestError if it is none."""

    def remove_webhook(self, identifier: int, actor: str) -> None:
        """Remove a webhook, and what it was still to be sent; raise RequestError if there is none."""

    def webhooks(self) -> Sequence[Webhook]:
        """Return the webhooks."""

    def deliveries(self) -> dict[tuple[int, str], int]:
        """Return the number of messages by webhook and state: ``waiting``, ``done`` or ``failed``."""

    def claim_delivery(self, hooks: Collection[str] = ()) -> Delivery | None:
        """Lease the first message that is due; of those for commands, only for the `hooks` named."""

    def finish_delivery(self, delivery: Delivery, why: str) -> bool:
        """Write that a message has arrived, or why not; return False if its lease was lost."""

    def events(
        self, *, subject: str | None = None, newest: int = 50, before: int | None = None
    ) -> Sequence[RegistryEvent]:
        """Return the newest events, oldest first; with `before`, the newest of those before that id."""

    def first_broken_event(self) -> int | None:
        """Return the id of the first event that was changed or follows a missing one, or None."""
