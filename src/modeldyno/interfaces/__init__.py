"""Every extension point on one page.

A plugin is a module (or any object) that has these attributes, named by an entry point of the group
``modeldyno.<kind>s``; the built-ins are declared in pyproject.toml exactly like anyone's. Importing a
plugin must be cheap: frameworks are named in `requires`, and imported when the plugin works.
`modeldyno.testing` has a conformance suite for each kind.
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
from modeldyno.core.result.static_data import Outline
from modeldyno.core.result.trace_data import Activity, Span
from modeldyno.core.spec.input_spec import InputSpec
from modeldyno.core.spec.knob import Knob, KnobValue
from modeldyno.core.spec.load_spec import Load
from modeldyno.core.spec.model_ref import ModelIdentity, ModelRef
from modeldyno.core.spec.probe_options import Observation
from modeldyno.core.spec.static_options import Inspection, Mode
from modeldyno.core.static.graph import Graph
from modeldyno.core.static.weights import Weight
from modeldyno.core.trace.layer_times import Toll

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path
    from typing import Self

    from numpy import ndarray

    from modeldyno.core.comparison.saved_kinds import Conclusion
    from modeldyno.core.load.foreign_load import Foreign, Imported
    from modeldyno.core.load.request_target import Endpoint, Reply, Server, Target, Transport
    from modeldyno.core.load.server_stats import Account
    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.metrics.stop_rule import Phase
    from modeldyno.core.report.blocks import Block, Table
    from modeldyno.core.spec.job import Job
    from modeldyno.core.stats.statistics import Samples
    from modeldyno.core.study.study import Ask, Study
    from modeldyno.core.trace.allocations import Recorded, Watching
    from modeldyno.core.trace.dataflow import Flow
    from modeldyno.core.trace.op_events import WatchedCalls


Feed = dict[str, "ndarray"]
"""Input name to array; the first axis of each is the batch."""


class Executes(StrEnum):
    """What loading a model executes of it."""

    NOTHING = "nothing"
    """Data only; safe to look at anywhere."""
    NAMED = "the code that the user names"
    """`torch:` and `call:` run what the reference points at, in the child."""
    PICKLE = "pickles"
    """Loading may run code out of the file: only in the child, only with `--trust`."""


class Form:
    """What a loaded model is, so that a backend can say which it accepts."""

    ONNX = "onnx"
    """`value` is the Path of an ONNX file."""
    TORCH = "torch"
    """`value` is a torch.nn.Module or ScriptModule in eval mode."""
    CALLABLE = "callable"
    """`value` is a Python callable that takes the inputs by keyword, or by position where it must."""
    REPOSITORY = "repository"
    """`value` is an `servers.triton_repository_reader.Repository`: of a model as Triton has it."""
    REMOTE = "remote"
    """`value` is an Endpoint, of a server that someone else runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """At which sizes, and through which course, a Graph is to be made."""

    inputs: tuple[InputSpec, ...]
    """With concrete shapes, in the order and under the names of `Model.inputs`."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Every symbolic dimension of the model, bound."""
    mode: Mode = Mode.INFERENCE
    optimizer: str = "adamw"
    values: Feed = field(default_factory=dict)
    """Real values by input name, in the shape of `inputs`: whole and single numbers that are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What a loader gives: the model itself, and what is known of it."""

    identity: ModelIdentity
    form: str
    value: Any
    inputs: tuple[InputSpec, ...]
    """As declared; symbolic dimensions have names, the first of a batch is called ``batch``."""
    weights: Callable[[], Iterable[Weight]] | None = None
    """The tensors of its state, or None where they cannot be known (a plain callable)."""
    graph: Callable[[Tracing], Graph] | None = None
    """Its operators at given sizes, found without computing with its weights; None where there is no way.

    Raises RequestError where the model cannot be analysed at these sizes.
    """
    file_bytes: int | None = None
    """Size of its files on disk; None when it has none."""
    encode: Callable[[Sequence[str], int | None], Feed] | None = None
    """Text to inputs by the model's own tokenizer, padded to the length given or to the longest."""
    example: Feed | None = None
    """Inputs that the model came with (a factory's example, a callable's inputs)."""
    candidates: Callable[[], Iterable[InputSpec]] | None = None
    """Inputs that it may take, the likeliest first, where it has one input and declares no shape."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Dimension to the most that it is where nobody says how large, such as the positions of text."""
    guesses: Callable[[Mapping[str, int]], Iterable[Mapping[str, int]]] | None = None
    """Sizes to try for its free dimensions, given those that are known, the likeliest first."""
    assumed: Mapping[str, int] = field(default_factory=dict)
    """Sizes of free dimensions that nobody gave, as `data.assumed_sizes` found that it takes them."""
    doubts: tuple[Doubt, ...] = ()
    """Such as: the weights are random."""
    undeclared: bool = False
    """Nobody tells its inputs: those that the user names are taken, and must have shapes."""
    borrowed: bool = False
    """Someone else goes on using `value`: a backend that would alter it works on a copy."""


class Loader(Protocol):
    """Scheme -> Model."""

    requires: tuple[str, ...]
    """Importable names that it needs; a missing one is reported with the extra to install."""
    tools: tuple[str, ...]
    """Those of `requires` that only serve to look at a model: their import is no part of `load_time`."""
    executes: Executes
    backend: str
    """The backend that runs its models when the user names none."""

    def claims(self, path: Path) -> bool:
        """Say, by suffix and content, executing nothing, whether a bare path is of this scheme."""

    def load(self, ref: ModelRef, *, seed: int, trust: bool) -> Model:
        """Load; raise RequestError for a reference that cannot be loaded as written.

        The seed is for random weights. Without `trust`, raise TrustRequired rather than unpickle.
        """

    def look(self, ref: ModelRef, *, seed: int, trust: bool) -> Model:
        """Give what can be known without the values of the weights: a Model whose `value` may be None.

        Executes no more than `load` does, reads no weights that it need not read, and raises alike. The
        digest may be one of the structure alone.
        """


@runtime_checkable
class CanCall(Protocol):
    """A session of a local runtime."""

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Place the payload on the device and give a callable that makes one call of the whole batch.

        The callable takes no argument, does nothing but call, and returns when the device has finished.
        """

    def arrays(self, output: Any) -> Feed:
        """Show what a call returned as named arrays on the host, to be checked."""


Named = Callable[[str, str], bool]
"""Says whether a module, by its path and class, is to be watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A model whose modules are watched."""

    call: Callable[[], Any]
    """Makes one watched call, which does what those of `prepare` do."""
    spans: Callable[[int], Sequence[Sequence[Span]]]
    """Gives the spans of all calls but the first so many, to be asked once, after the last.

    Those of a call are in the order of their beginning, the first that of the whole.
    """
    toll: Toll
    plain: Callable[[], Any] | None = None
    """Makes a call that nobody watches, in turns with watched ones; None where one of `prepare` can be."""
    doubts: tuple[Doubt, ...] = ()
    """What cannot be seen."""
    origins: Callable[[], Mapping[str, Sequence[str]]] = dict
    """Gives, once the spans were asked for, paths that are no modules but nodes of a rewritten network, with
    the `Op.name` of each operator that they do; nothing where there are none."""


@runtime_checkable
class HasLayers(Protocol):
    """A session that can time the modules within a call."""

    def layers(self, feed: Feed, named: Named) -> AbstractContextManager[Layers]:
        """Watch the modules that are named while entered. On leaving, the model is as it was."""


@runtime_checkable
class HasMemory(Protocol):
    """A session whose allocator can be watched during a call."""

    def allocations(self, feed: Feed) -> Watching:
        """While entered, give a callable that makes one watched call, and tells what the allocator did.

        Raises RequestError where the device's allocator tells nothing.
        """


class Training(Protocol):
    """A model that is being trained; every step is like the one before."""

    def step(self) -> Mapping[str, float]:
        """Make a step with the next payload; give the seconds of its stages, in their order.

        Stages are ``copy`` (of the payload to the device, where that is not the host), ``forward``,
        ``backward`` and ``optimizer``. It returns when the device has finished.
        """

    def watched(self) -> Recorded:
        """Make a step, and tell what the allocator did; its stages are those of `step`."""


@runtime_checkable
class CanTrain(Protocol):
    """A session that can make training steps."""

    def training(self, feeds: Sequence[Feed], optimizer: str) -> AbstractContextManager[Training]:
        """Train a copy of the model: what the session calls stays as it is.

        The loss is the model's own where it gives one, or else the sum of the squares of its outputs.
        Raises RequestError for a model that cannot be trained.
        """


class Decoding(Protocol):
    """A prompt on the device, to be continued as often as one likes."""

    def tokens(self) -> Generator[Any]:
        """Begin anew: each `next` reads what is new and chooses the likeliest token of each sample.

        The first one reads the prompt. It returns when the device has the tokens (batch x 1); the
        last one comes whatever the model says of the end of its text.
        """

    def cache_bytes(self) -> int:
        """Give the bytes of keys, values and states that the last token left."""


@runtime_checkable
class CanGenerate(Protocol):
    """A session that can generate tokens one after the other."""

    def decoding(self, prompt: Feed, tokens: int) -> Decoding:
        """Place a prompt on the device, to be continued by so many tokens.

        Raises RequestError where the model cannot generate, or not so many.
        """


@runtime_checkable
class HasOperators(Protocol):
    """A session that can tell what runs within its calls, operator by operator."""

    def operators(self, feed: Feed, calls: int, trace: Path | None) -> WatchedCalls:
        """Make so many calls and tell what happened within them; write a trace of them if one is asked for.

        The calls do what those of `prepare` do. Raises OSError where the trace cannot be written.
        """


@runtime_checkable
class HasFlow(Protocol):
    """A session that can follow the data through a call."""

    def flow(self, feed: Feed) -> Flow | None:
        """Follow one call; None where its code is compiled, so that its steps are not those of the model."""


@runtime_checkable
class HasAllocator(Protocol):
    """A session that can tell the peak that its allocator held on a device."""

    def peak_reserved(self) -> int:
        """Bytes."""


@runtime_checkable
class IsServed(Protocol):
    """A session of a model behind a server."""

    @property
    def pid(self) -> int | None:
        """The process from which those of the server descend; None for a server that is not ours."""


@runtime_checkable
class CanDrive(IsServed, Protocol):
    """A session that is sent to by code of the user's, in threads of this process."""

    samples: int
    """In a request."""

    def calls(self) -> Sequence[Callable[[], Any]]:
        """Give what sends a request each and returns its answer; to be cycled through, by many threads."""

    def arrays(self, output: Any) -> Feed:
        """Show what a call returned as named arrays, as far as it is such."""


@runtime_checkable
class CanSend(IsServed, Protocol):
    """A session that turns payloads into requests, for our own load generator."""

    def target(self, feeds: Sequence[Feed]) -> Target:
        """Make each payload a request."""

    def arrays(self, output: Reply) -> Feed:
        """Read an answer as named arrays; raises ValueError, in a phrase, for one that cannot be read."""


@runtime_checkable
class HasServerStats(Protocol):
    """A session whose server tells what it does."""

    def account(self) -> Account:
        """Look at the counters now: cheap, no request to the model. Raises OSError where that fails."""


@runtime_checkable
class MayEnd(Protocol):
    """A session whose server may end by itself."""

    def ended(self) -> str:
        """Say how it did, and why; empty while it runs, and for a server that is not ours."""


@runtime_checkable
class HasDoubts(Protocol):
    """A session that knows reasons not to trust what is measured with it."""

    doubts: tuple[Doubt, ...]


@runtime_checkable
class HasFiles(Protocol):
    """A session of a server that was configured by files."""

    files: tuple[tuple[str, str], ...]
    """Name and text of each."""


@runtime_checkable
class HasSoftware(Protocol):
    """A session that tells what serves the model."""

    software: Mapping[str, str]
    """Name to version."""


@runtime_checkable
class HasDevice(Protocol):
    """A session that tells where the model runs."""

    device: str


@runtime_checkable
class HasThreads(Protocol):
    """A session that knows how many threads of the host compute one operator."""

    threads: int


@runtime_checkable
class HasConverted(Protocol):
    """A session that may have converted the weights."""

    converted: str
    """To which precision; empty where it has not."""


Session = CanCall | CanSend | CanDrive
"""A model made ready."""


class Client(Protocol):
    """Endpoint and inputs -> a request ready for the wire; an answer -> outputs. It does no I/O."""

    requires: tuple[str, ...]
    transport: Transport

    def target(self, feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
        """Make each payload a request; raise RequestError for what the protocol cannot carry."""

    def arrays(self, reply: Reply) -> Feed:
        """Read the outputs of an answer; raise ValueError, in a phrase, for one that cannot be read."""

    def tokens(self, reply: Reply) -> int:
        """Count the tokens of an answer; -1 where it does not tell.

        Raises BrokenStream for a stream that tells of an error, or lacks its end; ValueError, in a
        phrase, for one that cannot be read.
        """

    def greeting(self, endpoint: Endpoint) -> Target | None:
        """Give a harmless request that shows whether a server speaks this protocol; None: there is none."""

    def recognised(self, reply: Reply) -> Server | None:
        """Read the answer to it; None where the server speaks another protocol."""

    def described(self, endpoint: Endpoint) -> Target | None:
        """Give the request that asks for the model's inputs; None where the protocol has none."""

    def inputs(self, reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
        """Read the answer to it, or without one say what the protocol takes; empty where nobody tells.

        Raises ValueError, in a phrase, for an answer that cannot be read.
        """


@runtime_checkable
class ListsModels(Protocol):
    """A Client whose protocol lists the models that a server has ready."""

    def listing(self, endpoint: Endpoint) -> Target:
        """Give the request that asks for them."""

    def listed(self, reply: Reply) -> tuple[str, ...]:
        """Read their names from the answer to it; empty for one that tells none."""


@runtime_checkable
class Streams(Protocol):
    """A Client whose answers can come as server-sent events."""

    def bearing(self, event: bytes) -> bool:
        """Say whether an event holds something generated, and not only a role, a usage or an end.

        Cheap: asked of each event as it comes.
        """


@runtime_checkable
class CountsPrompts(Protocol):
    """A Client, or a session, whose server counts the tokens that it is asked with."""

    def prompt_tokens(self, reply: Reply) -> int:
        """Give those of the prompts that an answer is of; -1 where it does not tell."""


@runtime_checkable
class CountsWork(Protocol):
    """A Client whose protocol tells what the server did."""

    def statistics(self, endpoint: Endpoint) -> Target:
        """Give the request that asks for the counters of the model."""

    def account(self, reply: Reply, endpoint: Endpoint) -> Account:
        """Read the answer to it; raise ValueError, in a phrase, for one that cannot be read."""


class Backend(Protocol):
    """Model -> Session."""

    requires: tuple[str, ...]
    accepts: frozenset[str]
    """The forms of Model that it can run."""
    knobs: tuple[Knob, ...]

    serves: bool
    """Whether its sessions are of a server, which is sent to; where it is not told, they can call."""

    def check(self, config: Mapping[str, KnobValue]) -> None:
        """Raise RequestError for knobs that exclude each other; cheap, without any framework."""

    def open(self, model: Model, config: Mapping[str, KnobValue]) -> AbstractContextManager[Session]:
        """Make it ready to call or to send to. `config` was completed and checked by `knob.configure`."""


@runtime_checkable
class ServesSeveral(Protocol):
    """A backend whose server can have several models at once; its sessions can host."""

    common: frozenset[str]
    """Knobs of the server, which are set for the first model alone."""


@runtime_checkable
class CanHost(Protocol):
    """A session of a server that can have further models beside its own."""

    def host(self, model: Model, config: Mapping[str, KnobValue]) -> AbstractContextManager[Session]:
        """Have the same server load another model, by a name of its own, for the while."""


@runtime_checkable
class CanDeploy(Protocol):
    """A backend whose server takes a directory of files, which another such server can be given."""

    def deploy(self, model: Model, configuration: str, folder: Path) -> None:
        """Put the model's files beside a configuration that a session of its own told."""


@runtime_checkable
class TakesOtherInputs(Protocol):
    """A backend whose requests are made of something else than the model's own inputs, such as text."""

    def inputs(self, model: Model, config: Mapping[str, KnobValue]) -> tuple[InputSpec, ...]:
        """Say what they are made of."""


@runtime_checkable
class HasSpace(Protocol):
    """A backend that knows what is worth a look where a sweep names no axes."""

    space: tuple[str, ...]
    """As `search_space.parse_axis` reads them; ``{cores}`` stands for the number of cores allowed."""


class Pass(StrEnum):
    """When a probe runs: what perturbs is kept out of the timed pass."""

    TIMED = "timed"
    SECOND = "second"


class Baton(Protocol):
    """Who of several processes that are compared may measure now: each measures in slices, in turns."""

    def tells(self, mark: Callable[[WatchStage], None]) -> None:
        """Have the samplers told of the stage ``waiting``, and of ``timed`` when it is over."""

    def in_turns(
        self, draw: Callable[[int], Samples], warming: Callable[[], object] | None = None
    ) -> Callable[[int], Samples]:
        """Begin a pass; give a `draw` that waits for its turn, and then makes untimed calls of `warming`."""

    def clock(self) -> float:
        """Give monotonic seconds that stand still while another has its turn."""

    @property
    def agreed(self) -> Callable[[Phase], bool] | None:
        """Says that there is enough of a phase, and tells whether the others have it; None without others."""


class Alone:
    """The baton of a process that is not compared: it is always its turn."""

    def tells(self, mark: Callable[[WatchStage], None]) -> None:
        """Nothing will be told."""

    def in_turns(
        self,
        draw: Callable[[int], Samples],
        warming: Callable[[], object] | None = None,  # noqa: ARG002
    ) -> Callable[[int], Samples]:
        """Give it back."""
        return draw

    def clock(self) -> float:
        """Give monotonic seconds."""
        return perf_counter()

    agreed = None


ALONE = Alone()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a probe may measure."""

    model: Model
    session: Session | None = None
    """Open only if a probe of the Job needs one."""
    calls: tuple[Callable[[], Any], ...] = ()
    """Prepared calls, one for each distinct payload; to be cycled through."""
    feeds: tuple[Feed, ...] = ()
    """The payloads of `calls`, for a session that prepares calls of another kind."""
    samples: int = 1
    """Samples (items of the batch) in one call."""
    inputs: tuple[InputSpec, ...] = ()
    """As requested: shapes that bind the symbolic dimensions of the model's inputs."""
    load: Load | None = None
    """What the server is put under."""
    batch_size: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Of symbolic dimensions of the inputs, as requested."""
    inspection: Inspection = field(default_factory=Inspection)
    observation: Observation = field(default_factory=Observation)
    known: tuple[Measurement, ...] = ()
    """What the probes have found that look at the model without calling it."""
    beside: tuple[tuple[str, Subject], ...] = ()
    """Models that the same server has, by their names; to be put under their loads at the same time."""
    baton: Baton = ALONE
    interrupted: Callable[[], bool] = field(default=lambda: False)
    watch: Callable[[Event], None] = field(default=lambda _event: None)
    """Told of progress and of provisional measurements while measuring."""
    mark: Callable[[WatchStage], None] = field(default=lambda _stage: None)
    """Tells those who watch from outside which stage begins."""


Seen = Measurement | Doubt | Failure | Outline | Activity | Artifact
"""What a probe may give."""


class Probe(Protocol):
    """Subject -> Measurements."""

    needs: type | None
    """The capability that the session must have, or None when the model alone is enough."""
    pass_: Pass

    def measure(self, subject: Subject, plan: Plan) -> Iterable[Seen]:
        """Measure."""


class WatchStage(StrEnum):
    """What a run does at present, as far as those need to know who watch it from outside."""

    IDLE = "idle"
    """Nothing: what a device draws now is its floor."""
    BASELINE = "baseline"
    """Frameworks are imported, and nothing is loaded; memory counts from here."""
    IMPORT = "import"
    """Libraries that are known only once the model is; their memory is the baseline's."""
    LOAD = "load"
    """The model is loaded, opened, and called once."""
    OURS = "ours"
    """Work of ours: analysis, payloads, statistics. What the process grows by is not the model's."""
    TIMED = "timed"
    """Calls of the timed pass."""
    WAITING = "waiting"
    """Another process has its turn."""
    SECOND = "second"
    """The second pass, whose calls are watched; its memory and noise are not told."""


class Watch(Protocol):
    """A side process at work."""

    @property
    def pids(self) -> Sequence[int]:
        """The side processes, which are no load of the model."""

    def mark(self, stage: str) -> None:
        """Say that a stage of `WatchStage` begins now; what is sampled from here on belongs to it.

        May return late: while ``idle`` is marked, the run waits, and does nothing else.
        """

    def stop(self) -> Iterable[Measurement | Doubt]:
        """End the side process and give what it saw."""


class Sampler(Protocol):
    """Watches processes and devices from outside, by a side process."""

    def start(self, pids: Sequence[int]) -> Watch:
        """Begin to watch the tree of the first process; the others belong to this program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a store tells of a Result without opening it."""

    id: str
    created: str
    name: str
    digest: str
    backend: str
    config: dict[str, KnobValue]
    tags: tuple[str, ...]
    headline: str
    """What came out, in a few words."""
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEntry:
    """What a store tells of a Study without opening it."""

    id: str
    created: str
    name: str
    digest: str
    """Of the model; empty before the first trial."""
    headline: str
    """What came out, in a few words."""
    trials: int
    """Measurements, failed ones included."""
    skipped: int
    """Points that cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConclusionEntry:
    """What a store tells of a Conclusion without opening it."""

    id: str
    created: str
    kind: str
    name: str
    """Of the model."""
    headline: str
    """What came out, in a few words."""


class Store(Protocol):
    """Keeps Results, Studies and Conclusions; a context manager that closes it."""

    def __enter__(self) -> Self:
        """Use it."""

    def __exit__(self, *_: object) -> None:
        """Close it."""

    def put(self, result: Result, *, headline: str) -> None:
        """Keep it; when this returns, it is on disk. Putting the same id again replaces it."""

    def get(self, prefix: str) -> Result:
        """Give the Result whose id begins with `prefix`, or that has it as a tag.

        Raises RequestError if there is none, or several.
        """

    def find(self, *, name: str | None = None, tag: str | None = None, limit: int = 50) -> Sequence[Entry]:
        """List, newest first; without those of trials, unless they are found by a tag."""

    def tag(self, prefix: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Entry:
        """Add and remove tags."""

    def remove(self, prefix: str) -> str:
        """Delete a Result and its artifacts; give its id."""

    def expire(self, now: datetime) -> Sequence[str]:
        """Delete the artifacts whose time has passed; give their paths."""

    def put_study(self, study: Study, *, headline: str) -> None:
        """Keep it, with those of its trials that are not kept yet."""

    def add_trial(self, study: Study, result: Result | None, *, headline: str, brief: str = "") -> None:
        """Keep the last trial of a study with its Result: both, or neither. On return they are on disk.

        What else is known of the study since its last trial is kept, too. `headline` is that of the study,
        `brief` that of the Result. Raises StoreError where somebody else has gone on with it meanwhile.
        """

    def study(self, prefix: str) -> Study:
        """Give the Study whose id begins with `prefix`, or the newest of that name, with its trials in order.

        Raises RequestError if there is none, or several.
        """

    def studies(self, *, name: str | None = None, limit: int = 50) -> Sequence[StudyEntry]:
        """List them, newest first."""

    def remove_study(self, prefix: str) -> str:
        """Delete a Study with its trials, and the Results of these that have no tag; give its id."""

    def put_conclusion(self, found: Conclusion, *, headline: str) -> None:
        """Keep it. Putting the same id again replaces it."""

    def conclusion(self, prefix: str) -> Conclusion:
        """Give the Conclusion whose id begins with `prefix`; raises RequestError for none, or several."""

    def conclusions(self, *, name: str | None = None, limit: int = 50) -> Sequence[ConclusionEntry]:
        """List them, newest first."""

    def remove_conclusion(self, prefix: str) -> str:
        """Delete it, and none of the Results; give its id."""


class Reporter(Protocol):
    """Document -> text or bytes."""

    suffix: str
    """Of the files that it writes, such as ``.csv``."""

    def render(self, document: Result, *, judgements: Sequence[Judgement] = ()) -> str | bytes:
        """Render, with the verdicts on the bounds that were asked for."""


@runtime_checkable
class LaysOut(Protocol):
    """A Reporter that can write any blocks, such as those of a comparison."""

    def lay_out(self, blocks: Iterable[Block], *, title: str) -> str | bytes:
        """Write them as a whole file; the title says what they are about, where a format has room for it."""


@runtime_checkable
class Tabulates(Protocol):
    """A Reporter that can also write a table of numbers, such as that of the trials of a study."""

    def table(self, block: Table) -> str:
        """Write it, unrounded."""


class Exporter(Protocol):
    """Result -> what another tool keeps."""

    requires: tuple[str, ...]

    def export(self, document: Result, target: str) -> str:
        """Put it where `target` says; say where it is. The same Result twice is there once.

        Numbers are those of `modeldyno.core.result.numbers`: what is no claim has ``raw`` in its name.
        """


@runtime_checkable
class ExportsStudies(Protocol):
    """An Exporter that can also put a Study, its trials as runs within a run."""

    def export_study(self, study: Study, results: Mapping[str, Result], target: str) -> str:
        """Put it there, with the Results of its trials that are still known, by their ids."""


class Importer(Protocol):
    """A file of another tool -> what it says, in our words."""

    def claims(self, file: Foreign) -> bool:
        """Say whether it is a file of this tool; it may be anything."""

    def read(self, file: Foreign) -> Iterable[Imported]:
        """Give each load that it tells of. A file that is damaged raises whatever reading it raises."""


class Strategy(Protocol):
    """Study -> the trial to be made next."""

    requires: tuple[str, ...]

    def propose(self, study: Study) -> Ask | None:
        """Say what to measure next, of `study.space`; None: more of it would teach nothing.

        A pure function of the study: its seed is `study.seed`. A point that turns out to be impossible is
        added to the study as a skipped trial, and the strategy is asked again.
        """


class Executor(Protocol):
    """Job -> Result, in an environment of its own."""

    def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
        """Run it; a wrong outcome is a Failure in the Result, a wrong request raises."""
