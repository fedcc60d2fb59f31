"""Tables of the trials of a study, and of what studies found over several models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.report.blocks import Table, make_columns, shorten
from modeldyno.core.study.ranking import ranking
from modeldyno.core.study.search_space import key
from modeldyno.core.study.study import configuration_label
from modeldyno.views.study.rows import BOUNDS, format_figure, format_point, trial_failure
from modeldyno.views.text import count, exact_text, format_knob_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.metrics.constraints import Answer, Constraint
    from modeldyno.core.study.ranking import ModelRow, RankedConfiguration, Ranking
    from modeldyno.core.study.study import Study, Trial

_FIRST, _PLACE = ("trial", "configuration", "stage", "state"), ("rank", "best_in", "gain")
_LAST = ("seconds", "doubts", "kind", "failure", "result")
_TEXTS = {"configuration", "stage", "state", "doubts", "kind", "failure", "result"}
_REASON, _NAME, _TOLD = 1000, 18, 72
"""Most characters of a failure, of a name, and of a summary."""


def numbers(study: Study, ranked: Ranking | None = None) -> Table:
    """Tabulate the trials: point, measurements with both ends, verdicts on bounds, rank."""
    ranked = ranked or ranking(study)
    names = (*(axis.name for axis in study.space.axes), *(name for t in study.trials for name in t.point))
    axes = tuple(dict.fromkeys(names))
    answered = (answer.query for trial in study.trials for answer in trial.answers)
    queries = tuple(dict.fromkeys((*study.goal.queries, *answered)))
    bounds = tuple(map(str, study.goal.constraints))
    figures = (f"{query}{end}" for query in queries for end in ("", ".low", ".high"))
    places = {key(row.point): row for row in ranked.rows}
    texts = {*_TEXTS, *axes, *bounds}
    titles = (*_FIRST, *axes, *figures, *bounds, *_PLACE, *_LAST)
    return Table(
        title="Trials",
        columns=make_columns(*(title if title in texts else f"{title}>" for title in titles)),
        rows=tuple(
            (
                *(str(trial.number), configuration_label(study, trial.point)),
                *(str(trial.stage), str(trial.state)),
                *(format_knob_value(trial.point[name]) if name in trial.point else "" for name in axes),
                *(cell for query in queries for cell in _figures(trial.ask(query))),
                *(_verdict(trial, bound) for bound in study.goal.constraints),
                *_place(places.get(key(trial.point))),
                *(exact_text(trial.seconds), " ".join(trial.doubts), trial.kind),
                *(shorten(trial_failure(trial), _REASON), trial.result),
            )
            for trial in study.trials
        ),
    )


def _figures(answer: Answer | None) -> tuple[str, str, str]:
    if answer is None:
        return "", "", ""
    ends = answer.interval
    value = "" if answer.value is None else exact_text(answer.value)
    return (value, "", "") if ends is None else (value, exact_text(ends.low), exact_text(ends.high))


def _verdict(trial: Trial, bound: Constraint) -> str:
    return next((str(j.verdict) for j in trial.judgements if j.constraint == bound), "")


def _place(row: RankedConfiguration | None) -> tuple[str, str, str]:
    if row is None:
        return "", "", ""
    return str(row.rank), exact_text(row.share), "" if row.gain is None else exact_text(row.gain.times)


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
