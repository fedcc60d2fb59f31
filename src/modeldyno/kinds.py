"""Every kind of document in one table: its name, its class, its JSON and its views.

A kind is added as a row of `KINDS` and a module of `views` with four functions: the headline, the blocks that
a terminal shows, the blocks of a page, and the table of all numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno import codec, plugins, views
from modeldyno.codec import comparison as codec_comparison
from modeldyno.codec import explanation as codec_explanation
from modeldyno.codec import series as codec_series
from modeldyno.codec import study as codec_study
from modeldyno.core.agreement.conversion import Conversion
from modeldyno.core.comparison.comparison import Comparison
from modeldyno.core.comparison.trend import Trend
from modeldyno.core.load.capacity import Capacity
from modeldyno.core.load.explanation import Explanation
from modeldyno.core.load.load_curve import LoadCurve
from modeldyno.core.report.blocks import Block, Table
from modeldyno.core.result.result import Result
from modeldyno.core.study.ranking import ranking
from modeldyno.core.study.study import Study
from modeldyno.errors import UnreadableDocument
from modeldyno.interfaces.store import Conclusion
from modeldyno.views.comparison import blocks as comparison_blocks
from modeldyno.views.comparison import page as comparison_page
from modeldyno.views.comparison import trend
from modeldyno.views.conversion import blocks as conversion_blocks
from modeldyno.views.load import explanation as explanation_view
from modeldyno.views.load import page as load_page
from modeldyno.views.study import blocks as study_blocks
from modeldyno.views.study import page as study_page
from modeldyno.views.study import tables as study_tables

if TYPE_CHECKING:
    from pathlib import Path


Stored = Result | Study | Conclusion
"""What a file or the store holds."""
Document = Stored | Trend


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentKind:
    """What is known of a kind of document; each function takes a document of its type."""

    name: str
    """The value of ``kind`` in its JSON, which that of a Result and of a Trend lack; messages use it, too."""
    document: type[Document]
    encode: Callable[..., bytes]
    """Encodes a document as JSON; of a Result, a study or a load series with further keys, not read back."""
    decode: Callable[..., Stored] | None = None
    """Decodes JSON; errors call it `origin`. None for a document that is not read back."""
    headline: Callable[[Any], str]
    """The verdict in one sentence."""
    blocks: Callable[..., Iterable[Block]]
    """What a terminal shows of a document, by ViewOptions."""
    page: Callable[..., Iterable[Block]]
    """The same in sections and with charts, by ViewOptions."""
    numbers: Callable[[Any], Table]
    """Every number, in base units and unrounded."""
    title: Callable[[Any], str]
    """The title of its page."""
    brief: Callable[[Any], str]
    """Its line in a list."""


def _with_knobs(page: Callable[..., Iterable[Block]]) -> Callable[..., Iterable[Block]]:
    """Return a page of several Results that knows the knobs of their backends."""
    return lambda document, options=views.PLAIN: page(document, replace(options, knobs=plugins.knobs))


def _kind(name: str, document: type[Document], view: Any, **others: Any) -> DocumentKind:
    """Return the kind whose views are those of a module; one without a title has its headline as such."""
    headline = view.headline
    views_of = {"headline": headline, "blocks": view.blocks, "page": view.page, "numbers": view.numbers}
    named = {"title": getattr(view, "title", headline), "brief": getattr(view, "brief", headline)}
    return DocumentKind(name=name, document=document, **{**views_of, **named, **others})


KINDS = (
    _kind(
        "result",
        Result,
        views,
        encode=codec.encode,
        decode=codec.decode,
        page=lambda result, options=views.PLAIN: views.page(
            result, options, plugins.knobs(result.job.backend)
        ),
    ),
    DocumentKind(
        name=codec_study.KIND,
        document=Study,
        encode=lambda study, **derived: codec_study.encode(study, ranking=ranking(study), **derived),
        decode=codec_study.decode,
        headline=study_blocks.headline,
        blocks=study_blocks.blocks,
        page=_with_knobs(study_page.page),
        numbers=study_tables.numbers,
        title=study_blocks.title,
        brief=study_blocks.brief,
    ),
    DocumentKind(
        name=codec_comparison.KIND,
        document=Comparison,
        encode=codec_comparison.encode,
        decode=codec_comparison.decode,
        headline=comparison_blocks.headline,
        blocks=comparison_blocks.blocks,
        page=_with_knobs(comparison_page.page),
        numbers=comparison_blocks.numbers,
        title=comparison_blocks.title,
        brief=comparison_blocks.headline,
    ),
    *(
        _kind(
            name,
            series,
            load_page,
            encode=partial(codec_series.encode, name),
            decode=partial(codec_series.decode, series),
        )
        for name, series in (("ladder", LoadCurve), ("capacity", Capacity))
    ),
    _kind(
        "conversion",
        Conversion,
        conversion_blocks,
        encode=partial(codec_series.encode, "conversion"),
        decode=partial(codec_series.decode, Conversion),
    ),
    _kind(
        codec_explanation.KIND,
        Explanation,
        explanation_view,
        encode=codec_explanation.encode,
        decode=codec_explanation.decode,
    ),
    _kind("trend", Trend, trend, encode=codec.encode_document),
)
_BY_TYPE = {kind.document: kind for kind in KINDS}
_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_of(document: Document) -> DocumentKind:
    """Return the kind of a document."""
    return _BY_TYPE[type(document)]


def decode(data: bytes, *, origin: str = "the document") -> Stored:
    """Decode a document of any kind and schema version.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of an unknown kind, or of a later schema.
    """
    name = codec.kind_name(data) or "result"
    if command := codec.WRITTEN_ONLY.get(name):
        raise UnreadableDocument(
            f"{origin} is what modeldyno {command} --json writes for other programs; it is not read back. "
            f"Run modeldyno {command} again to see it."
        )
    kind = _BY_NAME.get(name)
    if kind is None or kind.decode is None:
        raise UnreadableDocument(f"{origin} is of the kind '{name}', which this ModelDyno cannot read.")
    return kind.decode(data, origin=origin)


def read(path: Path) -> Stored:
    """Read a document of any kind from a file.

    Raises:
        RequestError: the file cannot be read, or is no document.
    """
    return decode(codec.read_document_bytes(path), origin=str(path))
