"""What a session of a backend may offer: calling, layers, memory, training, serving."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.trace_data import Span
from modeldyno.engine.interfaces.request_target import Endpoint

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from modeldyno.base.job.load_spec import Load
    from modeldyno.engine.interfaces.request_target import Reply, Target
    from modeldyno.engine.interfaces.server_stats import RequestStamps, ServerCounters
    from modeldyno.engine.trace.allocations import AllocationRecord, AllocationRecorder
    from modeldyno.engine.trace.dataflow import DataFlow
    from modeldyno.engine.trace.layer_times import HookOverhead
    from modeldyno.engine.trace.op_events import WatchedCalls
    from modeldyno.models.interface import Feed, ModuleFilter


@runtime_checkable
class CanCall(Protocol):
    """A session of a local runtime."""

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Copy the payload to the device; return a function that makes one call with the whole batch.

        The function takes no argument, does nothing but call, and returns when the device has finished.
        """

    def arrays(self, output: Any) -> Feed:
        """Convert the output of a call to named arrays on the host, for checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A model whose modules are being profiled."""

    call: Callable[[], Any]
    """Makes one profiled call, otherwise like those of `prepare`."""
    spans: Callable[[int], Sequence[Sequence[Span]]]
    """Returns the spans of each call after skipping the first N; to be called once, after the last call.

    The spans of a call are in the order of their start; the first is that of the whole model.
    """
    overhead: HookOverhead
    tick: float = 0.0
    """Seconds in which the spans are counted; 0: as finely as our own clock counts."""
    plain: Callable[[], Any] | None = None
    """Makes an unprofiled call, to alternate with profiled ones; None if those of `prepare` can be used."""
    doubts: tuple[Doubt, ...] = ()
    """What cannot be profiled."""
    origins: Callable[[], Mapping[str, Sequence[str]]] = dict
    """Returns, after `spans`, paths that are nodes of a rewritten network rather than modules, each with the
    `Op.name` of the operators that it computes."""


@runtime_checkable
class HasLayers(Protocol):
    """A session that can time the modules within a call."""

    def layers(self, feed: Feed, named: ModuleFilter) -> AbstractContextManager[Layers]:
        """Profile the selected modules within the context; on exit the model is unchanged."""


@runtime_checkable
class HasMemory(Protocol):
    """A session that can record the allocator during a call."""

    def allocations(self, feed: Feed) -> AllocationRecorder:
        """Enter a context with a function that makes one call and returns what the allocator did.

        Raises RequestError if the device's allocator cannot be recorded.
        """


class Training(Protocol):
    """A model in training; every step is like the one before."""

    def step(self) -> Mapping[str, float]:
        """Make a step with the next payload; return the seconds of its stages, in their order.

        Stages are ``copy`` (of the payload to a device other than the host), ``forward``, ``backward`` and
        ``optimizer``. It returns when the device has finished.
        """

    def watched(self) -> AllocationRecord:
        """Make a step, and return what the allocator did; its stages are those of `step`."""


@runtime_checkable
class CanTrain(Protocol):
    """A session that can make training steps."""

    def training(self, feeds: Sequence[Feed], optimizer: str) -> AbstractContextManager[Training]:
        """Train a copy of the model; the session's own model is unchanged.

        The loss is the model's own if it returns one, otherwise the sum of the squares of its outputs. Raises
        RequestError for a model that cannot be trained.
        """


class Decoding(Protocol):
    """A prompt on the device, which can be continued repeatedly."""

    def tokens(self) -> Generator[Any]:
        """Restart: each `next` processes the new tokens and picks the likeliest next token of each sample.

        The first one processes the prompt. It returns when the device has the tokens (batch x 1); all tokens
        are generated, even if the model ends its text earlier.
        """

    def cache_bytes(self) -> int:
        """Return the bytes of keys, values and states (the KV cache) after the last token."""


@runtime_checkable
class CanGenerate(Protocol):
    """A session that can generate tokens one after the other."""

    def decoding(self, prompt: Feed, tokens: int) -> Decoding:
        """Copy a prompt to the device, to generate this number of tokens.

        Raises RequestError if the model cannot generate, or not so many tokens.
        """


@runtime_checkable
class HasOperators(Protocol):
    """A session that can profile its calls operator by operator."""

    def operators(self, feed: Feed, calls: int, trace: Path | None) -> WatchedCalls:
        """Make this number of calls and return what ran in them; write a trace to `trace` unless None.

        The calls do what those of `prepare` do. Raises OSError if the trace cannot be written.
        """


@runtime_checkable
class HasFlow(Protocol):
    """A session that can trace the data flow of a call."""

    def flow(self, feed: Feed) -> DataFlow | None:
        """Trace one call; None if its code is compiled, so that its steps are not those of the model."""


@runtime_checkable
class HasAllocator(Protocol):
    """A session that knows the peak of its device allocator."""

    def peak_reserved(self) -> int:
        """Return the peak of reserved memory in bytes."""


@runtime_checkable
class IsServed(Protocol):
    """A session of a model behind a server."""

    @property
    def pid(self) -> int | None:
        """The root process of the server; None if it is not known, as of one on another machine."""


@runtime_checkable
class CanDrive(IsServed, Protocol):
    """A session whose requests are sent by threads of this process, such as the user's code."""

    samples: int | None
    """Samples per request; None if as many as in a payload."""

    def calls(self, feeds: Sequence[Feed]) -> Sequence[Callable[[], Any]]:
        """Return functions that send a request and return its answer; many threads call them in a cycle.

        The requests have these payloads, unless the session has its own.
        """

    def arrays(self, output: Any) -> Feed:
        """Convert the output of a call to named arrays, as far as possible."""


@runtime_checkable
class CanSend(IsServed, Protocol):
    """A session that encodes payloads as requests, for the built-in load generator."""

    def target(self, feeds: Sequence[Feed]) -> Target:
        """Encode each payload as a request."""

    def arrays(self, output: Reply) -> Feed:
        """Decode an answer to named arrays; raise ValueError with a short phrase if it is malformed."""


@runtime_checkable
class CanSendSequences(CanSend, Protocol):
    """A session that encodes payloads as requests of sequences, too."""

    def sequence_target(self, feeds: Sequence[Feed]) -> Target:
        """Encode each payload as a request of a sequence; raise RequestError if the protocol has none."""


def load_target(session: CanSend, feeds: Sequence[Feed], load: Load) -> Target:
    """Encode each payload as a request of a load.

    Raises:
        RequestError: the load is one of sequences, which the session cannot send.
    """
    if load.sequence is None:
        return session.target(feeds)
    if not isinstance(session, CanSendSequences):
        raise RequestError("Only requests to a server can be those of sequences; leave `sequence` out.")
    return session.sequence_target(feeds)


@runtime_checkable
class HasServerStats(Protocol):
    """A session whose server reports statistics."""

    def account(self) -> ServerCounters:
        """Read the counters now: cheap, without a request to the model. Raises OSError on failure."""


class RequestTrace(Protocol):
    """A server's trace of some of the requests to it; each method raises OSError on failure."""

    def begin(self, step: int) -> None:
        """Trace one of so many requests from now on."""

    def end(self) -> None:
        """Trace no more."""

    def read(self) -> Sequence[RequestStamps]:
        """Return the stamps of the requests that were traced since the last reading."""


@runtime_checkable
class TracesRequests(Protocol):
    """A session whose server may trace requests, by the id that each of them then bears."""

    trace: RequestTrace | None
    """None if it does not."""


@runtime_checkable
class CountsInstances(Protocol):
    """A session whose server runs a known number of instances of the model."""

    instances: Mapping[str, int]
    """Instances by model that answers a request, if there are several; "" for all; empty if unknown."""


@runtime_checkable
class ReportsDevices(Protocol):
    """A session whose server reports the devices of its machine."""

    device_metrics: str
    """URL of its metrics; empty if it reports none."""


@runtime_checkable
class MayEnd(Protocol):
    """A session whose server may exit by itself."""

    def ended(self) -> str:
        """Describe how and why it exited; empty while it runs, and for a server that we did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedServer:
    """A server of a session, and how it is reached without the session."""

    pid: int
    """The root process: SIGTERM to it ends the server."""
    ports: Mapping[str, int]
    """Interface (``http``, ``grpc``, ``metrics``) to port."""
    endpoint: Endpoint
    log: str
    """Path of its log."""


@runtime_checkable
class CanStay(Protocol):
    """A session whose server can stay when the session is closed."""

    def started_server(self) -> StartedServer | None:
        """Return the server; None if we did not start it."""

    def hand_over(self, owner: int | None) -> None:
        """Let the server stay until the process `owner` ends; with None, until it is stopped."""


@runtime_checkable
class HasDoubts(Protocol):
    """A session that has doubts about its measurements."""

    doubts: tuple[Doubt, ...]


@runtime_checkable
class HasFiles(Protocol):
    """A session of a server that is configured by files."""

    files: tuple[tuple[str, str], ...]
    """Name and text of each file."""


@runtime_checkable
class HasSoftware(Protocol):
    """A session that knows the software that serves the model."""

    software: Mapping[str, str]
    """Name to version."""


@runtime_checkable
class HasDevice(Protocol):
    """A session that knows on which device the model runs."""

    device: str


@runtime_checkable
class HasThreads(Protocol):
    """A session that knows how many host threads compute one operator."""

    threads: int


@runtime_checkable
class HasConverted(Protocol):
    """A session that may have converted the weights."""

    converted: str
    """The precision converted to; empty if not converted."""


Session = CanCall | CanSend | CanDrive
"""A model that is ready to be called or sent to."""
