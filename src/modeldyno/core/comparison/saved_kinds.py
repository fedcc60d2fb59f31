"""What was concluded from several Results: a document of its own, kept beside them and found by its id."""

from __future__ import annotations

from modeldyno.core.comparison.comparison import Comparison
from modeldyno.core.load.capacity import Capacity
from modeldyno.core.load.load_curve import Ladder

Conclusion = Comparison | Ladder | Capacity
"""A Comparison, one server under several loads, or the answer of a search for the largest."""
KINDS: dict[str, type[Conclusion]] = {"comparison": Comparison, "ladder": Ladder, "capacity": Capacity}
"""What these say of themselves, under the name ``kind``."""


def kind_of(found: Conclusion) -> str:
    """Say what it is."""
    return next(kind for kind, of in KINDS.items() if isinstance(found, of))


def name_of(found: Conclusion) -> str:
    """Give the name of the model that it is of; of a Comparison that of the baseline."""
    return found.baseline.name if isinstance(found, Comparison) else found.name
