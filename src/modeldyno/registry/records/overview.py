"""Everything that is known of a version, gathered."""

from __future__ import annotations

from dataclasses import dataclass

from modeldyno.base.document import Document
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.result.result import Result
from modeldyno.registry.records.records import (
    FigureState,
    HardwareTarget,
    Task,
    Variant,
    VariantFigure,
    Version,
    VersionMeasurement,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFigure:
    """A figure and its Result."""

    figure: VariantFigure
    result: Result | None
    """None if the store no longer has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpeed:
    """The best fresh figures of a version on a target; None is what no fresh figure tells."""

    number: int
    target: str
    """Its id."""
    p50: float | None
    """The lowest latency, in seconds, of any variant and batch size."""
    p99: float | None
    """Of the same figure, in seconds; None if it is not certified."""
    seen: tuple[float | None, float | None] = (None, None)
    """Both as they were observed, whether certified or not."""
    rate: float | None
    """The highest rate, per second; it may be of another figure."""
    state: FigureState
    """Of these figures: of the others if none is fresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSpeed:
    """The speed that a figure stands for; None is what was not measured, or not certified."""

    p50: float | None = None
    """Seconds, as the next one."""
    p99: float | None = None
    seen: tuple[float | None, float | None] = (None, None)
    """Both as they were observed, whether certified or not; None if they are not valid."""
    p50_interval: Interval | None = None
    rate: float | None = None
    """Answers or inferences in a second."""
    bounds: Verdict | None = None
    """Verdict on the bounds of the policy; None without bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRow:
    """A version of a model on a target: the figure of its best variant."""

    model: str
    number: int
    target: HardwareTarget
    figure: VariantFigure
    """That of the lowest latency: of the fresh ones, or else of all."""
    speed: FigureSpeed
    most: VariantFigure
    """The figure with the highest rate among those that are as fresh."""
    rate: float | None
    """That rate."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VersionOverview(Document):
    """A version with its variants, figures and tasks."""

    KIND = "version"
    version: Version
    aliases: tuple[str, ...]
    """Aliases that name it."""
    numbers: tuple[int, ...]
    """The newest versions of the model, newest first."""
    variants: tuple[Variant, ...]
    figures: tuple[MeasuredFigure, ...]
    targets: tuple[HardwareTarget, ...]
    tasks: tuple[Task, ...]
    """Those that are still to be done."""
    failed: tuple[Task, ...] = ()
    """Measurements that failed without a figure, such as of a model that cannot be loaded."""
    workers: int
    """Workers that are there."""
    results: tuple[str, ...]
    """Ids of further Results of the same model, newest first."""
    measurements: tuple[VersionMeasurement, ...] = ()
    """Results, loads, explanations and comparisons of it that are no figures, newest first: at most 50."""
    studies: tuple[str, ...]
    """Ids of its studies, newest first."""
    speeds: tuple[VersionSpeed, ...] = ()
    """Of each of `numbers` on each target where it was measured; empty if there is one version only."""

    @property
    def usable(self) -> int:
        """Number of variants that are still the model."""
        return sum(variant.usable for variant in self.variants)

    @property
    def fresh(self) -> int:
        """Number of figures that may answer."""
        return sum(measured.figure.state is FigureState.FRESH for measured in self.figures)
