"""A Conversion as a kind of document."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno.base.codec import plain
from modeldyno.base.document_kind import DocumentKind
from modeldyno.base.report.figure_checks import kept
from modeldyno.conversion.agreement.conversion import Conversion
from modeldyno.conversion.views import blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.document_kind import FindResult
    from modeldyno.base.report.figure_checks import FigureCheck


def _checks(
    written: Mapping[str, Any], conversion: Conversion, find_result: FindResult
) -> Iterator[FigureCheck]:
    del written, find_result
    keep = partial(kept, written=None, why="how far the outputs agreed, without the outputs")
    yield from (keep(" ".join(map(str, row[:3]))) for row in blocks.numbers(conversion).rows)


CONVERSION = DocumentKind(
    name="conversion", document=Conversion, encode=plain.encode,
    decode=partial(plain.decode, Conversion), checks=_checks, headline=blocks.headline,
    blocks=blocks.blocks, page=blocks.page, numbers=blocks.numbers, title=blocks.title, brief=blocks.brief,
)  # fmt: skip
