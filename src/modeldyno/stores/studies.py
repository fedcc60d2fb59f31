"""Studies in a store: one row per study and one per trial; all functions run within a store transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, select

from modeldyno.base.errors import RequestError, StoreError
from modeldyno.stores.interface import StudyEntry
from modeldyno.stores.rows import (
    NAME_LIMIT,
    after_mark,
    document_columns,
    document_row,
    find_entries,
    find_id_by_prefix,
    name_matches,
    newest_first,
    replace,
    storable_text,
    verified_document,
)
from modeldyno.stores.schema import RESULTS, STUDIES, TAGS, TRIALS
from modeldyno.sweeps import codec as codec_study

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from modeldyno.sweeps.study.study import Study, Trial

_ADVICE = "The other studies and all results stay readable; run this study again."


def put(connection: Connection, study: Study, *, headline: str) -> None:
    """Write the row of a Study, and the rows of its trials that are not stored yet."""
    row = document_row(study, study.name, headline, codec_study.encode_definition(study))
    replace(connection, STUDIES, {"digest": study.model.digest if study.model else "", **row})
    missing = study.trials[_last_stored(connection, study) :]
    result_ids = [trial.result for trial in missing if trial.result]
    stored = set(connection.scalars(select(RESULTS.c.id).where(RESULTS.c.id.in_(result_ids))))
    if missing:
        rows = [_trial_row(study, trial, has_result=trial.result in stored) for trial in missing]
        connection.execute(TRIALS.insert(), rows)


def check_last(connection: Connection, study: Study, place: str) -> None:
    """Refuse a trial whose number is taken.

    The Study's row is locked first, for databases whose readers and writers do not wait for each other.
    """
    connection.execute(select(STUDIES.c.id).where(STUDIES.c.id == storable_text(study.id)).with_for_update())
    if _last_stored(connection, study) >= len(study.trials):
        raise StoreError(
            f"Another process has continued the study {study.id} in the store {place}: its trial "
            f"{len(study.trials)} exists already; wait until that process has ended, then resume the study."
        )


def get(connection: Connection, study_id: str, place: str) -> Study:
    """Return a Study with its trials.

    Raises:
        StoreError: a document is damaged.
    """
    origin = f"Study {study_id} in the store {place}"
    of_study = select(STUDIES.c.document, STUDIES.c.checksum).where(STUDIES.c.id == study_id)
    of_trials = select(TRIALS.c.document, TRIALS.c.checksum).where(TRIALS.c.study_id == study_id)
    definition, *trials = (
        verified_document(data, checksum, origin, _ADVICE)
        for query in (of_study, of_trials.order_by(TRIALS.c.number))
        for data, checksum in connection.execute(query)
    )
    return codec_study.decode(definition, *trials, origin=origin)


def find(
    connection: Connection, *, name: str | None = None, limit: int = 50, before: str = ""
) -> list[StudyEntry]:
    """Return the entries of Studies after a place in the list, newest first."""
    named = () if name is None else name_matches(STUDIES, name)
    rows = find_entries(connection, STUDIES, StudyEntry, *named, after_mark(STUDIES, before), limit=limit)
    count_query = (
        select(TRIALS.c.study_id, TRIALS.c.skipped, func.count())
        .where(TRIALS.c.study_id.in_([row.id for row in rows]))
        .group_by(TRIALS.c.study_id, TRIALS.c.skipped)
    )
    counts = {(study, bool(skipped)): count for study, skipped, count in connection.execute(count_query)}
    return [
        StudyEntry(
            **row._mapping,
            trials=counts.get((row.id, False), 0),
            skipped=counts.get((row.id, True), 0),
        )
        for row in rows
    ]


def untagged_results(connection: Connection, study_id: str) -> list[str]:
    """Return the ids of a Study's Results that have no tag and are in no other Study."""
    own = (TRIALS.c.study_id == study_id, TRIALS.c.result_id.is_not(None))
    others = select(TRIALS.c.result_id).where(TRIALS.c.study_id != study_id, TRIALS.c.result_id.is_not(None))
    query = select(TRIALS.c.result_id).where(
        *own, TRIALS.c.result_id.not_in(select(TAGS.c.result_id)), TRIALS.c.result_id.not_in(others)
    )
    return [str(result) for result in connection.scalars(query)]


def remove(connection: Connection, study_id: str) -> None:
    """Delete a Study with its trials."""
    connection.execute(delete(STUDIES).where(STUDIES.c.id == study_id))


def resolve(connection: Connection, prefix: str) -> str:
    """Return the one id that is meant: an id, its beginning, or the newest of a name.

    Raises:
        RequestError: there is none, or there are several.
    """
    text = storable_text(prefix)
    if not text:
        raise RequestError("Give at least the first character of the study's id, or its name.")
    study_id = find_id_by_prefix(connection, STUDIES, text)
    if study_id is None:
        study_id = connection.scalar(
            select(STUDIES.c.id).where(*name_matches(STUDIES, text)).order_by(*newest_first(STUDIES)).limit(1)
        )
    if study_id is None:
        raise RequestError(
            f"The store has no study whose id begins with {text[:NAME_LIMIT]!r}, and none of that name; "
            "modeldyno list shows what it has."
        )
    return study_id


def _last_stored(connection: Connection, study: Study) -> int:
    """Return the number of the last stored trial; 0 if there is none."""
    query = select(func.max(TRIALS.c.number)).where(TRIALS.c.study_id == storable_text(study.id))
    return connection.scalar(query) or 0


def _trial_row(study: Study, trial: Trial, *, has_result: bool) -> dict[str, Any]:
    return {
        "study_id": storable_text(study.id),
        "number": trial.number,
        "skipped": not trial.measured,
        "result_id": trial.result if has_result else None,
        **document_columns(codec_study.encode_trial(trial)),
    }
