"""The rows of Results: their documents, what lists show of them, and their files."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, delete, func, select

from modeldyno.base import codec
from modeldyno.base.result.where import KeptNumber, as_number, as_text, facts, kept_numbers
from modeldyno.stores.interface import Entry, StoredName
from modeldyno.stores.rows import document_columns, replace, storable_text, verified_document
from modeldyno.stores.schema import ARTIFACTS, FACTS, KEY_LENGTH, NUMBERS, RESULTS, TAGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Select

    from modeldyno.base.result.result import Result

LISTED = [column for column in RESULTS.c if column.name in Entry.__dataclass_fields__]
"""Columns of a list."""
NEWEST_FIRST = (RESULTS.c.created.desc(), RESULTS.c.id.desc())
HEAD = "head"
"""The fact that is a Result without what was measured, as JSON: no condition can name it."""
_AT_ONCE = 500
"""Results that one query names: databases limit its parameters."""
ADVICE = "The other results stay readable; remove this one with modeldyno rm."
"""What to do about a damaged document."""


def put(connection: Connection, result: Result, headline: str) -> set[str]:
    """Write the rows of a Result and its files; return the files that it no longer has."""
    row = _row(result, headline)
    files = [_artifact_row(result, n) for n in range(len(result.artifacts))]
    before = own_files(connection, row["id"])
    replace(connection, RESULTS, row)
    parts = ((ARTIFACTS, files), (NUMBERS, number_rows(result)), (FACTS, fact_rows(result)))
    for table, rows in parts:
        connection.execute(delete(table).where(table.c.result_id == row["id"]))
        if rows:
            connection.execute(table.insert(), rows)
    return before - {str(file["path"]) for file in files}


def _row(result: Result, headline: str) -> dict[str, Any]:
    name = storable_text(result.name)
    return {
        "id": storable_text(result.id),
        "created": storable_text(result.created),
        "name": name,
        "name_key": name[:KEY_LENGTH],
        "digest": result.model.digest if result.model else "",
        "backend": result.job.backend,
        "config": json.dumps(result.job.config),
        "headline": storable_text(headline),
        "failed": bool(result.failures),
        "schema": result.schema,
        **document_columns(codec.encode(result)),
    }


def number_rows(result: Result) -> list[dict[str, Any]]:
    """Return the rows of the numbers that conditions can name."""
    rows = {_key(query): asdict(number) for query, number in kept_numbers(result).items()}
    return [{"result_id": storable_text(result.id), "query": query, **row} for query, row in rows.items()]


def fact_rows(result: Result) -> list[dict[str, Any]]:
    """Return the rows of the settings and other facts that conditions can name, and of the head."""
    head = codec.encode_head(result).decode()
    return [
        {"result_id": storable_text(result.id), "name": HEAD, "text": storable_text(head), "number": None},
        *(
            {"result_id": storable_text(result.id), "name": name, "text": text, "number": as_number(value)}
            for name, (value, text) in {
                _key(name): (value, storable_text(as_text(value))) for name, value in facts(result).items()
            }.items()
        ),
    ]


def head(connection: Connection, identifier: str, place: str) -> Result | None:
    """Return the Result of an id without what was measured; None if there is none.

    Raises:
        StoreError: its document is damaged.
    """
    origin = f"Result {identifier} in the store {place}"
    query = select(FACTS.c.text).where(FACTS.c.result_id == identifier, FACTS.c.name == HEAD)
    if (text := connection.scalar(query)) is not None:
        return codec.decode_head(text, origin=origin)
    row = connection.execute(
        select(RESULTS.c.document, RESULTS.c.checksum).where(RESULTS.c.id == identifier)
    ).one_or_none()  # stored before heads were
    return None if row is None else codec.decode_head(verified_document(*row, origin, ADVICE), origin=origin)


def _key(name: str) -> str:
    return storable_text(name)[:KEY_LENGTH]


def _artifact_row(result: Result, position: int) -> dict[str, str | None]:
    artifact = result.artifacts[position]
    return {
        "result_id": storable_text(result.id),
        "name": storable_text(artifact.name),
        "path": storable_text(artifact.path),
        "digest": artifact.digest,
        "keep_until": artifact.keep_until,
    }


def own_files(connection: Connection, result_id: str) -> set[str]:
    """Return the artifact paths of a Result that no other Result has."""
    shared = select(ARTIFACTS.c.path).where(ARTIFACTS.c.result_id != result_id)
    own = ARTIFACTS.c.result_id == result_id
    return set(connection.scalars(select(ARTIFACTS.c.path).where(own, ARTIFACTS.c.path.not_in(shared))))


def entries(connection: Connection, query: Select[Any]) -> list[Entry]:
    """Return the entries of a query of `LISTED` columns, with their tags."""
    rows = connection.execute(query).all()
    ids = select(query.subquery().c.id)
    tags: dict[str, list[str]] = {}
    for result_id, tag in connection.execute(
        select(TAGS).where(TAGS.c.result_id.in_(ids)).order_by(TAGS.c.tag)
    ):
        tags.setdefault(result_id, []).append(tag)
    configs = {text: _config(text) for text in {row.config for row in rows}}  # most are alike
    return [
        Entry(
            **{**row._mapping, "config": dict(configs[row.config])},
            tags=tuple(tags.get(row.id, ())),
        )
        for row in rows
    ]


def names(connection: Connection, *, least: int = 1) -> list[StoredName]:
    """List the names of at least so many Results, the one with the newest Result first.

    The index has all of this but the end of a long name, for which the rows are read.
    """
    key, measures = RESULTS.c.name_key, (func.count().label("results"), func.max(RESULTS.c.created))
    enough = func.count() >= least
    rows = connection.execute(select(key, *measures).group_by(key).having(enough)).all()
    cut = [row[0] for row in rows if len(row[0]) >= KEY_LENGTH]
    uncut = [row for row in rows if len(row[0]) < KEY_LENGTH]
    for some in range(0, len(cut), _AT_ONCE):
        of_cut = select(RESULTS.c.name, *measures).where(key.in_(cut[some : some + _AT_ONCE]))
        uncut += connection.execute(of_cut.group_by(RESULTS.c.name).having(enough)).all()
    stored = [StoredName(name=name, results=results, newest=newest) for name, results, newest in uncut]
    return sorted(stored, key=lambda one: one.newest, reverse=True)


def _config(text: str) -> dict[str, Any]:
    """Read the settings of an entry; one that is damaged on disk is listed without."""
    try:
        config = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def ids_of(connection: Connection, digests: Sequence[str]) -> list[str]:
    """Return the ids of the Results of models of these digests, the newest first."""
    query = select(RESULTS.c.id).where(RESULTS.c.digest.in_(digests)).order_by(*NEWEST_FIRST)
    return list(connection.scalars(query))


def kept_numbers_of(
    connection: Connection, identifiers: Sequence[str], queries: Sequence[str]
) -> dict[str, dict[str, KeptNumber]]:
    """Return the kept numbers of Results by id and query; a Result that is gone has no entry."""
    columns = [NUMBERS.c[name] for name in ("query", "value", "raw", "low", "high")]
    by_result: dict[str, dict[str, KeptNumber]] = {}
    for start in range(0, len(identifiers), _AT_ONCE):
        some = identifiers[start : start + _AT_ONCE]
        numbered = and_(NUMBERS.c.result_id == RESULTS.c.id, NUMBERS.c.query.in_(queries))
        query = select(RESULTS.c.id, *columns).select_from(RESULTS.outerjoin(NUMBERS, numbered))
        for result_id, name, value, raw, low, high in connection.execute(query.where(RESULTS.c.id.in_(some))):
            numbers = by_result.setdefault(result_id, {})
            if name is not None:
                numbers[name] = KeptNumber(value=value, raw=raw, low=low, high=high)
    return by_result
