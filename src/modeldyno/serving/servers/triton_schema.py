"""The fields of Triton's ``ModelConfig``: what each one holds, and whether it is repeated or a map.

From ``model_config.proto`` of triton-inference-server/common. A field that is not listed, of a newer Triton,
is read and written as its text looks.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT, NUMBER, ENUM = "text", "number", "enum"
"""What a field holds that has no fields of its own; `NUMBER` also stands for true and false."""


class Field(NamedTuple):
    """A field of a message."""

    holds: str
    """`TEXT`, `NUMBER`, `ENUM`, or the name of a message in `MESSAGES`."""
    repeated: bool = False
    key: str = ""
    """`TEXT` or `NUMBER`, what the keys of a map are; empty if it is not a map."""

    @property
    def is_plain(self) -> bool:
        """Whether a value has no fields."""
        return self.holds in {TEXT, NUMBER, ENUM}


Fields = dict[str, Field]


def _of(holds: str, *names: str, repeated: bool = False, key: str = "") -> Fields:
    return dict.fromkeys(names, Field(holds, repeated, key))


def _many(holds: str, *names: str) -> Fields:
    return _of(holds, *names, repeated=True)


def _map(holds: str, *names: str, key: str = TEXT) -> Fields:
    return _of(holds, *names, key=key)


MESSAGES: Mapping[str, Fields] = MappingProxyType(
    {
        "ModelConfig": _of(TEXT, "name", "platform", "backend", "default_model_filename", "runtime")
        | _of(NUMBER, "max_batch_size")
        | _of("VersionPolicy", "version_policy")
        | _many("Input", "input")
        | _many("Output", "output")
        | _many("BatchTensor", "batch_input", "batch_output")
        | _of("Optimization", "optimization")
        | _of("DynamicBatching", "dynamic_batching")
        | _of("SequenceBatching", "sequence_batching")
        | _of("Ensemble", "ensemble_scheduling")
        | _many("InstanceGroup", "instance_group")
        | _map(TEXT, "cc_model_filenames", "metric_tags")
        | _map("Parameter", "parameters")
        | _many("Warmup", "model_warmup")
        | _of("Operations", "model_operations")
        | _of("Switches", "model_transaction_policy", "response_cache")
        | _of("Agents", "model_repository_agents")
        | _of("Metrics", "model_metrics"),
        "VersionPolicy": _of("Versions", "latest", "all", "specific"),
        "Versions": _of(NUMBER, "num_versions") | _many(NUMBER, "versions"),
        "Input": _of(TEXT, "name")
        | _of(ENUM, "data_type", "format")
        | _many(NUMBER, "dims")
        | _of("Reshape", "reshape")
        | _of(NUMBER, "is_shape_tensor", "allow_ragged_batch", "optional", "is_non_linear_format_io"),
        "Output": _of(TEXT, "name", "label_filename")
        | _of(ENUM, "data_type")
        | _many(NUMBER, "dims")
        | _of("Reshape", "reshape")
        | _of(NUMBER, "is_shape_tensor", "is_non_linear_format_io"),
        "Reshape": _many(NUMBER, "shape"),
        "BatchTensor": _of(ENUM, "kind", "data_type") | _many(TEXT, "target_name", "source_input"),
        "Optimization": _of("Graph", "graph")
        | _of(ENUM, "priority")
        | _of("Cuda", "cuda")
        | _of("Accelerators", "execution_accelerators")
        | _of("Switches", "input_pinned_memory", "output_pinned_memory")
        | _of(NUMBER, "gather_kernel_buffer_threshold", "eager_batching"),
        "Graph": _of(NUMBER, "level"),
        "Cuda": _of(NUMBER, "graphs", "busy_wait_events", "output_copy_stream")
        | _many("GraphSpec", "graph_spec"),
        "GraphSpec": _of(NUMBER, "batch_size")
        | _map("GraphShape", "input")
        | _of("GraphSpec", "graph_lower_bound"),
        "GraphShape": _many(NUMBER, "dim"),
        "Accelerators": _many("Accelerator", "gpu_execution_accelerator", "cpu_execution_accelerator"),
        "Accelerator": _of(TEXT, "name") | _map(TEXT, "parameters"),
        "Switches": _of(NUMBER, "enable", "decoupled"),
        "DynamicBatching": _many(NUMBER, "preferred_batch_size")
        | _of(NUMBER, "max_queue_delay_microseconds", "preserve_ordering")
        | _of(NUMBER, "priority_levels", "default_priority_level")
        | _of("QueuePolicy", "default_queue_policy")
        | _map("QueuePolicy", "priority_queue_policy", key=NUMBER),
        "QueuePolicy": _of(ENUM, "timeout_action")
        | _of(NUMBER, "default_timeout_microseconds", "allow_timeout_override", "max_queue_size"),
        "SequenceBatching": _of("SequenceStrategy", "direct", "oldest")
        | _of(NUMBER, "max_sequence_idle_microseconds", "iterative_sequence")
        | _many("ControlInput", "control_input")
        | _many("SequenceState", "state"),
        "SequenceStrategy": _of(NUMBER, "max_queue_delay_microseconds", "minimum_slot_utilization")
        | _of(NUMBER, "max_candidate_sequences", "preserve_ordering")
        | _many(NUMBER, "preferred_batch_size"),
        "ControlInput": _of(TEXT, "name") | _many("Control", "control"),
        "Control": _of(ENUM, "kind", "data_type")
        | _many(NUMBER, "int32_false_true", "fp32_false_true", "bool_false_true"),
        "SequenceState": _of(TEXT, "input_name", "output_name")
        | _of(ENUM, "data_type")
        | _many(NUMBER, "dims")
        | _many("InitialState", "initial_state")
        | _of(NUMBER, "use_same_buffer_for_input_output", "use_growable_memory"),
        "InitialState": _of(ENUM, "data_type")
        | _many(NUMBER, "dims")
        | _of(NUMBER, "zero_data")
        | _of(TEXT, "data_file", "name"),
        "Ensemble": _many("Step", "step") | _of(NUMBER, "max_inflight_requests"),
        "Step": _of(TEXT, "model_name", "model_namespace")
        | _of(NUMBER, "model_version")
        | _map(TEXT, "input_map", "output_map"),
        "InstanceGroup": _of(TEXT, "name", "host_policy")
        | _of(ENUM, "kind")
        | _of(NUMBER, "count", "passive")
        | _of("RateLimiter", "rate_limiter")
        | _many(NUMBER, "gpus")
        | _many("SecondaryDevice", "secondary_devices")
        | _many(TEXT, "profile"),
        "RateLimiter": _many("Resource", "resources") | _of(NUMBER, "priority"),
        "Resource": _of(TEXT, "name") | _of(NUMBER, "global", "count"),
        "SecondaryDevice": _of(ENUM, "kind") | _of(NUMBER, "device_id"),
        "Parameter": _of(TEXT, "string_value"),
        "Warmup": _of(TEXT, "name") | _of(NUMBER, "batch_size", "count") | _map("WarmupInput", "inputs"),
        "WarmupInput": _of(ENUM, "data_type")
        | _many(NUMBER, "dims")
        | _of(NUMBER, "zero_data", "random_data")
        | _of(TEXT, "input_data_file"),
        "Operations": _many(TEXT, "op_library_filename"),
        "Agents": _many("Agent", "agents"),
        "Agent": _of(TEXT, "name") | _map(TEXT, "parameters"),
        "Metrics": _many("MetricControl", "metric_control"),
        "MetricControl": _of("MetricIdentifier", "metric_identifier")
        | _of("HistogramOptions", "histogram_options"),
        "MetricIdentifier": _of(TEXT, "family"),
        "HistogramOptions": _many(NUMBER, "buckets"),
    }
)
"""Message to its fields. Two messages of Triton that differ in a field share a row."""
ROOT = MESSAGES["ModelConfig"]


def fields_of(field: Field | None) -> Fields:
    """Return the fields of a value of a field; none if it has none, or is not known."""
    return {} if field is None else MESSAGES.get(field.holds, {})


def entry_of(field: Field) -> Fields:
    """Return the fields of an entry of a map, as text protobuf has it."""
    return {"key": Field(field.key), "value": Field(field.holds)}
