"""Models, their versions and aliases."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, delete, func, or_, select, update

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.version_name import (
    LARGEST_NUMBER,
    SOURCE,
    VersionName,
    check_alias,
    framework_name,
    task_name,
)
from modeldyno.registry.interface import ModelEntry
from modeldyno.registry.records.records import (
    UNFINISHED,
    USABLE,
    AliasMove,
    TaskKind,
    Variant,
    VariantState,
    Version,
    is_run_by,
)
from modeldyno.registry.store import events
from modeldyno.stores import rows
from modeldyno.stores.rows import decode, insert, storable_text
from modeldyno.stores.schema import ALIAS_MOVES, ALIASES, FIGURES, MODELS, STUDIES, TASKS, VARIANTS, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, Select

    from modeldyno.registry.records.records import Task

CHANGEABLE = frozenset({"task", "dataset", "metrics", "labels", "policy", "evaluation", "measured_with"})
"""What may change of a version: what its maker says of it."""
_SUGGESTED = 1000
_NO_VERSIONS = {"newest": 0, "versions": 0, "latest": 0, "framework": "", "task": ""}


def add(connection: Connection, draft: Version, *, number: int | None = None) -> tuple[Version, bool]:
    """Add a version, or return the one of this model with the same digest.

    Args:
        connection: of a write transaction.
        draft: the version; its number does not count. A task or dataset that it names must be the same.
        number: the number to give it; None for the next one.

    Returns:
        The version, and whether it is new.

    Raises:
        RequestError: another version has this number, or the draft cannot be stored.
    """
    _check(draft, number)
    at = events.utc_now()
    row = {"name": draft.model, "created": at, "touched": at, **_NO_VERSIONS}
    connection.execute(insert(connection, MODELS).values(row).on_conflict_do_nothing())
    alike = select(VERSIONS.c.document).where(
        VERSIONS.c.model == draft.model, VERSIONS.c.digest == draft.digest
    )
    for column, value in ((VERSIONS.c.task, draft.task), (VERSIONS.c.dataset, draft.dataset)):
        if value:
            alike = alike.where(column == storable_text(value))
    same = connection.scalars(alike.order_by(VERSIONS.c.number).limit(1)).first()
    if same is not None:
        version = decode(same, Version)
        if number not in {None, version.number}:
            raise RequestError(f"This model is registered already, as {version.name}; leave out the version.")
        return version, False
    newest = connection.scalar(select(MODELS.c.newest).where(MODELS.c.name == draft.model)) or 0
    chosen = newest + 1 if number is None else number
    taken = connection.scalar(
        select(VERSIONS.c.digest).where(VERSIONS.c.model == draft.model, VERSIONS.c.number == chosen)
    )
    if taken is not None:
        raise RequestError(
            f"{draft.model}/{chosen} is another model ({str(taken)[:19]}); leave out the version for "
            f"the next free one, {newest + 1}."
        )
    version = replace(draft, number=chosen)
    connection.execute(insert(connection, VERSIONS).values(rows.record_row(VERSIONS, version)))
    connection.execute(
        update(MODELS)
        .where(MODELS.c.name == draft.model)
        .values(newest=max(newest, chosen), versions=MODELS.c.versions + 1, touched=at)
    )
    _describe_latest(connection, draft.model)
    events.record(
        connection,
        draft.creator,
        "version.added",
        version.name,
        digest=version.digest,
        reference=draft.reference,
    )
    return version, True


def resolve(connection: Connection, name: VersionName) -> Version:
    """Return the version that is named.

    Raises:
        UnknownName: there is no such model or alias.
        RequestError: the model has no such version, or none.
    """
    number = name.number
    if name.alias is not None:
        by_alias = select(ALIASES.c.number).where(
            ALIASES.c.model == name.model, ALIASES.c.alias == name.alias
        )
        number = connection.scalar(by_alias)
        if number is None:
            check_model(connection, name.model)
            names = connection.scalars(select(ALIASES.c.alias).where(ALIASES.c.model == name.model)).all()
            raise UnknownName.among(f"alias of {name.model}", name.alias, names)
    query = select(VERSIONS.c.document).where(VERSIONS.c.model == name.model)
    if number is None:
        query = query.order_by(VERSIONS.c.number.desc()).limit(1)
    else:
        query = query.where(VERSIONS.c.number == number)
    document = connection.scalar(query)
    if document is None:
        check_model(connection, name.model)
        raise RequestError(
            f"{name.model} has no version {number}; modeldyno registry show {name.model} lists those it has."
            if number is not None
            else f"{name.model} has no version any more; register one with modeldyno registry add."
        )
    return decode(document, Version)


def exists(connection: Connection, model: str, number: int) -> bool:
    """Return whether a model has a version of this number."""
    query = select(VERSIONS.c.number).where(VERSIONS.c.model == model, VERSIONS.c.number == number)
    return connection.scalar(query) is not None


def check_model(connection: Connection, name: str) -> None:
    """Raise UnknownName unless there is a model of this name."""
    if connection.scalar(select(MODELS.c.name).where(MODELS.c.name == name)) is None:
        names = connection.scalars(select(MODELS.c.name).limit(_SUGGESTED)).all()
        listed = "" if len(names) <= 10 else "modeldyno registry list shows all."
        raise UnknownName.among("registered model", name, names, listed=listed)


def find_models(
    connection: Connection,
    *,
    text: str = "",
    framework: str = "",
    task: str = "",
    limit: int = 50,
    before: str = "",
) -> Sequence[ModelEntry]:
    """List models, the last touched first, with their newest version."""
    query = (
        select(MODELS.c.name, MODELS.c.versions, MODELS.c.touched, VERSIONS.c.document)
        .join(VERSIONS, (VERSIONS.c.model == MODELS.c.name) & (VERSIONS.c.number == MODELS.c.latest))
        .order_by(MODELS.c.touched.desc(), MODELS.c.name)
        .limit(limit)
    )
    if text:
        query = query.where(func.lower(MODELS.c.name).contains(text.lower(), autoescape=True))
    if framework:
        query = query.where(MODELS.c.framework == storable_text(framework_name(framework)))
    if task:
        query = query.where(MODELS.c.task == storable_text(task_name(task)))
    if before:
        # Of several models that were touched in the same millisecond, none is left out between two pages.
        touched, _, name = before.partition("/")
        later = MODELS.c.touched < touched
        query = query.where(
            or_(later, and_(MODELS.c.touched == touched, MODELS.c.name > name)) if name else later
        )
    listed = connection.execute(query).all()
    aliases = _aliases_of(connection, [row.name for row in listed])
    return [
        ModelEntry(
            name=row.name,
            versions=row.versions,
            touched=row.touched,
            newest=decode(row.document, Version),
            aliases=aliases.get(row.name, {}),
        )
        for row in listed
    ]


def find_versions(
    connection: Connection, model: str, *, limit: int = 50, below: int | None = None
) -> Sequence[Version]:
    """List the versions of a model, the newest first."""
    check_model(connection, model)
    query = select(VERSIONS.c.document).where(VERSIONS.c.model == model).order_by(VERSIONS.c.number.desc())
    if below is not None:
        query = query.where(VERSIONS.c.number < below)
    return [decode(document, Version) for document in connection.scalars(query.limit(limit))]


def find_versions_by(
    connection: Connection,
    model: str = "",
    *,
    framework: str = "",
    task: str = "",
    number: int | None = None,
    parent: str = "",
    engine: str = "",
    limit: int = 50,
) -> Sequence[Version]:
    """List the versions that hold every condition: of a model, or the newest of each model."""
    query = select(VERSIONS.c.document)
    if model:
        query = query.where(VERSIONS.c.model == storable_text(model)).order_by(VERSIONS.c.number.desc())
    else:
        newest = (MODELS.c.name == VERSIONS.c.model) & (MODELS.c.latest == VERSIONS.c.number)
        query = query.join(MODELS, newest).order_by(MODELS.c.touched.desc(), MODELS.c.name)
    for column, value in (
        (VERSIONS.c.framework, framework_name(framework)),
        (VERSIONS.c.task, task_name(task)),
        (VERSIONS.c.parent, parent),
    ):
        if value:
            query = query.where(column == storable_text(value))
    if number is not None:
        query = query.where(VERSIONS.c.number == number)
    if engine:
        return list(islice(_run_by(connection, query, engine), max(0, limit)))
    return [decode(document, Version) for document in connection.scalars(query.limit(limit))]


_AT_ONCE = 200
"""Rows that a long answer is read in."""


def _run_by(connection: Connection, versions: Select[Any], engine: str) -> Iterator[Version]:
    """Yield the versions of a query that an engine runs, with their variants in the same query."""
    of_version = (VARIANTS.c.model == VERSIONS.c.model) & (VARIANTS.c.number == VERSIONS.c.number)
    query = versions.join(VARIANTS, of_version).add_columns(VARIANTS.c.document.label("variant"))
    query = query.where(VARIANTS.c.state.in_(sorted(USABLE)))
    with connection.execute(query, execution_options={"yield_per": _AT_ONCE}) as answers:
        for document, rows_of_version in groupby(answers, key=lambda row: row.document):
            version = decode(document, Version)
            if is_run_by(version, (decode(row.variant, Variant) for row in rows_of_version), engine):
                yield version


def with_digest(connection: Connection, digest: str) -> Sequence[Version]:
    """Return the versions of this digest, or that have a variant of it."""
    by_variant = select(VARIANTS.c.model, VARIANTS.c.number).where(VARIANTS.c.digest == digest)
    pairs = {(row.model, row.number) for row in connection.execute(by_variant)}
    own = select(VERSIONS.c.model, VERSIONS.c.number).where(VERSIONS.c.digest == digest)
    pairs |= {(row.model, row.number) for row in connection.execute(own)}
    names = [VersionName(model=model, number=number) for model, number in sorted(pairs)]
    return [resolve(connection, name) for name in names]


def with_policy(connection: Connection, name: str) -> Sequence[Version]:
    """Return the versions that have a policy."""
    documents = connection.scalars(select(VERSIONS.c.document).order_by(VERSIONS.c.model, VERSIONS.c.number))
    return [version for version in (decode(each, Version) for each in documents) if version.policy == name]


def rewrite(connection: Connection, /, version: Version, actor: str, **changes: Any) -> Version:
    """Change what its maker says of a version: task, dataset, metrics, labels, policy.

    Raises:
        RequestError: it has been removed, or what shall change is its content.
    """
    if fixed := sorted(changes.keys() - CHANGEABLE):
        raise RequestError(
            f"The {', '.join(fixed)} of a version cannot be changed; register another version."
        )
    # Others may have changed it since the caller read it.
    changed = replace(resolve(connection, VersionName(model=version.model, number=version.number)), **changes)
    _check(changed, None)
    condition = (VERSIONS.c.model == version.model) & (VERSIONS.c.number == version.number)
    connection.execute(update(VERSIONS).where(condition).values(rows.record_row(VERSIONS, changed)))
    _describe_latest(connection, version.model)
    events.record(connection, actor, "version.changed", version.name, **changes)
    return changed


def remove(connection: Connection, version: Version, actor: str) -> None:
    """Remove a version with its variants, tasks and figures; version numbers are never reused.

    Raises:
        RequestError: it has been removed already.
    """
    resolve(connection, VersionName(model=version.model, number=version.number))
    for table in (TASKS, FIGURES, VARIANTS, VERSIONS):
        condition = (table.c.model == version.model) & (table.c.number == version.number)
        connection.execute(delete(table).where(condition))
    pointing = (ALIASES.c.model == version.model) & (ALIASES.c.number == version.number)
    for alias in connection.scalars(select(ALIASES.c.alias).where(pointing)).all():
        move_alias(connection, version.model, alias, None, actor)
    events.record(connection, actor, "version.removed", version.name)
    connection.execute(
        update(MODELS).where(MODELS.c.name == version.model).values(versions=MODELS.c.versions - 1)
    )
    _describe_latest(connection, version.model)


def _describe_latest(connection: Connection, model: str) -> None:
    """Write into the row of a model which version is its latest; a removed one leaves its number."""
    columns = (VERSIONS.c.number.label("latest"), VERSIONS.c.framework, VERSIONS.c.task)
    latest = select(*columns).where(VERSIONS.c.model == model).order_by(VERSIONS.c.number.desc()).limit(1)
    row = connection.execute(latest).mappings().first() or {"latest": 0, "framework": "", "task": ""}
    connection.execute(update(MODELS).where(MODELS.c.name == model).values(**row))


def put_variant(connection: Connection, variant: Variant, actor: str) -> None:
    """Store a variant, or its new state.

    Raises:
        RequestError: its version has been removed.
    """
    resolve(connection, VersionName(model=variant.model, number=variant.number))
    identifier = f"{variant.model}/{variant.number}/{variant.recipe}"
    row = rows.record_row(VARIANTS, variant, id=identifier)
    rows.replace(connection, VARIANTS, row, key=["model", "number", "recipe"])
    events.record(connection, actor, f"variant.{variant.state}", identifier, why=variant.why)


def end_conversion(connection: Connection, task: Task, why: str, actor: str) -> None:
    """Let the variant that a task was to make have failed, unless it has been made."""
    if task.kind is not TaskKind.CONVERT:
        return
    query = select(VARIANTS.c.document).where(
        VARIANTS.c.model == task.model, VARIANTS.c.number == task.number, VARIANTS.c.recipe == task.recipe
    )
    stored = connection.scalar(query)
    variant = None if stored is None else decode(stored, Variant)
    if variant is not None and variant.state in UNFINISHED:
        put_variant(connection, replace(variant, state=VariantState.FAILED, why=why), actor)


def variants(connection: Connection, version: Version) -> Sequence[Variant]:
    """Return the variants of a version, the source first."""
    query = (
        select(VARIANTS.c.document)
        .where(VARIANTS.c.model == version.model, VARIANTS.c.number == version.number)
        .order_by(VARIANTS.c.recipe)
    )
    decoded = [decode(document, Variant) for document in connection.scalars(query)]
    return sorted(decoded, key=lambda variant: variant.recipe != SOURCE)


# --- aliases ---------------------------------------------------------------------------------------


def move_alias(connection: Connection, model: str, alias: str, number: int | None, actor: str) -> AliasMove:
    """Let an alias name a version from now on; None removes it.

    Raises:
        UnknownName: there is no such model.
        RequestError: the alias does not exist, and would be removed; or the version does not exist.
    """
    check_model(connection, model)
    if number is not None:
        check_alias(alias)
        resolve(connection, VersionName(model=model, number=number))
    here = (ALIASES.c.model == model) & (ALIASES.c.alias == alias)
    before = connection.scalar(select(ALIASES.c.number).where(here))
    if number is None and before is None:
        raise RequestError(f"{model} has no alias '{alias}'.")
    move = AliasMove(alias=alias, before=before, after=number, at=events.utc_now(), actor=actor)
    if before == number:
        return move
    if number is None:
        connection.execute(delete(ALIASES).where(here))
    else:
        named = {"model": model, "alias": alias, "number": number}
        rows.replace(connection, ALIASES, named, key=["model", "alias"])
    row = {"model": model, "alias": alias, "before": before, "after": number, "at": move.at, "actor": actor}
    connection.execute(insert(connection, ALIAS_MOVES).values(row))
    events.record(connection, actor, "alias.moved", model, alias=alias, before=before, after=number)
    return move


def named_before(connection: Connection, model: str, alias: str) -> int:
    """Return the version that an alias named before its last move.

    Raises:
        RequestError: it named nothing, or that version has been removed.
    """
    moves = alias_moves(connection, model, alias)
    if not moves or moves[-1].before is None:
        raise RequestError(f"{model}@{alias} named nothing before; give the version that it shall name.")
    return moves[-1].before


def alias_moves(connection: Connection, model: str, alias: str | None = None) -> Sequence[AliasMove]:
    """Return the moves of a model's aliases, or of one, the oldest first."""
    query = select(ALIAS_MOVES).where(ALIAS_MOVES.c.model == model).order_by(ALIAS_MOVES.c.id)
    if alias is not None:
        query = query.where(ALIAS_MOVES.c.alias == alias)
    return [
        AliasMove(alias=row.alias, before=row.before, after=row.after, at=row.at, actor=row.actor)
        for row in connection.execute(query)
    ]


def aliases(connection: Connection, model: str) -> dict[str, int]:
    """Return the aliases of a model, and the version that each names."""
    return _aliases_of(connection, [model]).get(model, {})


def _aliases_of(connection: Connection, models: Sequence[str]) -> dict[str, dict[str, int]]:
    by_model: dict[str, dict[str, int]] = {}
    query = select(ALIASES).where(ALIASES.c.model.in_(models)).order_by(ALIASES.c.alias)
    for row in connection.execute(query):
        by_model.setdefault(row.model, {})[row.alias] = row.number
    return by_model


def study_ids(connection: Connection, digests: Sequence[str]) -> Sequence[str]:
    """Return the ids of the studies of these digests, the newest first."""
    query = select(STUDIES.c.id).where(STUDIES.c.digest.in_(digests)).order_by(STUDIES.c.created.desc())
    return list(connection.scalars(query))


def _check(version: Version, number: int | None) -> None:
    """Raise RequestError if a version cannot be stored under a number."""
    if number is not None and not 1 <= number <= LARGEST_NUMBER:
        raise RequestError(f"A version has a number from 1 to {LARGEST_NUMBER:,}, not {number:,}.")
    for name, value in version.metrics.items():
        if not math.isfinite(value):
            raise RequestError(f"The metric '{name}' is {value}; give a finite number.")
