"""What a probe offers, and what it is given to measure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from modeldyno.base.clock import perf_counter
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.static_options import StaticOptions
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.result.result import Artifact, Event, Failure
from modeldyno.base.result.static_data import StaticReport
from modeldyno.base.result.trace_data import TraceReport
from modeldyno.engine.interfaces.session import Session
from modeldyno.models.interface import Feed, Model, RequestStreams
from modeldyno.models.load_stages import WatchStage

if TYPE_CHECKING:
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.metrics.stop_rule import Phase
    from modeldyno.base.stats.statistics import Samples
    from modeldyno.engine.data.first_words import FirstWords


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
        warming: Callable[[], object] | None = None,
    ) -> Callable[[int], Samples]:
        """Return `draw` unchanged."""
        return draw

    def clock(self) -> float:
        """Return monotonic seconds."""
        return perf_counter()

    agreed = None


NO_TURNS = NoTurns()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeContext:
    """A model under measurement, as passed to probes."""

    model: Model
    session: Session | None = None
    """Only if a probe of the Job needs one."""
    calls: tuple[Callable[[], Any], ...] = ()
    """Prepared calls, one for each distinct payload; to be called in a cycle."""
    feeds: tuple[Feed, ...] = ()
    """The payloads of `calls`, for a session that prepares calls of another kind."""
    drawn: frozenset[str] = frozenset()
    """Names of inputs whose values are random; those of the others are real."""
    preprocess: tuple[Callable[[], Feed], ...] = ()
    """Functions that make the payloads of raw data, one for each; empty if the user has none."""
    postprocess: Callable[[Feed], Any] | None = None
    """The user's function that takes the named outputs of a call."""
    samples: int = 1
    """Samples (items of the batch) in one call."""
    streams: RequestStreams | None = None
    """Of payloads from a file of requests: its streams, and the answers that it expects."""
    first_words: FirstWords | None = None
    """Words of random prompts in place of which others are sent; None: prompts stay as they are."""
    primed: bool = False
    """Whether the server may have the prompts in a prefix cache."""
    inputs: tuple[InputSpec, ...] = ()
    """As requested: shapes that bind the symbolic dimensions of the model's inputs."""
    load: Load | None = None
    """The load on the server."""
    batch_size: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Requested sizes of symbolic input dimensions."""
    inspection: StaticOptions = field(default_factory=StaticOptions)
    device: Callable[[], str] = field(default=lambda: "cpu")
    """Return the device that a session of the model runs on, such as ``cuda:0``, before there is one."""
    precision: str = ""
    """What weights and inputs are converted to, such as ``bf16``; empty if they stay as they are."""
    observation: ProbeOptions = field(default_factory=ProbeOptions)
    known: tuple[Measurement, ...] = ()
    """Measurements of the probes before this one."""
    beside: tuple[tuple[str, ProbeContext], ...] = ()
    """Other models on the same server, by name, which are put under load at the same time."""
    turns: TurnToken = NO_TURNS
    interrupted: Callable[[], bool] = field(default=lambda: False)
    watch: Callable[[Event], None] = field(default=lambda _event: None)
    """Receives progress and provisional measurements."""
    mark: Callable[[WatchStage], None] = field(default=lambda _stage: None)
    """Reports the start of a stage to the samplers."""


ProbeOutput = Measurement | Doubt | Failure | StaticReport | TraceReport | Artifact
"""What a probe may yield."""


class Probe(ABC):
    """Measures a ProbeContext."""

    needs: type | None
    """The protocol that the session must implement, or None if only the model is needed."""
    pass_: Pass
    metrics: tuple[str, ...] = ()
    """Metrics of a package of yours that it measures, so that asking for one runs it."""

    def check(self, subject: ProbeContext) -> None:
        """Raise RequestError if the subject and what was given for it do not fit.

        Called before anything is measured.
        """

    @abstractmethod
    def measure(self, subject: ProbeContext, plan: Plan) -> Iterable[ProbeOutput]:
        """Measure a subject; yield the results."""
