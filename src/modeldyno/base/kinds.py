"""Finds the kind of a document and reads documents of any kind; the features that have them register them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from modeldyno.base import codec, plugins
from modeldyno.base.errors import UnreadableDocument

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.document import Document, StoredDocument
    from modeldyno.base.document_kind import DocumentKind

KIND = "document"
RESULT = "result"
"""The kind of a document whose JSON names none."""


def names() -> tuple[str, ...]:
    """List the kinds of documents."""
    return plugins.names(KIND)


def kind_of(document: Document | type[Document]) -> DocumentKind:
    """Return the kind of a document, or of its class."""
    return cast("DocumentKind", plugins.resolve(KIND, document.KIND))


def decode(data: bytes, *, origin: str = "the document") -> StoredDocument:
    """Decode a document of any kind and schema version.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of an unknown kind, or of a later schema.
    """
    name = codec.kind_name(data) or RESULT
    kind: DocumentKind | None = plugins.resolve(KIND, name) if name in names() else None
    if kind is not None and kind.command:
        raise UnreadableDocument(
            f"{origin} is what modeldyno {kind.command} --json writes for other programs; it is not read "
            f"back. Run modeldyno {kind.command} again to see it."
        )
    if kind is None:
        raise UnreadableDocument(f"{origin} is of the kind '{name}', which this ModelDyno cannot read.")
    if kind.decode is None:
        raise UnreadableDocument(f"{origin} is a document of the kind '{name}', which is not read back.")
    return kind.decode(data, origin=origin)


def read(path: Path) -> StoredDocument:
    """Read a document of any kind from a file.

    Raises:
        RequestError: the file cannot be read, or is no document.
    """
    return decode(codec.read_document_bytes(path), origin=str(path))
