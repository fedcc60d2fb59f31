"""Watch a block of a program's own code from outside: memory and processor, and the devices it uses."""

from __future__ import annotations

import os
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Self

from modeldyno.core.metrics.measurement import observed_number
from modeldyno.core.result.result import fold
from modeldyno.core.trace.regions import WATCHED
from modeldyno.environment import machine
from modeldyno.errors import RequestError
from modeldyno.interfaces.sampler import WatchStage
from modeldyno.regions.summary import script_job
from modeldyno.runtime.events import event_of
from modeldyno.runtime.new_result import empty_result
from modeldyno.runtime.sampling import start_samplers

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.result.result import Result
    from modeldyno.interfaces.sampler import Watch


class WatchedBlock:
    """A block that is watched: ``with`` it, or between `start` and `stop`; then `result` is there."""

    def __init__(self, *, period: float, name: str | None, keep: Callable[[Result], None]) -> None:
        """Take samples each `period` seconds; `keep` is called with the Result when the block has ended."""
        self._period = period
        self._name = name
        self._keep = keep
        self._began = 0.0
        self._samplers: list[Watch] | None = None
        self._result: Result | None = None

    @property
    def result(self) -> Result:
        """What was seen: `process_memory` above that at the beginning, `cpu_utilization`, and the devices.

        Raises:
            RequestError: the block has not ended.
        """
        if self._result is None:
            raise RequestError("The result of watch() is there once its block has ended, or after stop().")
        return self._result

    def start(self) -> Self:
        """Begin to watch.

        Raises:
            RequestError: it is being watched already.
        """
        if self._samplers is not None:
            raise RequestError("watch() has begun already; call stop() first, or use a watch() of its own.")
        self._result, self._samplers = None, start_samplers(os.getpid(), period=self._period)
        for stage in (WatchStage.BASELINE, WatchStage.TIMED):
            for sampler in self._samplers:
                sampler.mark(stage)
        self._began = perf_counter()
        return self

    def stop(self) -> Result:
        """End watching, and return the Result.

        Raises:
            RequestError: it has not begun.
        """
        elapsed = perf_counter() - self._began
        if self._samplers is None:
            raise RequestError("watch() has not begun; call start() first, or use it in a with block.")
        samplers, self._samplers = self._samplers, None
        seen = [item for sampler in samplers for item in sampler.stop()]
        job = script_job(WATCHED, self._name)
        total = observed_number("total_time", elapsed)
        described = replace(empty_result(job), environment=machine.describe_environment(()))
        self._result = fold(described, map(event_of, (total, *seen)))
        self._keep(self._result)
        return self._result

    def __enter__(self) -> Self:
        """Begin to watch."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """End watching, also where the block has failed."""
        self.stop()
