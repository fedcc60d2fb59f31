"""Gather what the registry knows of a version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.registry.figures import current_figures
from modeldyno.registry.matrix import version_speeds
from modeldyno.registry.records.overview import MeasuredFigure, VersionOverview, VersionSpeed
from modeldyno.registry.records.records import OPEN, FigureState, TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from modeldyno.base.job.version_name import VersionName
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Task, Version, VersionMeasurement

_NUMBERS = 10
"""Versions that an overview lists."""
_MEASUREMENTS = 50
"""Documents that an overview lists besides the figures."""


def version_overview(registry: Registry, name: VersionName) -> VersionOverview:
    """Return what is known of a version.

    Raises:
        RequestError: there is none of this name.
    """
    version = registry.version(name)
    variants = tuple(registry.variants(version))
    figures = tuple(
        MeasuredFigure(figure=figure, result=registry.result(figure.result))
        for figure in current_figures(registry, version.model, version.number)
    )
    digests = tuple({version.digest, *(variant.digest for variant in variants if variant.digest)})
    measured_ids = {measured.figure.result for measured in figures}
    named = registry.aliases(version.model)
    numbers = tuple(v.number for v in registry.versions(version.model, limit=_NUMBERS))
    return VersionOverview(
        version=version,
        aliases=tuple(alias for alias, number in named.items() if number == version.number),
        numbers=numbers,
        variants=variants,
        figures=figures,
        targets=tuple(registry.targets()),
        tasks=tuple(registry.tasks(states=tuple(OPEN), model=version.model, number=version.number)),
        failed=tuple(_failed(registry, version, {measured.figure.key for measured in figures})),
        workers=len(registry.workers()),
        results=tuple(result for result in registry.results_of(digests) if result not in measured_ids),
        measurements=tuple(_measurements(registry, version, digests, measured_ids)),
        studies=tuple(registry.studies_of(digests)),
        speeds=tuple(_speeds(registry, version.model, numbers)) if len(numbers) > 1 else (),
    )


def _measurements(
    registry: Registry, version: Version, digests: Sequence[str], figures: Collection[str]
) -> Iterator[VersionMeasurement]:
    """Yield what was measured besides the figures, and the comparisons of tasks, which give none."""
    listed = registry.measurements(version, digests, limit=_MEASUREMENTS + len(figures))
    yield from [one for one in listed if one.document not in figures][:_MEASUREMENTS]


def _failed(registry: Registry, version: Version, measured_keys: set[str]) -> Iterator[Task]:
    """Yield the measurements of which nothing came; one that is to be done again has not failed yet."""
    tasks = registry.tasks(states=(*OPEN, TaskState.FAILED), model=version.model, number=version.number)
    again = {task.key for task in tasks if task.state in OPEN}
    for task in tasks:
        if (
            task.state is TaskState.FAILED
            and task.measure is not None
            and task.key not in measured_keys | again
        ):
            yield task


def _speeds(registry: Registry, model: str, numbers: Sequence[int]) -> Iterator[VersionSpeed]:
    """Yield the best fresh figures of versions."""
    for row in version_speeds(registry, model, numbers):
        fresh = row.figure.state is FigureState.FRESH
        yield VersionSpeed(
            number=row.number,
            target=row.target.id,
            p50=row.speed.p50 if fresh else None,
            p99=row.speed.p99 if fresh else None,
            seen=row.speed.seen if fresh else (None, None),
            rate=row.rate if fresh else None,
            state=row.figure.state,
        )
