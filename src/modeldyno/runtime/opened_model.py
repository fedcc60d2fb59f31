"""A model made ready to call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from modeldyno.core.result.result import Event
from modeldyno.data import Payload
from modeldyno.data.outputs import Sketch
from modeldyno.interfaces.loader import Model
from modeldyno.interfaces.session import Session
from modeldyno.runtime.output_watch import OutputChecks


@dataclass(slots=True)
class OpenedModel:
    """A model made ready to call."""

    session: Session
    payload: Payload
    calls: tuple[Callable[[], Any], ...]
    model: Model
    """The model, with the input sizes that it accepted."""
    found: list[Event] = field(default_factory=list)
    looks: OutputChecks = field(default_factory=OutputChecks)
    """What the first call returned."""
    first_inputs: Sketch | None = None
    """Its inputs, as they were before it."""
