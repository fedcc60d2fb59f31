"""Disk faults, for tests of code that writes files."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limit the files that this process writes to `size` bytes: what fits is written, the rest fails.

    A full disk behaves like that; this works on any system and without privileges. Python ignores the signal
    that comes with it.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
