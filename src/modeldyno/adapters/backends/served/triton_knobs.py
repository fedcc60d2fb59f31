"""What can be set on Triton, and the configuration of a model that comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.backends.served import base
from modeldyno.core.load.request_target import Endpoint
from modeldyno.core.spec.knob import Knob
from modeldyno.errors import RequestError
from modeldyno.servers import admin_client, tcp_ports, triton, triton_config, triton_repository_writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.adapters.backends.served.model_files import Deployed
    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.servers.server_process import Ports
    from modeldyno.servers.triton_config import Config

_USUAL = tcp_ports.CONVENTIONAL["trt", False]
knobs = (
    base.knob(
        "protocol",
        default="http-binary",
        choices=("http-binary", "http-json", "grpc"),
        sentence="What requests are sent by: tensors as bytes or as JSON over HTTP, or gRPC.",
    ),
    Knob(
        name="instances",
        kind=int,
        default=None,
        low=1,
        high=1024,
        sentence="Copies of the model that work at the same time; Triton has one.",
        usual=1,
        aliases=("instance_count",),
    ),
    base.knob(
        "max_batch",
        default=None,
        low=0,
        sentence="Samples in one call of the model at most; 8, or as many as are asked for; 0: no batches.",
    ),
    Knob(
        name="dynamic_batching",
        kind=bool,
        default=False,
        sentence="Gather requests that wait into one call of the model.",
        aliases=("batching",),
    ),
    base.knob(
        "queue_delay",
        low=0,
        sentence="Microseconds that a request may wait to share a call; turns dynamic_batching on.",
    ),
    Knob(
        name="preferred_batch",
        kind=str,
        default=None,
        sentence="Sizes of batches to wait for, such as 4,8; turns dynamic_batching on.",
        aliases=("preferred_batch_size",),
    ),
    base.knob("device"),
    base.knob("threads"),
    Knob(
        name="runtime",
        kind=str,
        default=None,
        choices=("onnxruntime", "python"),
        sentence="Triton's backend; if not set, its own for ONNX Runtime where it has one, or else Python.",
    ),
    Knob(
        name="composing",
        kind=str,
        default=None,
        family=True,
        sentence="A knob of a model that another is made of, or calls: composing.NAME.instances=2.",
    ),
    Knob(
        name="calls",
        kind=str,
        default=None,
        sentence="Models of the repository that the model calls by code, such as a,b.",
    ),
    base.knob(
        "config", sentence="Any field of config.pbtxt by its path: config.dynamic_batching.priority_levels=2."
    ),
    Knob(
        name="version",
        kind=str,
        default=None,
        sentence="Version of the model to ask for; the server's newest if not set.",
    ),
    Knob(
        name="launch",
        kind=str,
        default=None,
        choices=("local", *triton.CONTAINERS),
        sentence="Start the server as a program (unless set), or in a container, by docker or podman.",
    ),
    Knob(
        name="program",
        kind=str,
        default=None,
        sentence="The tritonserver to start; else that of `modeldyno engine install`, or one found here.",
    ),
    Knob(
        name="image",
        kind=str,
        default=None,
        sentence=f"The image to start with launch=docker or podman; {triton.IMAGE} if not set.",
    ),
    Knob(
        name="flags",
        kind=str,
        default=None,
        sentence="More words for tritonserver's command line, such as --log-verbose=1.",
    ),
    base.ports_knob(_USUAL),
    base.knob("startup_time"),
    Knob(
        name="server",
        kind=str,
        default=None,
        sentence="Address of a running Triton that loads models on request, such as http://host:8000.",
    ),
    Knob(
        name="grpc_port",
        kind=int,
        default=None,
        low=1,
        high=65535,
        sentence="Port of gRPC of the running Triton; 8001 if not set.",
    ),
    base.knob("batch_size"),
)

COMMON = frozenset({"launch", "program", "image", "flags", "ports", "startup_time", "server", "grpc_port"})
"""Knobs of the server, and not of a model."""

space = (
    "instances=1..{cores}*2",
    "dynamic_batching=false,true",
    "max_batch=8,32 if dynamic_batching=true",
    "queue_delay=0,1000,5000 if dynamic_batching=true",
)
_MAX_BATCH = 8
CLIENTS = {"http-binary": "kserve-http", "http-json": "kserve-http", "grpc": "kserve-grpc"}
_LOCAL_ONLY = ("program", "flags")


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse knobs that exclude each other."""
    base.device_of(config)
    chosen_ports(config)
    sizes = _sizes(config)
    gathers = config.get("queue_delay") is not None or config.get("preferred_batch") is not None
    if config.get("max_batch") == 0 and (gathers or config.get("dynamic_batching")):
        raise RequestError(
            "max_batch=0 turns batches off, so nothing can be gathered; leave one of them out."
        )
    largest = int(config.get("max_batch", 0))
    if 0 < largest < max(sizes, default=0):
        raise RequestError(
            f"preferred_batch={max(sizes)} is larger than max_batch={largest}, and Triton would refuse it; "
            "raise max_batch, or leave that size out."
        )
    if 0 < int(config.get("max_batch", 0)) < int(config.get("batch_size", 1)):
        raise RequestError(
            f"Requests of batch_size={config['batch_size']} are larger than max_batch={config['max_batch']}, "
            "which counts samples; raise that."
        )
    if "server" in config:
        admin_client.Control.at(str(config["server"]))
        for name in _LOCAL_ONLY:
            if name in config:
                raise RequestError(
                    f"The knob {name} is for a server that we start, and server= names another."
                )
    triton_config.changed({}, base.fields(config))


def configuration(name: str, found: Deployed, config: Mapping[str, KnobValue], *, native: bool) -> Config:
    """Give the configuration of a model; `native` says whether there is a backend for ONNX Runtime."""
    asked = config.get("runtime")
    if asked == "onnxruntime" and (found.runtime == "torch" or not native):
        what = "a torch module" if found.runtime == "torch" else "this Triton, which has no such backend"
        raise RequestError(f"runtime=onnxruntime is not for {what}; use runtime=python.")
    backend = (
        "onnxruntime"
        if native and asked != "python" and found.runtime != "torch"
        else triton_repository_writer.PYTHON
    )
    written = triton_repository_writer.configuration(
        name, backend, found.inputs, found.outputs, max_batch=_max_batch(found, config)
    )
    written["instance_group"] = [_instances(config)]
    if gathered := gathering(config):
        written["dynamic_batching"] = gathered[0]
    written["parameters"] = {
        name: {"string_value": value} for name, value in _parameters(backend, found, config).items()
    }
    return triton_config.changed(written, base.fields(config))


def _max_batch(found: Deployed, config: Mapping[str, KnobValue]) -> int:
    """Triton's batch is the first axis of every tensor, and no tensor's only one."""
    possible = found.batched and all(len(each.shape or ()) > 1 for each in found.inputs)
    if possible:
        return int(
            config.get("max_batch", max(_MAX_BATCH, int(config.get("batch_size", 1)), *_sizes(config)))
        )
    if config.get("max_batch") or gathering(config):
        raise RequestError(
            "Requests for this model cannot be gathered into batches, for the first axis of every input and "
            "output must be free, and no input's only one, and it has "
            f"{base.described(found)}; export it so, or leave max_batch and dynamic_batching out."
        )
    return 0


def _instances(config: Mapping[str, KnobValue]) -> Config:
    kind, _, index = base.device_of(config).partition(":")
    group: Config = {
        "count": int(config.get("instances", 1)),
        "kind": "KIND_CPU" if kind == "cpu" else "KIND_GPU",
    }
    return group if kind == "cpu" else {**group, "gpus": [int(index or 0)]}


def gathering(config: Mapping[str, KnobValue]) -> list[Config]:
    """Give the part on dynamic batching, if there is to be one; it may be empty."""
    sizes = _sizes(config)
    delay = config.get("queue_delay")
    if not (config.get("dynamic_batching") or sizes or delay is not None):
        return []
    return [
        {
            **({"preferred_batch_size": sizes} if sizes else {}),
            **({} if delay is None else {"max_queue_delay_microseconds": int(delay)}),
        }
    ]


def _parameters(backend: str, found: Deployed, config: Mapping[str, KnobValue]) -> dict[str, str]:
    threads = str(config.get("threads", ""))
    if backend != triton_repository_writer.PYTHON:
        return {"intra_op_thread_count": threads} if threads else {}
    return {"file": found.file, "threads": threads or "0"}


def flat(written: Config) -> frozenset[str]:
    """Name the outputs to which Triton adds an axis, as it has no tensors without one."""
    return frozenset(str(each["name"]) for each in written["output"] if "reshape" in each)


def _sizes(config: Mapping[str, KnobValue]) -> list[int]:
    text = str(config.get("preferred_batch", "")).strip()
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isdigit() and int(part) for part in parts):
        raise RequestError(f"The knob preferred_batch takes sizes such as 4,8, not '{text}'.")
    return [int(part) for part in parts]


def chosen_ports(config: Mapping[str, KnobValue]) -> Ports:
    """Give what listens where; 0 is a free port."""
    return base.chosen_ports(config, _USUAL)


def endpoint(config: Mapping[str, KnobValue], host: str, address: Mapping[str, int], name: str) -> Endpoint:
    """Say where requests go."""
    grpc = config["protocol"] == "grpc"
    return Endpoint(
        host=host,
        port=address["grpc" if grpc else "http"],
        model=name,
        version=str(config.get("version", "")),
        options={} if grpc else {"binary": config["protocol"] == "http-binary"},
        protocol=CLIENTS[str(config["protocol"])],
    )
