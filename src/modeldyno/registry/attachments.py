"""List measurements under a version whose model has another digest: of its server, or of another machine."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.identity import actor
from modeldyno.base.job.version_name import VersionName
from modeldyno.base.kinds import kind_of
from modeldyno.registry.records.records import AttachedDocument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.base.document import StoredDocument
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Version

_SHOWN = 6
"""Characters of an id in messages."""


def attach_document(
    registry: Registry,
    name: str,
    document: StoredDocument,
    place: Mapping[str, Any] | None = None,
    *,
    replace_same: bool = False,
) -> tuple[AttachedDocument, tuple[str, ...]]:
    """List a stored document under a version; return it, and the ids of those in whose place it is.

    Args:
        registry: the registry of the store that has the document.
        name: of the version.
        document: a Result, a load series, an explanation or a comparison.
        place: what it does not say itself of `MeasuredAt`; None and fields of None change nothing.
        replace_same: others of the same host, device, engine and batch size are listed no more.

    Raises:
        RequestError: there is no such version, or the document has no figures of a model.
    """
    kind = kind_of(document).name
    if document.measured_at is None:
        raise RequestError(
            f"A {kind} has no figures of one model; attach a result, a load, an explanation or a comparison."
        )
    given = {field: value for field, value in (place or {}).items() if value is not None}
    if given.get("batch_size", 1) < 1:
        raise RequestError(f"A batch has 1 sample or more, not {given['batch_size']}.")
    version = registry.version(VersionName.parse(name))
    attached = AttachedDocument(
        model=version.model,
        number=version.number,
        document=document.id,
        kind=kind,
        at=replace(document.measured_at, **given),
    )
    return attached, registry.attach(attached, actor(), replace=replace_same)


def detach_documents(
    registry: Registry, name: str, documents: Sequence[str] = (), place: Mapping[str, Any] | None = None
) -> tuple[AttachedDocument, ...]:
    """List documents no more under a version; return what they were. They stay in the store.

    Args:
        registry: the registry.
        name: of the version.
        documents: ids, or their beginnings; with a place only those of both.
        place: fields of `MeasuredAt` that all of them have; fields of None are not looked at.

    Raises:
        RequestError: there is no such version, nothing is named, or one that is named is not attached.
    """
    given = {field: value for field, value in (place or {}).items() if value is not None}
    version = registry.version(VersionName.parse(name))
    if not documents and not given:
        raise RequestError(
            f"Name what to detach from {version.name}: an id, or a host, device, engine or batch size."
        )
    there = [one for one in registry.attached(version) if given.items() <= asdict(one.at).items()]
    for word in documents:
        if not any(one.document.startswith(word) for one in there):
            raise RequestError(_not_attached(registry, version, word))
    chosen = tuple(one for one in there if not documents or one.document.startswith(tuple(documents)))
    if not chosen:
        words = ", ".join(f"{field.replace('_', ' ')} {value}" for field, value in given.items())
        raise RequestError(
            f"Nothing of {words} is attached to {version.name}; modeldyno registry show {version.name} "
            "lists what is."
        )
    registry.detach(version, [one.document for one in chosen], actor())
    return chosen


def _not_attached(registry: Registry, version: Version, word: str) -> str:
    digests = {version.digest, *(one.digest for one in registry.variants(version) if one.digest)}
    if word and any(identifier.startswith(word) for identifier in registry.results_of(tuple(digests))):
        return (
            f"{word[:_SHOWN]} is of the same model as {version.name}, and listed by that; to remove it from "
            f"the store: modeldyno rm {word[:_SHOWN]}."
        )
    return (
        f"'{word}' is not attached to {version.name}; modeldyno registry show {version.name} lists what is."
    )
