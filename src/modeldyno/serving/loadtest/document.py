"""Load curves, searches for the largest load, explanations and reconciliations as kinds of documents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno.base import codec
from modeldyno.base.codec import plain
from modeldyno.base.document_kind import DocumentKind, plain_kind
from modeldyno.serving.codec import explanation as codec_explanation
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.explanation import Explanation
from modeldyno.serving.load.load_curve import LoadCurve
from modeldyno.serving.loadtest.recompute import check_explanation, check_series
from modeldyno.serving.loadtest.replicas import CostAnswer
from modeldyno.serving.views import explanation, page

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.base.document_kind import FindResult
    from modeldyno.base.report.figure_checks import FigureCheck


def _series_kind(name: str, series: type[LoadCurve | Capacity]) -> DocumentKind:
    return DocumentKind(
        name=name, document=series, encode=plain.encode, decode=partial(plain.decode, series),
        checks=check_series, headline=page.headline, blocks=page.blocks, page=page.page,
        numbers=page.numbers, title=page.headline, brief=page.headline,
    )  # fmt: skip


def _checks(
    written: Mapping[str, Any], explained: Explanation, find_result: FindResult
) -> Iterable[FigureCheck]:
    del find_result
    return check_explanation(written, explained)


LADDER = _series_kind("ladder", LoadCurve)
CAPACITY = _series_kind("capacity", Capacity)
COSTS = plain_kind(CostAnswer, CostAnswer.blocks, encode=codec.encode_document)
EXPLANATION = DocumentKind(
    name=codec_explanation.KIND, document=Explanation, encode=codec_explanation.encode,
    decode=codec_explanation.decode, checks=_checks, headline=explanation.headline,
    blocks=explanation.blocks, page=explanation.page, numbers=explanation.numbers, title=explanation.title,
    brief=explanation.brief,
)  # fmt: skip
