"""Readable names of failure kinds."""

from __future__ import annotations

from modeldyno.core.result.result import FailureKind

KINDS = {
    FailureKind.OOM: "out of memory",
    FailureKind.CRASH: "crash",
    FailureKind.KILLED: "killed",
    FailureKind.EXIT: "the process ended",
    FailureKind.TIMEOUT: "time-out",
    FailureKind.ERROR: "error",
    FailureKind.INVALID_OUTPUT: "invalid output",
    FailureKind.SERVER: "the server",
}
"""Failure kind to its readable name."""
