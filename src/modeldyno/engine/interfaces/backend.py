"""What a backend offers: knobs, and sessions of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.job.knob import Knob, KnobValue
    from modeldyno.engine.interfaces.session import Session
    from modeldyno.engine.trace.dataflow import DataFlow
    from modeldyno.engine.trace.op_events import Occurrence
    from modeldyno.models.interface import Model


class Backend(Protocol):
    """Opens sessions of models."""

    requires: tuple[str, ...]
    accepts: frozenset[str]
    """The forms of Model that it can run."""
    knobs: tuple[Knob, ...]

    def check(self, config: Mapping[str, KnobValue]) -> None:
        """Raise RequestError for incompatible knobs; cheap, without importing a framework."""

    def open(self, model: Model, config: Mapping[str, KnobValue]) -> AbstractContextManager[Session]:
        """Open a session of a model. `config` was completed and checked by `knob.configure`."""


@runtime_checkable
class Serves(Protocol):
    """A backend whose sessions may send to a server; those of one without the attribute call the model."""

    serves: bool


@runtime_checkable
class ConfiguresProcess(Protocol):
    """A backend whose framework fixes its threads and devices when the first model is loaded."""

    def configure_process(self, config: Mapping[str, KnobValue]) -> None:
        """Set them; called before a model is loaded. Raise RequestError if they cannot be set any more."""


@runtime_checkable
class ChoosesDevice(Protocol):
    """A backend that runs models in this process, on one of several devices."""

    def device_of(self, config: Mapping[str, KnobValue]) -> str:
        """Return the device of a session, such as ``cuda:0``. Raise RequestError if it is not there."""


@runtime_checkable
class RecordsOperators(Protocol):
    """A backend that can record what its framework runs in any block of code."""

    def record_operators(self, name: str) -> Callable[[], Callable[[], tuple[Occurrence, ...]]]:
        """Begin to record in a block of that name; return what ends it, which returns what reads it."""


@runtime_checkable
class FollowsCode(Protocol):
    """A backend that can record the data flow of any block of code."""

    def follow_code(self, most: int, *, partly: bool = False) -> Callable[[], DataFlow | None]:
        """Begin to record this thread; return what ends it: None if unknown.

        After more steps than `most` it gives None as well, or `partly` the first of them.
        """


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
class ServesWithin(Protocol):
    """A backend whose server may run in the process that opens a session, which then opens no other one."""

    def serves_within(self, config: Mapping[str, KnobValue]) -> bool:
        """Return whether it does with these knobs."""


@runtime_checkable
class CanDeploy(Protocol):
    """A backend whose server reads a model directory, which can be deployed elsewhere."""

    def deploy(self, model: Model, configuration: str, folder: Path) -> None:
        """Write the model's files and a configuration, from a session's `files`, into a folder."""

    def configuration(self, model: Model, config: Mapping[str, KnobValue]) -> str:
        """Return the configuration under which the server calls a model as a process did with these knobs."""


@runtime_checkable
class TakesOtherInputs(Protocol):
    """A backend whose requests have inputs other than the model's own, such as text."""

    def inputs(self, model: Model, config: Mapping[str, KnobValue]) -> tuple[InputSpec, ...]:
        """Return the inputs of a request."""


@runtime_checkable
class RecallsModels(Protocol):
    """A backend that keeps what a server needs of a model, so that the model need not be loaded again."""

    def recall(self, source: str, load: Callable[[], Model]) -> Model | None:
        """Return a model by its `source` without loading it; None if it is not kept.

        `load` loads it, for what is not kept.
        """


@runtime_checkable
class NeedsTorch(Protocol):
    """A backend whose server needs torch to run modules."""

    def check_torch(self, config: Mapping[str, KnobValue]) -> None:
        """Raise RequestError if the server lacks torch; called before a module is loaded."""


HOST_AXES = frozenset({"threads", "intra_threads"})
"""Axes that matter only to models on the CPU."""


@runtime_checkable
class SuggestsAxes(Protocol):
    """A backend with default axes for a sweep."""

    space: tuple[str, ...]
    """Axes in the syntax of `search_space.parse_axis`; ``{cores}`` is the number of allowed cores."""
