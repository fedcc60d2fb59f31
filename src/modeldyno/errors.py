"""Errors and warnings: every error is a `ModelDynoError`."""

from __future__ import annotations

from modeldyno.base.errors import (
    CannotRunHere,
    FaultyPluginWarning,
    MissingExtra,
    ModelDynoError,
    NotStoredWarning,
    OutOfTime,
    RequestError,
    RunFailed,
    StoreError,
    TrustRequired,
    UncertifiedWarning,
    UndecidedWarning,
    UnknownName,
)
from modeldyno.profiling.api.profile import BoundBroken

__all__ = [
    "BoundBroken",
    "CannotRunHere",
    "FaultyPluginWarning",
    "MissingExtra",
    "ModelDynoError",
    "NotStoredWarning",
    "OutOfTime",
    "RequestError",
    "RunFailed",
    "StoreError",
    "TrustRequired",
    "UncertifiedWarning",
    "UndecidedWarning",
    "UnknownName",
]
