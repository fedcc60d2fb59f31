"""Write the doubts of a document for a reader of Python: the fields that they name as arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.option_spelling import spell_for_python

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.metrics.doubt import Doubt


def translate_doubts(doubts: Iterable[Doubt]) -> tuple[Doubt, ...]:
    """Return the doubts with advice that names Python arguments."""
    return tuple(
        replace(doubt, seen=spell_for_python(doubt.seen), advice=spell_for_python(doubt.advice))
        for doubt in doubts
    )
