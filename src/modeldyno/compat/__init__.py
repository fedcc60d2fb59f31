"""Interfaces of other tools, for scripts that were written for them.

`modeldyno.compat.deeplite` has deeplite-profiler's names, and `modeldyno.compat.modelci` ModelCI's functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from modeldyno.comparison.api.gate import Regressions as Regressions
    from modeldyno.comparison.api.gate import detect_regressions as detect_regressions
    from modeldyno.comparison.api.gate import load_baseline as load_baseline
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
    from modeldyno.compat.modelci import delete_model as delete_model
    from modeldyno.compat.modelci import delete_model_by_id as delete_model_by_id
    from modeldyno.compat.modelci import register_model as register_model
    from modeldyno.compat.modelci import register_model_from_yaml as register_model_from_yaml
    from modeldyno.compat.modelci import retrieve_model as retrieve_model
    from modeldyno.compat.modelci import retrieve_model_by_parent_id as retrieve_model_by_parent_id
    from modeldyno.compat.modelci import retrieve_model_by_task as retrieve_model_by_task
    from modeldyno.compat.modelci import update_model as update_model
    from modeldyno.compat.server_profiler import Diagnosis as Diagnosis
    from modeldyno.compat.server_profiler import Profiler as Profiler
    from modeldyno.profiling.api.result_dict import Figures as Figures
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "compat.benchmark": "Benchmark",
            "compat.inspectors": """
                BaseModelInspector CVONNXClient CVTFSClient CVTRTClient CVTorchClient OpenAIInspector
                ServerInspector TensorFlowGrpcInspector TensorFlowInspector TorchServeInspector
                TritonGrpcInspector TritonInspector
            """,
            "compat.model_profiler": "ModelProfiler",
            "compat.server_profiler": "Diagnosis Profiler",
            "comparison.api.gate": "Regressions detect_regressions load_baseline",
            "profiling.api.result_dict": "Figures",
            "compat.modelci": """
                delete_model delete_model_by_id register_model register_model_from_yaml retrieve_model
                retrieve_model_by_parent_id retrieve_model_by_task update_model
            """,
        },
    )
