"""How closely to watch a model at work: what the probes of the second pass are asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What to watch, beyond what each probe does by itself."""

    layers: tuple[str, ...] = ()
    """Parts of paths or classes of modules; only these are watched one by one, all of them if empty."""
    prompts: tuple[int, ...] = (128,)
    """Tokens of the prompts to generate from."""
    generated: tuple[int, ...] = (32,)
    """Tokens to generate."""
    trace: str | None = None
    """File for a trace of a few calls that Perfetto opens."""
    records: str | None = None
    """File for every request of a load: .csv, .jsonl or .npz."""
    outputs: str | None = None
    """File for what one call returns: .npz."""

    def named(self, path: str, kind: str) -> bool:
        """Say whether a module is asked for."""
        return not self.layers or any(part in path or part.lower() in kind.lower() for part in self.layers)

    def unmatched(self, seen: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Give the names that were asked for and are in no path or class; `seen` are pairs of these."""
        pairs = list(seen)
        return tuple(
            part
            for part in self.layers
            if not any(part in path or part.lower() in kind.lower() for path, kind in pairs)
        )


RECORD_FORMATS = (".csv", ".jsonl", ".npz")
"""Suffixes of a file for every request of a load."""
MOST_TOKENS = 1_048_576
_NUMBER = re.compile(r"[1-9]\d{0,6}")


def tokens(text: str, option: str) -> tuple[int, ...]:
    """Read numbers of tokens: ``128`` or ``32,128,512``.

    Raises:
        RequestError: one is no whole number from 1 to MOST_TOKENS.
    """
    found = [part.strip() for part in text.split(",")]
    if wrong := [part for part in found if not _NUMBER.fullmatch(part) or int(part) > MOST_TOKENS]:
        raise RequestError(f"{option} takes numbers of tokens, such as 128 or 32,128,512, not '{wrong[0]}'.")
    return tuple(dict.fromkeys(map(int, found)))
