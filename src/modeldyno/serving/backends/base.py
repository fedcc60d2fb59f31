"""Shared parts of the backends that start a serving engine: common knobs, and the session of a server."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import format_shape
from modeldyno.base.job.knob import BATCH_SIZE, Knob, count_knob
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.engine.interfaces.server_stats import ServerCounters
from modeldyno.engine.interfaces.session import RequestSession, StartedServer
from modeldyno.models.interface import Form
from modeldyno.serving.backends.shared_regions import SharedRegions
from modeldyno.serving.interfaces.client import Client
from modeldyno.serving.servers import tcp_ports
from modeldyno.serving.servers.admin_client import AdminClient
from modeldyno.serving.servers.server_process import ServerProcess, run_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.request_target import Reply, Target
    from modeldyno.models.interface import Feed, Model
    from modeldyno.serving.backends.model_files import DeployedModel
    from modeldyno.serving.servers.server_process import Launch, Ports

_KNOBS = {
    item.name: item
    for item in (
        Knob(
            name="protocol",
            default="http-json",
            choices=("http-json", "grpc"),
            sentence="Protocol of requests: tensors as JSON over HTTP, or gRPC.",
        ),
        count_knob(
            "workers",
            "Processes that run the model.",
            aliases=("instances",),
            default=1,
        ),
        Knob(
            name="max_batch",
            kind=int,
            default=1,
            low=1,
            high=1 << 20,
            sentence="Maximum number of requests that are batched into one call.",
            aliases=("max_batch_size",),
        ),
        Knob(
            name="queue_delay",
            kind=int,
            low=1,
            sentence="Microseconds that a request may wait to be batched with others; needs max_batch.",
            aliases=("max_queue_delay_microseconds",),
        ),
        Knob(name="device", default="cpu", sentence="Where the server runs the model: cpu, cuda or cuda:1."),
        count_knob(
            "threads",
            "Intra-operator threads of each instance; the runtime's default if not set.",
            aliases=("intra_threads", "intra_op_num_threads"),
        ),
        Knob(name="config", family=True, sentence="Any setting of the server."),
        Knob(
            name="ports",
            sentence="free (if not set), conventional (%s), or numbers in that order, such as 8000,8001.",
        ),
        Knob(
            name="container",
            family=True,
            sentence="An option of docker run: container.shm_size=2g, container.env.NAME=VALUE.",
        ),
        Knob(
            name="env",
            family=True,
            sentence="A variable of the server's environment, added to our own: env.OMP_NUM_THREADS=4.",
        ),
        Knob(
            name="startup_time",
            kind=float,
            low=1,
            sentence="Seconds until the server must be ready; 180 if not set.",
        ),
        BATCH_SIZE,
    )
}
"""Knobs that several engines share, under the same names."""


def knob(name: str, **overrides: Any) -> Knob:
    """Return a common knob, with fields overridden for an engine."""
    return replace(_KNOBS[name], **overrides)


def startup_time(config: Mapping[str, KnobValue], usual: float = 180.0) -> float:
    """Return the seconds until the server must be ready."""
    return float(config.get("startup_time", usual))


def ports_knob(conventional: Mapping[str, int]) -> Knob:
    """Return the knob `ports` for an engine with these conventional ports."""
    usual = ", ".join(f"{part} {port}" for part, port in conventional.items())
    return knob("ports", sentence=_KNOBS["ports"].sentence % usual)


def conventional_ports(
    row: str, interfaces: Iterable[str], config: Mapping[str, KnobValue]
) -> dict[str, int]:
    """Return the ports of a row of the table for the device, and those after them for other interfaces."""
    conventional = tcp_ports.CONVENTIONAL[row, device_of(config) != "cpu"]
    others = count(max(conventional.values()) + 1)
    return {name: conventional[name] if name in conventional else next(others) for name in interfaces}


def choose_ports(config: Mapping[str, KnobValue], conventional: Mapping[str, int]) -> Ports:
    """Return the port of each interface; 0 stands for a free port."""
    return tcp_ports.parse_ports(str(config.get("ports", "free")), conventional)


def check(config: Mapping[str, KnobValue], conventional: Mapping[str, int]) -> None:
    """Refuse what no engine can do: an unknown device, invalid ports, a queue delay without batching."""
    device_of(config)
    choose_ports(config, conventional)
    if "queue_delay" in config and int(config.get("max_batch", 1)) < 2:
        raise RequestError(
            "The knob queue_delay has no effect without max_batch of 2 or more; set both, or neither."
        )


def engine_settings(config: Mapping[str, KnobValue]) -> dict[str, str]:
    """Return the engine's own settings: the knobs that begin with ``config.``."""
    prefix = "config."
    return {
        name.removeprefix(prefix): str(value) for name, value in config.items() if name.startswith(prefix)
    }


def variables(config: Mapping[str, KnobValue]) -> dict[str, str]:
    """Return the variables of the server's environment: the knobs that begin with ``env.``.

    Raises:
        RequestError: a name is none of a variable.
    """
    prefix = "env."
    chosen = {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}
    for name in chosen:
        if not _VARIABLE.fullmatch(name):
            raise RequestError(f"'{name}' is no name of a variable; write env.NAME=VALUE.")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in chosen.items()
    }


def environment(config: Mapping[str, KnobValue], own: Mapping[str, str]) -> dict[str, str]:
    """Return what is added to our environment for a server: its `own` variables, and those that are set.

    Raises:
        RequestError: a variable is set which the server needs as it is.
    """
    chosen = variables(config)
    if taken := sorted(chosen.keys() & own.keys()):
        raise RequestError(f"ModelDyno sets {taken[0]} of the server itself; leave out env.{taken[0]}.")
    return {**chosen, **own}


_VARIABLE = re.compile(r"[A-Za-z_]\w*")


def check_batchable(deployed: DeployedModel, config: Mapping[str, KnobValue]) -> None:
    """Refuse to batch requests of a model whose tensors lack a batch axis.

    Raises:
        RequestError: max_batch asks for batches, and the model does not allow them.
    """
    if int(config.get("max_batch", 0)) > 1 and not deployed.batched:
        raise RequestError(
            "Requests for this model cannot be batched: the first axis of every input and output must be "
            f"dynamic, and it has {describe_tensors(deployed)}; export it so, or omit max_batch."
        )


def describe_tensors(deployed: DeployedModel) -> str:
    """Format the inputs and outputs of a model: ``x [batch, 4] -> y 1x10``."""
    inputs, outputs = (
        ", ".join(f"{spec.name} {format_shape(spec.shape or ())}" for spec in specs)
        for specs in (deployed.inputs, deployed.outputs)
    )
    return f"{inputs} -> {outputs}"


def need_torch(form: str, name: str, title: str, packages: Mapping[str, str]) -> None:
    """Refuse a torch module for an engine that lacks torch.

    Raises:
        RequestError: the engine's environment has no torch.
    """
    if form == Form.TORCH and "torch" not in packages:
        raise RequestError(
            f"This {title} has no torch to run the module; install it with: modeldyno engine install {name} "
            "--with torch, or export the module to ONNX."
        )


@dataclass(slots=True, kw_only=True)
class ServerSession(RequestSession):
    """A model on a server, which may stay."""

    client: Client
    endpoint: Endpoint
    control: AdminClient
    """Connection to the server's admin interface; closed with the session."""
    server: ServerProcess | None
    """None for a server that we did not start."""
    pid: int | None
    software: dict[str, str]
    """Versions of the engine and of the runtime in it."""
    doubts: tuple[Doubt, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    """Configuration files of the engine: name and text."""
    regions: SharedRegions = field(default_factory=SharedRegions)
    """Inputs in shared memory; whoever opens the session closes them."""
    flat: frozenset[str] = frozenset()
    """Outputs whose only axis is the batch, to which the engine adds an axis of size 1."""

    def target(self, feeds: Sequence[Feed]) -> Target:
        """Turn each payload into a request."""
        return self.regions.target(self.client, feeds, self.endpoint)

    def sequence_target(self, feeds: Sequence[Feed]) -> Target:
        """Turn each payload into a request of a sequence."""
        return self.regions.target(self.client, feeds, self.endpoint, make=self.client.sequence_target)

    def arrays(self, output: Reply) -> Feed:
        """Parse an answer into named arrays."""
        arrays = self.regions.arrays(self.client, output, self.endpoint)
        return {name: array.reshape(-1) if name in self.flat else array for name, array in arrays.items()}

    def prompt_tokens(self, reply: Reply) -> int:
        """Return the number of prompt tokens that an answer reports; -1 if unknown."""
        return self.client.prompt_tokens(reply)

    def cached_tokens(self, reply: Reply) -> int:
        """Return how many prompt tokens the server had from earlier requests; -1 if unknown."""
        return self.client.cached_tokens(reply)

    def finish_reason(self, reply: Reply) -> str:
        """Return why a generated text ended; empty if unknown."""
        return self.client.finish_reason(reply)

    def ended(self) -> str:
        """Describe how and why the server ended by itself; empty while it runs, or if it is not ours."""
        if self.server is None or not (how := self.server.ended()):
            return ""
        return str(self.server.failed(how))

    def started_server(self) -> StartedServer | None:
        """Return the server, and how it is reached; None if it is not ours."""
        if self.server is None:
            return None
        return StartedServer(
            pid=self.server.pid,
            ports=self.server.ports,
            endpoint=self.endpoint,
            log=str(self.server.log),
        )

    def hand_over(self, owner: int | None) -> None:
        """Let the server stay when the session is closed."""
        if self.server is not None:
            self.server.hand_over(owner)


@dataclass(slots=True, kw_only=True)
class SessionWithStats(ServerSession):
    """A model on a server that reports statistics."""

    counters: Callable[[], ServerCounters]
    instances: Mapping[str, int] = field(default_factory=dict)

    def account(self) -> ServerCounters:
        """Read the server's counters.

        Raises:
            OSError: they cannot be read.
        """
        try:
            return self.counters()
        except ValueError as error:
            raise OSError(str(error)) from error


@contextmanager
def open_server_session(
    launch: Launch, at: str, session: Callable[[ServerProcess, AdminClient], ServerSession]
) -> Iterator[ServerSession]:
    """Run a server and open a session on it.

    Args:
        launch: how to start it.
        at: which of its ports has the admin interface.
        session: builds the session from the server and a client of that interface.
    """
    with run_server(launch) as server:
        yield session(server, AdminClient(port=server.ports[at]))


def read_config_files(server: ServerProcess, *names: str) -> tuple[tuple[str, str], ...]:
    """Read configuration files in the server's directory."""
    return tuple((name, (Path(server.folder) / name).read_text(encoding="utf-8")) for name in names)


def servable_name(model: Model) -> str:
    """Return the model's name, made safe for a directory and a URL path."""
    return re.sub(r"[^\w.-]+", "-", model.identity.name).strip("-.") or "model"


def device_of(config: Mapping[str, KnobValue]) -> str:
    """Return the device that the model is to run on.

    Raises:
        RequestError: the device is neither cpu nor cuda.
    """
    device = str(config.get("device", "cpu"))
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise RequestError(f"The knob device takes cpu, cuda or cuda:N, not '{device}'.")
    return device
