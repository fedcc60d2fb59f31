"""How fast each registered model is on each target: its newest measured version in its best variant."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.metrics.measurement import Distribution, Interval
from modeldyno.core.registry.answer import RATES
from modeldyno.core.registry.policy import DEFAULT
from modeldyno.core.registry.records import FigureState, HardwareTarget, VariantFigure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.interfaces.registry import Registry

_KEPT = 4096
"""Results whose speeds are kept in memory; a stored Result does not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSpeed:
    """The speed that a figure stands for; None is what was not measured, or not certified."""

    p50: float | None = None
    """Seconds, as the next one."""
    p99: float | None = None
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


def newest_speeds(registry: Registry, models: Iterable[str]) -> Iterator[SpeedRow]:
    """Yield a row for each target of each model, for the newest version that was measured there."""
    known, names = _Known(registry), tuple(models)
    figures = registry.figures_of(names)
    for model in names:
        shown: set[str] = set()
        for row in _speeds(known, model, figures.get(model, ())):
            if row.target.id not in shown:
                shown.add(row.target.id)
                yield row


def version_speeds(
    registry: Registry, model: str, numbers: Iterable[int] | None = None
) -> Iterator[SpeedRow]:
    """Yield a row for each version and target of a model, the newest version first.

    `numbers` are those of the versions; None is all.
    """
    wanted = (None,) if numbers is None else numbers
    figures = [figure for number in wanted for figure in registry.figures(model, number)]
    return _speeds(_Known(registry), model, figures)


class _Known:
    """What is the same for all models of a registry, asked once."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.targets = {target.id: target for target in registry.targets()}
        self.require = {DEFAULT.name: DEFAULT.require} | {p.name: p.require for p in registry.policies()}


def _speeds(known: _Known, model: str, found: Iterable[VariantFigure]) -> Iterator[SpeedRow]:
    def place(figure: VariantFigure) -> tuple[int, str]:
        return -figure.number, figure.target

    figures = [figure for figure in found if figure.target in known.targets]
    bounds = _bounds(known, model, {figure.number for figure in figures})
    for (number, target), group in groupby(sorted(figures, key=place), key=place):
        yield _row(known.registry, list(group), known.targets[target], bounds.get(-number, ()))


def _bounds(known: _Known, model: str, numbers: set[int]) -> dict[int, tuple[str, ...]]:
    """Return the bounds of each version's policy by its number; none where no policy has any."""
    if not numbers or not any(known.require.values()):
        return {}
    versions = known.registry.versions(model, limit=max(numbers))
    return {version.number: known.require.get(version.policy, ()) for version in versions}


def _row(
    registry: Registry, figures: Sequence[VariantFigure], target: HardwareTarget, require: tuple[str, ...]
) -> SpeedRow:
    fresh = [figure for figure in figures if figure.state is FigureState.FRESH]
    usable = fresh or figures
    judged = require if fresh else ()  # what is stale answers nothing
    speeds = [
        (figure, _kept_speed(registry, figure.result, judged))  # type: ignore[arg-type] # an object is a key
        for figure in usable
    ]
    best, speed = min(speeds, key=lambda pair: (pair[1].p50 is None, pair[1].p50 or 0.0))
    most, fastest = max(speeds, key=lambda pair: pair[1].rate or 0.0)
    return SpeedRow(
        model=best.model,
        number=best.number,
        target=target,
        figure=best,
        speed=speed,
        most=most,
        rate=fastest.rate,
    )


def figure_speed(registry: Registry, result: str, require: tuple[str, ...] = ()) -> FigureSpeed:
    """Return the speed that a Result of a figure tells; nothing if it is no longer stored."""
    found = registry.result(result)
    if found is None:
        return FigureSpeed()
    latency = found.find("latency")
    times = latency.value if latency is not None and isinstance(latency.value, Distribution) else None
    verdicts = [found.judge(bound).verdict for bound in require]
    return FigureSpeed(
        p50=None if times is None or times.missing("p50") else times.statistic("p50"),
        p99=None if times is None or times.missing("p99") else times.statistic("p99"),
        p50_interval=None if times is None else times.interval("p50"),
        rate=next((found.number(name) for name in RATES if found.find(name) is not None), None),
        bounds=next((v for v in (Verdict.BROKEN, Verdict.UNDECIDED, Verdict.HELD) if v in verdicts), None),
    )


_kept_speed = lru_cache(maxsize=_KEPT)(figure_speed)
