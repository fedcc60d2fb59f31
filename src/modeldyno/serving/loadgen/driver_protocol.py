"""A driver's command as bytes: a line of JSON, followed by the messages."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.base.job.cancellation import Cancellation
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.job.think_time import ThinkTime
from modeldyno.engine.interfaces.request_target import Replica, Target, Tls, Transport
from modeldyno.serving.loadgen.arrivals import LoadShare

if TYPE_CHECKING:
    from collections.abc import Callable


_LISTS = ("marks", "streams", "token_limits", "turn_ends", "think_times")
"""Fields of a target that have a number for each message or stream."""
_LISTS_OF_LISTS = ("links", "word_groups", "word_groups_of")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCommand:
    """A command to a driver: one share of a load on a target."""

    target: Target
    load: Load
    share: LoadShare
    seed: int
    addresses: tuple[str, ...]
    """IP addresses of the target's servers, so that the drivers need not resolve them."""
    first_sequence: int = 1
    """Id of the first sequence of all drivers."""


def encode_command(command: DriverCommand) -> bytes:
    """Encode a command; it contains secrets."""
    messages = command.target.messages
    fields = {**asdict(command), "sizes": [len(message) for message in messages]}
    del fields["target"]["messages"]
    return json.dumps(fields).encode() + b"\n" + b"".join(messages)


def read_command(take: Callable[[int], bytes]) -> DriverCommand:
    """Decode a command, using a function that returns exactly `size` bytes."""
    line = bytearray()
    while not line.endswith(b"\n"):
        line += take(1)
    fields: dict[str, Any] = json.loads(line)
    target, load = fields["target"], fields["load"]
    target["transport"] = Transport(target["transport"])
    target["metadata"] = tuple((name, value) for name, value in target["metadata"])
    target["tls"] = _read_tls(target["tls"])
    target["replicas"] = tuple(
        Replica(**{**replica, "tls": _read_tls(replica["tls"])}) for replica in target["replicas"]
    )
    target |= {name: tuple(target[name]) for name in _LISTS}
    target |= {name: tuple(map(tuple, target[name])) for name in _LISTS_OF_LISTS}
    load["arrivals"] = Arrivals(load["arrivals"])
    load["sequence"] = load["sequence"] and tuple(load["sequence"])
    load["think_time"] = load["think_time"] and ThinkTime(**load["think_time"])
    load["cancel"] = load["cancel"] and Cancellation(**load["cancel"])
    return DriverCommand(
        target=Target(**target, messages=tuple(take(size) for size in fields["sizes"])),
        load=Load(**load),
        share=LoadShare(**fields["share"]),
        seed=fields["seed"],
        addresses=tuple(fields["addresses"]),
        first_sequence=fields["first_sequence"],
    )


def _read_tls(fields: dict[str, Any] | None) -> Tls | None:
    return Tls(**fields) if fields else None
