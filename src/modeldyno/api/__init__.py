"""The Python API: the words of the command line as functions, and the ready-made classes.

Names are imported when they are first used: who only decorates functions does not pay for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modeldyno.api.advising import advise, trend
    from modeldyno.api.benchmark import Benchmark
    from modeldyno.api.comparing import compare, read_comparison, save_comparison
    from modeldyno.api.decorators import Profiled, profiled
    from modeldyno.api.figures import Figures
    from modeldyno.api.functions import BoundBroken, inspect, profile, read, read_all, save, store
    from modeldyno.api.gating import Regressions, detect_regressions, gate, load_baseline
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
    from modeldyno.api.model_profiler import ModelProfiler
    from modeldyno.api.served import load
    from modeldyno.api.served_profiler import Diagnosis, Profiler
    from modeldyno.api.sweeping import read_study, sweep
    from modeldyno.core.memory_change import MemoryChange, memory_change
    from modeldyno.errors import NotStoredWarning, UncertifiedWarning, UndecidedWarning

_HOMES = {
    "BaseModelInspector": "modeldyno.api.inspectors",
    "Benchmark": "modeldyno.api.benchmark",
    "BoundBroken": "modeldyno.api.functions",
    "Diagnosis": "modeldyno.api.served_profiler",
    "Figures": "modeldyno.api.figures",
    "MemoryChange": "modeldyno.core.memory_change",
    "ModelProfiler": "modeldyno.api.model_profiler",
    "NotStoredWarning": "modeldyno.errors",
    "OpenAIInspector": "modeldyno.api.inspectors",
    "Profiled": "modeldyno.api.decorators",
    "Profiler": "modeldyno.api.served_profiler",
    "Regressions": "modeldyno.api.gating",
    "ServerInspector": "modeldyno.api.inspectors",
    "TensorFlowGrpcInspector": "modeldyno.api.inspectors",
    "TensorFlowInspector": "modeldyno.api.inspectors",
    "TorchServeInspector": "modeldyno.api.inspectors",
    "TritonGrpcInspector": "modeldyno.api.inspectors",
    "TritonInspector": "modeldyno.api.inspectors",
    "UncertifiedWarning": "modeldyno.errors",
    "UndecidedWarning": "modeldyno.errors",
    "advise": "modeldyno.api.advising",
    "compare": "modeldyno.api.comparing",
    "detect_regressions": "modeldyno.api.gating",
    "gate": "modeldyno.api.gating",
    "inspect": "modeldyno.api.functions",
    "load": "modeldyno.api.served",
    "load_baseline": "modeldyno.api.gating",
    "memory_change": "modeldyno.core.memory_change",
    "profile": "modeldyno.api.functions",
    "profiled": "modeldyno.api.decorators",
    "read": "modeldyno.api.functions",
    "read_all": "modeldyno.api.functions",
    "read_comparison": "modeldyno.api.comparing",
    "read_study": "modeldyno.api.sweeping",
    "save": "modeldyno.api.functions",
    "save_comparison": "modeldyno.api.comparing",
    "store": "modeldyno.api.functions",
    "sweep": "modeldyno.api.sweeping",
    "trend": "modeldyno.api.advising",
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'modeldyno.api' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415 - dear at start-up

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
