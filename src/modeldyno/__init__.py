"""ModelDyno: a dynamometer for machine-learning models.

``modeldyno.profile("model.onnx", batch_size=8)`` returns a Result; ``result["latency.p50"]`` is a
number in base units. Names are imported on first use, for a quick start-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.core.result.presentation import use_presentation

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
    from modeldyno.core.comparison.comparison import Comparison
    from modeldyno.core.metrics.constraints import Constraint, Verdict
    from modeldyno.core.metrics.measurement import Distribution
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.study.ranking import ranking
    from modeldyno.core.study.study import Study
    from modeldyno.core.trace.memory_diff import MemoryChange, memory_change
    from modeldyno.errors import ModelDynoError, NotStoredWarning, UncertifiedWarning, UndecidedWarning

_HOMES = {
    "BaseModelInspector": "modeldyno.api.inspectors",
    "Benchmark": "modeldyno.api.benchmark",
    "BoundBroken": "modeldyno.api.profile",
    "Comparison": "modeldyno.core.comparison.comparison",
    "Constraint": "modeldyno.core.metrics.constraints",
    "Diagnosis": "modeldyno.api.server_profiler",
    "Distribution": "modeldyno.core.metrics.measurement",
    "Figures": "modeldyno.api.result_dict",
    "InputSpec": "modeldyno.core.spec.input_spec",
    "MemoryChange": "modeldyno.core.trace.memory_diff",
    "ModelDynoError": "modeldyno.errors",
    "ModelProfiler": "modeldyno.api.model_profiler",
    "NotStoredWarning": "modeldyno.errors",
    "OpenAIInspector": "modeldyno.api.inspectors",
    "Plan": "modeldyno.core.metrics.measurement_plan",
    "Profiled": "modeldyno.api.decorators",
    "Profiler": "modeldyno.api.server_profiler",
    "Regressions": "modeldyno.api.gate",
    "Result": "modeldyno.core.result.result",
    "ServerInspector": "modeldyno.api.inspectors",
    "Study": "modeldyno.core.study.study",
    "TensorFlowGrpcInspector": "modeldyno.api.inspectors",
    "TensorFlowInspector": "modeldyno.api.inspectors",
    "TorchServeInspector": "modeldyno.api.inspectors",
    "TritonGrpcInspector": "modeldyno.api.inspectors",
    "TritonInspector": "modeldyno.api.inspectors",
    "UncertifiedWarning": "modeldyno.errors",
    "UndecidedWarning": "modeldyno.errors",
    "Verdict": "modeldyno.core.metrics.constraints",
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
    "ranking": "modeldyno.core.study.ranking",
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
    "Comparison",
    "Constraint",
    "Diagnosis",
    "Distribution",
    "Figures",
    "InputSpec",
    "MemoryChange",
    "ModelDynoError",
    "ModelProfiler",
    "NotStoredWarning",
    "OpenAIInspector",
    "Plan",
    "Profiled",
    "Profiler",
    "Regressions",
    "Result",
    "ServerInspector",
    "Study",
    "TensorFlowGrpcInspector",
    "TensorFlowInspector",
    "TorchServeInspector",
    "TritonGrpcInspector",
    "TritonInspector",
    "UncertifiedWarning",
    "UndecidedWarning",
    "Verdict",
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
    "ranking",
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
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - slow at start-up

        return version("modeldyno")
    if name not in _HOMES:
        raise AttributeError(f"module 'modeldyno' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415 - slow at start-up

    return getattr(import_module(_HOMES[name]), name)


def _load_display() -> Any:
    from modeldyno.documents import display  # noqa: PLC0415 - slow at start-up

    return display


use_presentation(_load_display)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
