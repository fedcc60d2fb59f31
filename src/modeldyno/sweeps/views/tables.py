"""Tables of the trials of a study, and of what studies found over several models."""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING

from modeldyno.base.job.devices import is_cpu
from modeldyno.base.metrics.constraints import Verdict, worst_verdict
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import COSTS, Query
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.blocks import Table, clean, make_table, shorten
from modeldyno.base.result.result import KINDS, Environment, FailureKind
from modeldyno.base.stats.units import format_estimate
from modeldyno.base.views.text import (
    UNCERTIFIED,
    count,
    estimate,
    estimate_with_half_width,
    exact_text,
    factor,
    format_ends,
    format_knob_value,
    join_nonempty,
    shorten_text,
)
from modeldyno.serving.views.replicas import money
from modeldyno.sweeps.study.pooled_estimate import estimate as estimated
from modeldyno.sweeps.study.pooled_estimate import judge_candidate, shown_estimate
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.study.study import LOADS, TrialState, configuration_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.metrics.constraints import Answer, Constraint, Judgement
    from modeldyno.sweeps.study.pooled_estimate import Estimate
    from modeldyno.sweeps.study.ranking import ModelRow, RankedConfiguration, Ranking
    from modeldyno.sweeps.study.study import Candidate, Study, Trial

_FIRST, _PLACE = ("trial", "configuration", "stage", "state"), ("rank", "best_in", "gain")
_WHERE = ("model", "device", "device_uuid", "instance_group")
USUAL_COLUMNS = (*_WHERE, *LOADS, "batch_size", "max_batch", "bounds")
"""Columns of trials that a study may lack, as it has no such axis, setting or bound."""
_LAST = ("seconds", "doubts", "kind", "failure", "result")
_TEXTS = {*_WHERE, "configuration", "stage", "state", "doubts", "kind", "failure", "result"}
_LONGEST_REASON = 1000
"""Most characters of a failure."""


def numbers(study: Study, ranked: Ranking | None = None) -> Table:
    """Tabulate the trials: where, point, settings, measurements with both ends, verdicts on bounds, rank."""
    ranked = ranked or ranking(study)
    names = (*(axis.name for axis in study.space.axes), *(name for t in study.trials for name in t.point))
    axes = tuple(dict.fromkeys((*names, *study.settings)))
    answered = (answer.query for trial in study.trials for answer in trial.answers)
    queries = tuple(q for q in dict.fromkeys((*study.goal.queries, *answered)) if str(q) not in axes)
    bounds = (*map(str, study.goal.constraints), *(BOUNDS if study.goal.constraints else ()))
    figures = (f"{query}{end}" for query in queries for end in ("", ".low", ".high"))
    places = {key(row.point): row for row in ranked.rows}
    texts = {*_TEXTS, *axes, *bounds}
    titles = (*_FIRST, *_WHERE, *axes, *figures, *bounds, *_PLACE, *_LAST)
    return make_table(
        "Trials",
        (f"{title}?" if title in _WHERE else title if title in texts else f"{title}>" for title in titles),
        (
            (
                *(str(trial.number), configuration_label(study, trial.point)),
                *(str(trial.stage), str(trial.state)),
                *_where(study, trial),
                *(_cell({**study.settings, **study.resolved(trial.point)}, name) for name in axes),
                *(cell for query in queries for cell in _figures(trial.ask(query))),
                *(_verdict(trial, bound) for bound in study.goal.constraints),
                *(str(worst_verdict(trial.judgements)) for _ in study.goal.constraints[:1]),
                *_place(places.get(key(trial.point))),
                *(exact_text(trial.seconds), " ".join(trial.doubts), trial.kind),
                *(shorten(trial_failure(trial), _LONGEST_REASON), trial.result),
            )
            for trial in study.trials
        ),
    )


def _where(study: Study, trial: Trial) -> tuple[str, str, str, str]:
    """Return the model, the device with its UUID, and the instances of a server by their kind: ``4:GPU``."""
    environment = study.environment or Environment()
    device = str({**study.settings, **trial.point}.get("device", environment.device))
    instances = trial.ask(INSTANCES)
    group = ""
    if instances is not None and instances.value is not None:
        group = f"{instances.value:g}:{'CPU' if is_cpu(device) else 'GPU'}"
    model = study.name or str(study.job.model)
    return model, device, str(environment.conditions.get("device_uuids", "")), group


INSTANCES = Query(metric="instances")


def _cell(point: Mapping[str, KnobValue], name: str) -> str:
    return format_knob_value(point[name]) if name in point else ""


def _figures(answer: Answer | None) -> tuple[str, str, str]:
    if answer is None:
        return "", "", ""
    ends = answer.interval
    value = exact_text(answer.value)
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
    queries = shown_queries(rows[0].study)
    bounds = BOUNDS if any(place.row.judgements for place in rows) else ()
    return make_table(
        f"The best over {count(models, 'model')}; ± is half of the 95 % interval{_priced(rows[0].study)}",
        (">", "configuration", *(f"{query}>" for query in queries), *bounds, "best in>", "at"),
        (
            (
                str(place.rank),
                place.row.configuration,
                *(format_figure(place.study, place.row, query) for query in queries),
                *(str(place.row.verdict) for _ in bounds),
                f"{place.share:.0%}",
                format_point(place.study.resolved(place.row.point)),
            )
            for place in rows
        ),
    )


_NONE, _DEFAULT = "—", "default"
BOUNDS = ("bounds",)
"""Title of the column that says whether the bounds hold."""
_PAGE = 73
"""Most characters of all columns but the last on a narrow page."""
_REASONS, _REASON = 6, 240
"""Most failure reasons that are shown, and most characters of each."""


def format_point(values: Mapping[str, KnobValue]) -> str:
    """Format a point as settings: ``instances=2, concurrency=16``."""
    return ", ".join(f"{clean(name)}={format_knob_value(value)}" for name, value in values.items())


def shown_queries(study: Study) -> tuple[Query, ...]:
    """Return the queries that every table of a study shows: those of the goal, and the costs at its price."""
    if study.goal.price is None:
        return study.goal.queries
    answered = {answer.query for trial in study.trials for answer in trial.answers}
    costs = (query for name in COSTS if (query := Query(metric=name)) in answered)
    return tuple(dict.fromkeys((*study.goal.queries, *costs)))


def _priced(study: Study) -> str:
    """Say in a title what a cost is of, where there is a price."""
    price = study.goal.price
    if price is None:
        return ""
    names = [query.metric for query in shown_queries(study) if query.metric in COSTS]
    of = {"cost": "a million inferences", "token_cost": "a million tokens"}
    meaning = " and ".join(f"{name} is of {of[name]}" for name in names)
    return f"; {meaning} at {money(price.per_hour, price)} per hour" if meaning else ""


# --- the best --------------------------------------------------------------------------------------


def best_table(study: Study, ranked: Ranking, top: int) -> Table:
    """Tabulate the best configurations at their best load, and the default, by the axes that vary.

    Each axis is a column if they fit a narrow page; otherwise they are one text column.
    """
    rows = [row for row in ranked.rows if not row.failure][:top]
    if ranked.default is not None and not ranked.default.failure and ranked.default not in rows:
        rows.append(ranked.default)
    names = [
        axis.name
        for axis in study.space.axes
        if axis.name in study.loads
        or len({format_setting(study.resolved(row.point), axis.name) for row in rows}) > 1
    ]
    several = f"The best of {count(ranked.configurations, 'configuration')}, and the default"
    title = several if ranked.configurations > 1 else "The configuration at its best load"
    title = f"{title}; ± is half of the 95 % interval{_priced(study)}"
    is_seen_only = any(value is not None and not value.certified for row in rows for value in row.objectives)
    is_judged_only = any(_is_uncertified(row, query) for row in rows for query in study.goal.queries)
    marks = [UNCERTIFIED] * is_seen_only + ["a range, > or <"] * is_judged_only
    title += f"; {', '.join(marks)}: of too few samples" if marks else ""
    apart, together = (
        make_table(title, *_best(study, ranked, rows, names, together=one)) for one in (False, True)
    )
    return apart if _width(apart) <= _PAGE else together


def _best(
    study: Study,
    ranked: Ranking,
    rows: Sequence[RankedConfiguration],
    names: Sequence[str],
    *,
    together: bool,
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the titles and the cells of the best rows."""
    axes = () if together else tuple(names)
    gains = ("gain",) if any(row.gain is not None for row in rows) else ()
    bounds = BOUNDS if study.goal.constraints else ()
    queries = shown_queries(study)
    figures = (f"{title}>" for title in (*axes, *queries))
    shares = (f"{title}>" for title in (*gains, "best in"))
    titles = (">", "", *figures, *bounds, *shares, "at" if together else "")
    cells = [
        (
            str(row.rank),
            configuration_tag(row),
            *(format_setting(study.resolved(row.point), name) for name in axes),
            *(format_figure(study, row, query) for query in queries),
            *(str(row.verdict) for _ in bounds),
            *(_gain(row) for _ in gains),
            f"{row.share:.0%}",
            _row_text(study, row, names, _remark(study, ranked, row))
            if together
            else _remark(study, ranked, row),
        )
        for row in rows
    ]
    return titles, cells


def configuration_tag(row: RankedConfiguration) -> str:
    """Return the number of a row's configuration as commands take it after a study: ``#3``.

    That of the default is not shown: its row says that it is the default.
    """
    return "" if row.default or not row.configuration else f"#{row.configuration.rpartition('_')[2]}"


def _width(table: Table) -> int:
    """Return the width of a table without its last column, with two characters between columns."""
    lines = ([column.title for column in table.columns], *table.rows)
    return sum(2 + max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1])


def configuration_load_table(study: Study, row: RankedConfiguration) -> Iterator[Table]:
    """Tabulate a configuration under each of its loads, if there are several."""
    mine = study.configuration(row.point)
    there = [c for c in study.candidates.values() if study.configuration(c.point) == mine and not c.failed]
    names = [axis.name for axis in study.space.axes if axis.name in study.loads]
    there.sort(key=lambda each: [float(study.resolved(each.point).get(name, 0)) for name in names])
    if len(there) < _FEW or not names:
        return
    bounds = BOUNDS if study.goal.constraints else ()
    queries = shown_queries(study)
    yield make_table(
        f"{format_point(mine)} under each load" if mine else "Under each load",
        (*(f"{title}>" for title in (*names, *queries)), *bounds, ""),
        (
            (
                *(format_setting(study.resolved(candidate.point), name) for name in names),
                *(_under(study, candidate, query) for query in queries),
                *(str(worst_verdict(judge_candidate(study, candidate))) for _ in bounds),
                "best" if candidate.point == row.point else "",
            )
            for candidate in there
        ),
    )


_FEW = 2


def _under(study: Study, candidate: Candidate, query: Query) -> str:
    """Format the pooled value of all trials of a candidate, or what bounds it."""
    pooled = estimated(study, candidate, query)
    if pooled is not None:
        ends = Interval(low=pooled.low, high=pooled.high)
        return estimate_with_half_width(pooled.value, ends, query.unit)
    judged = (each for each in judge_candidate(study, candidate) if each.constraint.query == query)
    return next(map(_judged_value, judged), _NONE)


def best_by_load_table(study: Study, ranked: Ranking) -> Table:
    """Tabulate the best configuration of each load."""
    names = [axis.name for axis in study.space.axes if axis.name in study.loads]
    bounds = BOUNDS if study.goal.constraints else ()
    queries = shown_queries(study)
    cells = (
        (
            configuration_tag(row),
            *(format_setting(study.resolved(row.point), name) for name in names),
            *(format_figure(study, row, query) for query in queries),
            *(str(row.verdict) for _ in bounds),
            _gain(row),
            f"{at_load.near_best:.0%}",
            _row_text(study, row, list(study.configuration(row.point)), _remark(study, at_load, row)),
        )
        for at_load in ranked.each
        for row in at_load.rows[:1]
    )
    titles = (f"{title}>" for title in (*names, *queries))
    columns = ("", *titles, *bounds, "gain>", "certain>", "configuration")
    return make_table("The best at each load", columns, cells)


def format_setting(point: Mapping[str, KnobValue], name: str) -> str:
    """Format the value of a knob in a point, if it has one."""
    return format_knob_value(point[name]) if name in point else _NONE


def _row_text(study: Study, row: RankedConfiguration, names: Sequence[str], remark: str) -> str:
    """Format the knobs of a row with its remark; the default is named first."""
    point = study.resolved(row.point)
    knobs = format_point({name: point[name] for name in names if name in point})
    note = remark.removeprefix(_DEFAULT).removeprefix(", ")
    text = knobs + (f" ({note})" if note else "")
    return f"{_DEFAULT}: {text}" if row.default and text else remark if row.default else text


def format_figure(study: Study, row: RankedConfiguration, query: Query) -> str:
    """Format a value with half of its interval, or what bounds it."""
    for objective, value in zip(study.goal.objectives, row.objectives, strict=True):
        if objective.query == query and value is not None:
            return _estimate_text(value, query.unit)
    judged = (judgement for judgement in row.judgements if judgement.constraint.query == query)
    if query not in study.goal.queries:
        return format_shown(study, study.candidates[key(row.point)], query) or _NONE
    return next(map(_judged_value, judged), _NONE)


def format_shown(study: Study, candidate: Candidate, query: Query) -> str:
    """Format the one value of a candidate that every view shows; empty if there is none.

    A percentile that is not certified is marked.
    """
    if (shown := shown_estimate(study, candidate, query)) is None:
        return ""
    text = format_estimate(shown.value, shown.low, shown.high, query.unit)[0]
    return text if shown.certified else f"{UNCERTIFIED}{text}"


def _is_uncertified(row: RankedConfiguration, query: Query) -> bool:
    """Return whether a bound was judged by the interval alone, as the percentile is not certified."""
    return any(
        judgement.constraint.query == query
        and judgement.answer.value is None
        and judgement.answer.interval is not None
        for judgement in row.judgements
    )


def _judged_value(judgement: Judgement) -> str:
    """Format the judged value, or what bounds it if it is uncertified."""
    answer, bounds = judgement.answer, judgement.answer.bounds()
    if answer.value is not None:
        return estimate_with_half_width(answer.value, bounds, answer.query.unit)
    return format_ends(bounds.low, bounds.high, answer.query.unit) or _NONE


def _estimate_text(value: Estimate, unit: str) -> str:
    """Format an estimate with half of its interval; one that is not certified is marked, and has none."""
    if value.certified:
        return estimate_with_half_width(value.value, Interval(low=value.low, high=value.high), unit)
    return f"{UNCERTIFIED}{estimate(value.value, Interval(low=value.low, high=value.high), unit)[0]}"


def _gain(row: RankedConfiguration) -> str:
    """Format the gain of a row over the default as a factor."""
    gain = row.gain
    if row.default or gain is None:
        return _NONE
    if not isfinite(gain.times):
        return "∞"
    return f"{factor(gain.times)}x" if gain.times >= 1 else f"{gain.times:.2f}x"


def _remark(study: Study, ranked: Ranking, row: RankedConfiguration) -> str:
    """Return remarks on a row: default, cheapest, failed, missed bounds."""
    return join_nonempty(
        _DEFAULT if row.default else "",
        cheaper_word(study) if row == ranked.cheaper else "",
        "failed" if row.failure else "",
        miss_text(row) if not row.feasible and _LEAST < row.miss < inf else "",
    )


def cheaper_word(study: Study) -> str:
    """Return the word for a row that needs less; where a price is known, cheaper is a matter of money."""
    return "cheaper" if study.goal.price is None else "smaller"


def miss_text(row: RankedConfiguration) -> str:
    """Tell by how much a row misses its bounds and, of several, which ones it breaks."""
    broken = [str(j.constraint.query) for j in row.judgements if j.verdict is Verdict.BROKEN]
    which = f"{' and '.join(broken)} " if broken and len(row.judgements) > 1 else ""
    return f"misses {which}by {format_miss(row.miss)}"


def format_miss(miss: float) -> str:
    """Format by which share bounds are missed."""
    return "all of it" if miss == inf else f"{miss:.1%}" if miss < _TENTH else f"{miss:.0%}"


_LEAST, _TENTH = 0.0005, 0.1


# --- what could not be measured --------------------------------------------------------------------

UNMEASURED = "What could not be measured"


def failure_tables(study: Study) -> Iterator[Table]:
    """Tabulate the skipped and failed trials by reason, with an example of each."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in study.trials:
        if trial.state is not TrialState.DONE:
            groups.setdefault((_failure_kind(trial), shorten_text(trial_failure(trial), _REASON)), []).append(
                trial
            )
    rows = [
        (
            str(len(trials)),
            how,
            f"{why} ({'such as' if len(trials) > 1 else 'at'} {_trial_point(study, trials[0])})",
        )
        for (how, why), trials in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
    others = sum(int(row[0]) for row in rows[_REASONS:])
    if others:
        rows[_REASONS:] = [(str(others), "others", "--json FILE, or -o FILE.csv, has them all")]
    if rows:
        yield make_table(UNMEASURED, (">", "", "why"), rows)


def trial_failure(trial: Trial) -> str:
    """Return why a trial has no measurement."""
    return spell_for_command_line(trial.failure)


def _failure_kind(trial: Trial) -> str:
    if trial.state is TrialState.SKIPPED:
        return "skipped"
    is_known = trial.kind in set(FailureKind)
    return f"failed: {KINDS[FailureKind(trial.kind)]}" if is_known else "failed"


def _trial_point(study: Study, trial: Trial) -> str:
    return format_point(study.resolved(trial.point)) or "the default"
