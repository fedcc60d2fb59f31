"""What a backend offers: knobs, and sessions of models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from modeldyno.base.plugins.contract import overrides

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


HOST_AXES = frozenset({"threads"})
"""Axes that matter only to models on the CPU."""


class Backend(ABC):
    """Opens sessions of models, in this process or on a server."""

    requires: tuple[str, ...]
    """Importable names that it needs; a missing one is reported with the package to install."""
    accepts: frozenset[str]
    """The forms of Model that it can run."""
    knobs: tuple[Knob, ...]
    space: tuple[str, ...] = ()
    """Default axes of a sweep, as `search_space.parse_axis` reads them; ``{cores}``: the allowed cores."""

    @abstractmethod
    def check(self, config: Mapping[str, KnobValue]) -> None:
        """Raise RequestError for incompatible knobs; cheap, without importing a framework."""

    @abstractmethod
    def open(self, model: Model, config: Mapping[str, KnobValue]) -> AbstractContextManager[Session]:
        """Open a session of a model. `config` was completed and checked by `knob.configure`."""

    # In a process

    def configure_process(self, config: Mapping[str, KnobValue]) -> None:
        """Set what the framework fixes when the first model is loaded, such as threads and devices.

        Called before a model is loaded. Raise RequestError if they cannot be set any more.
        """

    def device_of(self, config: Mapping[str, KnobValue]) -> str:
        """Return the device of a session, such as ``cuda:0``. Raise RequestError if it is not there."""
        return "cpu"

    def record_operators(self, name: str) -> Callable[[], Callable[[], tuple[Occurrence, ...]]] | None:
        """Begin to record what the framework runs in a block of that name.

        Return what ends it, which returns what reads it; None if it cannot be recorded.
        """
        return None

    def follow_code(self, most: int, *, partly: bool = False) -> Callable[[], DataFlow | None] | None:
        """Begin to record the data flow of this thread; return what ends it, or None if it cannot.

        What ends it gives None if the flow is unknown, and after more steps than `most`, of which it gives
        the first with `partly`.
        """
        return None

    # On a server

    serves: bool = False
    """Whether its sessions may send to a server; else they call the model."""
    common: frozenset[str] | None = None
    """Knobs of a server that serves several models, set by the first model only; None: it serves one."""
    takes_requests: bool = False
    """Whether its one input takes texts and whole requests (`engine.data.text_requests`)."""

    def serves_within(self, config: Mapping[str, KnobValue]) -> bool:
        """Return whether its server runs in the process that opens a session, which then opens no other."""
        return False

    def inputs(self, config: Mapping[str, KnobValue]) -> tuple[InputSpec, ...] | None:
        """Return the inputs of a request, such as text; None if they are the model's own."""
        return None

    @property
    def recalls(self) -> bool:
        """Whether it has `recall`: it keeps what its server needs of a model."""
        return overrides(self.recall, Backend.recall)

    def recall(self, source: str, load: Callable[[], Model]) -> Model | None:
        """Return a model by its `source` without loading it; None if it is not kept.

        `load` loads it, for what is not kept.
        """
        return None

    def check_torch(self, config: Mapping[str, KnobValue]) -> None:
        """Raise RequestError if the server lacks torch, which modules need; called before one is loaded."""

    @property
    def deploys(self) -> bool:
        """Whether it has `deploy`: its server reads a folder that can be taken elsewhere."""
        return overrides(self.deploy, Backend.deploy)

    def deploy(self, model: Model, configuration: str, folder: Path) -> None:
        """Write the model's files and a configuration, from a session's `files`, into a folder."""
        raise NotImplementedError

    def configuration(self, model: Model, config: Mapping[str, KnobValue]) -> str:
        """Return the configuration under which the server calls a model as a process did with these knobs."""
        raise NotImplementedError
