"""What the backends of engines that we start have in common: their knobs, and a session of a server."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.core.load.request_target import Endpoint
from modeldyno.core.load.server_stats import Account
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.spec.input_spec import show
from modeldyno.core.spec.knob import BATCH_SIZE, Knob
from modeldyno.errors import RequestError
from modeldyno.interfaces import Client, CountsPrompts, Form
from modeldyno.servers import tcp_ports
from modeldyno.servers.admin_client import Control
from modeldyno.servers.server_process import Server, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.adapters.backends.served.model_files import Deployed
    from modeldyno.core.load.request_target import Reply, Target
    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces import Feed, Model
    from modeldyno.servers.server_process import Launch, Ports

_KNOBS = {
    each.name: each
    for each in (
        Knob(
            name="protocol",
            kind=str,
            default="http-json",
            choices=("http-json", "grpc"),
            sentence="What requests are sent by: tensors as JSON over HTTP, or gRPC.",
        ),
        Knob(
            name="workers",
            kind=int,
            default=1,
            low=1,
            high=1024,
            sentence="Processes that run the model.",
            aliases=("instances",),
        ),
        Knob(
            name="max_batch",
            kind=int,
            default=1,
            low=1,
            high=1 << 20,
            sentence="Requests that are gathered into one call of the model at most.",
            aliases=("max_batch_size",),
        ),
        Knob(
            name="queue_delay",
            kind=int,
            default=None,
            low=1,
            sentence="Microseconds that a request may wait for others to share a call; needs max_batch.",
            aliases=("max_queue_delay_microseconds",),
        ),
        Knob(
            name="device",
            kind=str,
            default="cpu",
            sentence="What runs the model in the server: cpu, cuda or cuda:1.",
        ),
        Knob(
            name="threads",
            kind=int,
            default=None,
            low=1,
            high=1024,
            sentence="Threads inside one operator, of each instance; the runtime's own choice if not set.",
            aliases=("intra_threads", "intra_op_num_threads"),
        ),
        Knob(name="config", kind=str, default=None, family=True, sentence="Any setting of the server."),
        Knob(
            name="ports",
            kind=str,
            default=None,
            sentence="free (unless set), conventional (%s), or numbers in that order, such as 8000,8001.",
        ),
        Knob(
            name="startup_time",
            kind=float,
            default=None,
            low=1,
            sentence="Seconds until the server must be ready; 180 if not set.",
        ),
        BATCH_SIZE,
    )
}
"""What can be set on several engines, by the same name everywhere."""


def knob(name: str, **otherwise: Any) -> Knob:
    """Give one of the common knobs, with what is otherwise in an engine."""
    return replace(_KNOBS[name], **otherwise)


def startup_time(config: Mapping[str, KnobValue], usual: float = 180.0) -> float:
    """Seconds until the server must be ready."""
    return float(config.get("startup_time", usual))


def ports_knob(conventional: Mapping[str, int]) -> Knob:
    """Say which ports a server can be given."""
    usual = ", ".join(f"{part} {port}" for part, port in conventional.items())
    return knob("ports", sentence=_KNOBS["ports"].sentence % usual)


def chosen_ports(config: Mapping[str, KnobValue], conventional: Mapping[str, int]) -> Ports:
    """Give what is to listen where; 0 is a free port."""
    return tcp_ports.chosen(str(config.get("ports", "free")), conventional)


def check(config: Mapping[str, KnobValue], conventional: Mapping[str, int]) -> None:
    """Refuse what no engine can do: a device or ports that are none, and a wait that nobody shares."""
    device_of(config)
    chosen_ports(config, conventional)
    if "queue_delay" in config and int(config.get("max_batch", 1)) < 2:  # noqa: PLR2004 - one is no batch
        raise RequestError(
            "The knob queue_delay has no effect without max_batch of 2 or more; set both, or neither."
        )


def fields(config: Mapping[str, KnobValue]) -> dict[str, str]:
    """Give the engine's own settings, which are named behind ``config.``."""
    prefix = "config."
    return {
        name.removeprefix(prefix): str(value) for name, value in config.items() if name.startswith(prefix)
    }


def gatherable(found: Deployed, config: Mapping[str, KnobValue]) -> None:
    """Refuse to gather requests of a model whose tensors have no axis for that.

    Raises:
        RequestError: there are to be batches, and cannot be.
    """
    if int(config.get("max_batch", 0)) > 1 and not found.batched:
        raise RequestError(
            "Requests for this model cannot be gathered into batches, for the first axis of every input and "
            f"output must be free, and it has {described(found)}; export it so, or leave max_batch out."
        )


def described(found: Deployed) -> str:
    """Show the tensors of a model: ``x [batch, 4] -> y 1x10``."""
    inputs, outputs = (
        ", ".join(f"{each.name} {show(each.shape or ())}" for each in specs)
        for specs in (found.inputs, found.outputs)
    )
    return f"{inputs} -> {outputs}"


def need_torch(model: Model, name: str, title: str, packages: Mapping[str, str]) -> None:
    """Refuse a module that an engine has no torch to run.

    Raises:
        RequestError: so it is.
    """
    if model.form == Form.TORCH and "torch" not in packages:
        raise RequestError(
            f"This {title} has no torch to run the module; install it with: modeldyno engine install {name} "
            "--with torch, or export the module to ONNX."
        )


@dataclass(slots=True, kw_only=True)
class Session:
    """A model behind a server: what `ports.CanSend` asks for."""

    client: Client
    endpoint: Endpoint
    control: Control
    """To the server's own interface; closed with the session."""
    server: Server | None
    """None for one that is not ours."""
    pid: int | None
    software: dict[str, str]
    """What serves: the versions of the engine and of what runs the model in it."""
    doubts: tuple[Doubt, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    """What the engine was told: name of a file, and its text."""
    flat: frozenset[str] = frozenset()
    """Outputs that have the batch as their only axis, and to which the engine adds one of size 1."""

    def target(self, feeds: Sequence[Feed]) -> Target:
        """Make each payload a request."""
        return self.client.target(feeds, self.endpoint)

    def arrays(self, output: Reply) -> Feed:
        """Read an answer as named arrays."""
        found = self.client.arrays(output)
        return {name: array.reshape(-1) if name in self.flat else array for name, array in found.items()}

    def prompt_tokens(self, reply: Reply) -> int:
        """Give the tokens of the prompts that an answer is of; -1 where nobody tells."""
        return self.client.prompt_tokens(reply) if isinstance(self.client, CountsPrompts) else -1

    def ended(self) -> str:
        """Say how the server ended by itself, and why; empty while it runs, or where it is not ours."""
        if self.server is None or not (how := self.server.ended()):
            return ""
        return str(self.server.failed(how))


@dataclass(slots=True, kw_only=True)
class Counted(Session):
    """Behind one that tells what it does: what `ports.HasServerStats` asks for, too."""

    counters: Callable[[], Account]

    def account(self) -> Account:
        """Look at the server's counters.

        Raises:
            OSError: it does not tell them.
        """
        try:
            return self.counters()
        except ValueError as error:
            raise OSError(str(error)) from error


@contextmanager
def served(launch: Launch, at: str, session: Callable[[Server, Control], Session]) -> Iterator[Session]:
    """Run a server, and give a session of it.

    Args:
        launch: how to start it.
        at: which of its ports has its own interface.
        session: makes the session of the server and a connection to that interface.
    """
    with running(launch) as server, closing(Control(port=server.ports[at])) as beside:
        yield session(server, beside)


def texts(server: Server, *names: str) -> tuple[tuple[str, str], ...]:
    """Read files of the server's directory: what it was told."""
    return tuple((name, (Path(server.folder) / name).read_text(encoding="utf-8")) for name in names)


def name_of(model: Model) -> str:
    """Give a name that a directory and a path of HTTP can have."""
    return re.sub(r"[^\w.-]+", "-", model.identity.name).strip("-.") or "model"


def device_of(config: Mapping[str, KnobValue]) -> str:
    """Read where the model is to run.

    Raises:
        RequestError: it is no such device.
    """
    device = str(config.get("device", "cpu"))
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise RequestError(f"The knob device takes cpu, cuda or cuda:1, not '{device}'.")
    return device
