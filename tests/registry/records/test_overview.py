from __future__ import annotations

from dataclasses import replace

from tests.support.sample_registry import a_figure, a_task, a_variant, a_version

from modeldyno.registry.records.overview import MeasuredFigure, VersionOverview
from modeldyno.registry.records.records import FigureState, VariantState


def test_an_overview_counts_what_may_answer() -> None:
    """Variants that are still the model, and figures that are fresh."""
    version = a_version()
    fresh = a_figure(a_task(version))
    figures = (fresh, replace(fresh, state=FigureState.STALE), replace(fresh, state=FigureState.FRESH))
    overview = VersionOverview(
        version=version,
        aliases=(),
        numbers=(1,),
        variants=tuple(
            a_variant(version, state=state)
            for state in (VariantState.AGREES, VariantState.CLOSE, VariantState.DIFFERS)
        ),
        figures=tuple(MeasuredFigure(figure=figure, result=None) for figure in figures),
        targets=(),
        tasks=(),
        workers=0,
        results=(),
        studies=(),
    )

    assert (overview.usable, overview.fresh) == (2, 2)
