"""Studies in a store: the row of one, and a row for each of its trials, within a transaction of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, select

from modeldyno import codec
from modeldyno.adapters.stores.rows import by_beginning, clean, document, intact, replace
from modeldyno.adapters.stores.schema import KEY_LENGTH, RESULTS, STUDIES, TAGS, TRIALS
from modeldyno.errors import RequestError, StoreError
from modeldyno.interfaces import StudyEntry

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from modeldyno.core.study.study import Study, Trial

_NEWEST_FIRST = (STUDIES.c.created.desc(), STUDIES.c.id.desc())
_ADVICE = "The other studies, and all results, stay readable; begin this one anew."


def put(connection: Connection, study: Study, headline: str) -> None:
    """Put the row of a Study, and those of its trials that have none."""
    replace(connection, STUDIES, _row(study, headline))
    missing = study.trials[_kept(connection, study) :]
    asked = [trial.result for trial in missing if trial.result]
    there = set(connection.scalars(select(RESULTS.c.id).where(RESULTS.c.id.in_(asked))))
    if missing:
        rows = [_trial_row(study, trial, kept=trial.result in there) for trial in missing]
        connection.execute(TRIALS.insert(), rows)


def check_last(connection: Connection, study: Study, place: str) -> None:
    """Refuse a trial of a number that is taken.

    Where readers and writers do not wait for each other, the row of the Study is held first.
    """
    connection.execute(select(STUDIES.c.id).where(STUDIES.c.id == clean(study.id)).with_for_update())
    if _kept(connection, study) >= len(study.trials):
        raise StoreError(
            f"Another process has gone on with the study {study.id} in the store {place}: its trial "
            f"{len(study.trials)} is kept already; wait until that has ended, and resume it then."
        )


def get(connection: Connection, found: str, place: str) -> Study:
    """Read a Study with its trials.

    Raises:
        StoreError: a document is damaged.
    """
    origin = f"Study {found} in the store {place}"
    of_study = select(STUDIES.c.document, STUDIES.c.checksum).where(STUDIES.c.id == found)
    of_trials = select(TRIALS.c.document, TRIALS.c.checksum).where(TRIALS.c.study_id == found)
    definition, *trials = (
        intact(data, checksum, origin, _ADVICE)
        for query in (of_study, of_trials.order_by(TRIALS.c.number))
        for data, checksum in connection.execute(query)
    )
    return codec.decode_study(definition, *trials, origin=origin)


def find(connection: Connection, name: str | None, limit: int) -> list[StudyEntry]:
    """List, newest first."""
    columns = [c for c in STUDIES.c if c.name in StudyEntry.__dataclass_fields__]
    query = select(*columns).order_by(*_NEWEST_FIRST).limit(max(0, limit))
    rows = connection.execute(query if name is None else query.where(*_named(name))).all()
    counted = (
        select(TRIALS.c.study_id, TRIALS.c.skipped, func.count())
        .where(TRIALS.c.study_id.in_([row.id for row in rows]))
        .group_by(TRIALS.c.study_id, TRIALS.c.skipped)
    )
    counts = {(study, bool(skipped)): count for study, skipped, count in connection.execute(counted)}
    return [
        StudyEntry(
            **row._mapping,  # noqa: SLF001 - its documented name
            trials=counts.get((row.id, False), 0),
            skipped=counts.get((row.id, True), 0),
        )
        for row in rows
    ]


def untagged_results(connection: Connection, found: str) -> list[str]:
    """Name the Results of a Study that nobody tagged, and no other Study has."""
    own = (TRIALS.c.study_id == found, TRIALS.c.result_id.is_not(None))
    others = select(TRIALS.c.result_id).where(TRIALS.c.study_id != found, TRIALS.c.result_id.is_not(None))
    query = select(TRIALS.c.result_id).where(
        *own, TRIALS.c.result_id.not_in(select(TAGS.c.result_id)), TRIALS.c.result_id.not_in(others)
    )
    return [str(result) for result in connection.scalars(query)]


def remove(connection: Connection, found: str) -> None:
    """Delete a Study with its trials."""
    connection.execute(delete(STUDIES).where(STUDIES.c.id == found))


def resolve(connection: Connection, prefix: str) -> str:
    """Find the one id that is meant: an id, the beginning of one, or the newest of a name.

    Raises:
        RequestError: there is none, or there are several.
    """
    text = clean(prefix)
    if not text:
        raise RequestError("Name a study by the beginning of its id, one character or more, or by its name.")
    found = by_beginning(connection, STUDIES, text)
    if found is None:
        found = connection.scalar(select(STUDIES.c.id).where(*_named(text)).order_by(*_NEWEST_FIRST).limit(1))
    if found is None:
        raise RequestError(
            f"The store has no study whose id begins with {text[:_SHOWN]!r}, and none of that name; "
            "modeldyno list shows what it has."
        )
    return found


_SHOWN = 100
"""Characters of a name that a mistake is answered with."""


def _named(name: str) -> tuple[Any, Any]:
    text = clean(name)
    return STUDIES.c.name_key == text[:KEY_LENGTH], STUDIES.c.name == text


def _kept(connection: Connection, study: Study) -> int:
    """Give the number of the last trial that is kept; 0 where there is none."""
    query = select(func.max(TRIALS.c.number)).where(TRIALS.c.study_id == clean(study.id))
    return connection.scalar(query) or 0


def _row(study: Study, headline: str) -> dict[str, Any]:
    name = clean(study.name)
    return {
        "id": clean(study.id),
        "created": clean(study.created),
        "name": name,
        "name_key": name[:KEY_LENGTH],
        "digest": study.model.digest if study.model else "",
        "headline": clean(headline),
        "schema": study.schema,
        **document(codec.encode_definition(study)),
    }


def _trial_row(study: Study, trial: Trial, *, kept: bool) -> dict[str, Any]:
    return {
        "study_id": clean(study.id),
        "number": trial.number,
        "skipped": not trial.measured,
        "result_id": trial.result if kept else None,
        **document(codec.encode_trial(trial)),
    }
