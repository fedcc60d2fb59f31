"""The store from Python: list, show, tag and remove what was measured, and add and import Results."""

from __future__ import annotations

from modeldyno.exchange.api import findings, import_results, prune, rm, show, tag
from modeldyno.exchange.api import list_results as list
from modeldyno.exchange.jobs import job_of
from modeldyno.profiling.api.profile import read_all
from modeldyno.profiling.api.profile import store as add

__all__ = [
    "add",
    "findings",
    "import_results",
    "job_of",
    "list",
    "prune",
    "read_all",
    "rm",
    "show",
    "tag",
]
