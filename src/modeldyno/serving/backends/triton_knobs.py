"""Triton's knobs, and the model configuration that follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import REQUEST_TRACE, Knob, count_knob
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.serving.backends import base
from modeldyno.serving.backends.request_knobs import COMPRESSION_KNOB, SHARED_MEMORY_KNOB
from modeldyno.serving.servers import admin_client, tcp_ports, triton, triton_config, triton_repository_writer
from modeldyno.serving.servers.container_options import container_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.serving.backends.model_files import DeployedModel
    from modeldyno.serving.servers.server_process import Ports
    from modeldyno.serving.servers.triton_config import Config

_CONVENTIONAL_PORTS = tcp_ports.CONVENTIONAL["trt", False]
_DEFAULT_MAX_BATCH = 8
knobs = (
    base.knob(
        "protocol",
        default="http-binary",
        choices=("http-binary", "http-json", "grpc"),
        sentence="Protocol of requests: tensors as bytes or as JSON over HTTP, or gRPC.",
    ),
    COMPRESSION_KNOB,
    SHARED_MEMORY_KNOB,
    count_knob(
        "instances",
        "Model instances that run in parallel; Triton's default is one.",
        aliases=("instance_count",),
        usual=1,
    ),
    base.knob(
        "max_batch",
        default=None,
        usual=_DEFAULT_MAX_BATCH,
        low=0,
        sentence="Maximum samples in one call; 8, or batch_size if larger, if not set; 0: no batching.",
    ),
    Knob(
        name="dynamic_batching",
        kind=bool,
        usual=False,
        sentence="Batch waiting requests into one call of the model; false turns off that of a repository.",
        aliases=("batching",),
    ),
    base.knob(
        "queue_delay",
        low=0,
        sentence="Microseconds that a request may wait to be batched; turns dynamic_batching on.",
    ),
    Knob(
        name="preferred_batch",
        sentence="Preferred batch sizes, such as 4,8; turns dynamic_batching on.",
        aliases=("preferred_batch_size",),
    ),
    base.knob("device"),
    base.knob("threads"),
    Knob(
        name="runtime",
        choices=("onnxruntime", "python"),
        sentence="Triton's backend; if not set, its ONNX Runtime backend if it has one, else Python.",
    ),
    Knob(name="composing", family=True, sentence="A knob of a composing model: composing.NAME.instances=2."),
    Knob(name="calls", sentence="Models of the repository that the model's code calls, such as a,b."),
    base.knob(
        "config", sentence="Any field of config.pbtxt by its path: config.dynamic_batching.priority_levels=2."
    ),
    Knob(name="version", sentence="Version of the model to request; the server's newest if not set."),
    Knob(
        name="launch",
        choices=("local", *triton.CONTAINERS, triton.IN_PROCESS),
        sentence="Start the server as a program (the default), in a container with docker or podman, or "
        "in-process: within the process that sends the requests, as perf_analyzer's c_api.",
    ),
    Knob(
        name="program",
        sentence="The tritonserver to start; else that of `modeldyno engine install`, or one found here.",
    ),
    Knob(
        name="image", sentence=f"The image to start with launch=docker or podman; {triton.IMAGE} if not set."
    ),
    base.knob("container"),
    Knob(name="flags", sentence="Additional arguments for tritonserver, such as --log-verbose=1."),
    REQUEST_TRACE,
    base.ports_knob(_CONVENTIONAL_PORTS),
    base.knob("env"),
    base.knob("startup_time"),
    Knob(
        name="server",
        sentence="Address of a running Triton that loads models on request, such as http://host:8000.",
    ),
    Knob(
        name="grpc_port",
        kind=int,
        low=1,
        high=65535,
        sentence="gRPC port of the running Triton; 8001 if not set.",
    ),
    base.knob("batch_size"),
)

COMMON = frozenset(
    {
        "launch", "program", "image", "container", "flags", "request_trace", "ports", "startup_time",
        "server", "grpc_port",
    }
)  # fmt: skip
"""Knobs of the server, not of a model."""

space = (
    "instances=1..{cores}*2",
    "dynamic_batching=false,true",
    "max_batch=8,32 if dynamic_batching=true",
    "queue_delay=0,1000,5000 if dynamic_batching=true",
)
CLIENTS = {"http-binary": "kserve-http", "http-json": "kserve-http", "grpc": "kserve-grpc"}
_LOCAL_ONLY = ("program", "flags")
_OF_A_PROGRAM = ("server", "grpc_port", "flags", "ports", "image", "compression")
"""Knobs of a server that is a process of its own, or of requests to it."""


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse knobs that exclude each other."""
    base.device_of(config)
    choose_ports(config)
    sizes = _preferred_batches(config)
    gathers = config.get("queue_delay") is not None or config.get("preferred_batch") is not None
    if config.get("max_batch") == 0 and (gathers or config.get("dynamic_batching")):
        raise RequestError(
            "max_batch=0 turns batching off and contradicts the knobs of dynamic batching; omit one of them."
        )
    largest = int(config.get("max_batch", 0))
    if 0 < largest < max(sizes, default=0):
        raise RequestError(
            f"preferred_batch={max(sizes)} is larger than max_batch={largest}, and Triton would refuse it; "
            "raise max_batch, or omit that size."
        )
    if 0 < int(config.get("max_batch", 0)) < int(config.get("batch_size", 1)):
        raise RequestError(
            f"Requests of batch_size={config['batch_size']} are larger than max_batch={config['max_batch']}, "
            "which counts samples; raise max_batch."
        )
    _check_launch(config)
    if config.get(REQUEST_TRACE.name) and (reason := _no_trace_reason(config)):
        raise RequestError(f"The knob {REQUEST_TRACE.name} has no effect with {reason}; omit one of them.")
    if "server" in config:
        admin_client.AdminClient.at(str(config["server"]))
        for name in _LOCAL_ONLY:
            if name in config:
                raise RequestError(
                    f"The knob {name} is for a server that is started here; omit {name} or server."
                )
    triton_config.with_settings({}, base.engine_settings(config))


def _check_launch(config: Mapping[str, KnobValue]) -> None:
    """Refuse knobs that have no effect on a server that is started in this way."""
    if container_options(config) and config.get("launch") not in triton.CONTAINERS:
        raise RequestError(
            "Options of a container need launch=docker or launch=podman; add one, or omit them."
        )
    if config.get("launch") == triton.IN_PROCESS and (unused := [n for n in _OF_A_PROGRAM if n in config]):
        raise RequestError(f"The knob {unused[0]} has no effect with launch=in-process; omit one of them.")
    if base.variables(config) and (elsewhere := _not_started_here(config)):
        raise RequestError(
            f"env.NAME is of a server that is started as a program of its own; omit it or {elsewhere}."
        )


def _not_started_here(config: Mapping[str, KnobValue]) -> str:
    """Return the knob by which no server is started for this model alone; empty if one is."""
    in_process = config.get("launch") == triton.IN_PROCESS
    return "server" if "server" in config else f"launch={triton.IN_PROCESS}" if in_process else ""


def _no_trace_reason(config: Mapping[str, KnobValue]) -> str:
    """Return the knob with which requests cannot be traced: their ids are written while they are sent."""
    if config.get("launch") in {*triton.CONTAINERS, triton.IN_PROCESS}:
        return f"launch={config['launch']}"
    return next((name for name in ("server", COMPRESSION_KNOB.name) if name in config), "")


def configuration(
    name: str, deployed: DeployedModel, config: Mapping[str, KnobValue], *, native: bool
) -> Config:
    """Return the configuration of a model; `native`: the server has the ONNX Runtime backend."""
    runtime = config.get("runtime")
    if runtime == "onnxruntime" and (deployed.runtime == "torch" or not native):
        what = "a torch module" if deployed.runtime == "torch" else "this Triton, which has no such backend"
        raise RequestError(f"runtime=onnxruntime is not for {what}; use runtime=python.")
    backend = (
        "onnxruntime"
        if native and runtime != "python" and deployed.runtime != "torch"
        else triton_repository_writer.PYTHON
    )
    model_config = triton_repository_writer.minimal_config(
        name, backend, deployed.inputs, deployed.outputs, max_batch=_max_batch(deployed, config)
    )
    model_config["instance_group"] = [_instance_group(config)]
    if batching := dynamic_batching_field(config):
        model_config["dynamic_batching"] = batching[0]
    model_config["parameters"] = {
        name: {"string_value": value} for name, value in _parameters(backend, deployed, config).items()
    }
    return triton_config.with_settings(model_config, base.engine_settings(config))


def _max_batch(deployed: DeployedModel, config: Mapping[str, KnobValue]) -> int:
    """Return max_batch_size: Triton batches along the first axis, which may not be a tensor's only one."""
    can_batch = deployed.batched and all(len(spec.shape or ()) > 1 for spec in deployed.inputs)
    if can_batch:
        return int(
            config.get(
                "max_batch",
                max(_DEFAULT_MAX_BATCH, int(config.get("batch_size", 1)), *_preferred_batches(config)),
            )
        )
    if config.get("max_batch") or dynamic_batching_field(config):
        raise RequestError(
            "Requests for this model cannot be batched: the first axis of every input and output must be "
            "dynamic and not an input's only one, and it has "
            f"{base.describe_tensors(deployed)}; export it so, or omit max_batch and dynamic_batching."
        )
    return 0


def _instance_group(config: Mapping[str, KnobValue]) -> Config:
    kind, _, index = base.device_of(config).partition(":")
    group: Config = {
        "count": int(config.get("instances", 1)),
        "kind": "KIND_CPU" if kind == "cpu" else "KIND_GPU",
    }
    return group if kind == "cpu" else {**group, "gpus": [int(index or 0)]}


def dynamic_batching_field(config: Mapping[str, KnobValue]) -> list[Config]:
    """Return the ``dynamic_batching`` field, perhaps empty, in a list; an empty list if it is off."""
    sizes = _preferred_batches(config)
    delay = config.get("queue_delay")
    if not (config.get("dynamic_batching") or sizes or delay is not None):
        return []
    return [
        {
            **({"preferred_batch_size": sizes} if sizes else {}),
            **({} if delay is None else {"max_queue_delay_microseconds": int(delay)}),
        }
    ]


def _parameters(backend: str, deployed: DeployedModel, config: Mapping[str, KnobValue]) -> dict[str, str]:
    threads = str(config.get("threads", ""))
    if backend != triton_repository_writer.PYTHON:
        return {"intra_op_thread_count": threads} if threads else {}
    return {"file": deployed.file, "threads": threads or "0"}


def flat_outputs(model_config: Config) -> frozenset[str]:
    """Return the outputs to which Triton adds an axis, as it lacks zero-dimensional tensors."""
    return frozenset(str(output["name"]) for output in model_config["output"] if "reshape" in output)


def _preferred_batches(config: Mapping[str, KnobValue]) -> list[int]:
    text = str(config.get("preferred_batch", "")).strip()
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isdigit() and int(part) for part in parts):
        raise RequestError(f"The knob preferred_batch takes sizes such as 4,8, not '{text}'.")
    return [int(part) for part in parts]


def choose_ports(config: Mapping[str, KnobValue]) -> Ports:
    """Return the port of each interface; 0 stands for a free port."""
    return base.choose_ports(config, _CONVENTIONAL_PORTS)


def request_endpoint(
    config: Mapping[str, KnobValue], host: str, ports: Mapping[str, int], name: str
) -> Endpoint:
    """Return the endpoint of requests."""
    is_grpc = config["protocol"] == "grpc"
    options: dict[str, str | int | float | bool] = (
        {} if is_grpc else {"binary": config["protocol"] == "http-binary"}
    )
    of_requests = (COMPRESSION_KNOB.name, SHARED_MEMORY_KNOB.name)
    options |= {name: str(config[name]) for name in of_requests if name in config}
    return Endpoint(
        host=host,
        port=ports["grpc" if is_grpc else "http"],
        model=name,
        version=str(config.get("version", "")),
        options=options,
        protocol=CLIENTS[str(config["protocol"])],
    )
