"""Separates the stages of loading a model: a loader also imports, hashes and inspects.

Work within `describing` is ModelDyno's own: it counts neither as load time nor as memory of the model. Work
within `importing` counts as load time, as in any program, but its memory belongs to the libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from modeldyno.base.clock import perf_counter

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    PROFILER = "ours"
    """ModelDyno's own work: analysis, payloads, statistics. Its memory is not the model's."""
    TIMED = "timed"
    """Calls of the timed pass."""
    WAITING = "waiting"
    """Another process has its turn."""
    SECOND = "second"
    """The second pass, whose calls are profiled; its memory and noise are not reported."""


@dataclass(slots=True, kw_only=True)
class Loading:
    """The state of a model that is being loaded."""

    mark: Callable[[WatchStage], None]
    """Reports the start of a stage to the samplers."""
    described: float = 0.0
    """Seconds spent in `describing` so far."""
    inside: bool = False


_LOADING: ContextVar[Loading | None] = ContextVar("loading", default=None)


@contextmanager
def loading(mark: Callable[[WatchStage], None]) -> Iterator[Loading]:
    """Load a model within the block; report each stage to `mark`."""
    state = Loading(mark=mark)
    token = _LOADING.set(state)
    mark(WatchStage.LOAD)
    try:
        yield state
    finally:
        _LOADING.reset(token)


@contextmanager
def describing() -> Iterator[None]:
    """Run work within the block that a program that only loads and calls the model would not do."""
    start = perf_counter()
    with _stage(WatchStage.PROFILER) as state:
        yield
    if state is not None:
        state.described += perf_counter() - start


@contextmanager
def importing() -> Iterator[None]:
    """Import libraries within the block that are only known once the model is read."""
    with _stage(WatchStage.IMPORT):
        yield


@contextmanager
def _stage(stage: WatchStage) -> Iterator[Loading | None]:
    """Switch to another stage within the block; yield None outside `loading`, or when nested."""
    state = _LOADING.get()
    if state is None or state.inside:
        yield None
        return
    state.mark(stage)
    state.inside = True
    try:
        yield state
    finally:
        state.inside = False
        state.mark(WatchStage.LOAD)
