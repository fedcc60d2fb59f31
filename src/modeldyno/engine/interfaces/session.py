"""What a session of a backend may offer: calling, layers, memory, training, serving."""

from __future__ import annotations

from abc import ABC, abstractmethod
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

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.job.load_spec import Load
    from modeldyno.engine.interfaces.request_target import Target
    from modeldyno.engine.interfaces.server_stats import RequestStamps, ServerCounters
    from modeldyno.engine.trace.allocations import AllocationRecord, AllocationRecorder
    from modeldyno.engine.trace.dataflow import DataFlow
    from modeldyno.engine.trace.layer_times import HookOverhead
    from modeldyno.engine.trace.op_events import WatchedCalls
    from modeldyno.models.interface import Feed, Model, ModuleFilter


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


class RequestTrace(Protocol):
    """A server's trace of some of the requests to it; each method raises OSError on failure."""

    def begin(self, step: int) -> None:
        """Trace one of so many requests from now on."""

    def end(self) -> None:
        """Trace no more."""

    def read(self) -> Sequence[RequestStamps]:
        """Return the stamps of the requests that were traced since the last reading."""


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


class Session(ABC):
    """A model, ready to be called or sent to: a `LocalSession`, `RequestSession` or `ThreadSession`."""

    __slots__ = ()

    device: str = ""
    """Where the model runs, such as ``cuda:0``; empty if unknown."""
    threads: int | None = None
    """Host threads that compute one operator."""
    converted: str = ""
    """The precision that weights were converted to; empty if they were not."""
    software: Mapping[str, str] | None = None
    """Name to version of what runs the model, beside the packages of the backend."""
    files: tuple[tuple[str, str], ...] = ()
    """Name and text of each file that configures the server."""
    doubts: tuple[Doubt, ...] = ()
    """Reasons to doubt whatever is measured with it."""

    @abstractmethod
    def arrays(self, output: Any) -> Feed:
        """Convert the output of a call, or an answer, to named arrays on the host, for checks.

        Raise ValueError with a short phrase for a malformed answer.
        """

    def peak_reserved(self) -> int | None:
        """Return the peak of the memory that the allocator of the device reserved, in bytes.

        None if the device has no memory of its own.
        """
        return None

    def host(
        self, model: Model, config: Mapping[str, KnobValue]
    ) -> AbstractContextManager[RequestSession | ThreadSession]:
        """Load another model on the same server, under its own name, within the context.

        Raise RequestError, as by default, if the server cannot host it.
        """
        raise RequestError("This server hosts one model only; leave out the others.")

    def started_server(self) -> StartedServer | None:
        """Return the server; None if we started none."""
        return None

    def hand_over(self, owner: int | None) -> None:
        """Let the server stay until the process `owner` ends; with None, until it is stopped."""
        raise NotImplementedError


class LocalSession(Session):
    """A session of a runtime in this process."""

    __slots__ = ()

    @abstractmethod
    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Copy the payload to the device; return a function that makes one call with the whole batch.

        The function takes no argument, does nothing but call, and returns when the device has finished.
        """

    def flow(self, feed: Feed) -> DataFlow | None:
        """Trace the data flow of one call.

        None if it cannot be traced, or the code is compiled, so that its steps are not those of the model.
        """
        return None


class ServedSession(Session):
    """A session of a model behind a server: a `RequestSession` or a `ThreadSession`."""

    __slots__ = ()

    pid: int | None = None
    """The root process of the server; None if it is not known, as of one on another machine."""
    instances: Mapping[str, int] | None = None
    """Instances by model that answers a request, if there are several; "" for all."""
    device_metrics: str = ""
    """URL at which the server reports the devices of its machine; empty if it does not."""
    trace: RequestTrace | None = None
    """Traces requests, by the id that each of them then bears; None if the server does not."""

    @property
    def has_statistics(self) -> bool:
        """Whether the server reports statistics: whether there is an `account`, unless it says otherwise."""
        return type(self).account is not ServedSession.account

    def account(self) -> ServerCounters:
        """Read the counters now: cheap, without a request to the model. Raises OSError on failure."""
        raise NotImplementedError

    def ended(self) -> str:
        """Describe how and why the server exited by itself; empty while it runs, and if it is not ours."""
        return ""

    def prompt_tokens(self, reply: Any) -> int:
        """Return the prompt tokens of an answer; -1 if unknown."""
        return -1

    def cached_tokens(self, reply: Any) -> int:
        """Return how many of the prompt tokens the server had from earlier requests; -1 if unknown."""
        return -1

    def finish_reason(self, reply: Any) -> str:
        """Return why the text of an answer ended, such as ``length`` or ``stop``; empty if unknown."""
        return ""


class RequestSession(ServedSession):
    """A session that encodes payloads as requests, for the built-in load generator."""

    __slots__ = ()

    @abstractmethod
    def target(self, feeds: Sequence[Feed]) -> Target:
        """Encode each payload as a request."""

    def sequence_target(self, feeds: Sequence[Feed]) -> Target:
        """Encode each payload as a request of a sequence; raise RequestError if the protocol has none."""
        raise RequestError("Only requests to a server can be those of sequences; leave `sequence` out.")


class ThreadSession(ServedSession):
    """A session whose requests are sent by threads of this process, such as the user's code."""

    __slots__ = ()

    samples: int | None = None
    """Samples per request; None if as many as in a payload."""

    @abstractmethod
    def calls(self, feeds: Sequence[Feed]) -> Sequence[Callable[[], Any]]:
        """Return functions that send a request and return its answer; many threads call them in a cycle.

        The requests have these payloads, unless the session has its own.
        """


def load_target(session: RequestSession, feeds: Sequence[Feed], load: Load) -> Target:
    """Encode each payload as a request of a load.

    Raises:
        RequestError: the load is one of sequences, which the session cannot send.
    """
    return session.target(feeds) if load.sequence is None else session.sequence_target(feeds)
