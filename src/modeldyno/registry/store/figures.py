"""Figures and policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, select

from modeldyno.base.errors import RequestError, StoreError, UnknownName, short_reason
from modeldyno.registry.records.policy import DEFAULT, Policy, UnreadablePolicy
from modeldyno.registry.records.records import VariantFigure
from modeldyno.registry.store import versions
from modeldyno.stores.rows import decode, insert, record_row, replace
from modeldyno.stores.schema import FIGURES, POLICIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection


def put(connection: Connection, figure: VariantFigure) -> None:
    """Store a figure, unless its version has been removed, or the one of its key was taken later."""
    if not versions.exists(connection, figure.model, figure.number):
        return
    row = record_row(FIGURES, figure)
    # Who marks a figure as stale may have read it before it was measured again.
    upsert = insert(connection, FIGURES).values(row)
    connection.execute(
        upsert.on_conflict_do_update(
            index_elements=["key"], set_=row, where=FIGURES.c.taken <= upsert.excluded.taken
        )
    )


def of_model(connection: Connection, model: str, number: int | None = None) -> Sequence[VariantFigure]:
    """Return the figures of a model, or of one of its versions."""
    query = select(FIGURES.c.document).where(FIGURES.c.model == model)
    if number is not None:
        query = query.where(FIGURES.c.number == number)
    query = query.order_by(FIGURES.c.number.desc(), FIGURES.c.recipe, FIGURES.c.taken)
    return [decode(document, VariantFigure) for document in connection.scalars(query)]


def of_models(connection: Connection, models: Sequence[str]) -> dict[str, list[VariantFigure]]:
    """Return the figures of several models by name, those of each as `of_model` does."""
    query = select(FIGURES.c.model, FIGURES.c.document).where(FIGURES.c.model.in_(models))
    query = query.order_by(FIGURES.c.model, FIGURES.c.number.desc(), FIGURES.c.recipe, FIGURES.c.taken)
    by_model: dict[str, list[VariantFigure]] = {}
    for model, document in connection.execute(query):
        by_model.setdefault(model, []).append(decode(document, VariantFigure))
    return by_model


def on_target(
    connection: Connection, target: str, state: str, *, limit: int | None = None, oldest: bool = False
) -> Sequence[VariantFigure]:
    """Return the figures of a target in a state: all, or the newest or oldest ones."""
    query = select(FIGURES.c.document).where(FIGURES.c.target == target, FIGURES.c.state == state)
    if limit is not None:
        taken = FIGURES.c.taken
        query = query.order_by(taken if oldest else taken.desc(), FIGURES.c.key).limit(limit)
    return [decode(document, VariantFigure) for document in connection.scalars(query)]


def put_policy(connection: Connection, policy: Policy) -> None:
    """Store a policy; it replaces the one of its name."""
    replace(connection, POLICIES, record_row(POLICIES, policy), key=["name"])


def remove_policy(connection: Connection, name: str) -> None:
    """Remove a stored policy; versions that have the built-in one follow that again.

    Raises:
        RequestError: none of this name is stored, or versions have it.
    """
    if name not in (known := [policy.name for policy in policies(connection)]):
        if name == DEFAULT.name:
            raise RequestError(f"The policy {name} is the built-in one, and none is stored in its place.")
        raise UnknownName.among("stored policy", name, known)
    if name != DEFAULT.name and (users := versions.with_policy(connection, name)):
        raise RequestError(
            f"{users[0].name}{f' and {len(users) - 1:,} more' if users[1:] else ''} "
            f"{'have' if users[1:] else 'has'} the policy {name}; give another one first: "
            f"modeldyno registry update {users[0].name} --policy {DEFAULT.name}"
        )
    connection.execute(delete(POLICIES).where(POLICIES.c.name == name))


def policies(connection: Connection) -> Sequence[Policy | UnreadablePolicy]:
    """Return the stored policies by name; one that cannot be read is told as that."""
    rows = connection.execute(select(POLICIES.c.name, POLICIES.c.document).order_by(POLICIES.c.name))
    return [_policy(name, document) for name, document in rows]


def _policy(name: str, document: bytes) -> Policy | UnreadablePolicy:
    try:
        return decode(document, Policy)
    except StoreError as error:
        return UnreadablePolicy(name=name, why=short_reason(error.__cause__ or error))
