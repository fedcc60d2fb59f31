"""ModelDyno: a dynamometer for machine-learning models.

``modeldyno.profile("model.onnx", batch_size=8)`` returns a Result; ``result["latency.p50"]`` is a
number in base units. Names are imported on first use, for a quick start-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.core.result.presentation import use_presentation

if TYPE_CHECKING:
    from modeldyno.api.advise import advise, trend
    from modeldyno.api.compare import compare, read_comparison, save_comparison
    from modeldyno.api.decorators import profiled
    from modeldyno.api.gate import Regressions, detect_regressions, load_baseline
    from modeldyno.api.load import load
    from modeldyno.api.model_profiler import ModelProfiler
    from modeldyno.api.profile import inspect, profile, read, read_all, save, store
    from modeldyno.api.sweep import read_study, sweep
    from modeldyno.core.comparison.comparison import Comparison
    from modeldyno.core.metrics.constraints import Constraint, Verdict
    from modeldyno.core.metrics.measurement import Distribution
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.study.ranking import ranking
    from modeldyno.core.study.study import Study
    from modeldyno.errors import ModelDynoError, UndecidedWarning

_MODULES = {
    "Comparison": "modeldyno.core.comparison.comparison",
    "Constraint": "modeldyno.core.metrics.constraints",
    "Distribution": "modeldyno.core.metrics.measurement",
    "InputSpec": "modeldyno.core.spec.input_spec",
    "ModelDynoError": "modeldyno.errors",
    "ModelProfiler": "modeldyno.api",
    "Plan": "modeldyno.core.metrics.measurement_plan",
    "Regressions": "modeldyno.api",
    "Result": "modeldyno.core.result.result",
    "Study": "modeldyno.core.study.study",
    "UndecidedWarning": "modeldyno.errors",
    "Verdict": "modeldyno.core.metrics.constraints",
    "advise": "modeldyno.api",
    "compare": "modeldyno.api",
    "detect_regressions": "modeldyno.api",
    "inspect": "modeldyno.api",
    "load": "modeldyno.api",
    "load_baseline": "modeldyno.api",
    "profile": "modeldyno.api",
    "profiled": "modeldyno.api",
    "ranking": "modeldyno.core.study.ranking",
    "read": "modeldyno.api",
    "read_all": "modeldyno.api",
    "read_comparison": "modeldyno.api",
    "read_study": "modeldyno.api",
    "save": "modeldyno.api",
    "save_comparison": "modeldyno.api",
    "store": "modeldyno.api",
    "sweep": "modeldyno.api",
    "trend": "modeldyno.api",
}

__all__ = [
    "Comparison",
    "Constraint",
    "Distribution",
    "InputSpec",
    "ModelDynoError",
    "ModelProfiler",
    "Plan",
    "Regressions",
    "Result",
    "Study",
    "UndecidedWarning",
    "Verdict",
    "advise",
    "compare",
    "detect_regressions",
    "inspect",
    "load",
    "load_baseline",
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
    if name not in _MODULES:
        raise AttributeError(f"module 'modeldyno' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415 - slow at start-up

    return getattr(import_module(_MODULES[name]), name)


def _load_display() -> Any:
    from modeldyno.documents import display  # noqa: PLC0415 - slow at start-up

    return display


use_presentation(_load_display)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
