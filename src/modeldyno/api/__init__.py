"""The Python API: the commands as functions, and the ready-made profiler classes.

Names are imported on first use, so that a program that only decorates functions starts quickly.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modeldyno.api.advise import advise, trend
    from modeldyno.api.benchmark import Benchmark
    from modeldyno.api.compare import compare, read_comparison, save_comparison
    from modeldyno.api.decorators import Profiled, profiled
    from modeldyno.api.gate import Regressions, detect_regressions, gate, load_baseline
    from modeldyno.api.inspectors import (
        BaseModelInspector,
        OpenAIInspector,
        ServerInspector,
        TensorFlowGrpcInspector,
        TensorFlowInspector,
        TorchServeInspector,
        TritonGrpcInspector,
        TritonInspector,
    )
    from modeldyno.api.load import load
    from modeldyno.api.model_profiler import ModelProfiler
    from modeldyno.api.profile import BoundBroken, inspect, profile, read, read_all, save, store
    from modeldyno.api.result_dict import Figures
    from modeldyno.api.server_profiler import Diagnosis, Profiler
    from modeldyno.api.sweep import read_study, sweep
    from modeldyno.core.trace.memory_diff import MemoryChange, memory_change
    from modeldyno.errors import NotStoredWarning, UncertifiedWarning, UndecidedWarning

_MODULES = {
    "BaseModelInspector": "modeldyno.api.inspectors",
    "Benchmark": "modeldyno.api.benchmark",
    "BoundBroken": "modeldyno.api.profile",
    "Diagnosis": "modeldyno.api.server_profiler",
    "Figures": "modeldyno.api.result_dict",
    "MemoryChange": "modeldyno.core.trace.memory_diff",
    "ModelProfiler": "modeldyno.api.model_profiler",
    "NotStoredWarning": "modeldyno.errors",
    "OpenAIInspector": "modeldyno.api.inspectors",
    "Profiled": "modeldyno.api.decorators",
    "Profiler": "modeldyno.api.server_profiler",
    "Regressions": "modeldyno.api.gate",
    "ServerInspector": "modeldyno.api.inspectors",
    "TensorFlowGrpcInspector": "modeldyno.api.inspectors",
    "TensorFlowInspector": "modeldyno.api.inspectors",
    "TorchServeInspector": "modeldyno.api.inspectors",
    "TritonGrpcInspector": "modeldyno.api.inspectors",
    "TritonInspector": "modeldyno.api.inspectors",
    "UncertifiedWarning": "modeldyno.errors",
    "UndecidedWarning": "modeldyno.errors",
    "advise": "modeldyno.api.advise",
    "compare": "modeldyno.api.compare",
    "detect_regressions": "modeldyno.api.gate",
    "gate": "modeldyno.api.gate",
    "inspect": "modeldyno.api.profile",
    "load": "modeldyno.api.load",
    "load_baseline": "modeldyno.api.gate",
    "memory_change": "modeldyno.core.trace.memory_diff",
    "profile": "modeldyno.api.profile",
    "profiled": "modeldyno.api.decorators",
    "read": "modeldyno.api.profile",
    "read_all": "modeldyno.api.profile",
    "read_comparison": "modeldyno.api.compare",
    "read_study": "modeldyno.api.sweep",
    "save": "modeldyno.api.profile",
    "save_comparison": "modeldyno.api.compare",
    "store": "modeldyno.api.profile",
    "sweep": "modeldyno.api.sweep",
    "trend": "modeldyno.api.advise",
}

__all__ = [
    "BaseModelInspector",
    "Benchmark",
    "BoundBroken",
    "Diagnosis",
    "Figures",
    "MemoryChange",
    "ModelProfiler",
    "NotStoredWarning",
    "OpenAIInspector",
    "Profiled",
    "Profiler",
    "Regressions",
    "ServerInspector",
    "TensorFlowGrpcInspector",
    "TensorFlowInspector",
    "TorchServeInspector",
    "TritonGrpcInspector",
    "TritonInspector",
    "UncertifiedWarning",
    "UndecidedWarning",
    "advise",
    "compare",
    "detect_regressions",
    "gate",
    "inspect",
    "load",
    "load_baseline",
    "memory_change",
    "profile",
    "profiled",
    "read",
    "read_all",
    "read_comparison",
    "read_study",
    "save",
    "save_comparison",
    "store",
    "sweep",
    "trend",
]


class _Package(ModuleType):
    """Keeps a function visible whose submodule has the same name, such as `gate`."""

    def __setattr__(self, name: str, value: object) -> None:
        """Ignore the import system's binding of a submodule that would hide a function."""
        if not (isinstance(value, ModuleType) and name in _MODULES):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'modeldyno.api' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415 - slow at start-up

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
