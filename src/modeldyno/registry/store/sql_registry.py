"""The registry of a store: each method is one transaction."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import select

from modeldyno.base import codec
from modeldyno.base.kinds import kind_of
from modeldyno.registry.interface import RequestedMeasurements
from modeldyno.registry.records.records import TaskState, first_broken
from modeldyno.registry.records.webhooks import check_webhook
from modeldyno.registry.store import attached as attached_rows
from modeldyno.registry.store import events as event_rows
from modeldyno.registry.store import figures as figure_rows
from modeldyno.registry.store import tasks as task_rows
from modeldyno.registry.store import versions as version_rows
from modeldyno.registry.store import webhooks as webhook_rows
from modeldyno.stores import results, series
from modeldyno.stores.database import in_transaction
from modeldyno.stores.rows import verified_document
from modeldyno.stores.schema import RESULTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from sqlalchemy import Connection

    from modeldyno.base.result.result import Result
    from modeldyno.registry.interface import Outcome
    from modeldyno.registry.records.policy import Policy
    from modeldyno.registry.records.records import AliasMove, Task, TaskKind, Variant, VariantFigure, Worker
    from modeldyno.registry.records.webhooks import Delivery, Webhook
    from modeldyno.stores.database import Database, LazyDatabase


class SqlRegistry:
    """Registered models in the database of a store; see `modeldyno.registry.interface.Registry`."""

    def __init__(
        self, database: Database | LazyDatabase, weights: Path, *, lease: float = task_rows.LEASE
    ) -> None:
        """Use a database; `lease` is the number of seconds after which a silent worker is lost."""
        self._database = database
        self._lease = lease
        self.weights = weights

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._database.reading()

    def _writing(self) -> AbstractContextManager[Connection]:
        return self._database.writing()

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        """Yield a write transaction that may record events."""
        with self._database.writing() as connection:
            event_rows.take_turn(connection)
            yield connection

    # --- versions ----------------------------------------------------------------------------------

    add_version = in_transaction(_changing, version_rows.add)
    version = in_transaction(_reading, version_rows.resolve)
    models = in_transaction(_reading, version_rows.find_models)
    versions = in_transaction(_reading, version_rows.find_versions)
    find_versions = in_transaction(_reading, version_rows.find_versions_by)
    with_digest = in_transaction(_reading, version_rows.with_digest)
    change_version = in_transaction(_changing, version_rows.rewrite)
    remove_version = in_transaction(_changing, version_rows.remove)

    def put_variant(self, variant: Variant, actor: str, *, task: Task | None = None) -> bool:
        with self._changing() as connection:
            if task is not None and not task_rows.holds(connection, task):
                return False
            version_rows.put_variant(connection, variant, actor)
        return True

    variants = in_transaction(_reading, version_rows.variants)

    # --- aliases -----------------------------------------------------------------------------------

    move_alias = in_transaction(_changing, version_rows.move_alias)

    def roll_back(self, model: str, alias: str, actor: str) -> AliasMove:
        with self._changing() as connection:
            before = version_rows.named_before(connection, model, alias)
            return version_rows.move_alias(connection, model, alias, before, actor)

    aliases = in_transaction(_reading, version_rows.aliases)
    alias_moves = in_transaction(_reading, version_rows.alias_moves)

    # --- what was measured -------------------------------------------------------------------------

    results_of = in_transaction(_reading, results.ids_of)
    studies_of = in_transaction(_reading, version_rows.study_ids)

    def result(self, identifier: str) -> Result | None:
        query = select(RESULTS.c.document, RESULTS.c.checksum).where(RESULTS.c.id == identifier)
        with self._reading() as connection:
            row = connection.execute(query).first()
        if row is None:
            return None
        origin = f"Result {identifier} in the store {self._database.place}"
        return codec.decode(verified_document(row[0], row[1], origin, results.ADVICE), origin=origin)

    numbers = in_transaction(_reading, results.kept_numbers_of)
    attach = in_transaction(_changing, attached_rows.attach)
    detach = in_transaction(_changing, attached_rows.detach)
    attached = in_transaction(_reading, attached_rows.attached)
    measurements = in_transaction(_reading, attached_rows.measurements)

    # --- tasks -------------------------------------------------------------------------------------

    enqueue = in_transaction(_changing, task_rows.enqueue)

    def claim(
        self, worker: Worker, *, leave: Sequence[int] = (), kinds: Collection[TaskKind] = ()
    ) -> Task | None:
        with self._writing() as connection:
            for lost in task_rows.fail_lost(connection, self._lease):
                version_rows.end_conversion(connection, lost, lost.why, lost.worker)
                _record_task(connection, lost.worker, lost)
            return task_rows.claim(connection, worker, self._lease, leave, kinds)

    def renew(self, task: Task) -> bool:
        with self._writing() as connection:
            return task_rows.renew(connection, task, self._lease)

    def finish(self, task: Task, outcome: Outcome, actor: str) -> bool:
        if outcome.state is TaskState.QUEUED:
            with self._writing() as connection:
                return task_rows.hand_back(connection, task, outcome.why)
        result = outcome.result
        with self._changing() as connection:
            document = outcome.comparison or result
            identifier = "" if document is None else document.id
            held = (
                task_rows.defer(connection, task, outcome.again_in, outcome.why, result=identifier)
                if outcome.state is TaskState.DEFERRED
                else task_rows.finish(connection, task, outcome.state, why=outcome.why, result=identifier)
            )
            if not held:
                return task_rows.was_ended(connection, task, outcome.state, identifier)
            if result is not None:
                results.put(connection, result, outcome.headline)
            if outcome.comparison is not None:
                for each in outcome.comparison.results:
                    results.put(connection, each, kind_of(each).brief(each))
                series.put(connection, outcome.comparison, headline=outcome.headline)
            if outcome.figure is not None:
                figure_rows.put(connection, outcome.figure)
            if outcome.variant is not None:
                version_rows.put_variant(connection, outcome.variant, actor)
            if outcome.conversion is not None:
                headline = kind_of(outcome.conversion).brief(outcome.conversion)
                series.put(connection, outcome.conversion, headline=headline)
            task_rows.enqueue(connection, outcome.next)
            ended = replace(task, state=outcome.state, why=outcome.why, result=identifier)
            _record_task(connection, actor, ended)
            if outcome.confirmation is not None:
                event_rows.record(
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
            changed = task_rows.change(connection, ids, state)
            for task in changed:
                if state is TaskState.CANCELLED:
                    version_rows.end_conversion(connection, task, "its conversion was cancelled", actor)
                _record_task(connection, actor, task)
            return len(changed)

    tasks = in_transaction(_reading, task_rows.find)
    count_tasks = in_transaction(_reading, task_rows.count)
    targets_waited_for = in_transaction(_reading, task_rows.targets_waited_for)

    def asked_for(self, target: str) -> RequestedMeasurements:
        with self._reading() as connection:
            return RequestedMeasurements(
                versions=task_rows.versions_asked_for(connection), keys=task_rows.keys_on(connection, target)
            )

    # --- workers and targets -----------------------------------------------------------------------

    announce = in_transaction(_writing, task_rows.announce)
    leave = in_transaction(_writing, task_rows.leave)

    def workers(self) -> Sequence[Worker]:
        with self._reading() as connection:
            return task_rows.workers(connection, self._lease)

    put_target = in_transaction(_writing, task_rows.put_target)
    targets = in_transaction(_reading, task_rows.targets)

    # --- figures and policies ----------------------------------------------------------------------

    figures = in_transaction(_reading, figure_rows.of_model)
    figures_of = in_transaction(_reading, figure_rows.of_models)
    figures_on = in_transaction(_reading, figure_rows.on_target)

    def put_figures(self, changed: Sequence[VariantFigure]) -> None:
        with self._changing() as connection:
            for figure in changed:
                figure_rows.put(connection, figure)

    def put_policy(self, policy: Policy, actor: str) -> None:
        with self._changing() as connection:
            figure_rows.put_policy(connection, policy)
            event_rows.record(connection, actor, "policy.stored", policy.name)

    def remove_policy(self, name: str, actor: str) -> None:
        with self._changing() as connection:
            figure_rows.remove_policy(connection, name)
            event_rows.record(connection, actor, "policy.removed", name)

    policies = in_transaction(_reading, figure_rows.policies)

    # --- webhooks ----------------------------------------------------------------------------------

    def add_webhook(self, webhook: Webhook, actor: str) -> Webhook:
        check_webhook(webhook)
        with self._changing() as connection:
            stored = replace(webhook, id=webhook_rows.put(connection, webhook))
            event_rows.record(connection, actor, "webhook.added", f"webhook:{stored.id}", url=webhook.shown)
        return stored

    def remove_webhook(self, identifier: int, actor: str) -> None:
        with self._changing() as connection:
            webhook_rows.remove(connection, identifier)
            event_rows.record(connection, actor, "webhook.removed", f"webhook:{identifier}")

    webhooks = in_transaction(_reading, webhook_rows.find)
    deliveries = in_transaction(_reading, webhook_rows.count)

    def claim_delivery(self, hooks: Collection[str] = ()) -> Delivery | None:
        with self._writing() as connection:
            return webhook_rows.claim(connection, self._lease, hooks)

    finish_delivery = in_transaction(_writing, webhook_rows.finish)

    # --- events ------------------------------------------------------------------------------------

    events = in_transaction(_reading, event_rows.read)

    def first_broken_event(self) -> int | None:
        with self._reading() as connection:
            return first_broken(event_rows.read_all(connection))


def _record_task(connection: Connection, actor: str, task: Task) -> None:
    """Record that a task has a new state."""
    event_rows.record(
        connection,
        actor,
        f"task.{task.state}",
        f"{task.model}/{task.number}",
        task=task.id,
        what=task.label,
        result=task.result,
        why=task.why,
    )
