"""Comparisons, trends, verdicts of a gate and advice as kinds of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.base import codec, plugins
from modeldyno.base.document_kind import DocumentKind, plain_kind
from modeldyno.comparison import codec as codec_comparison
from modeldyno.comparison.calibrate import MachineCheckup
from modeldyno.comparison.change.advice import Advice
from modeldyno.comparison.change.comparison import Comparison
from modeldyno.comparison.change.gate_report import GateReport
from modeldyno.comparison.change.trend import Trend
from modeldyno.comparison.recompute import check_comparison
from modeldyno.comparison.views import advice as advice_blocks
from modeldyno.comparison.views import blocks, gate, page, trend

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.base.document_kind import FindResult
    from modeldyno.base.report.figure_checks import FigureCheck


def render_comment(report: GateReport) -> str:
    """Render a comment; a later run finds and replaces it by its first line."""
    body = plugins.resolve("reporter", "markdown").lay_out(gate.comment(report), title=report.result.name)
    return f"{gate.comment_marker(report)}\n{body}"


def _checks(
    written: Mapping[str, Any], comparison: Comparison, find_result: FindResult
) -> Iterable[FigureCheck]:
    del find_result
    return check_comparison(written, comparison)


COMPARISON = DocumentKind(
    name=codec_comparison.KIND, document=Comparison, encode=codec_comparison.encode,
    decode=codec_comparison.decode, checks=_checks, headline=blocks.headline, blocks=blocks.blocks,
    page=page.page, numbers=blocks.numbers, title=blocks.title, brief=blocks.headline,
)  # fmt: skip
TREND = DocumentKind(
    name="trend", document=Trend, encode=codec.encode_document, command="trend", headline=trend.headline,
    blocks=trend.blocks, page=trend.page, numbers=trend.numbers, title=trend.headline, brief=trend.headline,
)  # fmt: skip
ADVICE = plain_kind(Advice, advice_blocks.advice, encode=codec.encode_document, command="advise")
CHECKUP = plain_kind(MachineCheckup, MachineCheckup.blocks, encode=codec.encode_document)
GATE = plain_kind(
    GateReport, gate.blocks, encode=codec.encode_document,
    formats={".xml": gate.junit, ".sarif": gate.sarif, ".md": render_comment},
)  # fmt: skip
