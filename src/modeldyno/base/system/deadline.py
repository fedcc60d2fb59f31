"""When requests have to be answered, at the latest.

Without any of the code that sends them: a run of a model enters `answered_by` when the baseline of its memory
has been taken, whether or not it sends anything, and what is imported then would count as the model's.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

latest_answer: ContextVar[float] = ContextVar("latest_answer", default=inf)
"""When every request has to be answered, in seconds of the monotonic clock."""


@contextmanager
def answered_by(end: float) -> Iterator[None]:
    """Give up the requests sent within the block at `end` of the monotonic clock, if not before."""
    token = latest_answer.set(min(end, latest_answer.get()))
    try:
        yield
    finally:
        latest_answer.reset(token)
