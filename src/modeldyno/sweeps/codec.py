"""Encodes and decodes Studies: a search with its trials.

History of the schema:

1. The first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base import codec
from modeldyno.base.codec.numbers import check_numbers
from modeldyno.sweeps.study.study import SCHEMA, Study, Trial

if TYPE_CHECKING:
    from pathlib import Path

KIND = "study"
"""Value of the key ``kind`` in the document."""
UPGRADES: codec.Upgrades = {}


def encode(study: Study, **derived: Any) -> bytes:
    """Encode a Study with its trials as JSON; an unbounded end of an interval is null.

    Derived data, such as the ranking, is for other programs, and ignored on reading.
    """
    return codec.encode_sealed(_plain(study, **derived))


def encode_definition(study: Study) -> bytes:
    """Encode a Study without its trials, on one line.

    Raises:
        RequestError: it has a number that no document can hold.
    """
    return codec.to_json(check_numbers(_plain(replace(study, trials=())), KIND))


def _plain(study: Study, **derived: Any) -> dict[str, Any]:
    queries = (*study.goal.queries, *(answer.query for trial in study.trials for answer in trial.answers))
    described = codec.describe_metrics(query.metric for query in queries)
    return {"kind": KIND, **msgspec.to_builtins(study), **msgspec.to_builtins(derived)} | described


def encode_trial(trial: Trial) -> bytes:
    """Encode a trial, on one line."""
    return codec.to_json(trial)


def decode(data: bytes | str, *trials: bytes, origin: str = "the document") -> Study:
    """Decode a Study of any schema version, or its definition with separate trials.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    with codec.explain_damage(origin, "not a ModelDyno study"):
        document = codec.read_kind(data, KIND, origin)
        document["trials"] = [*document.get("trials", ()), *map(msgspec.json.decode, trials)]
        current = codec.upgrade(document, origin, UPGRADES, SCHEMA)
        for trial in current["trials"]:
            for holder in (*trial["answers"], *(judgement["answer"] for judgement in trial["judgements"])):
                codec.restore_infinite_ends(holder)
        return _check_trial_numbers(msgspec.convert(current, Study))


def _check_trial_numbers(study: Study) -> Study:
    """Check that no trial is missing: they are numbered from 1 without a gap."""
    if [trial.number for trial in study.trials] != list(range(1, len(study.trials) + 1)):
        raise ValueError("its trials are not numbered from 1 without a gap")
    return study


def read(path: Path) -> Study:
    """Read a Study from a file.

    Raises:
        RequestError: the file cannot be read, or is not a Study.
    """
    return decode(codec.read_document_bytes(path), origin=str(path))
