"""The figures of models as they stand now: what has become stale is seen at each read, and measured again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from modeldyno.base.job.version_name import VersionName
from modeldyno.registry.policies import readable_policies
from modeldyno.registry.records.policy import DEFAULT, REPEATS, profile_task
from modeldyno.registry.records.records import FigureState, VariantFigure
from modeldyno.registry.records.staleness import PROTOCOL, forbidding_doubts, stale_because
from modeldyno.registry.targets import decisive, engine_versions, known_target, software_here, target_here

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from modeldyno.base.result.result import Result
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Fact, Task


def figure_of(task: Task, result: Result) -> VariantFigure:
    """Make the figure of a task of its Result: fresh, doubtful or failed."""
    assert task.measure is not None
    doubts = forbidding_doubts(result.doubts)
    if result.failure is not None:
        state, why = FigureState.FAILED, f"{result.failure.where}: {result.failure.message}"
    elif doubts:
        state, why = FigureState.DOUBTFUL, "; ".join(doubt.seen for doubt in doubts)
    else:
        state, why = FigureState.FRESH, ""
    return VariantFigure(
        key=task.key,
        model=task.model,
        number=task.number,
        recipe=task.recipe,
        target=task.target,
        measure=task.measure,
        result=result.id,
        taken=result.created,
        software=decisive(result.environment.software, result.job.backend)
        | engine_versions(result.job.backend),
        protocol=PROTOCOL,
        state=state,
        why=why,
    )


class StalenessCheck:
    """Says how figures stand now, by what is the same for all of them and asked once.

    A target whose software is not known now, as no worker serves it and it is not this machine, is judged by
    age and rules alone.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._ages_of_versions: dict[VersionName, float] = {}

    def __call__(self, figure: VariantFigure) -> VariantFigure:
        """Return the figure; a fresh one that no longer holds as a stale one that says why."""
        if figure.state is not FigureState.FRESH:
            return figure
        software_now = self._software.get(figure.target, figure.software)
        why = stale_because(figure, software_now, now=datetime.now(UTC), max_age=self._max_age(figure))
        return figure if why is None else replace(figure, state=FigureState.STALE, why=why)

    @cached_property
    def _software(self) -> Mapping[str, Mapping[str, Fact]]:
        """By the ids of the targets."""
        here = known_target(target_here(), self._registry).id
        by_worker: dict[str, Mapping[str, Fact]] = {w.target: w.software for w in self._registry.workers()}
        return {**by_worker, here: software_here()}

    @cached_property
    def _ages(self) -> dict[str, float]:
        """The greatest age of a figure, in seconds, by policy."""
        policies = {DEFAULT.name: DEFAULT, **readable_policies(self._registry)}
        return {name: policy.max_age for name, policy in policies.items()}

    def _max_age(self, figure: VariantFigure) -> float:
        """Return the greatest age, in seconds, by the policy of the figure's version."""
        if len(ages := set(self._ages.values())) == 1:  # no version needs to be read
            return ages.pop()
        name = VersionName(model=figure.model, number=figure.number)
        if name not in self._ages_of_versions:
            policy = self._registry.version(name).policy
            self._ages_of_versions[name] = self._ages.get(policy, DEFAULT.max_age)
        return self._ages_of_versions[name]


def current_figures(registry: Registry, model: str, number: int | None = None) -> list[VariantFigure]:
    """Return the figures of a model, or of one version; what no longer holds is marked stale, for good."""
    figures = list(registry.figures(model, number))
    checked = list(map(StalenessCheck(registry), figures))
    changed = [after for before, after in zip(figures, checked, strict=True) if after != before]
    if changed:
        registry.put_figures(changed)
    return checked


def old_figures(
    registry: Registry, targets: Iterable[str], *, limit: int, check: StalenessCheck | None = None
) -> list[VariantFigure]:
    """Return the figures of targets that are stale by now, and those that are doubtful.

    Args:
        registry: with the figures.
        targets: their ids.
        limit: figures in each state that are read of each target; of the fresh ones, the oldest.
        check: one that was made for the same reading of the registry; None makes one.
    """
    check = check or StalenessCheck(registry)
    figures = (
        check(figure)
        for target in targets
        for state in (FigureState.STALE, FigureState.FRESH, FigureState.DOUBTFUL)
        for figure in registry.figures_on(target, state, limit=limit, oldest=state is FigureState.FRESH)
    )
    return [figure for figure in figures if figure.state is not FigureState.FRESH]


def repeat_tasks(registry: Registry, target: str) -> Iterator[Task]:
    """Yield the tasks that measure again what has become stale on a target, after marking it."""
    models = {(figure.model) for figure in registry.figures_on(target, FigureState.FRESH)}
    for model in sorted(models):
        current_figures(registry, model)
    for figure in registry.figures_on(target, FigureState.STALE):
        version = registry.version(VersionName(model=figure.model, number=figure.number))
        variants = {v.recipe: v for v in registry.variants(version)}
        variant = variants.get(figure.recipe)
        if variant is not None and variant.usable:
            yield profile_task(variant, figure.measure, target, priority=REPEATS)
