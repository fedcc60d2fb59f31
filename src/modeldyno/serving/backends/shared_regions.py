"""Regions of system shared memory that hold the inputs of requests, or their outputs as well."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from multiprocessing.shared_memory import SharedMemory
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.serving.loadgen.single_request import send_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modeldyno.engine.interfaces.request_target import Endpoint, Reply, Target
    from modeldyno.models.interface import Feed
    from modeldyno.serving.interfaces.client import Client

    MakesTarget = Callable[[Sequence[Feed], Endpoint], Target]

SHARED_MEMORY, SYSTEM, SYSTEM_BOTH = "shared_memory", "system", "system-both"
"""Option of an Endpoint, and its values: the inputs alone, or the outputs as well."""
_FIRST_ANSWER = 60.0
"""Seconds that a request may take from which the sizes of outputs are learned."""
_TIMEOUT = 10.0
"""Seconds that a server may take to register a region."""


class SharedRegions:
    """The regions of a session; `close` removes them."""

    def __init__(self) -> None:
        self._open: list[tuple[SharedMemory, Target]] = []
        self._outputs: dict[str, tuple[SharedMemory, Endpoint]] = {}
        """Model to the region of its outputs, and the endpoint that says where in it they lie."""

    def target(
        self, client: Client, feeds: Sequence[Feed], endpoint: Endpoint, *, make: MakesTarget | None = None
    ) -> Target:
        """Encode each payload as a request; if the endpoint says so, its inputs lie in a region.

        Args:
            client: of the server's protocol.
            feeds: the payloads.
            endpoint: the model on the server.
            make: encodes them, if not the client's own `target`.

        Raises:
            RequestError: the protocol has none of that, or the server cannot read this machine's memory.
        """
        if endpoint.options.get(SHARED_MEMORY) in {SYSTEM, SYSTEM_BOTH}:
            endpoint = self._share(client, feeds, endpoint)
        return (make or client.target)(feeds, endpoint)

    def _share(self, client: Client, feeds: Sequence[Feed], endpoint: Endpoint) -> Endpoint:
        """Put the inputs into a region, make one for the outputs; return the endpoint with their names."""
        content = client.memory_content(feeds)
        if content is None:
            raise RequestError(
                f"The protocol {endpoint.protocol} has no shared memory; leave out shared_memory."
            )
        inputs = self._register(client, endpoint, content, len(content))
        shared = replace(endpoint, options={**endpoint.options, "region": inputs.name})
        if endpoint.options[SHARED_MEMORY] == SYSTEM_BOTH:
            sizes = _output_sizes(client, feeds, endpoint)
            memory = self._register(client, endpoint, b"", len(feeds) * sum(sizes.values()))
            added = {"output_region": memory.name, "output_sizes": json.dumps(sizes)}
            shared = replace(shared, options={**shared.options, **added})
            self._outputs[endpoint.model] = memory, shared
        return shared

    def arrays(self, client: Client, reply: Reply, endpoint: Endpoint) -> Feed:
        """Return the outputs of a reply, from the region of the endpoint's model if there is one.

        Raises:
            ValueError: (a phrase) the reply is none, or an error.
        """
        if endpoint.model not in self._outputs:
            return client.arrays(reply)
        memory, shared = self._outputs[endpoint.model]
        assert memory.buf is not None
        return client.memory_arrays(reply, shared, memory.buf)

    def _register(self, client: Client, endpoint: Endpoint, content: bytes, size: int) -> SharedMemory:
        """Make a region with this content, and have the server know it."""
        memory = SharedMemory(create=True, size=max(1, size))
        self._open.append((memory, client.unregister_memory(endpoint, memory.name)))
        assert memory.buf is not None
        memory.buf[: len(content)] = content
        try:
            reply = send_once(
                client.register_memory(endpoint, memory.name, f"/{memory.name.lstrip('/')}", size),
                timeout=_TIMEOUT,
            )
            client.check_memory(reply)
        except (OSError, ValueError) as error:
            raise RequestError(
                f"The server does not read this machine's shared memory: {error}; "
                "leave out shared_memory if it runs elsewhere or in a container."
            ) from error
        return memory

    def close(self) -> None:
        """Unregister the regions and remove them."""
        self._outputs.clear()
        while self._open:
            memory, unregister = self._open.pop()
            with suppress(OSError):
                send_once(unregister, timeout=_TIMEOUT)
            memory.close()
            with suppress(FileNotFoundError):
                memory.unlink()


def _output_sizes(client: Client, feeds: Sequence[Feed], endpoint: Endpoint) -> dict[str, int]:
    """Return the most bytes that each output has, as one request of each shape of the inputs gives them.

    Raises:
        RequestError: such a request fails, or an output is text, whose size depends on the data.
    """
    plain = replace(endpoint, options={k: v for k, v in endpoint.options.items() if k != SHARED_MEMORY})
    shapes = {tuple((name, array.shape) for name, array in feed.items()): feed for feed in feeds}
    sizes: dict[str, int] = {}
    for feed in shapes.values():
        try:
            outputs = client.arrays(send_once(client.target([feed], plain), timeout=_FIRST_ANSWER))
        except (OSError, ValueError) as error:
            raise RequestError(f"The sizes of the outputs cannot be learned: {error}.") from error
        for name, array in outputs.items():
            if array.dtype.hasobject or array.dtype.kind in "SU":
                raise RequestError(
                    f"The output '{name}' is text, whose size depends on the data; set shared_memory=system."
                )
            sizes[name] = max(sizes.get(name, 0), array.nbytes)
    return sizes
