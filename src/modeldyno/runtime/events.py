"""Where a run stands, and what a probe or a sampler finds as an event of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Measurement
from modeldyno.core.metrics.metric import METRICS
from modeldyno.core.result.result import (
    Artifact,
    Doubted,
    Event,
    Failed,
    Failure,
    Found,
    Kept,
    Outlined,
    Progressed,
    Watched,
)
from modeldyno.core.result.static_data import Outline
from modeldyno.core.result.trace_data import Activity
from modeldyno.errors import RequestError
from modeldyno.interfaces import WatchStage
from modeldyno.runtime import forked_analysis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.interfaces import Seen


@dataclass(slots=True)
class Stage:
    """Where the run stands; whoever watches is told, and a Failure names it."""

    watch: Callable[[Event], None]
    mark: Callable[[WatchStage], None] = field(default=lambda _stage: None)
    """Tells those who watch from outside."""
    analyst: forked_analysis.Analyst = forked_analysis.here
    """Carries out what only looks at the model."""
    name: str = "start"
    measured: bool = False
    """Whether a probe has found anything by calling the model."""

    @contextmanager
    def __call__(self, name: str, spent: dict[str, float] | None = None) -> Iterator[None]:
        """Be in a stage until the end of the block; `spent` is told the seconds."""
        self.name = name
        self.watch(Progressed(stage=name))
        begin = perf_counter()
        yield
        if spent is not None:
            spent[name] = perf_counter() - begin


def event_of(found: Seen) -> Event:
    """Give the event that tells of it.

    Raises:
        RequestError: a metric is in no table.
    """
    match found:
        case Measurement():
            if found.metric not in METRICS:
                raise RequestError(
                    f"A probe measured '{found.metric}', which is no metric; a plugin declares its own by an "
                    "entry point of the group modeldyno.metrics."
                )
            return Found(measurement=found)
        case Doubt():
            return Doubted(doubt=found)
        case Failure():
            return Failed(failure=found)
        case Outline():
            return Outlined(outline=found)
        case Activity():
            return Watched(activity=found)
        case Artifact():
            return Kept(artifact=found)


def noted(found: Iterator[Event], known: list[Measurement]) -> Iterator[Event]:
    """Keep what is measured for the probes that come after."""
    for event in found:
        if isinstance(event, Found):
            known.append(event.measurement)
        yield event
