"""ModelDyno: a dynamometer for machine-learning models.

``modeldyno.profile("model.onnx", batch_size=8)`` returns a Result; ``result["latency.p50"]`` is a
number in base units. Names are imported on first use, for a quick start-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.presentation import use_presentation

if TYPE_CHECKING:
    from modeldyno.api.advise import advise, trend
    from modeldyno.api.benchmark import Benchmark
    from modeldyno.api.compare import compare, read_comparison, save_comparison
    from modeldyno.api.convert import convert
    from modeldyno.api.decorators import Profiled, Schedule, check_time, profiled
    from modeldyno.api.devices import devices
    from modeldyno.api.documents import (
        comment,
        export,
        findings,
        import_results,
        list_plugins,
        list_results,
        reconcile,
        replicas,
        report,
        rm,
        save_verdict,
        schema,
        show,
        tag,
        verify,
    )
    from modeldyno.api.explain import explain
    from modeldyno.api.gate import Regressions, check, detect_regressions, doctor, gate, load_baseline
    from modeldyno.api.idle import idle_devices
    from modeldyno.api.inspectors import (
        BaseModelInspector,
        CVONNXClient,
        CVTFSClient,
        CVTorchClient,
        CVTRTClient,
        OpenAIInspector,
        ServerInspector,
        TensorFlowGrpcInspector,
        TensorFlowInspector,
        TorchServeInspector,
        TritonGrpcInspector,
        TritonInspector,
    )
    from modeldyno.api.jobs import job_of, run_jobs
    from modeldyno.api.load import find_load, load, load_curve, rerank_load
    from modeldyno.api.metrics import register_metric
    from modeldyno.api.model_profiler import ModelProfiler
    from modeldyno.api.profile import BoundBroken, inspect, profile, read, read_all, save, store
    from modeldyno.api.registry import (
        answer,
        get_model,
        list_models,
        move_alias,
        push,
        register,
        registry_history,
        registry_policy,
        registry_tasks,
        registry_webhook,
        retrieve,
        show_model,
        unregister,
        update,
        work,
    )
    from modeldyno.api.result_dict import Figures
    from modeldyno.api.serve import Server, list_containers, list_servers, serve, stop_server
    from modeldyno.api.server_profiler import Diagnosis, Profiler
    from modeldyno.api.sweep import export_configs, read_study, rerank, sweep
    from modeldyno.api.sweep_models import from_model_analyzer, rank_models, sweep_models
    from modeldyno.api.ui import ui
    from modeldyno.api.watch import watch
    from modeldyno.core.agreement.conversion import Conversion
    from modeldyno.core.comparison.comparison import Comparison
    from modeldyno.core.comparison.gate_report import GateReport
    from modeldyno.core.comparison.trend import Trend
    from modeldyno.core.load.capacity import Capacity
    from modeldyno.core.load.explanation import Explanation
    from modeldyno.core.load.load_curve import LoadCurve
    from modeldyno.core.load.reconciliation import Reconciliation
    from modeldyno.core.metrics.constraints import Constraint, Verdict
    from modeldyno.core.metrics.measurement import Distribution
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.recompute.checks import Recomputation
    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.study.ranking import ranking
    from modeldyno.core.study.study import Study
    from modeldyno.core.trace.memory_diff import MemoryChange, memory_change
    from modeldyno.environment.device_state import DeviceState
    from modeldyno.errors import ModelDynoError, NotStoredWarning, UncertifiedWarning, UndecidedWarning
    from modeldyno.loadtest.replicas import CostAnswer

_NAMES = {
    "api.advise": "advise trend",
    "api.benchmark": "Benchmark",
    "api.compare": "compare read_comparison save_comparison",
    "api.convert": "convert",
    "api.decorators": "Profiled Schedule check_time profiled",
    "api.devices": "devices",
    "api.documents": """
        comment export findings import_results list_plugins list_results reconcile replicas report rm
        save_verdict schema show tag verify
    """,
    "api.explain": "explain",
    "api.gate": "Regressions check detect_regressions doctor gate load_baseline",
    "api.idle": "idle_devices",
    "api.inspectors": """
        BaseModelInspector CVONNXClient CVTFSClient CVTRTClient CVTorchClient OpenAIInspector
        ServerInspector TensorFlowGrpcInspector TensorFlowInspector TorchServeInspector TritonGrpcInspector
        TritonInspector
    """,
    "api.jobs": "job_of run_jobs",
    "api.load": "find_load load load_curve rerank_load",
    "api.metrics": "register_metric",
    "api.model_profiler": "ModelProfiler",
    "api.profile": "BoundBroken inspect profile read read_all save store",
    "api.registry": """
        answer get_model list_models move_alias push register registry_history registry_policy
        registry_tasks registry_webhook retrieve show_model unregister update work
    """,
    "api.result_dict": "Figures",
    "api.serve": "Server list_containers list_servers serve stop_server",
    "api.server_profiler": "Diagnosis Profiler",
    "api.sweep": "export_configs read_study rerank sweep",
    "api.sweep_models": "from_model_analyzer rank_models sweep_models",
    "api.ui": "ui",
    "api.watch": "watch",
    "core.agreement.conversion": "Conversion",
    "core.comparison.comparison": "Comparison",
    "core.comparison.gate_report": "GateReport",
    "core.comparison.trend": "Trend",
    "core.load.capacity": "Capacity",
    "core.load.explanation": "Explanation",
    "core.load.load_curve": "LoadCurve",
    "core.load.reconciliation": "Reconciliation",
    "core.metrics.constraints": "Constraint Verdict",
    "core.metrics.measurement": "Distribution",
    "core.metrics.measurement_plan": "Plan",
    "core.recompute.checks": "Recomputation",
    "core.result.result": "Result",
    "core.spec.input_spec": "InputSpec",
    "core.study.ranking": "ranking",
    "core.study.study": "Study",
    "core.trace.memory_diff": "MemoryChange memory_change",
    "environment.device_state": "DeviceState",
    "errors": "ModelDynoError NotStoredWarning UncertifiedWarning UndecidedWarning",
    "loadtest.replicas": "CostAnswer",
}
"""Module to the names that it has."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "BaseModelInspector",
    "Benchmark",
    "BoundBroken",
    "CVONNXClient",
    "CVTFSClient",
    "CVTRTClient",
    "CVTorchClient",
    "Capacity",
    "Comparison",
    "Constraint",
    "Conversion",
    "CostAnswer",
    "DeviceState",
    "Diagnosis",
    "Distribution",
    "Explanation",
    "Figures",
    "GateReport",
    "InputSpec",
    "LoadCurve",
    "MemoryChange",
    "ModelDynoError",
    "ModelProfiler",
    "NotStoredWarning",
    "OpenAIInspector",
    "Plan",
    "Profiled",
    "Profiler",
    "Recomputation",
    "Reconciliation",
    "Regressions",
    "Result",
    "Schedule",
    "Server",
    "ServerInspector",
    "Study",
    "TensorFlowGrpcInspector",
    "TensorFlowInspector",
    "TorchServeInspector",
    "Trend",
    "TritonGrpcInspector",
    "TritonInspector",
    "UncertifiedWarning",
    "UndecidedWarning",
    "Verdict",
    "advise",
    "answer",
    "check",
    "check_time",
    "comment",
    "compare",
    "convert",
    "detect_regressions",
    "devices",
    "doctor",
    "explain",
    "export",
    "export_configs",
    "find_load",
    "findings",
    "from_model_analyzer",
    "gate",
    "get_model",
    "idle_devices",
    "import_results",
    "inspect",
    "job_of",
    "list_containers",
    "list_models",
    "list_plugins",
    "list_results",
    "list_servers",
    "load",
    "load_baseline",
    "load_curve",
    "memory_change",
    "move_alias",
    "profile",
    "profiled",
    "push",
    "rank_models",
    "ranking",
    "read",
    "read_all",
    "read_comparison",
    "read_study",
    "reconcile",
    "register",
    "register_metric",
    "registry_history",
    "registry_policy",
    "registry_tasks",
    "registry_webhook",
    "replicas",
    "report",
    "rerank",
    "rerank_load",
    "retrieve",
    "rm",
    "run_jobs",
    "save",
    "save_comparison",
    "save_verdict",
    "schema",
    "serve",
    "show",
    "show_model",
    "stop_server",
    "store",
    "sweep",
    "sweep_models",
    "tag",
    "trend",
    "ui",
    "unregister",
    "update",
    "verify",
    "watch",
    "work",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - slow at start-up

        return version("modeldyno")
    if name not in _HOMES:
        raise AttributeError(f"module 'modeldyno' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415 - slow at start-up

    return getattr(import_module(f"modeldyno.{_HOMES[name]}"), name)


def _load_display() -> Any:
    from modeldyno.documents import display  # noqa: PLC0415 - slow at start-up

    return display


use_presentation(_load_display)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
