"""Bounds how far bodies and functions of a graph are unrolled: a small file may ask for very many."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 1_000_000
"""Operators, which are a few minutes of analysis."""
_DEEPEST = 64


@dataclass(slots=True)
class Unrolling:
    """How many operators were visited, and how deep bodies are nested."""

    steps: int = 0
    depth: int = 0

    def step(self, count: int = 1) -> None:
        """Visit operators.

        Raises:
            RequestError: there are too many.
        """
        self.steps += count
        if self.steps > _MOST:
            raise RequestError(
                f"The graph has more than {_MOST:,} operators once its loops and functions are unrolled, "
                "which is too many to analyse."
            )

    @contextmanager
    def body(self) -> Iterator[None]:
        """Visit a body or a function.

        Raises:
            RequestError: they are nested too deep.
        """
        if self.depth == _DEEPEST:
            raise RequestError(f"Functions and bodies of the graph are nested more than {_DEEPEST} deep.")
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
