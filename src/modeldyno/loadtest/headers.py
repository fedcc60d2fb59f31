"""Headers of requests reach the sending process through the environment, so that no document holds them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from modeldyno.core.load.endpoint_url import HEADERS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def headers_in_environment(lines: Sequence[str]) -> Iterator[None]:
    """Pass ``Name: value`` lines to processes that start within the block; without any, change nothing."""
    if not lines:
        yield
        return
    before = os.environ.get(HEADERS_VARIABLE)
    os.environ[HEADERS_VARIABLE] = "\n".join(lines)
    try:
        yield
    finally:
        os.environ.pop(HEADERS_VARIABLE, None)
        if before is not None:
            os.environ[HEADERS_VARIABLE] = before
