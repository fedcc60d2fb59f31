"""ModelDyno: a dynamometer for machine-learning models.

``modeldyno.profile("model.onnx", batch_size=8)`` returns a Result; ``result["latency.p50"]`` is a
number in base units. Names are imported on first use, for a quick start-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.document import use_presentation

if TYPE_CHECKING:  # for type checkers, which do not know what `__getattr__` gives
    __version__: str
    from modeldyno.api.advise import advise as advise
    from modeldyno.api.advise import trend as trend
    from modeldyno.api.benchmark import Benchmark as Benchmark
    from modeldyno.api.compare import compare as compare
    from modeldyno.api.compare import read_comparison as read_comparison
    from modeldyno.api.compare import save_comparison as save_comparison
    from modeldyno.api.convert import convert as convert
    from modeldyno.api.devices import devices as devices
    from modeldyno.api.documents import comment as comment
    from modeldyno.api.documents import export as export
    from modeldyno.api.documents import findings as findings
    from modeldyno.api.documents import import_results as import_results
    from modeldyno.api.documents import list_plugins as list_plugins
    from modeldyno.api.documents import list_results as list_results
    from modeldyno.api.documents import prune as prune
    from modeldyno.api.documents import read as read
    from modeldyno.api.documents import reconcile as reconcile
    from modeldyno.api.documents import replicas as replicas
    from modeldyno.api.documents import report as report
    from modeldyno.api.documents import rm as rm
    from modeldyno.api.documents import save_verdict as save_verdict
    from modeldyno.api.documents import schema as schema
    from modeldyno.api.documents import show as show
    from modeldyno.api.documents import tag as tag
    from modeldyno.api.documents import verify as verify
    from modeldyno.api.explain import explain as explain
    from modeldyno.api.gate import Regressions as Regressions
    from modeldyno.api.gate import check as check
    from modeldyno.api.gate import detect_regressions as detect_regressions
    from modeldyno.api.gate import doctor as doctor
    from modeldyno.api.gate import gate as gate
    from modeldyno.api.gate import load_baseline as load_baseline
    from modeldyno.api.idle import idle_devices as idle_devices
    from modeldyno.api.inspectors import BaseModelInspector as BaseModelInspector
    from modeldyno.api.inspectors import CVONNXClient as CVONNXClient
    from modeldyno.api.inspectors import CVTFSClient as CVTFSClient
    from modeldyno.api.inspectors import CVTorchClient as CVTorchClient
    from modeldyno.api.inspectors import CVTRTClient as CVTRTClient
    from modeldyno.api.inspectors import OpenAIInspector as OpenAIInspector
    from modeldyno.api.inspectors import ServerInspector as ServerInspector
    from modeldyno.api.inspectors import TensorFlowGrpcInspector as TensorFlowGrpcInspector
    from modeldyno.api.inspectors import TensorFlowInspector as TensorFlowInspector
    from modeldyno.api.inspectors import TorchServeInspector as TorchServeInspector
    from modeldyno.api.inspectors import TritonGrpcInspector as TritonGrpcInspector
    from modeldyno.api.inspectors import TritonInspector as TritonInspector
    from modeldyno.api.jobs import job_of as job_of
    from modeldyno.api.jobs import run_jobs as run_jobs
    from modeldyno.api.load import find_load as find_load
    from modeldyno.api.load import load as load
    from modeldyno.api.load import load_curve as load_curve
    from modeldyno.api.load import rerank_load as rerank_load
    from modeldyno.api.metrics import register_metric as register_metric
    from modeldyno.api.model_profiler import ModelProfiler as ModelProfiler
    from modeldyno.api.open_model import OpenModel as OpenModel
    from modeldyno.api.open_model import open_model as open_model
    from modeldyno.api.profile import BoundBroken as BoundBroken
    from modeldyno.api.profile import inspect as inspect
    from modeldyno.api.profile import profile as profile
    from modeldyno.api.profile import read_all as read_all
    from modeldyno.api.profile import save as save
    from modeldyno.api.profile import store as store
    from modeldyno.api.registry import answer as answer
    from modeldyno.api.registry import attach_result as attach_result
    from modeldyno.api.registry import detach_result as detach_result
    from modeldyno.api.registry import get_model as get_model
    from modeldyno.api.registry import list_models as list_models
    from modeldyno.api.registry import measure_model as measure_model
    from modeldyno.api.registry import move_alias as move_alias
    from modeldyno.api.registry import push as push
    from modeldyno.api.registry import register as register
    from modeldyno.api.registry import registry_history as registry_history
    from modeldyno.api.registry import registry_policy as registry_policy
    from modeldyno.api.registry import registry_tasks as registry_tasks
    from modeldyno.api.registry import registry_webhook as registry_webhook
    from modeldyno.api.registry import retrieve as retrieve
    from modeldyno.api.registry import show_model as show_model
    from modeldyno.api.registry import unregister as unregister
    from modeldyno.api.registry import update as update
    from modeldyno.api.registry import work as work
    from modeldyno.api.result_dict import Figures as Figures
    from modeldyno.api.serve import Server as Server
    from modeldyno.api.serve import list_containers as list_containers
    from modeldyno.api.serve import list_servers as list_servers
    from modeldyno.api.serve import serve as serve
    from modeldyno.api.serve import stop_server as stop_server
    from modeldyno.api.server_profiler import Diagnosis as Diagnosis
    from modeldyno.api.server_profiler import Profiler as Profiler
    from modeldyno.api.sweep import export_configs as export_configs
    from modeldyno.api.sweep import read_study as read_study
    from modeldyno.api.sweep import rerank as rerank
    from modeldyno.api.sweep import sweep as sweep
    from modeldyno.api.sweep_models import from_model_analyzer as from_model_analyzer
    from modeldyno.api.sweep_models import rank_models as rank_models
    from modeldyno.api.sweep_models import sweep_models as sweep_models
    from modeldyno.api.ui import ui as ui
    from modeldyno.api.watch import watch as watch
    from modeldyno.core.agreement.conversion import Conversion as Conversion
    from modeldyno.core.comparison.comparison import Comparison as Comparison
    from modeldyno.core.comparison.gate_report import GateReport as GateReport
    from modeldyno.core.comparison.trend import Trend as Trend
    from modeldyno.core.load.capacity import Capacity as Capacity
    from modeldyno.core.load.explanation import Explanation as Explanation
    from modeldyno.core.load.load_curve import LoadCurve as LoadCurve
    from modeldyno.core.load.reconciliation import Reconciliation as Reconciliation
    from modeldyno.core.metrics.constraints import Constraint as Constraint
    from modeldyno.core.metrics.constraints import Verdict as Verdict
    from modeldyno.core.metrics.measurement import Distribution as Distribution
    from modeldyno.core.metrics.measurement_plan import Plan as Plan
    from modeldyno.core.recompute.checks import Recomputation as Recomputation
    from modeldyno.core.result.result import Result as Result
    from modeldyno.core.spec.input_spec import InputSpec as InputSpec
    from modeldyno.core.study.ranking import ranking as ranking
    from modeldyno.core.study.study import Study as Study
    from modeldyno.core.trace.memory_diff import MemoryChange as MemoryChange
    from modeldyno.core.trace.memory_diff import memory_change as memory_change
    from modeldyno.core.trace.regions import Schedule as Schedule
    from modeldyno.environment.device_state import DeviceState as DeviceState
    from modeldyno.errors import FaultyPluginWarning as FaultyPluginWarning
    from modeldyno.errors import ModelDynoError as ModelDynoError
    from modeldyno.errors import NotStoredWarning as NotStoredWarning
    from modeldyno.errors import RequestError as RequestError
    from modeldyno.errors import RunFailed as RunFailed
    from modeldyno.errors import UncertifiedWarning as UncertifiedWarning
    from modeldyno.errors import UndecidedWarning as UndecidedWarning
    from modeldyno.loadtest.replicas import CostAnswer as CostAnswer
    from modeldyno.regions.recorder import Profiled as Profiled
    from modeldyno.regions.recorder import check_time as check_time
    from modeldyno.regions.recorder import profiled as profiled

_NAMES = {
    "api.advise": "advise trend",
    "api.benchmark": "Benchmark",
    "api.compare": "compare read_comparison save_comparison",
    "api.convert": "convert",
    "api.devices": "devices",
    "api.documents": """
        comment export findings import_results list_plugins list_results prune read reconcile replicas
        report rm save_verdict schema show tag verify
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
    "api.open_model": "OpenModel open_model",
    "api.profile": "BoundBroken inspect profile read_all save store",
    "api.registry": """
        answer attach_result detach_result get_model list_models measure_model move_alias push register
        registry_history registry_policy registry_tasks registry_webhook retrieve show_model unregister
        update work
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
    "core.trace.regions": "Schedule",
    "environment.device_state": "DeviceState",
    "errors": """
        FaultyPluginWarning ModelDynoError NotStoredWarning RequestError RunFailed UncertifiedWarning
        UndecidedWarning
    """,
    "loadtest.replicas": "CostAnswer",
    "regions.recorder": "Profiled check_time profiled",
}
"""Module to the names that it has."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

_OF_OTHERS = {
    "compat.modelci": """
        delete_model delete_model_by_id register_model register_model_from_yaml retrieve_model
        retrieve_model_by_parent_id retrieve_model_by_task update_model
    """,
}
"""Module to the names in it that users of other tools look for here."""

__all__ = sorted(_HOMES)  # noqa: PLE0605 - of the table


if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415 - slow at start-up

            return version("modeldyno")
        if name not in _HOMES:
            homes = (module for module, names in _OF_OTHERS.items() if name in names.split())
            hint = "".join(f"; from modeldyno.{home} import {name} gives it" for home in homes)
            raise AttributeError(f"module 'modeldyno' has no attribute '{name}'{hint}")
        from importlib import import_module  # noqa: PLC0415 - slow at start-up

        return getattr(import_module(f"modeldyno.{_HOMES[name]}"), name)


def _load_display() -> Any:
    from modeldyno.documents import display  # noqa: PLC0415 - slow at start-up

    return display


use_presentation(_load_display)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
