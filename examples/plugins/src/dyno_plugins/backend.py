"""Runs a Python function several times in one call, as a loop around a small model does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from modeldyno.plugin import BATCH_SIZE, Backend, Feed, Form, Knob, KnobValue, LocalSession, Model


class RepeatedSession(LocalSession):
    """A function that is ready to be called."""

    def __init__(self, function: Callable[..., Any], times: int) -> None:
        self.function, self.times = function, times

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Return a function without arguments that makes one call; this is what is timed."""
        inputs = {name: array.copy() for name, array in feed.items()}

        def call() -> Any:
            for _ in range(self.times):
                output = self.function(**inputs)
            return output

        return call

    def arrays(self, output: Any) -> Feed:
        """Return what a call returned as named arrays."""
        import numpy as np

        return {"y": np.asarray(output)}


class RepeatedCalls(Backend):
    """Calls a function several times where others call it once."""

    requires: tuple[str, ...] = ("numpy",)
    accepts = frozenset({Form.CALLABLE})
    knobs = (
        BATCH_SIZE,
        Knob(name="times", kind=int, default=1, low=1, sentence="Runs of the model in one call."),
    )
    space = ("times=1,2,4",)

    def check(self, config: Mapping[str, KnobValue]) -> None:
        """Accept every configuration: no knob excludes another."""

    @contextmanager
    def open(self, model: Model, config: Mapping[str, KnobValue]) -> Iterator[RepeatedSession]:
        """Open a session; what it has to close stands after the yield."""
        yield RepeatedSession(model.value, int(config["times"] or 1))
