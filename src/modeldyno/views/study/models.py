"""The best configurations over several models, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.report.blocks import Table, make_columns
from modeldyno.views.study.rows import BOUNDS, format_figure, format_point
from modeldyno.views.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.study.model_ranking import ModelRow


def models_table(rows: Sequence[ModelRow], models: int) -> Table:
    """Tabulate configurations of several models, the best first.

    Args:
        rows: as `rank_models` returns them; not empty.
        models: how many models were swept.
    """
    queries = rows[0].study.goal.queries
    bounds = BOUNDS if any(place.row.judgements for place in rows) else ()
    return Table(
        title=f"The best over {count(models, 'model')}; ± is half of the 95 % interval",
        columns=make_columns(
            ">", "configuration", *(f"{query}>" for query in queries), *bounds, "best in>", "at"
        ),
        rows=tuple(
            (
                str(place.rank),
                place.row.configuration,
                *(format_figure(place.study, place.row, query) for query in queries),
                *(str(place.row.verdict) for _ in bounds),
                f"{place.share:.0%}",
                format_point(place.row.point),
            )
            for place in rows
        ),
    )
