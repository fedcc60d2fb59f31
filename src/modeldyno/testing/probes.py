"""Test suite that every probe must pass.

Inherit, name the probe, and provide a subject that it can measure::

    from modeldyno.testing.probes import ProbeSuite

    class TestMyProbe(ProbeSuite):
        name = "mine"

        @pytest.fixture
        def subject(self) -> ProbeContext:
            return ProbeContext(model=a_model(), session=my_session, calls=(my_call,))
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import pytest

from modeldyno.base import plugins
from modeldyno.base.clock import perf_counter
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.result.result import Event, Progressed
from modeldyno.engine.interfaces.probe import Pass, Probe, ProbeContext
from modeldyno.testing.fakes import a_model
from modeldyno.testing.known_latency import KnownLatency
from modeldyno.testing.loaders import imported_frameworks


class ProbeSuite:
    """Inherit and set `name`; override `subject` for a probe that needs more than calls."""

    name: ClassVar[str]
    """The name of the probe's entry point."""
    plan: ClassVar[Plan] = Plan(min_time=0.05, min_runs=5, max_time=3.0, precision=0.5)
    """Plan of the measurements in these tests."""

    @pytest.fixture
    def probe(self) -> Probe:
        """Return the plugin, by its entry point."""
        return plugins.probe(self.name)

    @pytest.fixture
    def subject(self) -> ProbeContext:
        """Return a model with one weight and calls of one and two milliseconds."""
        return ProbeContext(model=a_model(), calls=(KnownLatency(0.001), KnownLatency(0.002)), samples=4)

    def test_it_says_what_it_needs_and_when_it_runs(self, probe: Probe) -> None:
        """The probe declares a capability or none, and the timed or the second pass."""
        assert probe.needs is None or isinstance(probe.needs, type)
        assert isinstance(probe.pass_, Pass)

    def test_importing_it_imports_no_framework(self) -> None:
        """The parent process can import the probe cheaply."""
        assert imported_frameworks("probe", self.name) == []

    def test_it_measures_metrics_of_the_table(self, probe: Probe, subject: ProbeContext) -> None:
        """Every measurement has a row in the table of metrics, once for each scope, and is a number."""
        measurements = self._measure(probe, subject)

        assert measurements
        assert all(m.metric in METRICS for m in measurements)
        assert len({(m.metric, m.scope) for m in measurements}) == len(measurements)
        for measurement in measurements:
            value = measurement.value
            numbers = value.samples() if isinstance(value, Distribution) else [value]
            assert all(map(math.isfinite, numbers))

    def test_a_number_lies_in_its_interval(self, probe: Probe, subject: ProbeContext) -> None:
        """An interval contains its value."""
        for measurement in self._measure(probe, subject):
            if measurement.interval is not None and not isinstance(measurement.value, Distribution):
                assert measurement.interval.low <= measurement.value <= measurement.interval.high

    def test_its_doubts_say_what_was_seen_and_what_to_do(self, probe: Probe, subject: ProbeContext) -> None:
        """A doubt has a short code and two sentences."""
        for doubt in probe.measure(subject, self.plan):
            if isinstance(doubt, Doubt):
                assert doubt.code
                assert " " not in doubt.code
                assert doubt.seen
                assert doubt.advice

    def test_it_tells_progress_and_nothing_final(self, probe: Probe, subject: ProbeContext) -> None:
        """Progress reports contain only progress and provisional measurements."""
        events: list[Event] = []
        list(probe.measure(replace(subject, watch=events.append), self.plan))

        assert all(isinstance(event, Progressed | Measurement) for event in events)

    def test_it_ends_soon_when_interrupted(self, probe: Probe, subject: ProbeContext) -> None:
        """An interruption does not wait for the end of a long plan."""
        plan = replace(self.plan, min_time=60.0, max_time=120.0)
        begin = perf_counter()
        list(probe.measure(replace(subject, interrupted=lambda: True), plan))

        assert perf_counter() - begin < 20

    def _measure(self, probe: Probe, subject: ProbeContext) -> list[Measurement]:
        return [m for m in probe.measure(subject, self.plan) if isinstance(m, Measurement)]
