"""Encodes Results, Jobs and events as JSON and decodes them; other documents have modules of their own.

Each kind of document has a schema number and upgrades of older schemas. History of the schema of Results:

1. The first.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from dataclasses import replace
from itertools import chain
from math import inf, isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from modeldyno.base.codec.numbers import check_numbers
from modeldyno.base.document import Document
from modeldyno.base.errors import DiskFull, RequestError, UnreadableDocument
from modeldyno.base.job.job import Job
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.metric import METRICS, MetricRow
from modeldyno.base.result.result import SCHEMA, Event, Result
from modeldyno.base.result.static_data import StaticReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Upgrades = dict[int, "Callable[[dict[str, Any]], dict[str, Any]]"]
"""Schema number to the function that upgrades a document to the next one."""
UPGRADES: Upgrades = {}

_MALFORMED = (msgspec.MsgspecError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that reading or upgrading a damaged document may raise."""
_MAX_SIZE = 2 * 2**30
"""Maximum size of a document file in bytes; larger files are not read into memory."""


def encode(result: Result, **derived: Any) -> bytes:
    """Encode a Result as JSON, with the certificate of each Distribution next to its samples.

    Derived data, such as certificates and judgements, is for other programs, and ignored on reading. An
    unbounded end of an interval, and NaN, are written as null.
    """
    return encode_sealed({**with_certificates(result), **msgspec.to_builtins(derived)})


def with_certificates(result: Result) -> dict[str, Any]:
    """Return the document of a Result with units, and certificates next to the samples."""
    document: dict[str, Any] = msgspec.to_builtins(result)
    for measurement, plain in zip(result.measurements, document["measurements"], strict=True):
        if measurement.metric in METRICS:
            plain["unit"] = measurement.row.unit
        if isinstance(measurement.value, Distribution):
            plain["value"]["certificate"] = msgspec.to_builtins(measurement.value.certificate())
    return document | describe_metrics(measurement.metric for measurement in result.measurements)


def sealed_result(result: Result) -> dict[str, Any]:
    """Return the document of a Result with its certificates and its digest, as a part of another document."""
    return _seal(with_certificates(result))


def describe_metrics(names: Iterable[str]) -> dict[str, Any]:
    """Describe the metrics of plugins and users that a document has, for who reads it without them."""
    rows = METRICS.further(names)
    described = [{name: getattr(row, name) for name in _DESCRIPTION} for row in rows]
    return {"metrics": described} if described else {}


_DESCRIPTION = ("name", "unit", "better", "sentence", "spread")
"""What a document says of a metric that is not built in."""


def encode_several(results: Iterable[Result]) -> bytes:
    """Encode Results as a JSON array, in their order."""
    return json_array(map(encode, results))


def encode_document(document: Any) -> bytes:
    """Encode a document that is not read back; NaN and infinities become null.

    It says first of which kind it is, so that reading it can say so.
    """
    if isinstance(document, Document):
        document = {"kind": document.KIND, **msgspec.to_builtins(document)}
    return msgspec.json.format(to_json(document), indent=1) + b"\n"


def encode_sealed(document: dict[str, Any]) -> bytes:
    """Encode a document with a digest of all that is in it; NaN and infinities become null."""
    return msgspec.json.format(msgspec.json.encode(_seal(document)), indent=1) + b"\n"


def _seal(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document as it is written, with its digest as the last key."""
    writable: dict[str, Any] = _to_writable(msgspec.to_builtins(document))
    return {**writable, DIGEST: digest_of(writable)}


def digest_of(document: dict[str, Any]) -> str:
    """Return the SHA-256 of a document: of its JSON without its digest, keys in order, no space between.

    A whole number has no fraction there, as other programs write 1.0 as 1.
    """
    content = {key: _to_canonical(value) for key, value in document.items() if key != DIGEST}
    canonical = msgspec.json.encode(content, order="sorted")
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def _to_canonical(part: Any) -> Any:
    match part:
        case float():
            return int(part) if part.is_integer() and abs(part) < _EXACT else part
        case dict():
            return {key: _to_canonical(value) for key, value in part.items()}
        case list() | tuple():
            return [_to_canonical(item) for item in part]
        case _:
            return part


_EXACT = 2**53
"""Below it every whole number is a float."""


DIGEST = "digest"
"""Key of a document's digest."""


def json_array(documents: Iterable[bytes]) -> bytes:
    """Join encoded documents to one JSON array."""
    return b"[\n" + b",\n".join(document.rstrip() for document in documents) + b"\n]\n"


@contextlib.contextmanager
def explain_damage(origin: str, otherwise: str) -> Iterator[None]:
    """Raise UnreadableDocument, in one sentence, for what reading or upgrading a damaged document raises."""
    try:
        yield
    except UnreadableDocument:
        raise
    except (*_MALFORMED, RequestError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise UnreadableDocument(f"{origin} is damaged or {otherwise}: {reason}.") from error


def decode(data: bytes | str, *, origin: str = "the document") -> Result:
    """Decode a Result of any schema version.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    with explain_damage(origin, "not a ModelDyno result"):
        document = msgspec.json.decode(data)
        if isinstance(document, list):
            raise UnreadableDocument(
                f"{origin} holds {len(document)} documents, but one is expected; in Python, "
                "modeldyno.store.read_all reads all of them."
            )
        return _to_result(document, origin)


def encode_head(result: Result) -> bytes:
    """Encode a Result without what was measured and analysed: a few kilobytes, which `decode_head` reads."""
    head = replace(result, measurements=(), outline=None, activity=None)
    return msgspec.json.encode(_to_writable(msgspec.to_builtins(head)))


def decode_head(data: bytes | str, *, origin: str = "the document") -> Result:
    """Decode a Result, or its head, without what was measured and analysed.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    with explain_damage(origin, "not a ModelDyno result"):
        parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        return _to_result(
            {key: msgspec.json.decode(part) for key, part in parts.items() if key not in _BODY}, origin
        )


_BODY = frozenset({"measurements", "outline", "activity"})
"""The large parts of the document of a Result."""


def _to_result(document: Any, origin: str) -> Result:
    """Convert decoded JSON to a Result."""
    if isinstance(document, dict) and "kind" in document:
        raise UnreadableDocument(f"{origin} is JSON, but not a ModelDyno result: it is a {document['kind']}.")
    if not isinstance(document, dict) or not isinstance(document.get("schema"), int):
        raise UnreadableDocument(f"{origin} is JSON, but not a ModelDyno result: it has no schema number.")
    return check_result(msgspec.convert(upgrade_result(document, origin), Result))


def read_kind(data: bytes | str, kind: str, origin: str) -> dict[str, Any]:
    """Read the JSON of a document of one kind, without its key ``kind``.

    Raises:
        UnreadableDocument: it is JSON of something else.
    """
    document = msgspec.json.decode(data)
    if not isinstance(document, dict) or document.pop("kind", None) != kind:
        raise UnreadableDocument(f"{origin} is JSON, but not a ModelDyno {kind}.")
    return document


def upgrade_result(document: dict[str, Any], origin: str) -> dict[str, Any]:
    """Upgrade the document of a Result, and restore NaN and infinities."""
    current = upgrade(document, origin, UPGRADES, SCHEMA)
    _rename_knobs(current["job"])
    current["measurements"] = [_restore_nan(plain) for plain in current.get("measurements", ())]
    _restore_points(current.get("outline"))
    return current


def _rename_knobs(job: dict[str, Any]) -> None:
    """Name the knobs of an earlier job as they are named now, so that jobs compare."""
    names = _RENAMED_KNOBS.get(job.get("backend", ""), {})
    config = job.get("config")
    if names and isinstance(config, dict):
        job["config"] = {names.get(name, name): value for name, value in config.items()}


_RENAMED_KNOBS = {"onnxruntime": {"intra_threads": "threads"}}
"""Backend to the knobs that had another name."""


def upgrade(document: dict[str, Any], origin: str, upgrades: Upgrades, newest: int) -> dict[str, Any]:
    """Upgrade a document to the newest schema; raise UnreadableDocument if its own is later."""
    number = document["schema"]
    if number > newest:
        raise UnreadableDocument(
            f"{origin} has schema {number}, but this ModelDyno reads up to {newest}; upgrade ModelDyno."
        )
    if number < min(upgrades, default=newest):
        raise UnreadableDocument(
            f"{origin} has schema {number}, which never existed; the document is damaged."
        )
    for number_before in range(number, newest):
        document = upgrades[number_before](document)
    for row in document.pop("metrics", ()):
        METRICS.describe(msgspec.convert(row, MetricRow))
    return document


def _restore_nan(measurement: dict[str, Any]) -> dict[str, Any]:
    """Restore NaN values that were written as null."""
    if measurement["value"] is None:
        measurement["value"] = nan
    measurement["runs"] = [nan if run is None else run for run in measurement.get("runs", ())]
    return restore_infinite_ends(measurement)


def restore_infinite_ends(holder: dict[str, Any]) -> dict[str, Any]:
    """Restore infinite ends of an interval."""
    interval = holder.get("interval")
    if isinstance(interval, dict):
        interval.update({key: end for key, end in _INFINITE_ENDS.items() if interval[key] is None})
    return holder


_INFINITE_ENDS = {"low": -inf, "high": inf}


def _restore_points(outline: dict[str, Any] | None) -> None:
    for point in (outline or {}).get("points", ()):
        point["values"] = {name: nan if value is None else value for name, value in point["values"].items()}


def check_result(result: Result) -> Result:
    """Check what the types cannot: complete and finite samples."""
    for measurement in result.measurements:
        if isinstance(measurement.value, Distribution):
            runs = measurement.value.runs
            if not runs or any(not run or len(run) % 8 for run in runs):
                raise ValueError(f"the samples of {measurement.metric} are truncated")
            ends = chain.from_iterable((run.min(), run.max()) for run in measurement.value.arrays())
            if not all(map(isfinite, ends)):
                raise ValueError(f"the samples of {measurement.metric} are not finite numbers")
    return result


def read(path: Path) -> Result:
    """Read a Result from a file.

    Raises:
        RequestError: the file cannot be read, or is not a Result.
    """
    return decode(read_document_bytes(path), origin=str(path))


def read_all(path: Path) -> tuple[Result, ...]:
    """Read the Results of a file: a document, or an array of them.

    Raises:
        RequestError: the file cannot be read, or one of them is not a Result.
    """
    data = read_document_bytes(path)
    if not data.lstrip().startswith(b"["):
        return (decode(data, origin=str(path)),)
    with explain_damage(str(path), "does not hold ModelDyno results"):
        return tuple(_to_result(document, str(path)) for document in msgspec.json.decode(data))


def kind_name(data: bytes) -> str:
    """Return the ``kind`` of an encoded document, such as ``study`` or ``comparison``; empty for a Result."""
    match = _KIND.match(data)
    return match[1].decode() if match else ""


_KIND = re.compile(rb'\s*\{\s*"kind"\s*:\s*"(\w+)"')


def read_document_bytes(path: Path) -> bytes:
    """Read a file that was named by the user.

    Raises:
        RequestError: it cannot be read, or is too large for a document.
    """
    try:
        check_no_stream(path)
        if path.stat().st_size > _MAX_SIZE:
            raise UnreadableDocument(f"{path} has {path.stat().st_size:,} bytes; no document is that large.")
        return path.read_bytes()
    except OSError as error:
        raise RequestError(f"Cannot read {path}: {error.strerror}.") from error


def check_no_stream(path: Path) -> None:
    """Refuse a pipe, a socket or a device, which may have no end; those of a shell are fine.

    Raises:
        RequestError: it is one.
        OSError: it is not there, or cannot be looked at.
    """
    mode = path.stat().st_mode
    shell = str(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/"))  # such as <(command)
    kind = next((kind for of_kind, kind in _STREAMS.items() if of_kind(mode)), None)
    if kind and not shell:
        raise RequestError(f"{path} is a {kind}; name a file.")


_STREAMS = {
    stat.S_ISFIFO: "pipe", stat.S_ISSOCK: "socket", stat.S_ISCHR: "device", stat.S_ISBLK: "device",
}  # fmt: skip


def check_directory(path: Path) -> None:
    """Check early that a file can be written.

    Raises:
        RequestError: its directory does not exist, its name is too long, or it is a link in a circle.
    """
    real = Path(os.path.realpath(path))
    try:
        real.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise RequestError(f"Cannot write {path}: {error.strerror}.") from error
    if real.is_symlink():
        raise RequestError(f"Cannot write {path}: it is a link that leads to itself.")
    if not real.parent.is_dir():
        directory = real.parent if path.is_symlink() else path.parent
        raise RequestError(f"Cannot write {path}: the directory {directory} does not exist.")


def write(path: Path, data: bytes) -> None:
    """Write a file atomically: an existing file stays until the new one is on disk.

    Raises:
        RequestError: the file cannot be written.
        DiskFull: the disk is full.
    """
    check_directory(path)
    try:
        if path.exists() and not path.is_file():
            _write_to_device(path, data)
        else:
            _write_atomically(path.resolve(), data)
    except OSError as error:
        kind = DiskFull if error.errno in _DISK_FULL_ERRORS else RequestError
        raise kind(f"Cannot write {path}: {error.strerror or error}.") from error


_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)


def _write_to_device(path: Path, data: bytes) -> None:
    """Write to a device or a pipe, such as /dev/null, rather than replace it; a pipe needs a reader now."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as device:
        device.write(data)


def _write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name[:40]}.{os.urandom(4).hex()}")
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
    """Return the JSON Schema of a Result."""
    document = msgspec.json.schema(Result)
    measurement = document["$defs"]["Measurement"]["properties"]
    ends = document["$defs"]["Interval"]["properties"]
    points = document["$defs"]["SizePoint"]["properties"]["values"]
    nullable = (
        (ends, "low"),
        (ends, "high"),
        (measurement, "value"),
        (measurement["runs"], "items"),
        (points, "additionalProperties"),
    )
    for holder, key in nullable:
        holder[key] = {"anyOf": [holder[key], {"type": "null"}]}
    document["$defs"]["Result"]["properties"][DIGEST] = _DIGEST_SCHEMA
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ModelDyno result, schema {SCHEMA}",
        **document,
    }


_DIGEST_SCHEMA = {
    "type": "string",
    "description": "SHA-256 of the document without this key, as JSON with sorted keys and no space between.",
}


def encode_job(job: Job) -> bytes:
    """Encode a Job for a child process, with the metrics that its parent registered by a call.

    The child finds those of plugins by itself. It needs all of them, because a probe may only measure what
    the table has.

    Raises:
        RequestError: the job has a number that no document can hold.
    """
    plain = check_numbers(_to_writable(msgspec.to_builtins(job)), "job")
    return to_json(plain | {"metrics": METRICS.registered})


def decode_job(data: bytes) -> Job:
    """Decode a Job, and register the metrics of its parent."""
    document = msgspec.json.decode(data)
    for row in document.pop("metrics", ()):
        METRICS.register(msgspec.convert(row, MetricRow))
    return msgspec.convert(document, Job)


def encode_event(event: Event) -> bytes:
    """Encode an event on one line, as an array of its kind and itself."""
    return to_json((type(event).__name__, event))


def decode_event(line: bytes) -> Event:
    """Decode an event.

    Raises:
        UnreadableDocument: the line is truncated, for example because the writing process died.
    """
    try:
        kind, plain = msgspec.json.decode(line, type=tuple[str, dict[str, Any]])
        if kind == Measurement.__name__:
            plain = _restore_nan(plain)
        if kind == StaticReport.__name__:
            _restore_points(plain)
        return msgspec.convert(plain, _EVENTS[kind])
    except _MALFORMED as error:
        raise UnreadableDocument(f"An event of the child process is damaged: {error}.") from error


_EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}


def to_json(document: Any) -> bytes:
    """Encode a document on one line; what JSON cannot hold becomes text or null."""
    return msgspec.json.encode(_to_writable(msgspec.to_builtins(document)))


_FACT_KEYS = {"config", "hardware", "software", "conditions"}


def _to_writable(part: Any, *, fact: bool = False) -> Any:
    """Replace what JSON cannot hold: NaN and infinities in facts by text, and invalid UTF-8 anywhere."""
    match part:
        case str():  # file names may hold lone surrogates
            return part if part.isascii() else part.encode("utf-8", "replace").decode()
        case float():
            return str(part) if fact and not isfinite(part) else part
        case dict():
            return {_to_writable(k): _to_writable(v, fact=fact or k in _FACT_KEYS) for k, v in part.items()}
        case list() | tuple():
            return [_to_writable(item) for item in part]
        case _:
            return part
