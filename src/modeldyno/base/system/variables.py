"""Environment variables that are set for a while."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager


DEBUG = "MODELDYNO_DEBUG"
"""Set by ``--debug``: failures show whole tracebacks, in each process."""


@contextmanager
def variables_set(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables during the block; afterwards they are as they were before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def without_telemetry() -> AbstractContextManager[None]:
    """Let OpenVINO send nothing during the block, in which it is imported or converts: as in a CI job.

    Unless told not to, it reports each import and conversion to its makers, by a process that it forks beside
    the threads of what is measured.
    """
    return variables_set({"CI": "true"})
