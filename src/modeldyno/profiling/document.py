"""A Result as a kind of document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno import codec, views
from modeldyno.core.recompute.result import check_result
from modeldyno.core.result.result import Result
from modeldyno.interfaces.document import DocumentKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.core.recompute.checks import FigureCheck
    from modeldyno.interfaces.document import FindResult


def _checks(written: Mapping[str, Any], result: Result, find_result: FindResult) -> Iterable[FigureCheck]:
    del find_result
    return check_result(written, result)


RESULT = DocumentKind(
    name="result", document=Result, encode=codec.encode, decode=codec.decode, checks=_checks,
    headline=views.headline, blocks=views.blocks, page=views.page, numbers=views.numbers,
    title=views.headline, brief=views.brief,
)  # fmt: skip
