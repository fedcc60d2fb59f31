"""Verifies documents: whether their figures follow from what they keep, and whether they are as written."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno import codec, kinds, plugins
from modeldyno.core.agreement.conversion import Conversion
from modeldyno.core.comparison.comparison import Comparison
from modeldyno.core.load.explanation import Explanation
from modeldyno.core.recompute.checks import DigestState, Recomputation, kept
from modeldyno.core.recompute.others import check_comparison, check_explanation, check_series, check_study
from modeldyno.core.recompute.result import check_result
from modeldyno.core.result.result import Result
from modeldyno.core.study.study import Study
from modeldyno.documents.catalog import stored_result
from modeldyno.documents.lookup import find_any
from modeldyno.errors import RequestError, UnreadableDocument
from modeldyno.interfaces.store import KeepsDocuments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.recompute.checks import FigureCheck


def verify(document: str | kinds.Stored) -> Recomputation:
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
        stored = store.document(read.id) if isinstance(store, KeepsDocuments) else None
    if stored is not None:
        return verify_bytes(stored, origin=f"{read.id} of the store")
    return _recompute(read, _without_derived(read), DigestState.ABSENT)


def _without_derived(document: kinds.Stored) -> dict[str, Any]:
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


def _recompute(document: kinds.Stored, written: dict[str, Any], digest: DigestState) -> Recomputation:
    return Recomputation.of(
        _checks(written, document),
        document=kinds.kind_of(document).name,
        identifier=document.id,
        name=document.source if isinstance(document, Conversion) else document.name,
        digest=digest,
    )


def _digest_state(written: dict[str, Any]) -> DigestState:
    digest = written.get(codec.DIGEST)
    if digest is None:
        return DigestState.ABSENT
    return DigestState.UNCHANGED if digest == codec.digest_of(written) else DigestState.CHANGED


def _checks(written: dict[str, Any], document: kinds.Stored) -> Iterator[FigureCheck]:
    match document:
        case Result():
            yield from check_result(written, document)
        case Study():
            yield from check_study(written, document, stored_result)
        case Comparison():
            yield from check_comparison(written, document)
        case Explanation():
            yield from check_explanation(written, document)
        case Conversion():
            yield from _kept_numbers(document)
        case _:
            yield from check_series(written, document, stored_result)


def _kept_numbers(document: Conversion) -> Iterator[FigureCheck]:
    table = kinds.kind_of(document).numbers(document)
    keep = partial(kept, written=None, why="how far the outputs agreed, without the outputs")
    yield from (keep(" ".join(map(str, row[:3]))) for row in table.rows)
