"""Documents to JSON and back, each kind with a schema number and upgrades of older schemas.

History of the schema of Results, of that of Studies, and of that of Comparisons:

1. The first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from dataclasses import replace
from itertools import chain
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import msgspec

from modeldyno.core.comparison.comparison import SCHEMA as COMPARISON_SCHEMA
from modeldyno.core.comparison.comparison import Comparison
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.metrics.metric import METRICS
from modeldyno.core.result.result import SCHEMA, Event, Found, Outlined, Result
from modeldyno.core.spec.job import Job
from modeldyno.core.study.study import SCHEMA as STUDY_SCHEMA
from modeldyno.core.study.study import Study, Trial
from modeldyno.errors import DiskFull, RequestError, UnreadableDocument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Upgrades = dict[int, "Callable[[dict[str, Any]], dict[str, Any]]"]
"""From a schema number to a function that gives the document of the next one."""
UPGRADES: Upgrades = {}
STUDY_UPGRADES: Upgrades = {}
COMPARISON_UPGRADES: Upgrades = {}
STUDY, COMPARISON = "study", "comparison"
"""What these say of themselves, under the name ``kind``; a Result says nothing."""

_MALFORMED = (msgspec.MsgspecError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading or upgrading a damaged document may raise."""
_LARGEST = 2 * 2**30
"""Bytes; a larger file is none of ours, and is not read into memory."""


def encode(result: Result, **derived: Any) -> bytes:
    """Give the JSON of a Result, with the certificate of each Distribution written beside its samples.

    The certificate is derived: it is there for readers in other languages, and ignored on reading; so is
    what else was derived, such as judgements on bounds.
    An end of an interval that is not bounded is written as null, and so is a value that is no number.
    """
    document = {**_certified(result), **msgspec.to_builtins(derived)}
    return msgspec.json.format(_json(document), indent=1) + b"\n"


def _certified(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(result)
    for measurement, plain in zip(result.measurements, document["measurements"], strict=True):
        if isinstance(measurement.value, Distribution):
            plain["value"]["certificate"] = msgspec.to_builtins(measurement.value.certificate())
    return document


def encode_several(results: Iterable[Result]) -> bytes:
    """Give a JSON array of Results, in the order of the command that asked for them."""
    return array(map(encode, results))


def encode_document(document: Any) -> bytes:
    """Give the JSON of a document that is not read back, such as a ladder; an open end is written as null."""
    return msgspec.json.format(_json(document), indent=1) + b"\n"


def array(documents: Iterable[bytes]) -> bytes:
    """Make one JSON array of encoded documents."""
    return b"[\n" + b",\n".join(document.rstrip() for document in documents) + b"\n]\n"


def decode(data: bytes | str, *, origin: str = "the document") -> Result:
    """Read a Result of any schema that was ever written.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    try:
        document = msgspec.json.decode(data)
        if isinstance(document, list):
            raise UnreadableDocument(
                f"{origin} holds {len(document)} documents, and one is wanted; in Python, "
                "modeldyno.read_all gives all of them."
            )
        return _result(document, origin)
    except _MALFORMED as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise UnreadableDocument(f"{origin} is damaged, or no ModelDyno result: {said}.") from error


def _result(document: Any, origin: str) -> Result:
    """Make a Result of decoded JSON."""
    if not isinstance(document, dict) or not isinstance(document.get("schema"), int):
        raise UnreadableDocument(f"{origin} is JSON, but no ModelDyno result: it has no schema number.")
    return _checked(msgspec.convert(_current(document, origin), Result))


def _current(document: dict[str, Any], origin: str) -> dict[str, Any]:
    """Bring the document of a Result up to date, and put back what JSON does not know."""
    current = _upgraded(document, origin, UPGRADES, SCHEMA)
    current["measurements"] = [_restored(plain) for plain in current.get("measurements", ())]
    _restore_points(current.get("outline"))
    return current


def _upgraded(document: dict[str, Any], origin: str, upgrades: Upgrades, newest: int) -> dict[str, Any]:
    number = document["schema"]
    if number > newest:
        raise UnreadableDocument(
            f"{origin} has schema {number}, and this ModelDyno reads up to {newest}; upgrade ModelDyno."
        )
    if number < min(upgrades, default=newest):
        raise UnreadableDocument(f"{origin} has schema {number}, which was never in use; it is damaged.")
    for number_before in range(number, newest):
        document = upgrades[number_before](document)
    return document


def _restored(measurement: dict[str, Any]) -> dict[str, Any]:
    """Put back the numbers that JSON does not know, and that were written as null."""
    if measurement["value"] is None:
        measurement["value"] = nan
    measurement["runs"] = [nan if run is None else run for run in measurement.get("runs", ())]
    return _unbounded(measurement)


def _unbounded(holder: dict[str, Any]) -> dict[str, Any]:
    """Put back the ends of an interval that are none."""
    interval = holder.get("interval")
    if isinstance(interval, dict):
        interval.update({key: end for key, end in _UNBOUNDED.items() if interval[key] is None})
    return holder


_UNBOUNDED = {"low": -inf, "high": inf}


def _restore_points(outline: dict[str, Any] | None) -> None:
    for point in (outline or {}).get("points", ()):
        point["values"] = {name: nan if value is None else value for name, value in point["values"].items()}


def _checked(result: Result) -> Result:
    """Refuse what the types allow and the program does not."""
    for measurement in result.measurements:
        if measurement.metric not in METRICS:
            raise ValueError(
                f"unknown metric {measurement.metric!r}, of a plugin that is not installed here?"
            )
        if isinstance(measurement.value, Distribution):
            runs = measurement.value.runs
            if not runs or any(not run or len(run) % 8 for run in runs):
                raise ValueError(f"the samples of {measurement.metric} are cut short")
            ends = chain.from_iterable((run.min(), run.max()) for run in measurement.value.arrays())
            if not all(map(isfinite, ends)):
                raise ValueError(f"the samples of {measurement.metric} are no numbers")
    return result


def encode_study(study: Study, **derived: Any) -> bytes:
    """Give the JSON of a Study with its trials; an end of an interval that is not bounded is null.

    What was derived, such as its ranking, is there for other programs, and ignored on reading.
    """
    return msgspec.json.format(_study(study, **derived), indent=1) + b"\n"


def encode_definition(study: Study) -> bytes:
    """Give the JSON of a Study without its trials, on one line."""
    return _study(replace(study, trials=()))


def _study(study: Study, **derived: Any) -> bytes:
    return _json({"kind": STUDY, **msgspec.to_builtins(study), **msgspec.to_builtins(derived)})


def encode_trial(trial: Trial) -> bytes:
    """Give the JSON of a trial, on one line."""
    return _json(trial)


def decode_study(data: bytes | str, *trials: bytes, origin: str = "the document") -> Study:
    """Read a Study of any schema that was ever written, or its definition with trials that stand apart.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    try:
        document = msgspec.json.decode(data)
        if not isinstance(document, dict) or document.pop("kind", None) != STUDY:
            return _foreign(origin, STUDY)
        document["trials"] = [*document.get("trials", ()), *map(msgspec.json.decode, trials)]
        current = _upgraded(document, origin, STUDY_UPGRADES, STUDY_SCHEMA)
        for trial in current["trials"]:
            for holder in (*trial["answers"], *(judgement["answer"] for judgement in trial["judgements"])):
                _unbounded(holder)
        return _in_order(msgspec.convert(current, Study))
    except UnreadableDocument:
        raise
    except (*_MALFORMED, RequestError) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise UnreadableDocument(f"{origin} is damaged, or no ModelDyno study: {said}.") from error


def _foreign(origin: str, kind: str) -> NoReturn:
    raise UnreadableDocument(f"{origin} is JSON, but no ModelDyno {kind}.")


def _in_order(study: Study) -> Study:
    """Refuse a log with a hole: what was measured is missing."""
    if [trial.number for trial in study.trials] != list(range(1, len(study.trials) + 1)):
        raise ValueError("its trials are not numbered from 1 without a gap")
    return study


def encode_comparison(comparison: Comparison) -> bytes:
    """Give the JSON of a Comparison with its Results; a number that is none, or not bounded, is null."""
    document: dict[str, Any] = {"kind": COMPARISON, **msgspec.to_builtins(comparison)}
    document["baseline"] = _certified(comparison.baseline)
    for contrast, plain in zip(comparison.contrasts, document["contrasts"], strict=True):
        plain["candidate"] = _certified(contrast.candidate)
    return msgspec.json.format(_json(document), indent=1) + b"\n"


def decode_comparison(data: bytes | str, *, origin: str = "the document") -> Comparison:
    """Read a Comparison of any schema that was ever written.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    try:
        document = msgspec.json.decode(data)
        if not isinstance(document, dict) or document.pop("kind", None) != COMPARISON:
            return _foreign(origin, COMPARISON)
        current = _upgraded(document, origin, COMPARISON_UPGRADES, COMPARISON_SCHEMA)
        current["baseline"] = _current(current["baseline"], origin)
        for contrast in current["contrasts"]:
            contrast["candidate"] = _current(contrast["candidate"], origin)
            parts = [part for cause in contrast.get("causes", ()) for part in cause["parts"]]
            for varying in (*contrast["changes"], *parts):
                _unbounded(varying)
            for agreement in contrast.get("outputs", ()):
                agreement.update({name: inf for name, size in agreement.items() if size is None})
        return _checked_comparison(msgspec.convert(current, Comparison))
    except UnreadableDocument:
        raise
    except (*_MALFORMED, RequestError) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise UnreadableDocument(f"{origin} is damaged, or no ModelDyno comparison: {said}.") from error


def _checked_comparison(comparison: Comparison) -> Comparison:
    for result in (comparison.baseline, *(contrast.candidate for contrast in comparison.contrasts)):
        _checked(result)
    return comparison


def read(path: Path) -> Result:
    """Read a Result from a file.

    Raises:
        RequestError: the file cannot be read, or is no Result.
    """
    return decode(content(path), origin=str(path))


def read_all(path: Path) -> tuple[Result, ...]:
    """Read the Results of a file: a document, or an array of them.

    Raises:
        RequestError: the file cannot be read, or one of them is no Result.
    """
    data = content(path)
    if not data.lstrip().startswith(b"["):
        return (decode(data, origin=str(path)),)
    try:
        return tuple(_result(document, str(path)) for document in msgspec.json.decode(data))
    except _MALFORMED as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise UnreadableDocument(f"{path} is damaged, or no ModelDyno results: {said}.") from error


def read_study(path: Path) -> Study:
    """Read a Study from a file.

    Raises:
        RequestError: the file cannot be read, or is no Study.
    """
    return decode_study(content(path), origin=str(path))


def read_comparison(path: Path) -> Comparison:
    """Read a Comparison from a file.

    Raises:
        RequestError: the file cannot be read, or is no Comparison.
    """
    return decode_comparison(content(path), origin=str(path))


def kind_of(path: Path) -> str:
    """Say what a file says of itself: ``study`` or ``comparison``; else it is a Result, if anything.

    Raises:
        RequestError: the file cannot be read.
    """
    told = _KIND.match(content(path))
    return told[1].decode() if told else ""


_KIND = re.compile(rb'\s*\{\s*"kind"\s*:\s*"(\w+)"')


def content(path: Path) -> bytes:
    """Read a file that somebody names.

    Raises:
        RequestError: it cannot be read, or is too large for a document.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise UnreadableDocument(f"{path} has {path.stat().st_size:,} bytes; no document is that large.")
        return path.read_bytes()
    except OSError as error:
        raise RequestError(f"Cannot read {path}: {error.strerror}.") from error


def check_directory(path: Path) -> None:
    """Find early that a file could not be written.

    Raises:
        RequestError: its directory does not exist.
    """
    if not path.resolve().parent.is_dir():
        raise RequestError(f"Cannot write {path}: the directory {path.parent} does not exist.")


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: what was there before stays until the new one is on disk.

    Raises:
        RequestError: the file cannot be written.
        DiskFull: there is no room for it.
    """
    check_directory(path)
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a device or a pipe, such as /dev/null, is written to, not replaced
        else:
            _replace(path.resolve(), data)
    except OSError as error:
        kind = DiskFull if error.errno in _NO_ROOM else RequestError
        raise kind(f"Cannot write {path}: {error.strerror or error}.") from error


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def schema() -> dict[str, Any]:
    """Give the JSON Schema of a Result."""
    document = msgspec.json.schema(Result)
    measurement = document["$defs"]["Measurement"]["properties"]
    ends = document["$defs"]["Interval"]["properties"]
    points = document["$defs"]["Point"]["properties"]["values"]
    nullable = (
        (ends, "low"),
        (ends, "high"),
        (measurement, "value"),
        (measurement["runs"], "items"),
        (points, "additionalProperties"),
    )
    for holder, key in nullable:
        holder[key] = {"anyOf": [holder[key], {"type": "null"}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ModelDyno result, schema {SCHEMA}",
        **document,
    }


def encode_job(job: Job) -> bytes:
    """Give the JSON of a Job, for a child process."""
    return _json(job)


def decode_job(data: bytes) -> Job:
    """Read a Job."""
    return msgspec.json.decode(data, type=Job)


def encode_event(event: Event) -> bytes:
    """Give the JSON of an event, on one line: its kind, and then itself."""
    return _json((type(event).__name__, event))


def decode_event(line: bytes) -> Event:
    """Read an event.

    Raises:
        UnreadableDocument: the line was cut short, as by the death of the process that wrote it.
    """
    try:
        kind, plain = msgspec.json.decode(line, type=tuple[str, dict[str, Any]])
        if kind == Found.__name__:
            plain["measurement"] = _restored(plain["measurement"])
        if kind == Outlined.__name__:
            _restore_points(plain["outline"])
        return msgspec.convert(plain, _EVENTS[kind])
    except _MALFORMED as error:
        raise UnreadableDocument(f"An event of the child process is damaged: {error}.") from error


_EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}


def _json(document: Any) -> bytes:
    return msgspec.json.encode(_writable(msgspec.to_builtins(document)))


_FACTS = {"config", "hardware", "software", "conditions"}


def _writable(part: Any, *, fact: bool = False) -> Any:
    """Replace what JSON does not know: in facts, numbers that are none; anywhere, what is no UTF-8."""
    match part:
        case str():  # the name of a file may hold lone surrogates
            return part if part.isascii() else part.encode("utf-8", "replace").decode()
        case float():
            return str(part) if fact and not isfinite(part) else part
        case dict():
            return {_writable(k): _writable(v, fact=fact or k in _FACTS) for k, v in part.items()}
        case list() | tuple():
            return [_writable(item) for item in part]
        case _:
            return part
