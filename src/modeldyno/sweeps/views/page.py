"""Lay out a study as a page: the answer, curves, the effect of each knob, every configuration, details."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.job.devices import is_cpu
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Block, Heading, Notice, Table, make_table, note
from modeldyno.base.report.charts import Parallel, Stack
from modeldyno.base.result.result import Environment
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.base.views.text import count
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.profiling.views.result import page as result_page
from modeldyno.profiling.views.result.charts import draw_request_stages
from modeldyno.profiling.views.result.provenance import join_facts
from modeldyno.profiling.views.result.served import STAGE_NAMES
from modeldyno.sweeps.study.pooled_estimate import shown_value
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.views import blocks as study_blocks
from modeldyno.sweeps.views.charts import best_and_default, candidates_by_load, charts, configuration_name
from modeldyno.sweeps.views.configurations import configuration_page, configuration_rows, load_table, plots_of
from modeldyno.sweeps.views.sweep_command import sweep_command
from modeldyno.sweeps.views.tables import (
    BOUNDS,
    INSTANCES,
    UNMEASURED,
    format_point,
    format_setting,
    format_shown,
    miss_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.sweeps.study.ranking import RankedConfiguration, Ranking
    from modeldyno.sweeps.study.study import Candidate, Study

_TOP, _EVERY = 10, 200
"""Most rows of the table of the best, and of that of every configuration."""
_EXTRA_QUERIES = {
    "p99 latency": Query(metric="latency", statistic="p99"),
    "throughput": Query(metric="throughput"),
    "cost": Query(metric="cost"),
    "memory": Query(metric="process_memory", statistic="max"),
    "device memory": Query(metric="device_memory", statistic="max"),
    "device use": Query(metric="gpu_utilization", statistic="mean"),
}
"""Metrics that are shown of every configuration, if measured."""


def page(study: Study, options: ViewOptions = PLAIN, ranked: Ranking | None = None) -> Iterator[Block]:
    """Lay out a study as a page."""
    ranked = ranked or ranking(study)
    if options.configurations:
        yield from _some_configurations(study, ranked, options)
        return
    blocks = list(study_blocks.blocks(study, replace(options, top=_TOP, verbose=True), ranked))
    drawn = list(charts(study, ranked))
    curves = [picture for picture in drawn if picture.title.endswith(" against latency")]
    across = [picture for picture in drawn if isinstance(picture, Parallel)]
    yield from (block for block in blocks if isinstance(block, Notice))
    tables = [block for block in blocks if isinstance(block, Table) and block.title != UNMEASURED]
    if curves or tables:
        yield Heading(title="The best configurations")
    yield from curves[:1]
    yield from tables
    yield from curves[1:]
    if effects := [picture for picture in drawn if picture not in curves and picture not in across]:
        yield Heading(title="What each knob does")
        yield from effects
        yield from across
    if chosen := options.plots or study.plots:
        yield Heading(title="Chosen charts")
        yield from plots_of(study, best_and_default(ranked), chosen, options, required=bool(options.plots))
    if ranked.rows:
        yield Heading(title="Every configuration", folded=True)
        yield from all_configurations(study, ranked)
    yield from (block for block in blocks if isinstance(block, Table) and block.title == UNMEASURED)
    for row in best_and_default(ranked):
        yield from _winner(study, row, options)
    yield from _how_measured(study, ranked)


# --- every configuration ---------------------------------------------------------------------------


def all_configurations(study: Study, ranked: Ranking) -> Iterator[Block]:
    """Tabulate each configuration at its best load, and whether it holds the bounds."""
    rows = ranked.rows[:_EVERY]
    axes = [axis.name for axis in study.space.axes]
    goal_queries = {str(query): query for query in study.goal.queries}
    queries = goal_queries | {
        name: query for name, query in _EXTRA_QUERIES.items() if query not in goal_queries.values()
    }
    bounds = BOUNDS if study.goal.constraints else ()
    yield make_table(
        "Each at its best load",
        (">", "configuration", *(f"{name}>" for name in axes), *(f"{name}>?" for name in queries), *bounds),
        (
            (
                str(row.rank),
                row.configuration,
                *(format_setting(study.resolved(row.point), name) for name in axes),
                *(_value(study, row, query) for query in queries.values()),
                *(_bounds_text(row) for _ in bounds),
            )
            for row in rows
        ),
    )
    if more := len(ranked.rows) - len(rows):
        yield note(f"{count(more, 'more configuration')}; a report as .csv has every trial")


def _value(study: Study, row: RankedConfiguration, query: Query) -> str:
    return format_shown(study, study.candidates[key(row.point)], query) or "—"


def _bounds_text(row: RankedConfiguration) -> str:
    if row.failure:
        return "failed"
    return f"{row.verdict}, {miss_text(row)}" if row.verdict is Verdict.BROKEN and row.miss else row.verdict


# --- one configuration in detail -------------------------------------------------------------------


def _some_configurations(study: Study, ranked: Ranking, options: ViewOptions) -> Iterator[Block]:
    """Lay out named configurations alone, each in detail."""
    rows = configuration_rows(study, ranked, options.configurations)
    yield from configuration_page(study, rows, options)
    for row in rows:
        yield from _winner(study, row, options)
    yield from _how_measured(study, ranked)


def _winner(study: Study, row: RankedConfiguration, options: ViewOptions) -> Iterator[Block]:
    """Lay out a configuration in detail: its loads, their latency breakdown, and its Result."""
    if options.configurations:
        title = f"{row.configuration} in detail"
    else:
        title = "The default in detail" if row.default else f"Rank {row.rank} in detail"
    yield Heading(title=title, folded=not options.configurations)
    if subtitle := format_point(study.resolved(row.point)) if row.default else configuration_name(study, row):
        yield Heading(title=subtitle, level=2)
    there = candidates_by_load(study, row)
    if not options.configurations:  # otherwise they stand at the top
        yield from (replace(table, title="Under each load") for table in load_table(study, row, options))
    yield from request_stages_by_load(study, there)
    trial = study.candidates[key(row.point)].quoted_trials[-1]
    result = options.load_result(trial.result) if trial.result else None
    if result is None:
        yield note(
            f"the result of its trial {trial.number}, {trial.result or 'which has none'}, is not in the "
            "store: its histogram and its parts cannot be shown"
        )
        return
    at = format_point(study.resolved(row.point))
    yield note(f"below: trial {trial.number}{f', at {at}' if at else ''}")
    yield from result_page.parts(result, trial.judgements, level=2)
    knobs = options.knobs(result.job.backend)
    yield from result_page.measurement_section(result, trial.judgements, level=2, knobs=knobs)


def request_stages_by_load(study: Study, candidates: Sequence[Candidate]) -> Iterator[Stack]:
    """Draw the stages of a mean request under each load of a configuration, with the throughput."""
    staged = (
        (
            _bar(study, candidate),
            {
                name: value
                for metric, name in STAGE_NAMES.items()
                if (value := _mean(study, candidate, metric))
            },
        )
        for candidate in candidates
    )
    yield from draw_request_stages([(bar, parts) for bar, parts in staged if parts])


def _mean(study: Study, candidate: Candidate, metric: str) -> float | None:
    value = shown_value(study, candidate, Query(metric=metric, statistic="mean"))
    return shown_value(study, candidate, Query(metric=metric)) if value is None else value


def _bar(study: Study, candidate: Candidate) -> str:
    """Return a load with its throughput."""
    fixed = study.configuration(candidate.point)
    load = format_point(
        {name: value for name, value in study.resolved(candidate.point).items() if name not in fixed}
    )
    rate_text = format_shown(study, candidate, Query(metric="throughput"))
    return " · ".join(
        filter(None, (load or format_point(study.resolved(candidate.point)) or "the default", rate_text))
    )


# --- how it was measured ---------------------------------------------------------------------------


def _device_text(study: Study) -> str:
    """Return the device with its UUIDs, and of a server the kind of its instances; empty if it is varied."""
    if any(axis.name == "device" for axis in study.space.axes):
        return ""
    environment = study.environment or Environment()
    device = str(study.settings.get("device", environment.device))
    counted = any(trial.ask(INSTANCES) is not None for trial in study.trials)
    return ", ".join(
        filter(
            None,
            (
                device,
                "" if is_cpu(device) else str(environment.conditions.get("device_uuids", "")),
                f"instances of KIND_{'CPU' if is_cpu(device) else 'GPU'}" if counted else "",
            ),
        )
    )


def _how_measured(study: Study, ranked: Ranking) -> Iterator[Block]:
    yield Heading(title="How it was measured", folded=True)
    model = study.model
    facts = {
        "model": f"{model.name}, {model.digest[:19]}, {model.framework}"
        if model
        else study.job.model.argument,
        "backend": study.job.backend,
        "settings": format_point(study.settings),
        "device": _device_text(study),
        "space": "; ".join(map(str, study.space.axes)),
        "goal": "; ".join((*map(str, study.goal.objectives), *map(str, study.goal.constraints))),
        "strategy": f"{study.strategy}, seed {study.seed}",
        "measured": f"{count(ranked.measurements, 'measurement')} over "
        f"{count(ranked.configurations, 'configuration')} in {format_quantity(study.spent, SECONDS, 3)}"
        + (f", {ranked.failed} failed" if ranked.failed else "")
        + (f", {ranked.skipped} skipped" if ranked.skipped else ""),
        "study": f"{study.id}, {study.created[:19].replace('T', ' ')} UTC",
    }
    if study.environment is not None:
        facts["hardware"] = join_facts(study.environment.hardware)
        facts["software"] = join_facts(study.environment.software)
    rows = tuple((name, text) for name, text in facts.items() if text)
    yield make_table("", ("", ""), rows)
    if not study.job.model.live:
        yield result_page.repeat_notice(sweep_command(study))
