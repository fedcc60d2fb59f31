"""What a client of a server's protocol offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from modeldyno.base.errors import RequestError
from modeldyno.engine.interfaces.request_target import Transport  # noqa: TC001 - what a plugin has is compared with it

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.engine.interfaces.request_target import Endpoint, Reply, ServerInfo, Target
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.models.interface import Feed


class Client(Protocol):
    """Encodes inputs as requests of a protocol, and decodes answers. It does no I/O."""

    requires: tuple[str, ...]
    transport: Transport

    def target(self, feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
        """Encode each payload as a request; raise RequestError for what the protocol cannot carry."""

    def arrays(self, reply: Reply) -> Feed:
        """Decode the outputs of an answer; raise ValueError with a short phrase if it is malformed."""

    def tokens(self, reply: Reply) -> int:
        """Count the tokens of an answer; -1 if unknown.

        Raises BrokenStream for a stream that reports an error or lacks its end; ValueError with a short
        phrase for a malformed one.
        """

    def greeting(self, endpoint: Endpoint) -> Target | None:
        """Return a harmless request that detects servers of this protocol; None if there is none."""

    def recognised(self, reply: Reply) -> ServerInfo | None:
        """Decode the answer to `greeting`; None if the server speaks another protocol."""

    def described(self, endpoint: Endpoint) -> Target | None:
        """Return the request for the model's inputs; None if the protocol has none."""

    def inputs(self, reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
        """Decode the answer to `described`, or without one return the protocol's inputs; empty if unknown.

        Raises ValueError with a short phrase for a malformed answer.
        """


@runtime_checkable
class ListsModels(Protocol):
    """A Client whose protocol can list the models that a server has ready."""

    def listing(self, endpoint: Endpoint) -> Target:
        """Return the request for the list of models."""

    def listed(self, reply: Reply) -> tuple[str, ...]:
        """Decode the model names from the answer to `listing`; empty if it has none."""


@runtime_checkable
class CarriesSequences(Protocol):
    """A Client whose requests can be those of a sequence, for models with state."""

    def sequence_target(self, feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
        """Encode each payload as a request with a mark; raise RequestError as `target` does.

        As they are, the requests are sequences of one request each, with the id `SINGLE_SEQUENCE`.
        """

    def sequence_mark(self, number: int, *, first: bool, last: bool) -> bytes:
        """Return what makes a request one of sequence `number` (1 to 2^31 - 1); its length is constant."""


@runtime_checkable
class NumbersRequests(Protocol):
    """A Client whose requests can bear an id, by which a server's trace names them."""

    def numbered_target(self, feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
        """Encode each payload as a request with a place for its id; raise RequestError as `target` does."""


SINGLE_SEQUENCE = (1 << 31) - 1
"""Id of a sequence of one request; models may have ids as signed numbers of 32 bits."""


@runtime_checkable
class SharesMemory(Protocol):
    """A Client whose server can read inputs from shared memory: requests name a region and where in it."""

    def memory_content(self, feeds: Sequence[Feed]) -> bytes:
        """Return what a region must hold: all inputs of all payloads, one after the other.

        `target` encodes requests for it if the endpoint has the option ``region``, its name.
        """

    def register_memory(self, endpoint: Endpoint, region: str, key: str, size: int) -> Target:
        """Return the request that makes a region known to the server; `key` is its name in this system."""

    def unregister_memory(self, endpoint: Endpoint, region: str) -> Target:
        """Return the request after which the server does not use it."""

    def memory_arrays(self, reply: Reply, endpoint: Endpoint, memory: memoryview) -> Feed:
        """Return the outputs that the server wrote into a region; raise ValueError (a phrase) on a mismatch.

        The endpoint has the options ``output_region`` and ``output_sizes``: JSON, bytes by output.
        """

    def check_memory(self, reply: Reply) -> None:
        """Raise ValueError with a short phrase if the server did not register it."""


def sequence_target(client: Client, feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Encode each payload as a request of a sequence.

    Raises:
        RequestError: the protocol has no sequences.
    """
    if not isinstance(client, CarriesSequences):
        raise RequestError(
            f"The protocol {endpoint.protocol or 'of this server'} has no sequences; leave `sequence` out, "
            "or use the Open Inference Protocol (kserve-http, kserve-grpc)."
        )
    return client.sequence_target(feeds, endpoint)


@runtime_checkable
class Streams(Protocol):
    """A Client whose answers can be streamed as server-sent events."""

    def bearing(self, event: bytes) -> bool:
        """Return whether an event holds generated content, not only a role, a usage or an end.

        It must be cheap, as it is called for each event as it arrives.
        """


@runtime_checkable
class TakesRequests(Protocol):
    """A Client, or a backend, whose one input takes texts and requests (`engine.data.text_requests`)."""

    takes_requests: bool


@runtime_checkable
class TellsWhyTextEnds(Protocol):
    """A Client or a session whose server says why a generated text ended."""

    def finish_reason(self, reply: Reply) -> str:
        """Return the reason, such as ``length`` or ``stop``; empty if unknown."""


@runtime_checkable
class CountsPrompts(Protocol):
    """A Client or a session whose server counts the prompt tokens."""

    def prompt_tokens(self, reply: Reply) -> int:
        """Return the prompt tokens of an answer; -1 if unknown."""


@runtime_checkable
class CountsWork(Protocol):
    """A Client whose protocol reports server statistics."""

    def statistics(self, endpoint: Endpoint) -> Target:
        """Return the request for the counters of the model."""

    def account(self, reply: Reply, endpoint: Endpoint) -> ServerCounters:
        """Decode the answer to `statistics`; raise ValueError with a short phrase if it is malformed."""
