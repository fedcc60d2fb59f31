"""JSON: the complete Result; all other formats are derived from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from modeldyno import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.result.result import Result

suffix = ".json"
_TERMINAL_CONTROLS = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters that JSON allows and a terminal would interpret."""


def render(document: Result, *, judgements: Sequence[Judgement] = ()) -> bytes:
    """Write the document, with the judgements as an additional key."""
    return escape_terminal_controls(
        codec.encode(document, **({"judgements": judgements} if judgements else {}))
    )


def escape_terminal_controls(data: bytes) -> bytes:
    """Escape the control characters that a terminal would interpret."""
    text = data.decode("utf-8")
    return (
        text if text.isascii() and "\x7f" not in text else _TERMINAL_CONTROLS.sub(_escape_character, text)
    ).encode()


def _escape_character(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
