"""The queue: tasks are leased with a token that grows; a worker that comes back too late is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, delete, func, or_, select, text, update

from modeldyno.registry.records.records import OPEN, PLACES, HardwareTarget, Task, TaskKind, TaskState, Worker
from modeldyno.registry.store import events, versions
from modeldyno.stores import clock, rows
from modeldyno.stores.rows import decode, encode, insert, storable_text
from modeldyno.stores.schema import FIGURES, TARGETS, TASKS, WORKERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlalchemy import ColumnElement, Connection, Row, Select

LEASE = 60.0
"""Seconds until a worker that says nothing has lost its task."""
MOST_ATTEMPTS = 3
"""Leases that a task gets, if its workers are lost."""
LOST = f"its worker was lost {MOST_ATTEMPTS} times"
"""Why a task has failed whose leases ran out."""
_OPEN = [str(state) for state in OPEN]
_FORGOTTEN = 86400.0
"""Seconds after which a silent worker's row is deleted."""


def enqueue(connection: Connection, tasks: Iterable[Task]) -> int:
    """Queue tasks, except those whose key is queued already; return the number of new ones.

    What was to be done with a version that has been removed meanwhile is left out.
    """
    there: dict[tuple[str, int], bool] = {}
    added = 0
    for task in tasks:
        version = task.model, task.number
        if version not in there:
            there[version] = versions.exists(connection, *version)
        if not there[version]:
            continue
        row = {
            "key": task.key,
            "kind": task.kind,
            "model": task.model,
            "number": task.number,
            "recipe": task.recipe,
            "target": task.target,
            "priority": task.priority,
            "state": TaskState.QUEUED,
            "attempts": 0,
            "deferrals": 0,
            "token": 0,
            "worker": "",
            "until": 0.0,
            "boot": "",
            "why": "",
            "result": "",
            "created": events.utc_now(),
            "document": encode(task),
        }
        statement = insert(connection, TASKS).values(row)
        once = statement.on_conflict_do_nothing(
            index_elements=["key"], index_where=text("state IN ('queued', 'leased', 'deferred')")
        )
        added += connection.scalar(once.returning(TASKS.c.id)) is not None
    return added


def fail_lost(connection: Connection, lease: float) -> Sequence[Task]:
    """End the tasks that were lost too often: they have failed. Return them."""
    now = clock.now(connection)
    too_often = and_(_lease_is_over(now, lease), TASKS.c.attempts >= MOST_ATTEMPTS)
    if connection.scalar(select(TASKS.c.id).where(too_often).limit(1)) is None:
        return ()
    events.take_turn(connection)
    # The token grows, so that a worker that is not dead but slow finishes in vain.
    failed = (
        update(TASKS)
        .where(too_often)
        .values(state=TaskState.FAILED, why=LOST, until=0.0, token=TASKS.c.token + 1)
        .returning(TASKS)
    )
    return [_task(row, now) for row in connection.execute(failed).all()]


def claim(
    connection: Connection,
    worker: Worker,
    lease: float,
    leave: Sequence[int] = (),
    kinds: Collection[TaskKind] = (),
) -> Task | None:
    """Lease the first task that this worker may do, for some seconds; None if there is none.

    Tasks whose ids are in `leave` are left alone, and those of other `kinds`, if any are given. One whose
    lease has run out is leased again, until it has been lost too often.
    """
    now = seconds, boot = clock.now(connection)
    due = and_(TASKS.c.state == TaskState.DEFERRED, clock.is_over(TASKS, seconds, boot))
    lost = and_(_lease_is_over(now, lease), TASKS.c.attempts < MOST_ATTEMPTS)
    claimable = or_(TASKS.c.state == TaskState.QUEUED, due, lost)
    ids = (
        select(TASKS.c.id)
        .where(
            claimable,
            TASKS.c.target.in_(["", worker.target]),
            TASKS.c.id.not_in(leave),
            TASKS.c.kind.in_(kinds or [*TaskKind]),
        )
        .order_by(TASKS.c.priority, TASKS.c.id)
    )
    values = {"state": TaskState.LEASED, "worker": worker.id, "why": ""}
    leased = clock.lease_first(connection, TASKS, ids, until=seconds + lease, boot=boot, **values)
    return None if leased is None else _task(leased, now)


def _lease_is_over(now: tuple[float, str], lease: float) -> ColumnElement[bool]:
    """Return the condition that a task is leased no more.

    One that ends far later than a lease that is taken now was taken before the clock of a server was set
    back: it is over too, or nobody would take the task of a lost worker for as long as the clock was set
    back. A transaction that began later may have taken one that ends a little later.
    """
    over = or_(clock.is_over(TASKS, *now), TASKS.c.until > now[0] + 2 * lease)
    return and_(TASKS.c.state == TaskState.LEASED, over)


def renew(connection: Connection, task: Task, lease: float) -> bool:
    """Prolong a lease; return False if another worker has the task by now, or nobody may do it any more."""
    seconds, boot = clock.now(connection)
    renewed = update(TASKS).where(_held(task)).values(until=seconds + lease, boot=boot)
    return connection.execute(renewed).rowcount == 1


def finish(connection: Connection, task: Task, state: TaskState, *, why: str = "", result: str = "") -> bool:
    """End a task; return False, and change nothing, if its lease was lost."""
    ended = (
        update(TASKS).where(_held(task)).values(state=state, why=storable_text(why), result=result, until=0.0)
    )
    return connection.execute(ended).rowcount == 1


def was_ended(connection: Connection, task: Task, state: TaskState, result: str) -> bool:
    """Return whether this lease has ended a task so: a commit whose answer was lost is asked for again."""
    so = and_(TASKS.c.id == task.id, TASKS.c.token == task.token, TASKS.c.state == state)
    return connection.scalar(select(TASKS.c.id).where(so, TASKS.c.result == result)) is not None


def hand_back(connection: Connection, task: Task, why: str) -> bool:
    """Queue a leased task that was never begun, as if it had not been leased; False if the lease was lost."""
    queued = (
        update(TASKS)
        .where(_held(task))
        .values(
            state=TaskState.QUEUED,
            until=0.0,
            attempts=TASKS.c.attempts - 1,
            why=storable_text(why),
            worker="",
            token=TASKS.c.token + 1,
        )
    )
    return connection.execute(queued).rowcount == 1


def defer(connection: Connection, task: Task, seconds: float, why: str, *, result: str = "") -> bool:
    """Put a task off for some seconds; that is no lost worker. Return False if the lease was lost."""
    now, boot = clock.now(connection)
    deferred = (
        update(TASKS)
        .where(_held(task))
        .values(
            state=TaskState.DEFERRED,
            until=now + seconds,
            boot=boot,
            attempts=TASKS.c.attempts - 1,
            deferrals=TASKS.c.deferrals + 1,
            why=storable_text(why),
            result=result,
        )
    )
    return connection.execute(deferred).rowcount == 1


def change(connection: Connection, ids: Sequence[int], state: TaskState) -> Sequence[Task]:
    """Cancel open tasks, or queue those that ended, each key once, or were put off; return the changed."""
    chosen = TASKS.c.id.in_(ids)
    if state is TaskState.CANCELLED:
        condition = and_(chosen, TASKS.c.state.in_(_OPEN))
    else:
        open_keys = select(TASKS.c.key).where(TASKS.c.state.in_(_OPEN))
        ended = (chosen, TASKS.c.state.not_in(_OPEN), TASKS.c.key.not_in(open_keys))
        again = TASKS.c.id.in_(select(func.max(TASKS.c.id)).where(*ended).group_by(TASKS.c.key))
        condition = or_(again, and_(chosen, TASKS.c.state == TaskState.DEFERRED))
    # The token grows, so that a worker that still holds the task finishes in vain.
    changed = (
        update(TASKS)
        .where(condition)
        .values(state=state, token=TASKS.c.token + 1, attempts=0, deferrals=0, until=0.0, why="", worker="")
        .returning(TASKS)
    )
    now = clock.now(connection)
    return sorted((_task(row, now) for row in connection.execute(changed).all()), key=lambda task: task.id)


def find(
    connection: Connection,
    *,
    states: Sequence[TaskState] = (),
    model: str | None = None,
    number: int | None = None,
    limit: int = 1000,
    after: tuple[int, int, int] | None = None,
) -> Sequence[Task]:
    """List tasks: the open ones in the order in which they will be done, then the others, newest first.

    Each state is read in the order of the index, so that of a long queue only what is listed is read; `after`
    is the `place` of the last task of the page before.
    """
    now = clock.now(connection)
    listed: list[Row[Any]] = []
    for rank, group in enumerate(PLACES):
        chosen = [state for state in group if not states or state in states]
        if len(listed) < limit and chosen and (after is None or rank >= after[0]):
            query = select(TASKS)
            if model is not None:
                query = query.where(TASKS.c.model == model)
            if number is not None:
                query = query.where(TASKS.c.number == number)
            following = after if after is not None and after[0] == rank else None
            listed += _of_group(connection, query, chosen, following, limit - len(listed))
    return [_task(row, now) for row in listed]


def targets_waited_for(connection: Connection, soon: float) -> frozenset[str]:
    """Return the targets of the tasks that could be claimed now, or once some seconds have passed."""
    seconds, boot = clock.now(connection)
    ends = and_(
        TASKS.c.state.in_([TaskState.LEASED, TaskState.DEFERRED]), clock.is_over(TASKS, seconds + soon, boot)
    )
    query = select(TASKS.c.target).where(or_(TASKS.c.state == TaskState.QUEUED, ends)).distinct()
    return frozenset(connection.scalars(query))


def count(connection: Connection, states: Sequence[TaskState], most: int) -> int:
    """Return how many tasks are in these states, up to `most`."""
    matching = select(TASKS.c.id).where(TASKS.c.state.in_([str(state) for state in states])).limit(most)
    return connection.scalar(select(func.count()).select_from(matching.subquery())) or 0


def _of_group(
    connection: Connection,
    query: Select[Any],
    states: Sequence[TaskState],
    after: tuple[int, int, int] | None,
    limit: int,
) -> Sequence[Row[Any]]:
    priority, identifier = TASKS.c.priority, TASKS.c.id
    if not OPEN.issuperset(states):
        ended = query.where(TASKS.c.state.in_([str(state) for state in states]))
        if after is not None:
            ended = ended.where(identifier < after[2])
        return connection.execute(ended.order_by(identifier.desc()).limit(limit)).all()
    if after is not None:
        same = and_(priority == after[1], identifier > after[2])
        query = query.where(or_(priority > after[1], same))
    ordered = query.order_by(priority, identifier).limit(limit)
    open_rows = [row for state in states for row in connection.execute(ordered.where(TASKS.c.state == state))]
    return sorted(open_rows, key=lambda row: (row.priority, row.id))[:limit]


def _held(task: Task) -> ColumnElement[bool]:
    return and_(TASKS.c.id == task.id, TASKS.c.token == task.token, TASKS.c.state == TaskState.LEASED)


def holds(connection: Connection, task: Task) -> bool:
    """Return whether the worker that leased a task still has it, and keep it from others until the end."""
    return connection.scalar(select(TASKS.c.id).where(_held(task)).with_for_update()) is not None


def _task(row: Row[Any], now: tuple[float, str]) -> Task:
    columns = {name: getattr(row, name) for name in Task.__dataclass_fields__ if name in TASKS.c}
    words = {"kind": TaskKind(row.kind), "state": TaskState(row.state)}
    left = clock.seconds_left(row.until, row.boot, now)
    return replace(decode(row.document, Task), **columns | words, left=left)


def versions_asked_for(connection: Connection) -> frozenset[tuple[str, int]]:
    """Return the versions of which something was ever to be measured."""
    measured = TASKS.c.kind == TaskKind.PROFILE
    query = select(TASKS.c.model, TASKS.c.number).where(measured).distinct()
    return frozenset((model, number) for model, number in connection.execute(query))


def keys_on(connection: Connection, target: str) -> frozenset[str]:
    """Return the keys of the tasks, ended ones too, and of the figures of a target."""
    of_tasks = select(TASKS.c.key).where(TASKS.c.target == target)
    of_figures = select(FIGURES.c.key).where(FIGURES.c.target == target)
    return frozenset(connection.scalars(of_tasks.union(of_figures)))


# --- workers ---------------------------------------------------------------------------------------


def announce(connection: Connection, worker: Worker, target: HardwareTarget) -> None:
    """Write that a worker is there, and what it does; rows of long silent ones are deleted."""
    seconds, boot = clock.now(connection)
    put_target(connection, target)
    forgotten = or_(WORKERS.c.boot != boot, WORKERS.c.seen < seconds - _FORGOTTEN)
    connection.execute(delete(WORKERS).where(forgotten))
    rows.replace(connection, WORKERS, rows.record_row(WORKERS, worker, seen=seconds, boot=boot))


def leave(connection: Connection, worker: str) -> None:
    """Write that a worker has gone; the tasks that it holds are free at once."""
    connection.execute(delete(WORKERS).where(WORKERS.c.id == worker))
    connection.execute(
        update(TASKS).where(TASKS.c.worker == worker, TASKS.c.state == TaskState.LEASED).values(until=0.0)
    )


def workers(connection: Connection, lease: float) -> Sequence[Worker]:
    """Return the workers that were heard of within a lease."""
    seconds, boot = clock.now(connection)
    query = select(WORKERS).where(WORKERS.c.boot == boot, WORKERS.c.seen > seconds - lease)
    return [
        replace(decode(row.document, Worker), silent=max(0.0, seconds - row.seen))
        for row in connection.execute(query.order_by(WORKERS.c.id))
    ]


def targets(connection: Connection) -> Sequence[HardwareTarget]:
    """Return all targets."""
    documents = connection.scalars(select(TARGETS.c.document).order_by(TARGETS.c.name, TARGETS.c.id))
    return [decode(document, HardwareTarget) for document in documents]


def put_target(connection: Connection, target: HardwareTarget) -> None:
    """Store a target, unless it is there."""
    upsert = insert(connection, TARGETS).values(rows.record_row(TARGETS, target))
    connection.execute(upsert.on_conflict_do_nothing(index_elements=["id"]))
