"""What a driver is told to do, as bytes: a line of JSON, and the messages behind it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.core.load.request_target import Target, Tls, Transport
from modeldyno.core.spec.load_spec import Arrivals, Load
from modeldyno.loadgen.arrivals import Share

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A share of a load on a target."""

    target: Target
    load: Load
    share: Share
    seed: int
    address: str
    """Of the target's host: each driver would look it up otherwise."""


def encode(order: Order) -> bytes:
    """Write an order; it holds secrets."""
    messages = order.target.messages
    said = {**asdict(order), "sizes": [len(message) for message in messages]}
    del said["target"]["messages"]
    return json.dumps(said).encode() + b"\n" + b"".join(messages)


def read(take: Callable[[int], bytes]) -> Order:
    """Read an order with a function that gives so many bytes, and no fewer."""
    line = bytearray()
    while not line.endswith(b"\n"):
        line += take(1)
    said: dict[str, Any] = json.loads(line)
    target, load = said["target"], said["load"]
    target["transport"] = Transport(target["transport"])
    target["metadata"] = tuple((name, value) for name, value in target["metadata"])
    target["tls"] = Tls(**target["tls"]) if target["tls"] else None
    load["arrivals"] = Arrivals(load["arrivals"])
    return Order(
        target=Target(**target, messages=tuple(take(size) for size in said["sizes"])),
        load=Load(**load),
        share=Share(**said["share"]),
        seed=said["seed"],
        address=said["address"],
    )
