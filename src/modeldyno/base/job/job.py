"""The Job: the description of one measurement, small, frozen and serialisable."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.knob import KnobValue
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.measurement_plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PROBES = ("static", "latency", "throughput")
TRAINING_PROBES = ("static", "training", "memory")
SERVED_PROBES = ("static", "load")


def default_probes(mode: Mode, *, served: bool = False) -> tuple[str, ...]:
    """Return the default probes."""
    if served:
        return SERVED_PROBES
    return TRAINING_PROBES if mode is Mode.TRAIN else DEFAULT_PROBES


IMPORTED = "imported"
"""The backend of what another tool measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to measure, with which settings and how precisely."""

    model: ModelRef
    backend: str
    inputs: tuple[InputSpec, ...] = ()
    config: dict[str, KnobValue] = field(default_factory=dict)
    """Knob to value, complete with the backend's defaults; never changed in place."""
    probes: tuple[str, ...] = DEFAULT_PROBES
    plan: Plan = field(default_factory=Plan)
    inspection: StaticOptions = field(default_factory=StaticOptions)
    observation: ProbeOptions = field(default_factory=ProbeOptions)
    sizes: dict[str, int] = field(default_factory=dict)
    """Dimension of the inputs to its size, if no shape gives it, such as ``seq``; never changed."""
    load: Load | None = None
    """The load on the server; None for a run within the process."""
    name: str | None = None
    """Name of the model; by default its locator."""
    trust: bool = False
    """Whether files that run code on loading may be loaded (in the child process)."""
    beside: tuple[Job, ...] = ()
    """Models that the same server hosts at the same time, each named, with its own knobs and load; their
    measurements have their names as the scope."""

    def at(self, point: Mapping[str, KnobValue]) -> Job:
        """Return the same Job with other values of knobs."""
        return replace(self, config={**self.config, **point})
