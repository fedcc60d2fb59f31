"""Gather what the registry knows of a version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.registry.overview import MeasuredFigure, VersionOverview
from modeldyno.core.registry.records import OPEN
from modeldyno.registry.figures import current_figures

if TYPE_CHECKING:
    from modeldyno.core.registry.names import VersionName
    from modeldyno.interfaces.registry import Registry

_NUMBERS = 10
"""Versions that an overview lists."""


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
    shown = {measured.figure.result for measured in figures}
    named = registry.aliases(version.model)
    return VersionOverview(
        version=version,
        aliases=tuple(alias for alias, number in named.items() if number == version.number),
        numbers=tuple(v.number for v in registry.versions(version.model, limit=_NUMBERS)),
        variants=variants,
        figures=figures,
        targets=tuple(registry.targets()),
        tasks=tuple(registry.tasks(states=tuple(OPEN), model=version.model, number=version.number)),
        workers=len(registry.workers()),
        results=tuple(result for result in registry.results_of(digests) if result not in shown),
        studies=tuple(registry.studies_of(digests)),
    )
