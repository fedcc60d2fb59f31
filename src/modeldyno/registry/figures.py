"""The figures of a model as they stand now: what has become stale is marked, and can be measured again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from modeldyno.base.job.version_name import VersionName
from modeldyno.registry.policies import readable_policies
from modeldyno.registry.records.policy import DEFAULT, REPEATS, profile_task
from modeldyno.registry.records.records import FigureState, VariantFigure
from modeldyno.registry.records.staleness import PROTOCOL, forbidding_doubts, stale_because
from modeldyno.registry.targets import decisive, engine_versions, known_target, software_here, target_here

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


def current_figures(registry: Registry, model: str, number: int | None = None) -> list[VariantFigure]:
    """Return the figures of a model, or of one version; what no longer holds is marked stale, for good.

    A target whose software is not known now, as no worker serves it and it is not this machine, is judged by
    age and rules alone.
    """
    figures = list(registry.figures(model, number))
    software = _software_by_target(registry, {figure.target for figure in figures})
    ages = _ages(registry, {figure.number for figure in figures}, model)
    checked = [_checked(figure, software, ages[figure.number]) for figure in figures]
    changed = [after for before, after in zip(figures, checked, strict=True) if after != before]
    if changed:
        registry.put_figures(changed)
    return checked


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


def _checked(
    figure: VariantFigure, software: Mapping[str, Mapping[str, Fact]], max_age: float
) -> VariantFigure:
    if figure.state is not FigureState.FRESH:
        return figure
    software_now = software.get(figure.target, figure.software)
    why = stale_because(figure, software_now, now=datetime.now(UTC), max_age=max_age)
    return figure if why is None else replace(figure, state=FigureState.STALE, why=why)


def _software_by_target(registry: Registry, targets: set[str]) -> dict[str, Mapping[str, Fact]]:
    by_target: dict[str, Mapping[str, Fact]] = {w.target: w.software for w in registry.workers()}
    here = known_target(target_here(), registry).id
    if here in targets:
        by_target[here] = software_here()
    return by_target


def _ages(registry: Registry, numbers: set[int], model: str) -> dict[int, float]:
    """Return the greatest age of a figure by the number of its version."""
    ages: dict[int, float] = {}
    policies = readable_policies(registry)
    for number in sorted(numbers):
        version = registry.version(VersionName(model=model, number=number))
        ages[version.number] = policies.get(version.policy, DEFAULT).max_age
    return ages
