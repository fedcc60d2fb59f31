"""Reconciles the report of another load generator with a Result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.load.reconciliation import Reconciliation
from modeldyno.core.load.reconciliation import reconcile as reconcile_load
from modeldyno.documents.import_ import read_loads

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.core.result.result import Result


def reconcile(ours: Result, path: Path, tool: str | None = None) -> tuple[Reconciliation, ...]:
    """Split the differences between a Result and each load in a file of another tool.

    Args:
        ours: a load of ModelDyno.
        path: the file.
        tool: the importer to use; if None, the one that claims the file.

    Raises:
        RequestError: the file cannot be read, is of an unknown tool, or is damaged.
    """
    return tuple(reconcile_load(load, ours) for load in read_loads(path, tool))
