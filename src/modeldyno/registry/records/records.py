"""What the registry keeps: versions of models, their variants, targets, workers, tasks and figures."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from modeldyno.base.document import MeasuredAt
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.knob import KnobValue
from modeldyno.base.job.version_name import SOURCE, engine_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Fact = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFile:
    """A file of a version, by its path within the version's folder."""

    path: str
    digest: str
    """``sha256:`` and 64 hexadecimal digits of its content."""
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationData:
    """Labelled samples that every variant of a version is evaluated on."""

    metrics: tuple[str, ...]
    """Such as ``accuracy``."""
    file: WeightFile
    """Copied into the store's folder."""
    labels: str = ""
    """Name of the labels in the file; empty if they have one of the usual names."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"the labelled samples {self.file.path}"

    @property
    def files(self) -> tuple[WeightFile, ...]:
        """The file, as a version has several."""
        return (self.file,)

    @property
    def entry(self) -> str:
        """What is read of `files`."""
        return self.file.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of a model; its content never changes."""

    model: str
    number: int
    """From 1, without gaps; 0 before it is stored."""
    created: str
    """UTC, ISO 8601."""
    creator: str
    reference: str
    """What was registered, as ``scheme:locator``."""
    digest: str
    """Digest of the model, as its Results have it."""
    framework: str
    kind: str
    """What conversions start from: ``onnx``, ``torch``, ``torchscript``, ``keras`` or a framework."""
    backend: str
    """The backend that runs it unless another is named."""
    inputs: tuple[InputSpec, ...] = ()
    measured_with: tuple[InputSpec, ...] = ()
    """Inputs that it is measured with; empty for those that it declares."""
    outputs: tuple[InputSpec, ...] = ()
    """What its maker says that it gives: name, shape and dtype of each."""
    layouts: dict[str, str] = field(default_factory=dict)
    """Order of the axes of an input or output by its name, such as ``NCHW``, as its maker says."""
    files: tuple[WeightFile, ...] = ()
    """Copied into the store's folder; empty if the reference is used where it is."""
    entry: str = ""
    """The file, or ``.`` for the folder, that is loaded of `files`."""
    task: str = ""
    dataset: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    """What its maker says of it, such as ``accuracy``."""
    labels: dict[str, str] = field(default_factory=dict)
    evaluation: EvaluationData | None = None
    """What it and its variants are evaluated on by ModelDyno."""
    parent: str = ""
    """The version that it was made from, as ``name/3``."""
    policy: str = "default"
    trust: bool = False
    """Whether files that run code on loading may be loaded."""

    @property
    def reference_text(self) -> str:
        """What stands for it where a model is taken."""
        return self.name

    @property
    def name(self) -> str:
        """Its name and number, such as ``digits/3``."""
        return f"{self.model}/{self.number}"


class VariantState(StrEnum):
    """How far a variant is."""

    WANTED = "wanted"
    CONVERTING = "converting"
    AGREES = "agrees"
    CLOSE = "close"
    DIFFERS = "differs"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"


USABLE = frozenset({VariantState.AGREES, VariantState.CLOSE})
"""States of a variant that may answer for its version."""
UNFINISHED = frozenset({VariantState.WANTED, VariantState.CONVERTING})
"""States of a variant that is still to be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A version in one form: the source itself, or what a recipe made of it."""

    model: str
    number: int
    recipe: str
    """``source``, or the name of a conversion, such as ``onnx``."""
    state: VariantState
    why: str = ""
    """The agreement or the failure, in a sentence."""
    reference: str = ""
    """What is loaded, as ``scheme:locator``, or the scheme alone with `files`; empty before it exists."""
    files: tuple[WeightFile, ...] = ()
    entry: str = ""
    """The file or folder of `files` that is loaded."""
    backend: str = ""
    digest: str = ""
    conversion: str = ""
    """The document of the conversion as JSON; empty for the source."""
    conversion_id: str = ""
    """By which the store keeps that document; empty for the source."""

    @property
    def name(self) -> str:
        """Its version and recipe, such as ``digits/3 onnx``."""
        return f"{self.model}/{self.number} {self.recipe}"

    @property
    def sentence(self) -> str:
        """Its state and why, with each word once."""
        state = str(self.state)
        return self.why if self.why.startswith(state) else f"{state}: {self.why}" if self.why else state

    @property
    def usable(self) -> bool:
        """Whether it is still the model."""
        return self.state in USABLE


def is_run_by(version: Version, variants: Iterable[Variant], engine: str) -> bool:
    """Return whether an engine runs a version or a variant that is still the model.

    Args:
        version: the version.
        variants: its variants, the source among them.
        engine: a form, such as ``torchscript``, a backend, or what ModelCI calls one: ``TFS``, ``TRT``.
    """
    word = engine_name(engine)
    return any(
        word in {one.backend, version.kind if one.recipe == SOURCE else one.recipe.partition("-")[0]}
        for one in variants
        if one.usable
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareTarget:
    """Hardware that figures hold for: a device of a machine, by what two results must share."""

    id: str
    """Twelve hexadecimal digits of the digest of `hardware` and `device`."""
    name: str
    """For people; the first worker of it gives it."""
    device: str
    """``cpu``, or ``cuda:0``."""
    hardware: dict[str, Fact]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process that serves a target."""

    id: str
    target: str
    host: str
    pid: int
    software: dict[str, Fact]
    """Versions of the packages on this machine."""
    state: str = "waiting"
    """What it does, in a few words."""
    silent: float = 0.0
    """Seconds since it was heard of, by the database's clock."""
    alive: float = 0.0
    """Seconds from its start until it was heard of last."""
    worked: float = 0.0
    """Seconds of these in which it had a task."""

    @property
    def idle(self) -> float | None:
        """The share of its time in which it had no task; None before it is known."""
        return max(0.0, 1.0 - self.worked / self.alive) if self.alive else None


class TaskKind(StrEnum):
    """What a task does."""

    CONVERT = "convert"
    PROFILE = "profile"
    COMPARE = "compare"


class TaskState(StrEnum):
    """How far a task is."""

    QUEUED = "queued"
    LEASED = "leased"
    DEFERRED = "deferred"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = frozenset({TaskState.QUEUED, TaskState.LEASED, TaskState.DEFERRED})
"""States of a task that is still to be done: of these, one task has a key."""


PLACES = (
    (TaskState.LEASED,),
    (TaskState.QUEUED, TaskState.DEFERRED),
    (TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED),
)
"""States in the order in which tasks are listed: what is being done, what will be, what has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What a task measures of a variant."""

    probes: tuple[str, ...]
    settings: dict[str, KnobValue] = field(default_factory=dict)
    """Knobs of the backend, such as ``batch_size``."""
    backend: str = ""
    """Empty for the variant's own."""
    concurrency: int | None = None
    """Slots of the load, for a served variant; None for calls in a process."""
    require: tuple[str, ...] = ()
    """Bounds whose percentiles are certified."""
    max_time: float = 20.0
    """Seconds of measuring for each probe; of a comparison, for all of it."""
    evaluate: tuple[str, ...] = ()
    """Metrics of the version's labelled samples."""
    data: str = ""
    """Digest of those samples, and the name of their labels; empty if nothing is evaluated."""
    beside: tuple[str, ...] = ()
    """Variants that are measured in turns with this one, such as ``digits/2 source``; empty for it alone."""

    @property
    def label(self) -> str:
        """A few words for lists, such as ``batch 8``."""
        if self.beside:
            return f"{replace(self, beside=()).label} beside {' and '.join(self.beside)}"
        if self.concurrency is not None:
            return f"{self.backend} at {self.concurrency}"
        batch = self.settings.get("batch_size")
        others = (f"{name}={value}" for name, value in self.settings.items() if name != "batch_size")
        parts = (self.backend, "" if batch is None else f"batch {batch}", *others)
        return " ".join(part for part in parts if part) or " and ".join(self.probes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something to be done once, by a worker."""

    id: int = 0
    """0 before it is stored."""
    key: str
    """What is to be done, digested: the same work is queued once."""
    kind: TaskKind
    model: str
    number: int
    recipe: str
    target: str = ""
    """The target that it must run on; empty for any machine."""
    measure: Measure | None = None
    """What is measured; None for a conversion."""
    priority: int = 100
    """Lower ones come first."""
    state: TaskState = TaskState.QUEUED
    attempts: int = 0
    """Leases so far whose worker was lost."""
    deferrals: int = 0
    """Times that it was put off, because the device was in use."""
    token: int = 0
    """Grows with each lease; a finish with an older one is refused."""
    worker: str = ""
    why: str = ""
    """Why it failed or was deferred."""
    result: str = ""
    """Id of the Result or the Comparison that it gave."""
    left: float = 0.0
    """Seconds until the lease or the deferral ends, by the database's clock."""

    @property
    def label(self) -> str:
        """A few words for lists, such as ``digits/3 onnx: batch 8``."""
        what = "convert" if self.measure is None else self.measure.label
        return f"{self.model}/{self.number} {self.recipe}: {what}"

    @property
    def place(self) -> tuple[int, int, int]:
        """Its place in a list of tasks, for the page after it: of its state in `PLACES`, priority and id."""
        rank = next(at for at, states in enumerate(PLACES) if self.state in states)
        return rank, self.priority, self.id


class FigureState(StrEnum):
    """Whether a figure may answer."""

    MISSING = "missing"
    QUEUED = "queued"
    RUNNING = "running"
    FRESH = "fresh"
    STALE = "stale"
    DOUBTFUL = "doubtful"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantFigure:
    """What a variant was measured at on a target: the newest Result of one key."""

    key: str
    model: str
    number: int
    recipe: str
    target: str
    measure: Measure
    result: str
    """Id of the Result."""
    taken: str
    """UTC, ISO 8601."""
    software: dict[str, Fact]
    """Versions that it depends on."""
    protocol: int
    """Number of the rules of measuring that it followed."""
    state: FigureState
    why: str = ""
    """Why it is not fresh."""
    replaces: str = ""
    """Of a doubtful one, the id of the stale figure's Result that is still to be confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedDocument:
    """A document that is listed under a version although its model has another digest, as a server's has."""

    model: str
    number: int
    document: str
    """Its id."""
    kind: str
    """Such as ``result`` or ``explanation``."""
    at: MeasuredAt

    @property
    def version(self) -> str:
        """Name and number of the version, such as ``digits/3``."""
        return f"{self.model}/{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionMeasurement:
    """A document that is listed under a version: of the same content, or attached to it."""

    document: str
    """Its id."""
    kind: str
    """``result``, ``explanation``, ``ladder``, ``capacity`` or ``comparison``."""
    created: str
    """UTC, ISO 8601."""
    headline: str
    at: MeasuredAt
    attached: bool
    """Whether somebody, or a `Profiler`, attached it; otherwise the digest of its model is the version's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasMove:
    """One move of an alias."""

    alias: str
    before: int | None
    """The version that it named; None if it was new."""
    after: int | None
    """The version that it names since; None if it was removed."""
    at: str
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryEvent:
    """What somebody did, chained to the event before by its hash."""

    id: int
    at: str
    actor: str
    kind: str
    """Such as ``version.added``."""
    subject: str
    """Such as ``digits/3``."""
    detail: dict[str, str]
    before: str
    """Hash of the event before it; empty for the first."""
    hash: str


# --- the chain of events ----------------------------------------------------------------------------


def event_hash(before: str, at: str, actor: str, kind: str, subject: str, detail: Mapping[str, str]) -> str:
    """Return the SHA-256 of an event and of the hash before it, in hexadecimal digits."""
    parts = json.dumps([before, at, actor, kind, subject, dict(sorted(detail.items()))], ensure_ascii=True)
    return hashlib.sha256(parts.encode()).hexdigest()


def first_broken(events: Iterable[RegistryEvent]) -> int | None:
    """Return the id of the first event whose hash is wrong, or that does not follow the one before it.

    What was cut off at the end leaves no trace in what is left.

    Args:
        events: all of them, the oldest first.
    """
    before = ""
    for event in events:
        expected = event_hash(before, event.at, event.actor, event.kind, event.subject, event.detail)
        if event.before != before or event.hash != expected:
            return event.id
        before = event.hash
    return None
