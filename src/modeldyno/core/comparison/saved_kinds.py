"""The documents derived from several Results, which are stored on their own and found by id."""

from __future__ import annotations

from modeldyno.core.comparison.comparison import Comparison
from modeldyno.core.load.capacity import Capacity
from modeldyno.core.load.load_curve import LoadCurve

SeriesDocument = Comparison | LoadCurve | Capacity
"""A comparison, a load curve, or the answer of a capacity search."""
KINDS: dict[str, type[SeriesDocument]] = {"comparison": Comparison, "ladder": LoadCurve, "capacity": Capacity}
"""The value of ``kind`` in a document to its class."""


def kind_of(document: SeriesDocument) -> str:
    """Return the kind of a document."""
    return next(kind for kind, class_ in KINDS.items() if isinstance(document, class_))


def name_of(document: SeriesDocument) -> str:
    """Return the name of the model; of a Comparison that of the baseline."""
    return document.baseline.name if isinstance(document, Comparison) else document.name
