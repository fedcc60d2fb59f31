"""The plugin protocols: every extension point on one page.

A plugin is a module (or any object) with these attributes, named by an entry point of the group
``modeldyno.<kind>s``; the built-in plugins are declared in pyproject.toml in the same way. Importing a plugin
must be cheap: frameworks are listed in `requires`, and imported when the plugin is used. `modeldyno.testing`
has a conformance suite for each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Measurement
from modeldyno.core.result.result import Artifact, Event, Failure, Result
from modeldyno.core.result.static_data import StaticReport
from modeldyno.core.result.trace_data import Span, TraceReport
from modeldyno.core.spec.input_spec import InputSpec
from modeldyno.core.spec.knob import Knob, KnobValue
from modeldyno.core.spec.load_spec import Load
from modeldyno.core.spec.model_ref import ModelIdentity, ModelRef
from modeldyno.core.spec.probe_options import Observation
from modeldyno.core.spec.static_options import Inspection, Mode
from modeldyno.core.static.graph import Graph
from modeldyno.core.static.weights import Weight
from modeldyno.core.trace.layer_times import HookOverhead

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path
    from typing import Self

    from numpy import ndarray

    from modeldyno.core.comparison.saved_kinds import SeriesDocument
    from modeldyno.core.load.foreign_load import ForeignFile, ForeignLoad
    from modeldyno.core.load.request_target import Endpoint, Reply, ServerInfo, Target, Transport
    from modeldyno.core.load.server_stats import ServerCounters
    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.metrics.stop_rule import Phase
    from modeldyno.core.report.blocks import Block, Table
    from modeldyno.core.spec.job import Job
    from modeldyno.core.stats.statistics import Samples
    from modeldyno.core.study.study import Study, TrialRequest
    from modeldyno.core.trace.allocations import AllocationRecord, AllocationRecorder
    from modeldyno.core.trace.dataflow import DataFlow
    from modeldyno.core.trace.op_events import WatchedCalls


Feed = dict[str, "ndarray"]
"""Input name to array; the first axis of each is the batch."""


class Executes(StrEnum):
    """Which code loading a model executes."""

    NOTHING = "nothing"
    """Data only; safe to read anywhere."""
    NAMED = "the code that the user names"
    """`torch:` and `call:` run the referenced code, in the child process."""
    PICKLE = "pickles"
    """Loading may run code from the file: only in the child process, only with `trust`."""


class Form:
    """The forms of a loaded model; a backend declares which it accepts."""

    ONNX = "onnx"
    """`value` is the Path of an ONNX file."""
    TORCH = "torch"
    """`value` is a torch.nn.Module or ScriptModule in eval mode."""
    CALLABLE = "callable"
    """`value` is a Python callable that takes the inputs by keyword, or by position where it must."""
    REPOSITORY = "repository"
    """`value` is a `servers.triton_repository_reader.TritonRepository`: a model in Triton's layout."""
    REMOTE = "remote"
    """`value` is the Endpoint of a server that runs already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """The sizes, mode and input values to trace a Graph with."""

    inputs: tuple[InputSpec, ...]
    """With concrete shapes, in the order and with the names of `Model.inputs`."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Every symbolic dimension of the model, bound."""
    mode: Mode = Mode.INFERENCE
    optimizer: str = "adamw"
    values: Feed = field(default_factory=dict)
    """Known values by input name, in the shape of `inputs`: integers and scalars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The result of a loader: the model and its description."""

    identity: ModelIdentity
    form: str
    value: Any
    inputs: tuple[InputSpec, ...]
    """As declared; symbolic dimensions have names, the batch dimension is called ``batch``."""
    weights: Callable[[], Iterable[Weight]] | None = None
    """The tensors of its state, or None if they are unknown (a plain callable)."""
    graph: Callable[[Tracing], Graph] | None = None
    """Its operators at given sizes, traced without the values of its weights; None if not supported.

    Raises RequestError if the model cannot be analysed at these sizes.
    """
    file_bytes: int | None = None
    """Size of its files on disk; None if it has no files."""
    encode: Callable[[Sequence[str], int | None], Feed] | None = None
    """Tokenizes text with the model's own tokenizer, padded to the given or the longest length."""
    example: Feed | None = None
    """Example inputs that came with the model (from a factory or a callable)."""
    candidates: Callable[[], Iterable[InputSpec]] | None = None
    """Inputs that it may accept, the likeliest first, if it has one input without a declared shape."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Dimension to its maximum default size, such as the number of text positions."""
    guesses: Callable[[Mapping[str, int]], Iterable[Mapping[str, int]]] | None = None
    """Sizes to try for its free dimensions, given the known sizes, the likeliest first."""
    assumed: Mapping[str, int] = field(default_factory=dict)
    """Assumed sizes of free dimensions, as `data.assumed_sizes` found that the model accepts."""
    doubts: tuple[Doubt, ...] = ()
    """For example that the weights are random."""
    undeclared: bool = False
    """Its inputs are unknown: those that the user gives are used, and must have shapes."""
    borrowed: bool = False
    """`value` belongs to the caller: a backend that would modify it must copy it."""


class Loader(Protocol):
    """Loads models of one scheme."""

    requires: tuple[str, ...]
    """Importable names that it needs; a missing one is reported with the package to install."""
    tools: tuple[str, ...]
    """Those of `requires` that are only needed to analyse a model: `load_time` excludes their import."""
    executes: Executes
    backend: str
    """The default backend for its models."""

    def claims(self, path: Path) -> bool:
        """Return whether a bare path is of this scheme, by suffix and content, without executing code."""

    def load(self, ref: ModelRef, *, seed: int, trust: bool) -> Model:
        """Load a model; raise RequestError for a reference that cannot be loaded.

        The seed is for random weights. Without `trust`, raise TrustRequired rather than unpickle.
        """

    def look(self, ref: ModelRef, *, seed: int, trust: bool) -> Model:
        """Describe a model without the values of its weights: return a Model whose `value` may be None.

        It executes no more code than `load`, avoids reading weights, and raises the same errors. The digest
        may be that of the structure only.
        """


@runtime_checkable
class CanCall(Protocol):
    """A session of a local runtime."""

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Copy the payload to the device; return a function that makes one call with the whole batch.

        The function takes no argument, does nothing but call, and returns when the device has finished.
        """

    def arrays(self, output: Any) -> Feed:
        """Convert the output of a call to named arrays on the host, for checks."""


ModuleFilter = Callable[[str, str], bool]
"""Returns whether to profile a module, given its path and class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A model whose modules are being profiled."""

    call: Callable[[], Any]
    """Makes one profiled call, otherwise like those of `prepare`."""
    spans: Callable[[int], Sequence[Sequence[Span]]]
    """Returns the spans of each call after skipping the first N; to be called once, after the last call.

    The spans of a call are in the order of their start; the first is that of the whole model.
    """
    toll: HookOverhead
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
        """The root process of the server; None for a server that we did not start."""


@runtime_checkable
class CanDrive(IsServed, Protocol):
    """A session whose requests are sent by the user's code, in threads of this process."""

    samples: int
    """Samples per request."""

    def calls(self) -> Sequence[Callable[[], Any]]:
        """Return functions that send a request and return its answer; many threads call them in a cycle."""

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
class HasServerStats(Protocol):
    """A session whose server reports statistics."""

    def account(self) -> ServerCounters:
        """Read the counters now: cheap, without a request to the model. Raises OSError on failure."""


@runtime_checkable
class MayEnd(Protocol):
    """A session whose server may exit by itself."""

    def ended(self) -> str:
        """Describe how and why it exited; empty while it runs, and for a server that we did not start."""


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
class Streams(Protocol):
    """A Client whose answers can be streamed as server-sent events."""

    def bearing(self, event: bytes) -> bool:
        """Return whether an event holds generated content, not only a role, a usage or an end.

        It must be cheap, as it is called for each event as it arrives.
        """


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


class Backend(Protocol):
    """Opens sessions of models."""

    requires: tuple[str, ...]
    accepts: frozenset[str]
    """The forms of Model that it can run."""
    knobs: tuple[Knob, ...]

    serves: bool
    """Whether its sessions send to a server; False if absent, when they call the model."""

    def check(self, config: Mapping[str, KnobValue]) -> None:
        """Raise RequestError for incompatible knobs; cheap, without importing a framework."""

    def open(self, model: Model, config: Mapping[str, KnobValue]) -> AbstractContextManager[Session]:
        """Open a session of a model. `config` was completed and checked by `knob.configure`."""


@runtime_checkable
class ServesSeveral(Protocol):
    """A backend whose server can serve several models at once; its sessions are `CanHost`."""

    common: frozenset[str]
    """Knobs of the server, which are set by the first model only."""


@runtime_checkable
class CanHost(Protocol):
    """A session of a server that can serve further models."""

    def host(self, model: Model, config: Mapping[str, KnobValue]) -> AbstractContextManager[Session]:
        """Load another model on the same server, under its own name, within the context."""


@runtime_checkable
class CanDeploy(Protocol):
    """A backend whose server reads a model directory, which can be deployed elsewhere."""

    def deploy(self, model: Model, configuration: str, folder: Path) -> None:
        """Write the model's files and a configuration, from a session's `files`, into a folder."""


@runtime_checkable
class TakesOtherInputs(Protocol):
    """A backend whose requests have inputs other than the model's own, such as text."""

    def inputs(self, model: Model, config: Mapping[str, KnobValue]) -> tuple[InputSpec, ...]:
        """Return the inputs of a request."""


@runtime_checkable
class HasSpace(Protocol):
    """A backend with default axes for a sweep."""

    space: tuple[str, ...]
    """Axes in the syntax of `search_space.parse_axis`; ``{cores}`` is the number of allowed cores."""


class Pass(StrEnum):
    """When a probe runs: probes that perturb timing run in the second pass."""

    TIMED = "timed"
    SECOND = "second"


class TurnToken(Protocol):
    """Coordinates compared processes, which measure in slices, in turns."""

    def tells(self, mark: Callable[[WatchStage], None]) -> None:
        """Set the callback for the stages: ``waiting``, and ``timed`` when it is over."""

    def in_turns(
        self, draw: Callable[[int], Samples], warming: Callable[[], object] | None = None
    ) -> Callable[[int], Samples]:
        """Start a pass; return a `draw` that waits for its turn, and first makes untimed `warming` calls."""

    def clock(self) -> float:
        """Return monotonic seconds, which stop while another process has its turn."""

    @property
    def agreed(self) -> Callable[[Phase], bool] | None:
        """Report that a phase has enough samples, and return whether the others agree; None if alone."""


class NoTurns:
    """The turn token of a process that is not compared: it is always its turn."""

    def tells(self, mark: Callable[[WatchStage], None]) -> None:
        """Do nothing."""

    def in_turns(
        self,
        draw: Callable[[int], Samples],
        warming: Callable[[], object] | None = None,  # noqa: ARG002
    ) -> Callable[[int], Samples]:
        """Return `draw` unchanged."""
        return draw

    def clock(self) -> float:
        """Return monotonic seconds."""
        return perf_counter()

    agreed = None


NO_TURNS = NoTurns()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model under measurement, as passed to probes."""

    model: Model
    session: Session | None = None
    """Only if a probe of the Job needs one."""
    calls: tuple[Callable[[], Any], ...] = ()
    """Prepared calls, one for each distinct payload; to be called in a cycle."""
    feeds: tuple[Feed, ...] = ()
    """The payloads of `calls`, for a session that prepares calls of another kind."""
    samples: int = 1
    """Samples (items of the batch) in one call."""
    inputs: tuple[InputSpec, ...] = ()
    """As requested: shapes that bind the symbolic dimensions of the model's inputs."""
    load: Load | None = None
    """The load on the server."""
    batch_size: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Requested sizes of symbolic input dimensions."""
    inspection: Inspection = field(default_factory=Inspection)
    observation: Observation = field(default_factory=Observation)
    known: tuple[Measurement, ...] = ()
    """Measurements of the probes that analyse the model without calling it."""
    beside: tuple[tuple[str, Subject], ...] = ()
    """Other models on the same server, by name, which are put under load at the same time."""
    baton: TurnToken = NO_TURNS
    interrupted: Callable[[], bool] = field(default=lambda: False)
    watch: Callable[[Event], None] = field(default=lambda _event: None)
    """Receives progress and provisional measurements."""
    mark: Callable[[WatchStage], None] = field(default=lambda _stage: None)
    """Reports the start of a stage to the samplers."""


ProbeOutput = Measurement | Doubt | Failure | StaticReport | TraceReport | Artifact
"""What a probe may yield."""


class Probe(Protocol):
    """Measures a Subject."""

    needs: type | None
    """The protocol that the session must implement, or None if only the model is needed."""
    pass_: Pass

    def measure(self, subject: Subject, plan: Plan) -> Iterable[ProbeOutput]:
        """Measure a subject; yield the results."""


class WatchStage(StrEnum):
    """The current stage of a run, as reported to samplers."""

    IDLE = "idle"
    """Nothing runs: the power of a device is its idle power."""
    BASELINE = "baseline"
    """Frameworks are imported, and nothing is loaded: the baseline of memory."""
    IMPORT = "import"
    """Libraries are imported that only the model needs; their memory counts to the baseline."""
    LOAD = "load"
    """The model is loaded, opened, and called once."""
    OURS = "ours"
    """ModelDyno's own work: analysis, payloads, statistics. Its memory is not the model's."""
    TIMED = "timed"
    """Calls of the timed pass."""
    WAITING = "waiting"
    """Another process has its turn."""
    SECOND = "second"
    """The second pass, whose calls are profiled; its memory and noise are not reported."""


class Watch(Protocol):
    """A running sampler process."""

    @property
    def pids(self) -> Sequence[int]:
        """The sampler processes, which are excluded from the model's load."""

    def mark(self, stage: str) -> None:
        """Start a stage of `WatchStage`; further samples belong to it.

        It may block: while ``idle`` is marked, the run waits and does nothing else.
        """

    def stop(self) -> Iterable[Measurement | Doubt]:
        """Stop the sampler process and return its measurements."""


class Sampler(Protocol):
    """Samples processes and devices from a separate process."""

    def start(self, pids: Sequence[int]) -> Watch:
        """Start sampling the process tree of the first pid; the others belong to ModelDyno."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Summary of a stored Result."""

    id: str
    created: str
    name: str
    digest: str
    backend: str
    config: dict[str, KnobValue]
    tags: tuple[str, ...]
    headline: str
    """The outcome in a few words."""
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEntry:
    """Summary of a stored Study."""

    id: str
    created: str
    name: str
    digest: str
    """Digest of the model; empty before the first trial."""
    headline: str
    """The outcome in a few words."""
    trials: int
    """Number of measurements, including failed ones."""
    skipped: int
    """Number of impossible points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConclusionEntry:
    """Summary of a stored Conclusion."""

    id: str
    created: str
    kind: str
    name: str
    """Name of the model."""
    headline: str
    """The outcome in a few words."""


class Store(Protocol):
    """Keeps Results, Studies and Conclusions; a context manager that closes it."""

    def __enter__(self) -> Self:
        """Return the open store."""

    def __exit__(self, *_: object) -> None:
        """Close the store."""

    def put(self, result: Result, *, headline: str) -> None:
        """Store a Result; on return it is on disk. The same id replaces an earlier one."""

    def get(self, prefix: str) -> Result:
        """Return the Result whose id begins with `prefix`, or that has it as a tag.

        Raises RequestError if there is none, or several.
        """

    def find(self, *, name: str | None = None, tag: str | None = None, limit: int = 50) -> Sequence[Entry]:
        """List Results, newest first; those of trials only by a tag."""

    def tag(self, prefix: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Entry:
        """Add and remove tags of a Result."""

    def remove(self, prefix: str) -> str:
        """Delete a Result and its artifacts; return its id."""

    def expire(self, now: datetime) -> Sequence[str]:
        """Delete expired artifacts; return their paths."""

    def put_study(self, study: Study, *, headline: str) -> None:
        """Store a Study, with those of its trials that are not stored yet."""

    def add_trial(self, study: Study, result: Result | None, *, headline: str, brief: str = "") -> None:
        """Store the last trial of a study with its Result atomically; on return they are on disk.

        Other changes of the study since its last trial are stored, too. `headline` is that of the study,
        `brief` that of the Result. Raises StoreError if another process has continued the study meanwhile.
        """

    def study(self, prefix: str) -> Study:
        """Return the Study whose id begins with `prefix`, or the newest of that name, with ordered trials.

        Raises RequestError if there is none, or several.
        """

    def studies(self, *, name: str | None = None, limit: int = 50) -> Sequence[StudyEntry]:
        """List Studies, newest first."""

    def remove_study(self, prefix: str) -> str:
        """Delete a Study with its trials, and their Results that have no tag; return its id."""

    def put_conclusion(self, found: SeriesDocument, *, headline: str) -> None:
        """Store a Conclusion; the same id replaces an earlier one."""

    def conclusion(self, prefix: str) -> SeriesDocument:
        """Return the Conclusion whose id begins with `prefix`; raise RequestError for none, or several."""

    def conclusions(self, *, name: str | None = None, limit: int = 50) -> Sequence[ConclusionEntry]:
        """List Conclusions, newest first."""

    def remove_conclusion(self, prefix: str) -> str:
        """Delete a Conclusion, but not its Results; return its id."""


class Reporter(Protocol):
    """Renders documents as text or bytes."""

    suffix: str
    """Suffix of the files that it writes, such as ``.csv``."""

    def render(self, document: Result, *, judgements: Sequence[Judgement] = ()) -> str | bytes:
        """Render a Result, with the verdicts on the requested bounds."""


@runtime_checkable
class LaysOut(Protocol):
    """A Reporter that can write any blocks, such as those of a comparison."""

    def lay_out(self, blocks: Iterable[Block], *, title: str) -> str | bytes:
        """Render blocks as a whole file; the title is used if the format has one."""


@runtime_checkable
class Tabulates(Protocol):
    """A Reporter that can also write a table of numbers, such as the trials of a study."""

    def table(self, block: Table) -> str:
        """Render a table with unrounded numbers."""


class Exporter(Protocol):
    """Exports Results to another tool."""

    requires: tuple[str, ...]

    def export(self, document: Result, target: str) -> str:
        """Export a Result to `target`; return where it is. Exporting it twice does not duplicate it.

        Numbers are those of `modeldyno.core.result.numbers`: uncertified ones have ``raw`` in their names.
        """


@runtime_checkable
class ExportsStudies(Protocol):
    """An Exporter that can also export a Study, with its trials as nested runs."""

    def export_study(self, study: Study, results: Mapping[str, Result], target: str) -> str:
        """Export a Study, with the Results of its trials that are still stored, by their ids."""


class Importer(Protocol):
    """Imports files of another tool."""

    def claims(self, file: ForeignFile) -> bool:
        """Return whether a file, which may be anything, is of this tool."""

    def read(self, file: ForeignFile) -> Iterable[ForeignLoad]:
        """Yield each load in the file. A damaged file may raise any error."""


class Strategy(Protocol):
    """Chooses the next trial of a Study."""

    requires: tuple[str, ...]

    def propose(self, study: Study) -> TrialRequest | None:
        """Return what to measure next from `study.space`; None if nothing more can be learned.

        It must be a pure function of the study, with `study.seed` as its seed. A point that turns out to be
        impossible is added to the study as a skipped trial, and the strategy is called again.
        """


class Executor(Protocol):
    """Runs Jobs in an isolated environment."""

    def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
        """Run a Job; a failed run is a Failure in the Result, an invalid request raises."""
