"""Conditions on Results as SQL; they hold where `modeldyno.base.result.where.matches` does."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, collate, exists, func, not_, or_, select

from modeldyno.base.errors import RequestError
from modeldyno.base.result.where import (
    CONFIG,
    AllOf,
    AnyOf,
    Bounded,
    CreatedSince,
    HasFailed,
    Not,
    SettingCondition,
    TextCondition,
    bound_side,
    conditions,
    fold_case,
    kept_query,
    sign_of,
)
from modeldyno.stores.rows import storable_text
from modeldyno.stores.schema import FACTS, KEY_LENGTH, NUMBERS, RESULTS, TAGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, Connection

    from modeldyno.base.result.where import Condition, Expression

_COMPARE: dict[str, Callable[[Any, Any], ColumnElement[bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COLUMNS = {"name": RESULTS.c.name, "backend": RESULTS.c.backend, "tag": TAGS.c.tag}
_MOST_NAMED = 30
"""Settings that an error message lists."""


def clause(connection: Connection, expression: Expression) -> ColumnElement[bool]:
    """Return the condition on the rows of `RESULTS`; it is never null.

    Raises:
        RequestError: it names a setting, or a scope of a metric, that no stored Result has.
    """
    for condition in conditions(expression):
        _check_name(connection, condition)
    return _clause(connection, expression)


def _clause(connection: Connection, expression: Expression) -> ColumnElement[bool]:
    match expression:
        case AllOf(parts=parts):
            return and_(*(_clause(connection, part) for part in parts))
        case AnyOf(parts=parts):
            return or_(*(_clause(connection, part) for part in parts))
        case Not(inner=inner):
            return not_(_clause(connection, inner))
        case _:
            return _condition(connection, expression)


def _condition(connection: Connection, condition: Condition) -> ColumnElement[bool]:
    match condition:
        case Bounded(constraint=constraint):
            number = NUMBERS.c[bound_side(condition)]
            holds = _COMPARE[sign_of(constraint)](number, constraint.bound)
            query = NUMBERS.c.query == _key(str(kept_query(constraint)))
            return exists().where(NUMBERS.c.result_id == RESULTS.c.id, query, holds)
        case TextCondition(field=field, text=text, contained=contained):
            holds = _worded(connection, _COLUMNS[field], text, contained=contained)
            return exists().where(TAGS.c.result_id == RESULTS.c.id, holds) if field == "tag" else holds
        case SettingCondition(name=name):
            holds = _set(connection, condition)
            return exists().where(FACTS.c.result_id == RESULTS.c.id, FACTS.c.name == _key(name), holds)
        case CreatedSince(time=time):
            return RESULTS.c.created >= time
        case HasFailed():
            return RESULTS.c.failed


def _worded(
    connection: Connection, column: ColumnElement[str], text: str, *, contained: bool
) -> ColumnElement[bool]:
    text = storable_text(text)
    if not contained:
        return column == text
    # Both databases fold the letters A to Z alone, PostgreSQL only in the collation C.
    plain = collate(column, "C") if connection.dialect.name == "postgresql" else column
    return func.lower(plain).contains(fold_case(text), autoescape=True)


def _set(connection: Connection, condition: SettingCondition) -> ColumnElement[bool]:
    if condition.sign == "~":
        return _worded(connection, FACTS.c.text, condition.text, contained=True)
    as_number = _COMPARE[condition.sign](FACTS.c.number, condition.number)
    if condition.sign != "=":
        return as_number
    as_text = FACTS.c.text == storable_text(condition.text)
    return as_text if condition.number is None else or_(as_text, as_number)


def _check_name(connection: Connection, condition: Condition) -> None:
    """Refuse a setting or a scope that no Result has, as it is misspelt; in an empty store, none is."""
    match condition:
        case SettingCondition(name=name) if name.startswith(CONFIG):
            column, prefix = FACTS.c.name, CONFIG
        case Bounded(constraint=constraint) if constraint.query.scope:
            name = str(kept_query(constraint))
            column, prefix = NUMBERS.c.query, constraint.query.metric
        case _:
            return
    if connection.scalar(select(column).where(column == _key(name)).limit(1)) is not None:
        return
    names_query = select(column).where(column.startswith(prefix, autoescape=True)).distinct().order_by(column)
    names = [one.removeprefix(CONFIG) for one in connection.scalars(names_query.limit(_MOST_NAMED))]
    if names:
        raise RequestError(
            f"No stored result has {name.removeprefix(CONFIG)}; stored ones have {', '.join(names)}."
        )


def _key(name: str) -> str:
    return storable_text(name)[:KEY_LENGTH]
