"""What the backends of engines that we start have in common: their knobs, and a session of a server."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.core.account import Account
from modeldyno.core.doubt import Doubt
from modeldyno.core.knob import Knob
from modeldyno.core.target import Endpoint
from modeldyno.engines.control import Control
from modeldyno.engines.server import Server
from modeldyno.errors import RequestError
from modeldyno.ports import Client

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.core.knob import KnobValue
    from modeldyno.core.target import Reply, Target
    from modeldyno.ports import Feed, Model

DEVICE = Knob(
    name="device", kind=str, default="cpu", sentence="What runs the model in the server: cpu, cuda or cuda:1."
)
THREADS = Knob(
    name="threads",
    kind=int,
    default=None,
    low=1,
    high=1024,
    sentence="Threads inside one operator, of each instance; the runtime's own choice if not set.",
    aliases=("intra_threads", "intra_op_num_threads"),
)
STARTUP_TIME = Knob(
    name="startup_time",
    kind=float,
    default=None,
    low=1,
    sentence="Seconds until the server must be ready; 180 if not set.",
)


def startup_time(config: Mapping[str, KnobValue], usual: float = 180.0) -> float:
    """Seconds until the server must be ready."""
    return float(config.get(STARTUP_TIME.name, usual))


def ports_knob(conventional: Mapping[str, int]) -> Knob:
    """Say which ports a server can be given."""
    usual = ", ".join(f"{part} {port}" for part, port in conventional.items())
    return Knob(
        name="ports",
        kind=str,
        default=None,
        sentence=f"free (unless set), conventional ({usual}), or numbers in that order, such as 8000,8001.",
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
