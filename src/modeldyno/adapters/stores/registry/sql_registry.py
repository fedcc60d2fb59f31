"""The registry of a store: each method is one transaction."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from modeldyno import codec
from modeldyno.adapters.stores import results, series
from modeldyno.adapters.stores.registry import events, figures, tasks, versions, webhooks
from modeldyno.adapters.stores.rows import verified_document
from modeldyno.adapters.stores.schema import RESULTS
from modeldyno.core.registry.events import first_broken
from modeldyno.core.registry.records import TaskState
from modeldyno.core.registry.webhooks import check_webhook
from modeldyno.interfaces.registry import AskedFor
from modeldyno.kinds import kind_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from sqlalchemy import Connection

    from modeldyno.adapters.stores.database import Database, LazyDatabase
    from modeldyno.core.registry.names import VersionName
    from modeldyno.core.registry.policy import Policy
    from modeldyno.core.registry.records import (
        AliasMove,
        HardwareTarget,
        RegistryEvent,
        Task,
        Variant,
        VariantFigure,
        Version,
        Worker,
    )
    from modeldyno.core.registry.webhooks import Delivery, Webhook
    from modeldyno.core.result.result import Result
    from modeldyno.core.result.where import KeptNumber
    from modeldyno.interfaces.registry import ModelEntry, Outcome


class SqlRegistry:
    """Registered models in the database of a store; see `modeldyno.interfaces.registry.Registry`."""

    def __init__(
        self, database: Database | LazyDatabase, weights: Path, *, lease: float = tasks.LEASE
    ) -> None:
        """Use a database; `lease` is the number of seconds after which a silent worker is lost."""
        self._database = database
        self._lease = lease
        self.weights = weights

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        """Yield a write transaction that may record events."""
        with self._database.writing() as connection:
            events.take_turn(connection)
            yield connection

    # --- versions ----------------------------------------------------------------------------------

    def add_version(self, draft: Version, *, number: int | None = None) -> tuple[Version, bool]:
        with self._changing() as connection:
            return versions.add(connection, draft, number)

    def version(self, name: VersionName) -> Version:
        with self._database.reading() as connection:
            return versions.resolve(connection, name)

    def models(
        self, *, text: str = "", framework: str = "", task: str = "", limit: int = 50, before: str = ""
    ) -> Sequence[ModelEntry]:
        with self._database.reading() as connection:
            return versions.find_models(
                connection, text=text, framework=framework, task=task, limit=limit, before=before
            )

    def versions(self, model: str, *, limit: int = 50, below: int | None = None) -> Sequence[Version]:
        with self._database.reading() as connection:
            versions.check_model(connection, model)
            return versions.find_versions(connection, model, limit=limit, below=below)

    def find_versions(self, model: str = "", *, limit: int = 50, **conditions: Any) -> Sequence[Version]:
        with self._database.reading() as connection:
            return versions.find_versions_by(connection, model, limit=limit, **conditions)

    def with_digest(self, digest: str) -> Sequence[Version]:
        with self._database.reading() as connection:
            return versions.with_digest(connection, digest)

    def change_version(self, version: Version, actor: str, **changes: Any) -> Version:
        with self._changing() as connection:
            return versions.rewrite(connection, version, actor, changes)

    def remove_version(self, version: Version, actor: str) -> None:
        with self._changing() as connection:
            versions.remove(connection, version, actor)

    def put_variant(self, variant: Variant, actor: str, *, task: Task | None = None) -> bool:
        with self._changing() as connection:
            if task is not None and not tasks.holds(connection, task):
                return False
            versions.put_variant(connection, variant, actor)
        return True

    def variants(self, version: Version) -> Sequence[Variant]:
        with self._database.reading() as connection:
            return versions.variants(connection, version)

    # --- aliases -----------------------------------------------------------------------------------

    def move_alias(self, model: str, alias: str, number: int | None, actor: str) -> AliasMove:
        with self._changing() as connection:
            return versions.move_alias(connection, model, alias, number, actor)

    def roll_back(self, model: str, alias: str, actor: str) -> AliasMove:
        with self._changing() as connection:
            before = versions.named_before(connection, model, alias)
            return versions.move_alias(connection, model, alias, before, actor)

    def aliases(self, model: str) -> dict[str, int]:
        with self._database.reading() as connection:
            return versions.aliases(connection, model)

    def alias_moves(self, model: str, alias: str | None = None) -> Sequence[AliasMove]:
        with self._database.reading() as connection:
            return versions.alias_moves(connection, model, alias)

    # --- what was measured -------------------------------------------------------------------------

    def results_of(self, digests: Sequence[str]) -> Sequence[str]:
        with self._database.reading() as connection:
            return results.ids_of(connection, digests)

    def studies_of(self, digests: Sequence[str]) -> Sequence[str]:
        with self._database.reading() as connection:
            return versions.study_ids(connection, digests)

    def result(self, identifier: str) -> Result | None:
        query = select(RESULTS.c.document, RESULTS.c.checksum).where(RESULTS.c.id == identifier)
        with self._database.reading() as connection:
            row = connection.execute(query).first()
        if row is None:
            return None
        origin = f"Result {identifier} in the store {self._database.place}"
        return codec.decode(verified_document(row[0], row[1], origin, results.ADVICE), origin=origin)

    def numbers(self, identifiers: Sequence[str], queries: Sequence[str]) -> dict[str, dict[str, KeptNumber]]:
        with self._database.reading() as connection:
            return results.kept_numbers_of(connection, identifiers, queries)

    # --- tasks -------------------------------------------------------------------------------------

    def enqueue(self, tasks_: Sequence[Task]) -> int:
        with self._changing() as connection:
            return tasks.enqueue(connection, tasks_)

    def claim(self, worker: Worker, *, leave: Sequence[int] = ()) -> Task | None:
        with self._database.writing() as connection:
            for lost in tasks.fail_lost(connection):
                versions.end_conversion(connection, lost, lost.why, lost.worker)
                _record_task(connection, lost.worker, lost)
            return tasks.claim(connection, worker, self._lease, leave)

    def renew(self, task: Task) -> bool:
        with self._database.writing() as connection:
            return tasks.renew(connection, task, self._lease)

    def finish(self, task: Task, outcome: Outcome, actor: str) -> bool:
        result = outcome.result
        with self._changing() as connection:
            given = outcome.comparison or result
            identifier = "" if given is None else given.id
            held = (
                tasks.defer(connection, task, outcome.again_in, outcome.why, result=identifier)
                if outcome.state is TaskState.DEFERRED
                else tasks.finish(connection, task, outcome.state, why=outcome.why, result=identifier)
            )
            if not held:
                return False
            if result is not None:
                results.put(connection, result, outcome.headline)
            if outcome.comparison is not None:
                for each in outcome.comparison.results:
                    results.put(connection, each, kind_of(each).brief(each))
                series.put(connection, outcome.comparison, outcome.headline)
            if outcome.figure is not None:
                figures.put(connection, outcome.figure)
            if outcome.variant is not None:
                versions.put_variant(connection, outcome.variant, actor)
            if outcome.conversion is not None:
                headline = kind_of(outcome.conversion).brief(outcome.conversion)
                series.put(connection, outcome.conversion, headline)
            tasks.enqueue(connection, outcome.next)
            ended = replace(task, state=outcome.state, why=outcome.why, result=identifier)
            _record_task(connection, actor, ended)
            if outcome.confirmation is not None:
                events.record(
                    connection,
                    actor,
                    f"figure.{outcome.confirmation.outcome}",
                    f"{task.model}/{task.number}",
                    what=task.label,
                    target=task.target,
                    before=outcome.confirmation.before,
                    after=identifier,
                    change=outcome.confirmation.change,
                )
        return True

    def change_tasks(self, ids: Sequence[int], state: TaskState, actor: str) -> int:
        with self._changing() as connection:
            changed = tasks.change(connection, ids, state)
            for task in changed:
                if state is TaskState.CANCELLED:
                    versions.end_conversion(connection, task, "its conversion was cancelled", actor)
                _record_task(connection, actor, task)
            return len(changed)

    def tasks(
        self,
        *,
        states: Sequence[TaskState] = (),
        model: str | None = None,
        number: int | None = None,
        limit: int = 1000,
        after: tuple[int, int, int] | None = None,
    ) -> Sequence[Task]:
        with self._database.reading() as connection:
            return tasks.find(connection, states=states, model=model, number=number, limit=limit, after=after)

    def asked_for(self, target: str) -> AskedFor:
        with self._database.reading() as connection:
            return AskedFor(
                versions=tasks.versions_asked_for(connection), keys=tasks.keys_on(connection, target)
            )

    # --- workers and targets -----------------------------------------------------------------------

    def announce(self, worker: Worker, target: HardwareTarget) -> None:
        with self._database.writing() as connection:
            tasks.announce(connection, worker, target)

    def leave(self, worker: str) -> None:
        with self._database.writing() as connection:
            tasks.leave(connection, worker)

    def workers(self) -> Sequence[Worker]:
        with self._database.reading() as connection:
            return tasks.workers(connection, self._lease)

    def put_target(self, target: HardwareTarget) -> None:
        with self._database.writing() as connection:
            tasks.put_target(connection, target)

    def targets(self) -> Sequence[HardwareTarget]:
        with self._database.reading() as connection:
            return tasks.targets(connection)

    # --- figures and policies ----------------------------------------------------------------------

    def figures(self, model: str, number: int | None = None) -> Sequence[VariantFigure]:
        with self._database.reading() as connection:
            return figures.of_model(connection, model, number)

    def figures_on(self, target: str, state: str, *, limit: int | None = None) -> Sequence[VariantFigure]:
        with self._database.reading() as connection:
            return figures.on_target(connection, target, state, limit)

    def put_figures(self, changed: Sequence[VariantFigure]) -> None:
        with self._changing() as connection:
            for figure in changed:
                figures.put(connection, figure)

    def put_policy(self, policy: Policy, actor: str) -> None:
        with self._changing() as connection:
            figures.put_policy(connection, policy)
            events.record(connection, actor, "policy.stored", policy.name)

    def policies(self) -> Sequence[Policy]:
        with self._database.reading() as connection:
            return figures.policies(connection)

    # --- webhooks ----------------------------------------------------------------------------------

    def add_webhook(self, webhook: Webhook, actor: str) -> Webhook:
        check_webhook(webhook)
        with self._changing() as connection:
            stored = replace(webhook, id=webhooks.put(connection, webhook))
            events.record(connection, actor, "webhook.added", f"webhook:{stored.id}", url=webhook.url)
        return stored

    def remove_webhook(self, identifier: int, actor: str) -> None:
        with self._changing() as connection:
            webhooks.remove(connection, identifier)
            events.record(connection, actor, "webhook.removed", f"webhook:{identifier}")

    def webhooks(self) -> Sequence[Webhook]:
        with self._database.reading() as connection:
            return webhooks.find(connection)

    def deliveries(self) -> dict[tuple[int, str], int]:
        with self._database.reading() as connection:
            return webhooks.count(connection)

    def claim_delivery(self, hooks: Collection[str] = ()) -> Delivery | None:
        with self._database.writing() as connection:
            return webhooks.claim(connection, self._lease, hooks)

    def finish_delivery(self, delivery: Delivery, why: str) -> bool:
        with self._database.writing() as connection:
            return webhooks.finish(connection, delivery, why)

    # --- events ------------------------------------------------------------------------------------

    def events(
        self, *, subject: str | None = None, newest: int = 50, before: int | None = None
    ) -> Sequence[RegistryEvent]:
        with self._database.reading() as connection:
            return events.read(connection, subject=subject, newest=newest, before=before)

    def first_broken_event(self) -> int | None:
        with self._database.reading() as connection:
            return first_broken(events.read_all(connection))


def _record_task(connection: Connection, actor: str, task: Task) -> None:
    """Record that a task has a new state."""
    events.record(
        connection,
        actor,
        f"task.{task.state}",
        f"{task.model}/{task.number}",
        task=task.id,
        what=task.label,
        result=task.result,
        why=task.why,
    )
