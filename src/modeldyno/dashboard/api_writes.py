"""What scripts change over the API: models that are registered, described, measured and removed.

Each route calls what the command line and Python call. As in the forms, no field is a command, a path or an
address: the file of a model is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.version_name import SOURCE, VersionName
from modeldyno.dashboard import registry_writes
from modeldyno.dashboard.page import PageRequest
from modeldyno.registry import changes
from modeldyno.registry.attachments import attach_document, detach_documents
from modeldyno.registry.changes import QueuedTask
from modeldyno.registry.records.records import AttachedDocument, Version
from modeldyno.registry.register import registration_values

if TYPE_CHECKING:
    from modeldyno.base.document import StoredDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelToRegister:
    """A form with a file, of which nothing is executed; every other field is text."""

    file: str
    name: str = ""
    """By default that of its file; `architecture` is the same."""
    version: str = ""
    """Its number; by default the next one."""
    task: str = ""
    dataset: str = ""
    metrics: str = ""
    """What its maker says, as JSON such as {"accuracy": 0.76}; `metric` is the same."""
    labels: str = ""
    """Any text by name, as JSON."""
    inputs: str = ""
    """What it is measured with, such as x=1x8, or as JSON; by default what it declares."""
    parent: str = ""
    """The version that it was made from, such as digits/3."""
    policy: str = ""
    convert: str = ""
    """yes or no: queue the conversions of the policy; yes by default."""
    profile: str = ""
    """yes or no: queue its measurements; yes by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredFile:
    """What came of it."""

    version: Version
    new: bool
    """False if this content was registered under this name before."""
    queued: int
    """Tasks that it has queued."""
    workers: int
    """Workers that are there to do them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChanges:
    """What is said of a version; what is left out stays as it is, metrics and labels are added."""

    task: str | None = None
    dataset: str | None = None
    policy: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionToMeasure:
    """What a worker shall measure next, as the version's policy says."""

    recipe: str = SOURCE
    """The variant, such as onnx."""
    batch_size: int = 1
    target: str = ""
    """Name or id of a target; may be left out where there is only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementToAttach:
    """A stored result, load, explanation or comparison, and where it was measured if it does not say that."""

    document: str
    """Its id."""
    host: str | None = None
    device: str | None = None
    engine: str | None = None
    batch_size: int | None = None
    replace: bool = False
    """In place of what has the same host, device, engine and batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedMeasurement:
    """What is listed now."""

    attached: AttachedDocument
    replaced: tuple[str, ...]
    """Ids of those that are listed no more; they stay in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedVersion:
    """A version that is gone, with its variants, figures and tasks; its Results stay."""

    version: Version
    aliases: tuple[str, ...]
    """Those that name nothing now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiWrite:
    """An operation that changes something."""

    method: str
    path: str
    write: Callable[[PageRequest], object]
    status: int
    """Of its answer."""
    gives: type
    takes: type | None = None
    """Its body; None: it has none."""
    sends_file: bool = False
    """Whether the body is a form with a file instead of JSON."""

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.write.__doc__ or "").partition("\n")[0]


class NoSuchVersion(RequestError):
    """The path names no version."""


def register_model(request: PageRequest) -> RegisteredFile:
    """Register the model in a file, and queue what its policy says."""
    given = {name: text for name, text in request.form if text.strip()}
    registered = registry_writes.register_sent(
        request, registration_values({name: _plain_or_json(text) for name, text in given.items()})
    )
    return RegisteredFile(
        version=registered.version,
        new=registered.new,
        queued=registered.queued,
        workers=registered.workers,
    )


def change_version(request: PageRequest) -> Version:
    """Edit the metadata of a version."""
    asked_for = _body(request, VersionChanges)
    return changes.update_version(
        request.store.registry,
        _version(request).name,
        texts={key: getattr(asked_for, key) for key in ("task", "dataset", "policy")},
        metrics=asked_for.metrics,
        labels=asked_for.labels,
    )


def measure_version(request: PageRequest) -> QueuedTask:
    """Queue a measurement of a version before everything else."""
    asked_for = _body(request, VersionToMeasure)
    return changes.measure_next(
        request.store.registry,
        _version(request).name,
        asked_for.recipe,
        batch_size=asked_for.batch_size,
        target=asked_for.target,
    )


def attach_measurement(request: PageRequest) -> AttachedMeasurement:
    """List a stored measurement under a version; of the same content it is listed by itself."""
    asked_for = _body(request, MeasurementToAttach)
    place = {name: getattr(asked_for, name) for name in ("host", "device", "engine", "batch_size")}
    attached, before = attach_document(
        request.store.registry,
        _version(request).name,
        _stored_document(request, asked_for.document),
        place,
        replace_same=asked_for.replace,
    )
    return AttachedMeasurement(attached=attached, replaced=before)


def detach_measurement(request: PageRequest) -> AttachedDocument:
    """List an attached measurement no more; it stays in the store."""
    name, document = _version(request).name, request.path["document"]
    return detach_documents(request.store.registry, name, [document])[0]


def _stored_document(request: PageRequest, identifier: str) -> StoredDocument:
    """Return a stored document by its id, or the beginning of it."""
    try:
        return request.store.get(identifier)
    except RequestError:
        with suppress(RequestError):
            return request.store.conclusion(identifier)
        raise


def remove_version(request: PageRequest) -> RemovedVersion:
    """Remove a version with its variants and figures; its Results stay."""
    version, aliases = changes.remove_version(request.store.registry, _version(request).name)
    return RemovedVersion(version=version, aliases=aliases)


_VERSION = "/models/{name}/{version}"
API_WRITES = (
    ApiWrite(
        method="POST", path="/models", write=register_model, status=201, takes=ModelToRegister,
        gives=RegisteredFile, sends_file=True,
    ),
    ApiWrite(
        method="PATCH", path=_VERSION, write=change_version, status=200, takes=VersionChanges, gives=Version,
    ),
    ApiWrite(
        method="POST", path=f"{_VERSION}/measure", write=measure_version, status=202, takes=VersionToMeasure,
        gives=QueuedTask,
    ),
    ApiWrite(
        method="POST", path=f"{_VERSION}/measurements", write=attach_measurement, status=201,
        takes=MeasurementToAttach, gives=AttachedMeasurement,
    ),
    ApiWrite(
        method="DELETE", path=f"{_VERSION}/measurements/{{document}}", write=detach_measurement, status=200,
        gives=AttachedDocument,
    ),
    ApiWrite(method="DELETE", path=_VERSION, write=remove_version, status=200, gives=RemovedVersion),
)  # fmt: skip


def _version(request: PageRequest) -> Version:
    try:
        name = f"{request.path['name']}/{request.path['version']}"
        return request.store.registry.version(VersionName.parse(name))
    except RequestError as error:
        raise NoSuchVersion(str(error)) from error


def _plain_or_json(text: str) -> Any:
    """Return what a field of a form says: an object or a list as JSON, all else as it is written."""
    if text.strip()[:1] in {"{", "["}:
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text.strip()


def _body(request: PageRequest, kind: type[Any]) -> Any:
    """Read a JSON body.

    Raises:
        RequestError: it is none, or a field is unknown or of another type.
    """
    try:
        plain = msgspec.json.decode(request.body or b"{}")
        if isinstance(plain, Mapping):
            _check_names(plain, (each.name for each in fields(kind)))
        return msgspec.convert(plain, kind)
    except msgspec.MsgspecError as error:
        raise RequestError(f"The body does not fit: {error}.") from error
    except RecursionError as error:
        raise RequestError("The body does not fit: it is nested too deeply.") from error


def _check_names(given: Iterable[str], known: Iterable[str]) -> None:
    names = tuple(known)
    for name in given:
        if name not in names:
            raise UnknownName.among("field", name, names)
