"""A Result as a kind of document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.base import codec
from modeldyno.base.document_kind import DocumentKind
from modeldyno.base.result.result import Result
from modeldyno.profiling import views
from modeldyno.profiling.recompute import check_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.base.document_kind import FindResult
    from modeldyno.base.report.figure_checks import FigureCheck


def _checks(written: Mapping[str, Any], result: Result, find_result: FindResult) -> Iterable[FigureCheck]:
    del find_result
    return check_result(written, result)


RESULT = DocumentKind(
    name="result", document=Result, encode=codec.encode, decode=codec.decode, checks=_checks,
    headline=views.headline, blocks=views.blocks, page=views.page, numbers=views.numbers,
    title=views.headline, brief=views.brief,
)  # fmt: skip
