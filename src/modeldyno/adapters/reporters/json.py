"""JSON: the complete Result; all other formats are derived from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno import codec
from modeldyno.core.stats.sanitize import escape_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.result.result import Result

suffix = ".json"


def render(document: Result, *, judgements: Sequence[Judgement] = ()) -> bytes:
    """Write the document, with the judgements as an additional key."""
    return escape_json(codec.encode(document, **({"judgements": judgements} if judgements else {})))
