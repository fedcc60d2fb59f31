"""Regions of system shared memory from which a server on this machine reads the inputs of requests."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from multiprocessing.shared_memory import SharedMemory
from typing import TYPE_CHECKING

from modeldyno.errors import RequestError
from modeldyno.interfaces.client import SharesMemory, sequence_target
from modeldyno.loadgen.single_request import send_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.load.request_target import Endpoint, Target
    from modeldyno.interfaces.client import Client
    from modeldyno.interfaces.loader import Feed

SHARED_MEMORY, SYSTEM = "shared_memory", "system"
"""Option of an Endpoint, and its value."""
_TIMEOUT = 10.0
"""Seconds that a server may take to register a region."""


class SharedRegions:
    """The regions of a session; `close` removes them."""

    def __init__(self) -> None:
        self._open: list[tuple[SharedMemory, Target]] = []

    def target(
        self, client: Client, feeds: Sequence[Feed], endpoint: Endpoint, *, sequences: bool = False
    ) -> Target:
        """Encode each payload as a request; if the endpoint says so, its inputs lie in a region.

        Raises:
            RequestError: the protocol has none of that, or the server cannot read this machine's memory.
        """
        if endpoint.options.get(SHARED_MEMORY) == SYSTEM:
            endpoint = self._share(client, feeds, endpoint)
        return sequence_target(client, feeds, endpoint) if sequences else client.target(feeds, endpoint)

    def _share(self, client: Client, feeds: Sequence[Feed], endpoint: Endpoint) -> Endpoint:
        """Put the inputs into a region; return the endpoint with its name."""
        if not isinstance(client, SharesMemory):
            raise RequestError(
                f"The protocol {endpoint.protocol} has no shared memory; leave out shared_memory."
            )
        content = client.memory_content(feeds)
        memory = SharedMemory(create=True, size=max(1, len(content)))
        self._open.append((memory, client.unregister_memory(endpoint, memory.name)))
        assert memory.buf is not None
        memory.buf[: len(content)] = content
        try:
            reply = send_once(
                client.register_memory(endpoint, memory.name, f"/{memory.name.lstrip('/')}", len(content)),
                timeout=_TIMEOUT,
            )
            client.check_memory(reply)
        except (OSError, ValueError) as error:
            raise RequestError(
                f"The server does not read this machine's shared memory: {error}; "
                "leave out shared_memory if it runs elsewhere or in a container."
            ) from error
        return replace(endpoint, options={**endpoint.options, "region": memory.name})

    def close(self) -> None:
        """Unregister the regions and remove them."""
        while self._open:
            memory, unregister = self._open.pop()
            with suppress(OSError):
                send_once(unregister, timeout=_TIMEOUT)
            memory.close()
            with suppress(FileNotFoundError):
                memory.unlink()
