"""The Python API: the words of the command line as functions, and the ready-made classes.

Names are imported when they are first used: who only decorates functions does not pay for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modeldyno.api.decorators import Profiled, profiled
    from modeldyno.api.figures import Figures, UncertifiedWarning
    from modeldyno.api.functions import BoundBroken, inspect, load, profile, save
    from modeldyno.api.model_profiler import ModelProfiler

_HOMES = {
    "BoundBroken": "functions",
    "Figures": "figures",
    "ModelProfiler": "model_profiler",
    "Profiled": "decorators",
    "UncertifiedWarning": "figures",
    "inspect": "functions",
    "load": "functions",
    "profile": "functions",
    "profiled": "decorators",
    "save": "functions",
}

__all__ = [
    "BoundBroken",
    "Figures",
    "ModelProfiler",
    "Profiled",
    "UncertifiedWarning",
    "inspect",
    "load",
    "profile",
    "profiled",
    "save",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'modeldyno.api' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415 - dear at start-up

    return getattr(import_module(f"modeldyno.api.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
