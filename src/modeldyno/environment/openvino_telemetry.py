"""OpenVINO without telemetry: unless told not to, it reports each import and conversion to its makers."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CI = "CI"


@contextmanager
def without_telemetry() -> Iterator[None]:
    """Let OpenVINO send nothing during the block, in which it is imported or converts: as in a CI job.

    It would fork a process for each message, beside the threads of what is measured.
    """
    before = os.environ.get(_CI)
    os.environ[_CI] = "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CI]
        else:
            os.environ[_CI] = before
