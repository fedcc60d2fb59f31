"""Verifies documents: whether their figures follow from what they keep, and whether they are as written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base import codec, kinds, plugins
from modeldyno.base.errors import RequestError, UnreadableDocument
from modeldyno.base.report.figure_checks import DigestState, Recomputation
from modeldyno.stores.catalog import stored_result
from modeldyno.stores.lookup import find_any

if TYPE_CHECKING:
    from modeldyno.base.document import StoredDocument


def verify(document: str | StoredDocument) -> Recomputation:
    """Recompute every figure of a document that a file or the store has, or of a document in memory.

    Args:
        document: a file, or an id, the beginning of one, a tag or a name of the store; or a document.

    Raises:
        RequestError: there is none, or it is not a document.
    """
    if not isinstance(document, str):
        return _recompute(document, _without_derived(document), DigestState.ABSENT)
    path = Path(document)
    if path.is_file():
        return verify_bytes(codec.read_document_bytes(path), origin=str(path))
    read = find_any(document)
    with plugins.store() as store:
        stored = store.document(read.id)
    if stored is not None:
        return verify_bytes(stored, origin=f"{read.id} of the store")
    return _recompute(read, _without_derived(read), DigestState.ABSENT)


def _without_derived(document: StoredDocument) -> dict[str, Any]:
    """Return the JSON of a document that the store keeps in parts, which has nothing derived from others."""
    plain: dict[str, Any] = msgspec.json.decode(kinds.kind_of(document).encode(document))
    plain.pop("ranking", None)
    return plain


def verify_bytes(data: bytes, *, origin: str = "the document") -> Recomputation:
    """Recompute every figure of an encoded document.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of an unknown kind, or of a later schema.
    """
    document = kinds.decode(data, origin=origin)
    written: dict[str, Any] = msgspec.json.decode(data)
    try:
        return _recompute(document, written, _digest_state(written))
    except RequestError as error:  # what a document derives, such as verdicts, is read only here
        raise UnreadableDocument(f"{origin} has been changed: {error}") from error


def _recompute(document: StoredDocument, written: dict[str, Any], digest: DigestState) -> Recomputation:
    kind = kinds.kind_of(document)
    assert kind.checks is not None
    return Recomputation.of(
        kind.checks(written, document, stored_result),
        document=kind.name,
        identifier=document.id,
        name=document.name,
        digest=digest,
    )


def _digest_state(written: dict[str, Any]) -> DigestState:
    digest = written.get(codec.DIGEST)
    if digest is None:
        return DigestState.ABSENT
    return DigestState.UNCHANGED if digest == codec.digest_of(written) else DigestState.CHANGED
