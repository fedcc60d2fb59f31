"""How fast each registered model is on each target: its newest measured version in its best variant.

A figure that no longer holds is stale here, too, whether or not somebody has marked it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.registry.figures import StalenessCheck
from modeldyno.registry.policies import readable_policies
from modeldyno.registry.records.answer import RATES
from modeldyno.registry.records.overview import FigureSpeed, SpeedRow
from modeldyno.registry.records.records import FigureState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import HardwareTarget, VariantFigure

_KEPT = 4096
"""Results whose speeds are kept in memory; a stored Result does not change."""


def newest_speeds(
    registry: Registry, models: Iterable[str], check: StalenessCheck | None = None
) -> Iterator[SpeedRow]:
    """Yield a row for each target of each model, for the newest version that was measured there.

    Args:
        registry: with the figures.
        models: their names.
        check: one that was made for the same reading of the registry; None makes one.
    """
    cache, names = _Known(registry, check), tuple(models)
    figures = registry.figures_of(names)
    for model in names:
        target_ids: set[str] = set()
        for row in _speeds(cache, model, figures.get(model, ())):
            if row.target.id not in target_ids:
                target_ids.add(row.target.id)
                yield row


def version_speeds(
    registry: Registry, model: str, numbers: Iterable[int] | None = None
) -> Iterator[SpeedRow]:
    """Yield a row for each version and target of a model, the newest version first.

    `numbers` are those of the versions; None is all.
    """
    chosen = (None,) if numbers is None else numbers
    figures = [figure for number in chosen for figure in registry.figures(model, number)]
    return _speeds(_Known(registry), model, figures)


class _Known:
    """What is the same for all models of a registry, asked once."""

    def __init__(self, registry: Registry, check: StalenessCheck | None = None) -> None:
        self.registry = registry
        self.targets = {target.id: target for target in registry.targets()}
        self.check = check or StalenessCheck(registry)
        self.require = {name: policy.require for name, policy in readable_policies(registry).items()}


def _speeds(cache: _Known, model: str, variant_figures: Iterable[VariantFigure]) -> Iterator[SpeedRow]:
    def place(figure: VariantFigure) -> tuple[int, str]:
        return -figure.number, figure.target

    figures = [cache.check(figure) for figure in variant_figures if figure.target in cache.targets]
    bounds = _bounds(cache, model, {figure.number for figure in figures})
    for (number, target), group in groupby(sorted(figures, key=place), key=place):
        yield _row(cache.registry, list(group), cache.targets[target], bounds.get(-number, ()))


def _bounds(cache: _Known, model: str, numbers: set[int]) -> dict[int, tuple[str, ...]]:
    """Return the bounds of each version's policy by its number; none where no policy has any."""
    if not numbers or not any(cache.require.values()):
        return {}
    versions = cache.registry.versions(model, limit=max(numbers))
    return {version.number: cache.require.get(version.policy, ()) for version in versions}


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
    figure = registry.result(result)
    if figure is None:
        return FigureSpeed()
    latency = figure.find("latency")
    times = latency.value if latency is not None and isinstance(latency.value, Distribution) else None
    observed = times if times is not None and not times.void else None
    verdicts = [figure.judge(bound).verdict for bound in require]
    return FigureSpeed(
        p50=None if times is None else times.certified("p50"),
        p99=None if times is None else times.certified("p99"),
        seen=(None, None) if observed is None else (observed.statistic("p50"), observed.statistic("p99")),
        p50_interval=None if times is None else times.interval("p50"),
        rate=next((figure.number(name) for name in RATES if figure.find(name) is not None), None),
        bounds=next((v for v in (Verdict.BROKEN, Verdict.UNDECIDED, Verdict.HELD) if v in verdicts), None),
    )


_kept_speed = lru_cache(maxsize=_KEPT)(figure_speed)
