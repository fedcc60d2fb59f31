"""ModelDyno: a dynamometer for machine-learning models.

``modeldyno.profile("model.onnx", batch_size=8)`` returns a Result; ``result["latency.p50"]`` is a
number in base units. Names are imported on first use, for a quick start-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.base.document import use_presentation

if TYPE_CHECKING:  # for type checkers, which do not know what `__getattr__` gives
    __version__: str
    from modeldyno.base.errors import FaultyPluginWarning as FaultyPluginWarning
    from modeldyno.base.errors import ModelDynoError as ModelDynoError
    from modeldyno.base.errors import NotStoredWarning as NotStoredWarning
    from modeldyno.base.errors import RequestError as RequestError
    from modeldyno.base.errors import RunFailed as RunFailed
    from modeldyno.base.errors import UncertifiedWarning as UncertifiedWarning
    from modeldyno.base.errors import UndecidedWarning as UndecidedWarning
    from modeldyno.base.job.input_spec import InputSpec as InputSpec
    from modeldyno.base.metrics.constraints import Constraint as Constraint
    from modeldyno.base.metrics.constraints import Verdict as Verdict
    from modeldyno.base.metrics.measurement import Distribution as Distribution
    from modeldyno.base.metrics.measurement_plan import Plan as Plan
    from modeldyno.base.report.figure_checks import Recomputation as Recomputation
    from modeldyno.base.result.result import Result as Result
    from modeldyno.comparison.api.advise import advise as advise
    from modeldyno.comparison.api.advise import trend as trend
    from modeldyno.comparison.api.compare import compare as compare
    from modeldyno.comparison.api.compare import read_comparison as read_comparison
    from modeldyno.comparison.api.compare import save_comparison as save_comparison
    from modeldyno.comparison.api.gate import Regressions as Regressions
    from modeldyno.comparison.api.gate import check as check
    from modeldyno.comparison.api.gate import detect_regressions as detect_regressions
    from modeldyno.comparison.api.gate import doctor as doctor
    from modeldyno.comparison.api.gate import gate as gate
    from modeldyno.comparison.api.gate import load_baseline as load_baseline
    from modeldyno.comparison.api.optimize import optimize as optimize
    from modeldyno.comparison.change.choice import Optimized as Optimized
    from modeldyno.comparison.change.comparison import Comparison as Comparison
    from modeldyno.comparison.change.gate_report import GateReport as GateReport
    from modeldyno.comparison.change.trend import Trend as Trend
    from modeldyno.compat.benchmark import Benchmark as Benchmark
    from modeldyno.compat.inspectors import BaseModelInspector as BaseModelInspector
    from modeldyno.compat.inspectors import CVONNXClient as CVONNXClient
    from modeldyno.compat.inspectors import CVTFSClient as CVTFSClient
    from modeldyno.compat.inspectors import CVTorchClient as CVTorchClient
    from modeldyno.compat.inspectors import CVTRTClient as CVTRTClient
    from modeldyno.compat.inspectors import OpenAIInspector as OpenAIInspector
    from modeldyno.compat.inspectors import ServerInspector as ServerInspector
    from modeldyno.compat.inspectors import TensorFlowGrpcInspector as TensorFlowGrpcInspector
    from modeldyno.compat.inspectors import TensorFlowInspector as TensorFlowInspector
    from modeldyno.compat.inspectors import TorchServeInspector as TorchServeInspector
    from modeldyno.compat.inspectors import TritonGrpcInspector as TritonGrpcInspector
    from modeldyno.compat.inspectors import TritonInspector as TritonInspector
    from modeldyno.compat.model_profiler import ModelProfiler as ModelProfiler
    from modeldyno.compat.server_profiler import Diagnosis as Diagnosis
    from modeldyno.compat.server_profiler import Profiler as Profiler
    from modeldyno.conversion.agreement.conversion import Conversion as Conversion
    from modeldyno.conversion.api import convert as convert
    from modeldyno.conversion.opened_model import OpenModel as OpenModel
    from modeldyno.dashboard.api import ui as ui
    from modeldyno.engine.api.devices import devices as devices
    from modeldyno.engine.environment.device_state import DeviceState as DeviceState
    from modeldyno.engine.trace.memory_diff import MemoryChange as MemoryChange
    from modeldyno.engine.trace.memory_diff import memory_change as memory_change
    from modeldyno.engine.trace.regions import Schedule as Schedule
    from modeldyno.exchange.api import comment as comment
    from modeldyno.exchange.api import export as export
    from modeldyno.exchange.api import findings as findings
    from modeldyno.exchange.api import import_results as import_results
    from modeldyno.exchange.api import list_plugins as list_plugins
    from modeldyno.exchange.api import list_results as list_results
    from modeldyno.exchange.api import prune as prune
    from modeldyno.exchange.api import read as read
    from modeldyno.exchange.api import reconcile as reconcile
    from modeldyno.exchange.api import replicas as replicas
    from modeldyno.exchange.api import report as report
    from modeldyno.exchange.api import rm as rm
    from modeldyno.exchange.api import save_verdict as save_verdict
    from modeldyno.exchange.api import schema as schema
    from modeldyno.exchange.api import show as show
    from modeldyno.exchange.api import tag as tag
    from modeldyno.exchange.api import verify as verify
    from modeldyno.exchange.jobs import job_of as job_of
    from modeldyno.exchange.jobs import run_jobs as run_jobs
    from modeldyno.exchange.reconciliation import Reconciliation as Reconciliation
    from modeldyno.profiling.api.metrics import register_metric as register_metric
    from modeldyno.profiling.api.profile import BoundBroken as BoundBroken
    from modeldyno.profiling.api.profile import inspect as inspect
    from modeldyno.profiling.api.profile import profile as profile
    from modeldyno.profiling.api.profile import read_all as read_all
    from modeldyno.profiling.api.profile import save as save
    from modeldyno.profiling.api.profile import store as store
    from modeldyno.profiling.api.result_dict import Figures as Figures
    from modeldyno.regions.api import watch as watch
    from modeldyno.regions.recorder import Profiled as Profiled
    from modeldyno.regions.recorder import check_time as check_time
    from modeldyno.regions.recorder import profiled as profiled
    from modeldyno.registry.api import answer as answer
    from modeldyno.registry.api import attach_result as attach_result
    from modeldyno.registry.api import detach_result as detach_result
    from modeldyno.registry.api import get_model as get_model
    from modeldyno.registry.api import list_models as list_models
    from modeldyno.registry.api import measure_model as measure_model
    from modeldyno.registry.api import move_alias as move_alias
    from modeldyno.registry.api import push as push
    from modeldyno.registry.api import register as register
    from modeldyno.registry.api import registry_history as registry_history
    from modeldyno.registry.api import registry_policy as registry_policy
    from modeldyno.registry.api import registry_tasks as registry_tasks
    from modeldyno.registry.api import registry_webhook as registry_webhook
    from modeldyno.registry.api import retrieve as retrieve
    from modeldyno.registry.api import show_model as show_model
    from modeldyno.registry.api import unregister as unregister
    from modeldyno.registry.api import update as update
    from modeldyno.registry.api import work as work
    from modeldyno.registry.idle_devices import idle_devices as idle_devices
    from modeldyno.registry.open_model import open_model as open_model
    from modeldyno.serving.api.explain import explain as explain
    from modeldyno.serving.api.load import find_load as find_load
    from modeldyno.serving.api.load import load as load
    from modeldyno.serving.api.load import load_curve as load_curve
    from modeldyno.serving.api.load import rerank_load as rerank_load
    from modeldyno.serving.api.serve import Server as Server
    from modeldyno.serving.api.serve import list_containers as list_containers
    from modeldyno.serving.api.serve import list_servers as list_servers
    from modeldyno.serving.api.serve import serve as serve
    from modeldyno.serving.api.serve import stop_server as stop_server
    from modeldyno.serving.load.capacity import Capacity as Capacity
    from modeldyno.serving.load.explanation import Explanation as Explanation
    from modeldyno.serving.load.load_curve import LoadCurve as LoadCurve
    from modeldyno.serving.loadtest.replicas import CostAnswer as CostAnswer
    from modeldyno.sweeps.api.sweep import export_configs as export_configs
    from modeldyno.sweeps.api.sweep import read_study as read_study
    from modeldyno.sweeps.api.sweep import rerank as rerank
    from modeldyno.sweeps.api.sweep import sweep as sweep
    from modeldyno.sweeps.api.sweep_models import from_model_analyzer as from_model_analyzer
    from modeldyno.sweeps.api.sweep_models import rank_models as rank_models
    from modeldyno.sweeps.api.sweep_models import sweep_models as sweep_models
    from modeldyno.sweeps.study.ranking import ranking as ranking
    from modeldyno.sweeps.study.study import Study as Study

_NAMES = {
    "comparison.api.advise": "advise trend",
    "compat.benchmark": "Benchmark",
    "comparison.api.compare": "compare read_comparison save_comparison",
    "comparison.api.optimize": "optimize",
    "comparison.change.choice": "Optimized",
    "conversion.api": "convert",
    "conversion.opened_model": "OpenModel",
    "engine.api.devices": "devices",
    "exchange.api": """
        comment export findings import_results list_plugins list_results prune read reconcile replicas
        report rm save_verdict schema show tag verify
    """,
    "serving.api.explain": "explain",
    "comparison.api.gate": "Regressions check detect_regressions doctor gate load_baseline",
    "registry.idle_devices": "idle_devices",
    "compat.inspectors": """
        BaseModelInspector CVONNXClient CVTFSClient CVTRTClient CVTorchClient OpenAIInspector
        ServerInspector TensorFlowGrpcInspector TensorFlowInspector TorchServeInspector TritonGrpcInspector
        TritonInspector
    """,
    "exchange.jobs": "job_of run_jobs",
    "serving.api.load": "find_load load load_curve rerank_load",
    "profiling.api.metrics": "register_metric",
    "compat.model_profiler": "ModelProfiler",
    "registry.open_model": "open_model",
    "profiling.api.profile": "BoundBroken inspect profile read_all save store",
    "registry.api": """
        answer attach_result detach_result get_model list_models measure_model move_alias push register
        registry_history registry_policy registry_tasks registry_webhook retrieve show_model unregister
        update work
    """,
    "profiling.api.result_dict": "Figures",
    "serving.api.serve": "Server list_containers list_servers serve stop_server",
    "compat.server_profiler": "Diagnosis Profiler",
    "sweeps.api.sweep": "export_configs read_study rerank sweep",
    "sweeps.api.sweep_models": "from_model_analyzer rank_models sweep_models",
    "dashboard.api": "ui",
    "regions.api": "watch",
    "conversion.agreement.conversion": "Conversion",
    "comparison.change.comparison": "Comparison",
    "comparison.change.gate_report": "GateReport",
    "comparison.change.trend": "Trend",
    "serving.load.capacity": "Capacity",
    "serving.load.explanation": "Explanation",
    "serving.load.load_curve": "LoadCurve",
    "exchange.reconciliation": "Reconciliation",
    "base.metrics.constraints": "Constraint Verdict",
    "base.metrics.measurement": "Distribution",
    "base.metrics.measurement_plan": "Plan",
    "base.report.figure_checks": "Recomputation",
    "base.result.result": "Result",
    "base.job.input_spec": "InputSpec",
    "sweeps.study.ranking": "ranking",
    "sweeps.study.study": "Study",
    "engine.trace.memory_diff": "MemoryChange memory_change",
    "engine.trace.regions": "Schedule",
    "engine.environment.device_state": "DeviceState",
    "base.errors": """
        FaultyPluginWarning ModelDynoError NotStoredWarning RequestError RunFailed UncertifiedWarning
        UndecidedWarning
    """,
    "serving.loadtest.replicas": "CostAnswer",
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
            from importlib.metadata import version  # slow at start-up

            return version("modeldyno")
        if name not in _HOMES:
            homes = (module for module, names in _OF_OTHERS.items() if name in names.split())
            hint = "".join(f"; from modeldyno.{home} import {name} gives it" for home in homes)
            raise AttributeError(f"module 'modeldyno' has no attribute '{name}'{hint}")
        from importlib import import_module  # slow at start-up

        return getattr(import_module(f"modeldyno.{_HOMES[name]}"), name)


def _load_display() -> Any:
    from modeldyno.reports import display  # slow at start-up

    return display


use_presentation(_load_display)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
