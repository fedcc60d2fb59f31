"""The keyword arguments beside the parameters: knobs of backends and fields of a Plan, for type checkers.

A test compares the names with those of the backends. A knob of another package's backend is unknown to a type
checker: ``**{"times": 2}`` passes it.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - so that `typing.get_type_hints` finds it
from typing import TypedDict

from modeldyno.base.job.knob import KnobValue  # noqa: TC001 - so that `typing.get_type_hints` finds it


class _CommonKnobs(TypedDict, total=False):
    allow_tf32: KnobValue
    arena: KnobValue
    batching: KnobValue
    binary: KnobValue
    bodies: KnobValue
    body: KnobValue
    cache_prompt: KnobValue
    cache_type_k: KnobValue
    cache_type_v: KnobValue
    calls: KnobValue
    channels_last: KnobValue
    command: KnobValue
    compile: KnobValue
    composing: KnobValue
    compression: KnobValue
    config: KnobValue
    cont_batching: KnobValue
    container: KnobValue
    content: KnobValue
    content_type: KnobValue
    context: KnobValue
    continuous_batching: KnobValue
    ctx_size: KnobValue
    draft: KnobValue
    draft_max: KnobValue
    draft_tokens: KnobValue
    dtype: KnobValue
    dynamic_batching: KnobValue
    endpoint: KnobValue
    env: KnobValue
    extra: KnobValue
    flags: KnobValue
    flash_attention: KnobValue
    flash_attn: KnobValue
    format: KnobValue
    gpu_layers: KnobValue
    graph_optimization: KnobValue
    graph_optimization_level: KnobValue
    grpc_port: KnobValue
    health: KnobValue
    image: KnobValue
    image_size: KnobValue
    images: KnobValue
    inference_mode: KnobValue
    inference_num_threads: KnobValue
    inference_precision_hint: KnobValue
    input_tokens: KnobValue
    instance_count: KnobValue
    instances: KnobValue
    inter_op_num_threads: KnobValue
    inter_op_parallelism_threads: KnobValue
    inter_threads: KnobValue
    intra_op_num_threads: KnobValue
    intra_op_parallelism_threads: KnobValue
    intra_threads: KnobValue
    io_binding: KnobValue
    isl: KnobValue
    jit_compile: KnobValue
    job_queue_size: KnobValue
    jvm: KnobValue
    launch: KnobValue
    max_batch: KnobValue
    max_batch_size: KnobValue
    max_queue_delay_microseconds: KnobValue
    max_tokens: KnobValue
    method: KnobValue
    model_draft: KnobValue
    n_batch: KnobValue
    n_ctx: KnobValue
    n_gpu_layers: KnobValue
    n_parallel: KnobValue
    n_threads: KnobValue
    n_threads_batch: KnobValue
    n_ubatch: KnobValue
    num_streams: KnobValue
    num_threads: KnobValue
    osl: KnobValue
    output_tokens: KnobValue
    parallel: KnobValue
    parallel_workers: KnobValue
    preferred_batch: KnobValue
    preferred_batch_size: KnobValue
    prefix_cache: KnobValue
    program: KnobValue
    prompt_tokens: KnobValue
    protocol: KnobValue
    provider: KnobValue
    queue_delay: KnobValue
    queue_size: KnobValue
    replicas: KnobValue
    request_trace: KnobValue
    reset_cache: KnobValue
    runtime: KnobValue
    server: KnobValue
    server_metrics: KnobValue
    shared_memory: KnobValue
    shared_prefix: KnobValue
    signature: KnobValue
    slots: KnobValue
    spinning: KnobValue
    startup_time: KnobValue
    stream: KnobValue
    streams: KnobValue
    temperature: KnobValue
    tf32: KnobValue
    threads: KnobValue
    threads_batch: KnobValue
    token_limit: KnobValue
    tokenizer: KnobValue
    version: KnobValue
    workers: KnobValue
    xla: KnobValue


class CountedKnobs(_CommonKnobs, total=False):
    """Knobs of `inspect`, which has parameters of its own for the batch and the devices."""

    precision: str


class ServedKnobs(_CommonKnobs, total=False):
    """Knobs of `serve`, which has parameters of its own for the device and the ports."""

    batch_size: int
    batch: int
    precision: str


class Knobs(ServedKnobs, total=False):
    """Knobs of the backends of ModelDyno."""

    device: str
    ports: str


class PlannedKnobs(_CommonKnobs, total=False):
    """Knobs, and fields of `modeldyno.Plan`, of which ``precision`` is one if it is a number."""

    batch_size: int
    batch: int
    device: str
    ports: str
    precision: float | str
    percentiles: str | Sequence[str]
    min_runs: int
    min_time: float | str
    max_time: float | str
    may_extend: bool
    max_runs: int
    min_warmup: int
    target: str
    processes: int
    seed: int
    timeout: float | str | None
    memory_limit: int | None
    pin: tuple[int, ...]
