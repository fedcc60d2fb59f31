"""ModelDyno: a dynamometer for machine-learning models.

``modeldyno.profile("model.onnx", batch_size=8)`` returns a Result; ``result["latency.p50"]`` is a
number in base units. What each command does is a function here or, of a command with commands of its own, in
the module of its name: `registry`, `servers`. Names are imported on first use, for a quick start-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.base.document import use_presentation
from modeldyno.base.lazy_names import lazy_names

if TYPE_CHECKING:
    __version__: str
    from modeldyno import compat as compat
    from modeldyno import errors as errors
    from modeldyno import plugin as plugin
    from modeldyno import plugins as plugins
    from modeldyno import regions as regions
    from modeldyno import registry as registry
    from modeldyno import servers as servers
    from modeldyno import serving as serving
    from modeldyno import store as store
    from modeldyno import sweeps as sweeps
    from modeldyno import types as types
    from modeldyno.base.errors import ModelDynoError as ModelDynoError
    from modeldyno.base.errors import RequestError as RequestError
    from modeldyno.base.errors import RunFailed as RunFailed
    from modeldyno.base.metrics.measurement_plan import Plan as Plan
    from modeldyno.base.result.result import Result as Result
    from modeldyno.comparison.api.advise import advise as advise
    from modeldyno.comparison.api.advise import trend as trend
    from modeldyno.comparison.api.compare import compare as compare
    from modeldyno.comparison.api.gate import check as check
    from modeldyno.comparison.api.gate import doctor as doctor
    from modeldyno.comparison.api.gate import gate as gate
    from modeldyno.comparison.api.optimize import optimize as optimize
    from modeldyno.comparison.change.comparison import Comparison as Comparison
    from modeldyno.comparison.change.gate_report import GateReport as GateReport
    from modeldyno.comparison.change.trend import Trend as Trend
    from modeldyno.conversion.agreement.conversion import Conversion as Conversion
    from modeldyno.conversion.api import convert as convert
    from modeldyno.dashboard.api import ui as ui
    from modeldyno.engine.api.devices import devices as devices
    from modeldyno.exchange.api import comment as comment
    from modeldyno.exchange.api import export as export
    from modeldyno.exchange.api import read as read
    from modeldyno.exchange.api import reconcile as reconcile
    from modeldyno.exchange.api import report as report
    from modeldyno.exchange.api import schema as schema
    from modeldyno.exchange.api import verify as verify
    from modeldyno.exchange.jobs import run as run
    from modeldyno.profiling.api.metrics import register_metric as register_metric
    from modeldyno.profiling.api.profile import inspect as inspect
    from modeldyno.profiling.api.profile import profile as profile
    from modeldyno.profiling.api.profile import save as save
    from modeldyno.regions.api import watch as watch
    from modeldyno.regions.recorder import Profiled as Profiled
    from modeldyno.regions.recorder import profiled as profiled
    from modeldyno.registry.opened_model import open_model as open_model
    from modeldyno.serving.api.explain import explain as explain
    from modeldyno.serving.api.load import find_load as find_load
    from modeldyno.serving.api.load import load as load
    from modeldyno.serving.api.load import load_curve as load_curve
    from modeldyno.serving.api.serve import serve as serve
    from modeldyno.serving.load.capacity import Capacity as Capacity
    from modeldyno.serving.load.explanation import Explanation as Explanation
    from modeldyno.serving.load.load_curve import LoadCurve as LoadCurve
    from modeldyno.sweeps.api.sweep import sweep as sweep
    from modeldyno.sweeps.study.study import Study as Study

_HOMES = {
    "comparison.api.advise": "advise trend",
    "comparison.api.compare": "compare",
    "comparison.api.gate": "check doctor gate",
    "comparison.api.optimize": "optimize",
    "comparison.change.comparison": "Comparison",
    "comparison.change.gate_report": "GateReport",
    "comparison.change.trend": "Trend",
    "conversion.agreement.conversion": "Conversion",
    "conversion.api": "convert",
    "dashboard.api": "ui",
    "engine.api.devices": "devices",
    "exchange.api": "comment export read reconcile report schema verify",
    "exchange.jobs": "run",
    "profiling.api.metrics": "register_metric",
    "profiling.api.profile": "inspect profile save",
    "regions.api": "watch",
    "regions.recorder": "Profiled profiled",
    "registry.opened_model": "open_model",
    "serving.api.explain": "explain",
    "serving.api.load": "find_load load load_curve",
    "serving.api.serve": "serve",
    "serving.load.capacity": "Capacity",
    "serving.load.explanation": "Explanation",
    "serving.load.load_curve": "LoadCurve",
    "sweeps.api.sweep": "sweep",
    "sweeps.study.study": "Study",
    "base.metrics.measurement_plan": "Plan",
    "base.result.result": "Result",
    "base.errors": "ModelDynoError RequestError RunFailed",
}
_MODULES = (
    "compat", "errors", "plugin", "plugins", "regions", "registry", "servers", "serving", "store", "sweeps",
    "types",
)  # fmt: skip
"""Modules that are imported on first use; each has further names, in its ``__all__``."""

__all__, _get, _ = lazy_names(__name__, _HOMES)


if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version  # slow at start-up

            return version("modeldyno")
        if name in _MODULES:
            return _import(name)
        if name in __all__:
            return _get(name)
        parts = () if name.startswith("_") else _MODULES
        places = [f"modeldyno.{part}.{name}" for part in parts if name in _import(part).__all__]
        hint = f"; it is {' or '.join(places)}" if places else ""
        raise AttributeError(f"module 'modeldyno' has no attribute '{name}'{hint}")


def _import(name: str) -> Any:
    from importlib import import_module  # slow at start-up

    return import_module(f"modeldyno.{name}")


def _load_display() -> Any:
    from modeldyno.reports import display  # slow at start-up

    return display


use_presentation(_load_display)


def __dir__() -> list[str]:
    return [*__all__, *_MODULES, "__version__"]
