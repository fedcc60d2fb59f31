"""Test suite that every sampler must pass.

Inherit and name the sampler; pytest does the rest::

    from modeldyno.testing.samplers import SamplerSuite

    class TestMySampler(SamplerSuite):
        name = "mine"
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, ClassVar

import pytest

from modeldyno.base import plugins
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.metric import METRICS
from modeldyno.models.load_stages import WatchStage
from modeldyno.testing.loaders import imported_frameworks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.engine.interfaces.sampler import Sampler

RUN = (
    WatchStage.IDLE,
    WatchStage.BASELINE,
    WatchStage.IMPORT,
    WatchStage.LOAD,
    WatchStage.PROFILER,
    WatchStage.TIMED,
    WatchStage.WAITING,
    WatchStage.TIMED,
    WatchStage.SECOND,
)
"""The stages of a run that is compared with another one."""


class SamplerSuite:
    """Inherit and set `name`."""

    name: ClassVar[str]
    """The name of the sampler's entry point."""
    pause: ClassVar[float] = 0.05
    """Seconds of each stage in these tests."""

    @pytest.fixture
    def sampler(self) -> Sampler:
        """Return the plugin, by its entry point."""
        return plugins.sampler(self.name)

    def test_importing_it_is_cheap(self) -> None:
        """Importing the plugin imports no framework."""
        assert imported_frameworks("sampler", self.name) == []

    def test_it_watches_a_run(self, sampler: Sampler) -> None:
        """What it yields are measurements of declared metrics, once for each scope, and doubts."""
        yielded = self._watch(sampler, RUN)

        assert all(isinstance(item, Measurement | Doubt) for item in yielded)
        measurements = [item for item in yielded if isinstance(item, Measurement)]
        assert all(m.metric in METRICS for m in measurements)
        assert len({(m.metric, m.scope) for m in measurements}) == len(measurements)
        for measurement in measurements:
            value = measurement.value
            numbers = value.samples() if isinstance(value, Distribution) else [value]
            assert all(map(math.isfinite, numbers))

    @pytest.mark.parametrize("stages", [(), (WatchStage.IDLE,), (WatchStage.IDLE, WatchStage.LOAD)])
    def test_it_ends_whenever_the_run_does(self, sampler: Sampler, stages: Sequence[str]) -> None:
        """A run may fail before anything is timed."""
        self._watch(sampler, stages)

    def test_its_processes_are_named_and_end(self, sampler: Sampler) -> None:
        """What it starts is no part of the model's load, and is gone when it has stopped."""
        watch = sampler.start([os.getpid()], period=self.pause)
        pids = tuple(watch.pids)
        list(watch.stop())

        assert all(pid != os.getpid() for pid in pids)
        assert not any(_runs(pid) for pid in pids)

    def _watch(self, sampler: Sampler, stages: Sequence[str]) -> list[Measurement | Doubt]:
        watch = sampler.start([os.getpid()], period=self.pause)
        for stage in stages:
            watch.mark(stage)
            sleep(self.pause)
        return list(watch.stop())


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
