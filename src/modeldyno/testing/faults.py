"""Faults to put upon whatever writes files."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let this process write no file beyond `size` bytes: what fits is written, the rest fails.

    That is what a full disk does, on any system and without privileges. Python ignores the signal
    that would come with it.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
