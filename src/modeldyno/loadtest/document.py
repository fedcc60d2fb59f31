"""Load curves, searches for the largest load, explanations and reconciliations as kinds of documents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno import codec
from modeldyno.codec import explanation as codec_explanation
from modeldyno.codec import series as codec_series
from modeldyno.core.load.capacity import Capacity
from modeldyno.core.load.explanation import Explanation
from modeldyno.core.load.load_curve import LoadCurve
from modeldyno.core.load.reconciliation import Reconciliation
from modeldyno.core.recompute.others import check_explanation, check_series
from modeldyno.interfaces.document import DocumentKind, plain_kind
from modeldyno.views.load import explanation, page, reconciliation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.core.recompute.checks import FigureCheck
    from modeldyno.interfaces.document import FindResult


def _series_kind(name: str, series: type[LoadCurve | Capacity]) -> DocumentKind:
    return DocumentKind(
        name=name, document=series, encode=partial(codec_series.encode, name),
        decode=partial(codec_series.decode, series), checks=check_series, headline=page.headline,
        blocks=page.blocks, page=page.page, numbers=page.numbers, title=page.headline, brief=page.headline,
    )  # fmt: skip


def _checks(
    written: Mapping[str, Any], explained: Explanation, find_result: FindResult
) -> Iterable[FigureCheck]:
    del find_result
    return check_explanation(written, explained)


LADDER = _series_kind("ladder", LoadCurve)
CAPACITY = _series_kind("capacity", Capacity)
EXPLANATION = DocumentKind(
    name=codec_explanation.KIND, document=Explanation, encode=codec_explanation.encode,
    decode=codec_explanation.decode, checks=_checks, headline=explanation.headline,
    blocks=explanation.blocks, page=explanation.page, numbers=explanation.numbers, title=explanation.title,
    brief=explanation.brief,
)  # fmt: skip
RECONCILIATION = plain_kind(
    "reconciliation", Reconciliation, reconciliation.blocks, encode=codec.encode_document, command="reconcile"
)
