"""What a client of a server's protocol offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.engine.interfaces.request_target import Transport  # noqa: TC001 - what a plugin has is compared with it

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.engine.interfaces.request_target import Endpoint, Reply, ServerInfo, Target
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.models.interface import Feed

SINGLE_SEQUENCE = (1 << 31) - 1
"""Id of a sequence of one request; models may have ids as signed numbers of 32 bits."""


class Client(ABC):
    """Encodes inputs as requests of a protocol, and decodes answers. It does no I/O."""

    requires: tuple[str, ...]
    """Importable names that it needs; a missing one is reported with the package to install."""
    transport: Transport
    takes_requests: bool = False
    """Whether its one input takes texts and whole requests (`engine.data.text_requests`)."""

    @abstractmethod
    def target(self, feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
        """Encode each payload as a request; raise RequestError for what the protocol cannot carry."""

    @abstractmethod
    def arrays(self, reply: Reply) -> Feed:
        """Decode the outputs of an answer; raise ValueError with a short phrase if it is malformed."""

    # What a server says of itself and of its model

    def greeting(self, endpoint: Endpoint) -> Target | None:
        """Return a harmless request that detects servers of this protocol; None if there is none."""
        return None

    def recognised(self, reply: Reply) -> ServerInfo | None:
        """Decode the answer to `greeting`; None if the server speaks another protocol."""
        return None

    def described(self, endpoint: Endpoint) -> Target | None:
        """Return the request for the model's inputs; None if the protocol has none."""
        return None

    def inputs(self, reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
        """Decode the answer to `described`, or without one return the protocol's inputs; empty if unknown.

        Raises ValueError with a short phrase for a malformed answer.
        """
        return ()

    def listing(self, endpoint: Endpoint) -> Target | None:
        """Return the request for the models that the server has ready; None if the protocol has none."""
        return None

    def listed(self, reply: Reply) -> tuple[str, ...]:
        """Decode the model names from the answer to `listing`; empty if it has none."""
        return ()

    def statistics(self, endpoint: Endpoint) -> Target | None:
        """Return the request for the counters of the model; None if the protocol has none."""
        return None

    def account(self, reply: Reply, endpoint: Endpoint) -> ServerCounters:
        """Decode the answer to `statistics`; raise ValueError with a short phrase if it is malformed."""
        raise NotImplementedError

    # Generated text

    text_start: Callable[[bytes], int] | None = None
    """Return where what was generated begins in the data of a server-sent event; 0 if there is none.

    A role, a usage or an end is none. Another event of the same answer that is alike up to there, and has no
    quote there, has to hold something as well. None if each event with data holds something.
    """

    is_reasoning: Callable[[bytes], bool] | None = None
    """Return whether such an event holds reasoning rather than the answer itself; None if none does."""

    def tokens(self, reply: Reply) -> int:
        """Count the tokens of an answer; -1 if unknown.

        Raises BrokenStream for a stream that reports an error or lacks its end; ValueError with a short
        phrase for a malformed one.
        """
        return -1

    def text(self, reply: Reply) -> str:
        """Return the generated text of an answer, all that was generated one after the other."""
        return ""

    def prompt_tokens(self, reply: Reply) -> int:
        """Return the prompt tokens of an answer; -1 if unknown."""
        return -1

    def cached_tokens(self, reply: Reply) -> int:
        """Return how many of the prompt tokens the server had from earlier requests; -1 if unknown."""
        return -1

    def finish_reason(self, reply: Reply) -> str:
        """Return why the text of an answer ended, such as ``length`` or ``stop``; empty if unknown."""
        return ""

    # Requests that bear more than inputs

    def sequence_target(self, feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
        """Encode each payload as a request of a sequence, with a mark, for models with state and for chats.

        As they are, the requests are sequences of one request each, with the id `SINGLE_SEQUENCE`; those of a
        chat are first turns. Raise RequestError as `target` does, and, as by default, if the protocol has no
        sequences.
        """
        raise RequestError(
            f"The protocol {endpoint.protocol or 'of this server'} has no sequences; leave `sequence` out, "
            "or use the Open Inference Protocol (kserve-http, kserve-grpc) or chats (openai)."
        )

    def sequence_mark(self, number: int, *, first: bool, last: bool) -> bytes:
        """Return what makes a request one of sequence `number` (1 to 2^31 - 1); its length is constant."""
        raise NotImplementedError

    def assistant_message(self, reply: Reply) -> bytes:
        """Encode an answer as a message of its chat's history; raise ValueError (a phrase) if it is none."""
        raise NotImplementedError

    def numbered_target(self, feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
        """Encode each payload as a request with a place for an id, by which a server's trace names it.

        By default it has none. Raise RequestError as `target` does.
        """
        return self.target(feeds, endpoint)

    # Inputs in shared memory: requests name a region and where in it

    def memory_content(self, feeds: Sequence[Feed]) -> bytes | None:
        """Return what a region must hold: all inputs of all payloads, one after the other.

        `target` encodes requests for it if the endpoint has the option ``region``, its name. None if the
        protocol has no shared memory.
        """
        return None

    def register_memory(self, endpoint: Endpoint, region: str, key: str, size: int) -> Target:
        """Return the request that makes a region known to the server; `key` is its name in this system."""
        raise NotImplementedError

    def unregister_memory(self, endpoint: Endpoint, region: str) -> Target:
        """Return the request after which the server does not use it."""
        raise NotImplementedError

    def memory_arrays(self, reply: Reply, endpoint: Endpoint, memory: memoryview) -> Feed:
        """Return the outputs that the server wrote into a region; raise ValueError (a phrase) on a mismatch.

        The endpoint has the options ``output_region`` and ``output_sizes``: JSON, bytes by output.
        """
        raise NotImplementedError

    def check_memory(self, reply: Reply) -> None:
        """Raise ValueError with a short phrase if the server did not register it."""
