"""Watch a block of one's own code: ``with modeldyno.watch() as seen:``."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from modeldyno.base.clock import perf_counter
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import observed_number
from modeldyno.base.result.result import fold
from modeldyno.engine.environment import machine
from modeldyno.engine.runtime.events import empty_result, event_of
from modeldyno.engine.runtime.sampling import start_samplers
from modeldyno.engine.trace.regions import WATCHED
from modeldyno.models.load_stages import WatchStage
from modeldyno.profiling.api.profile import store_if
from modeldyno.regions.summary import script_job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.engine.interfaces.sampler import Watch


def watch(
    *, period: float = 0.5, name: str | None = None, store: bool = False, tags: str | Sequence[str] = ()
) -> WatchedBlock:
    """Watch this process, and the devices that it uses, while a block of code runs.

    A process of its own reads memory, processor time, disk and network traffic, and of GPUs use, memory,
    power, clocks and temperature. Write
    ``with modeldyno.watch() as seen:``, or ``block = watch().start()`` and ``result = block.stop()``.

    Args:
        period: fewest seconds between two samples; reading is kept to about 1 % of the time of a core.
        name: name of the Result; by default that of the script.
        store: whether to store the Result.
        tags: tags of the stored Result.

    Returns:
        The block. When it has ended, `seen.result` is a Result: ``seen.result["process_memory.max"]`` are the
        most bytes above those at the beginning, ``seen.result["power@cuda:0"]`` the mean power in W. What
        cannot be read is not in it.

    Raises:
        RequestError: the period is not above 0.
    """
    if not period > 0:
        raise RequestError(f"watch(period={period}): it must be more than 0 seconds, such as 0.5.")
    return WatchedBlock(period=period, name=name, keep=partial(store_if, condition=store, tags=tags))


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
        sampled = [item for sampler in samplers for item in sampler.stop()]
        job = script_job(WATCHED, self._name)
        total = observed_number("total_time", elapsed)
        described = replace(empty_result(job), environment=machine.describe_environment(()))
        self._result = fold(described, map(event_of, (total, *sampled)))
        self._keep(self._result)
        return self._result

    def __enter__(self) -> Self:
        """Begin to watch."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """End watching, also where the block has failed."""
        self.stop()
