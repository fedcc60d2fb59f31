"""The Python API, one module for each kind of question; `modeldyno` itself lists the public names.

Metrics that users define are here as well: ``from modeldyno.compat.deeplite import MetricProfiler, Metric``.
"""

from __future__ import annotations

from typing import Any

_METRIC_PROFILER = {
    "status_metrics": """
        Comparative DynamicEvalMetric EvalMetric ExecutionTime Flops InferenceTime LayerwiseData
        LayerwiseSummary MemoryFootprint Metric ModelSize NumberWithInterval StatusKey TotalParams
    """,
    "evaluation_functions": """
        ComputeEvalMetric EvalLossFunction EvaluationFunction get_accuracy get_missclass get_topk
    """,
    "profiler_functions": "ExternalProfilerFunction ProfilerFunction",
    "profiler": "MetricProfiler",
    "device_name": "Device",
    "forward_pass": "DataLoader ForwardPass ModelInputPattern TensorSampler",
    "layer_table": "LayerRow LayerTable",
    "cost_functions": """
        ComputeComplexity ComputeExecutionTime ComputeFlops ComputeLayerwiseSummary ComputeParams ComputeSize
    """,
    "framework_profilers": "KerasProfiler TFLiteProfiler TFProfiler TorchProfiler",
    "status_table": "DefaultDisplay StatusComparison getLogger setLogger",
}
"""Module to the names that it has."""
_HOMES = {name: module for module, names in _METRIC_PROFILER.items() for name in names.split()}
__all__ = sorted(_HOMES.keys() - {"DataLoader"})  # noqa: PLE0605 - for scripts that were written for deeplite-profiler
"""What ``from modeldyno.compat.deeplite import *`` gives; not the name that torch has for something else."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'modeldyno.compat.deeplite' has no attribute '{name}'")
    from importlib import import_module  # slow at start-up

    return getattr(import_module(f"modeldyno.compat.deeplite.{_HOMES[name]}"), name)
