"""JSON: the complete Result; all other formats are derived from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base import codec
from modeldyno.base.stats.sanitize import escape_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.result.result import Result

suffix = ".json"


def render(document: Result, *, judgements: Sequence[Judgement] = ()) -> bytes:
    """Write the document, with the judgements as an additional key."""
    return escape_json(codec.encode(document, **({"judgements": judgements} if judgements else {})))
