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
    from modeldyno.api.serve import Server, list_servers, serve, stop_server
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

_HOMES = {
    "registry_webhook": "modeldyno.api.registry",
    "registry_history": "modeldyno.api.registry",
    "registry_policy": "modeldyno.api.registry",
    "registry_tasks": "modeldyno.api.registry",
    "answer": "modeldyno.api.registry",
    "get_model": "modeldyno.api.registry",
    "idle_devices": "modeldyno.api.idle",
    "list_models": "modeldyno.api.registry",
    "move_alias": "modeldyno.api.registry",
    "push": "modeldyno.api.registry",
    "reconcile": "modeldyno.api.documents",
    "register": "modeldyno.api.registry",
    "retrieve": "modeldyno.api.registry",
    "show_model": "modeldyno.api.registry",
    "unregister": "modeldyno.api.registry",
    "update": "modeldyno.api.registry",
    "job_of": "modeldyno.api.jobs",
    "run_jobs": "modeldyno.api.jobs",
    "watch": "modeldyno.api.watch",
    "work": "modeldyno.api.registry",
    "BaseModelInspector": "modeldyno.api.inspectors",
    "Benchmark": "modeldyno.api.benchmark",
    "BoundBroken": "modeldyno.api.profile",
    **dict.fromkeys(
        ("CVONNXClient", "CVTFSClient", "CVTRTClient", "CVTorchClient"), "modeldyno.api.inspectors"
    ),
    "Capacity": "modeldyno.core.load.capacity",
    "Comparison": "modeldyno.core.comparison.comparison",
    "Conversion": "modeldyno.core.agreement.conversion",
    "Constraint": "modeldyno.core.metrics.constraints",
    "CostAnswer": "modeldyno.loadtest.replicas",
    "DeviceState": "modeldyno.environment.device_state",
    "Diagnosis": "modeldyno.api.server_profiler",
    "Distribution": "modeldyno.core.metrics.measurement",
    "Explanation": "modeldyno.core.load.explanation",
    "Figures": "modeldyno.api.result_dict",
    "GateReport": "modeldyno.core.comparison.gate_report",
    "InputSpec": "modeldyno.core.spec.input_spec",
    "LoadCurve": "modeldyno.core.load.load_curve",
    "MemoryChange": "modeldyno.core.trace.memory_diff",
    "ModelDynoError": "modeldyno.errors",
    "ModelProfiler": "modeldyno.api.model_profiler",
    "NotStoredWarning": "modeldyno.errors",
    "OpenAIInspector": "modeldyno.api.inspectors",
    "Plan": "modeldyno.core.metrics.measurement_plan",
    "Profiled": "modeldyno.api.decorators",
    "Recomputation": "modeldyno.core.recompute.checks",
    "Reconciliation": "modeldyno.core.load.reconciliation",
    "Profiler": "modeldyno.api.server_profiler",
    "Regressions": "modeldyno.api.gate",
    "Result": "modeldyno.core.result.result",
    "Schedule": "modeldyno.api.decorators",
    "Server": "modeldyno.api.serve",
    "ServerInspector": "modeldyno.api.inspectors",
    "Study": "modeldyno.core.study.study",
    "TensorFlowGrpcInspector": "modeldyno.api.inspectors",
    "TensorFlowInspector": "modeldyno.api.inspectors",
    "TorchServeInspector": "modeldyno.api.inspectors",
    "Trend": "modeldyno.core.comparison.trend",
    "TritonGrpcInspector": "modeldyno.api.inspectors",
    "TritonInspector": "modeldyno.api.inspectors",
    "UncertifiedWarning": "modeldyno.errors",
    "UndecidedWarning": "modeldyno.errors",
    "Verdict": "modeldyno.core.metrics.constraints",
    "advise": "modeldyno.api.advise",
    "check": "modeldyno.api.gate",
    "check_time": "modeldyno.api.decorators",
    "comment": "modeldyno.api.documents",
    "compare": "modeldyno.api.compare",
    "convert": "modeldyno.api.convert",
    "memory_change": "modeldyno.core.trace.memory_diff",
    "detect_regressions": "modeldyno.api.gate",
    "devices": "modeldyno.api.devices",
    "doctor": "modeldyno.api.gate",
    "explain": "modeldyno.api.explain",
    "export": "modeldyno.api.documents",
    "export_configs": "modeldyno.api.sweep",
    "find_load": "modeldyno.api.load",
    "findings": "modeldyno.api.documents",
    "from_model_analyzer": "modeldyno.api.sweep_models",
    "gate": "modeldyno.api.gate",
    "import_results": "modeldyno.api.documents",
    "inspect": "modeldyno.api.profile",
    "list_plugins": "modeldyno.api.documents",
    "list_results": "modeldyno.api.documents",
    "list_servers": "modeldyno.api.serve",
    "load": "modeldyno.api.load",
    "load_baseline": "modeldyno.api.gate",
    "load_curve": "modeldyno.api.load",
    "profile": "modeldyno.api.profile",
    "profiled": "modeldyno.api.decorators",
    "rank_models": "modeldyno.api.sweep_models",
    "ranking": "modeldyno.core.study.ranking",
    "read": "modeldyno.api.profile",
    "read_all": "modeldyno.api.profile",
    "read_comparison": "modeldyno.api.compare",
    "read_study": "modeldyno.api.sweep",
    "register_metric": "modeldyno.api.metrics",
    "replicas": "modeldyno.api.documents",
    "report": "modeldyno.api.documents",
    "rerank": "modeldyno.api.sweep",
    "rerank_load": "modeldyno.api.load",
    "rm": "modeldyno.api.documents",
    "save": "modeldyno.api.profile",
    "save_comparison": "modeldyno.api.compare",
    "save_verdict": "modeldyno.api.documents",
    "schema": "modeldyno.api.documents",
    "serve": "modeldyno.api.serve",
    "show": "modeldyno.api.documents",
    "stop_server": "modeldyno.api.serve",
    "store": "modeldyno.api.profile",
    "sweep": "modeldyno.api.sweep",
    "sweep_models": "modeldyno.api.sweep_models",
    "tag": "modeldyno.api.documents",
    "trend": "modeldyno.api.advise",
    "verify": "modeldyno.api.documents",
    "ui": "modeldyno.api.ui",
}

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

    return getattr(import_module(_HOMES[name]), name)


def _load_display() -> Any:
    from modeldyno.documents import display  # noqa: PLC0415 - slow at start-up

    return display


use_presentation(_load_display)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
