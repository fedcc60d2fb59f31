"""Lay out a study: the answer in a sentence, the best configurations and the default, what failed."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.doubt import CODES, Doubt, seriousness
from modeldyno.base.metrics.measurement import LITTLE_LAW, RATES_OF_LOADS, SHORT_LOAD
from modeldyno.base.metrics.metric import COSTS
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.blocks import Block, Notice, Severity
from modeldyno.base.stats.units import format_estimate, format_quantity
from modeldyno.base.views.text import count, doubts_in_a_line, factor, join_nonempty, shorten_text
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.serving.views.replicas import cost_text
from modeldyno.sweeps.study.goal import Rank
from modeldyno.sweeps.study.pooled_estimate import shown_estimate
from modeldyno.sweeps.study.ranking import NEAR, ranking
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.views.configurations import configuration_rows, configuration_summary
from modeldyno.sweeps.views.tables import (
    best_by_load_table,
    best_table,
    cheaper_word,
    configuration_load_table,
    failure_tables,
    format_miss,
    format_point,
    shown_queries,
    trial_failure,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.metrics.metric import Query
    from modeldyno.base.result.cost import Price
    from modeldyno.sweeps.study.pooled_estimate import Estimate
    from modeldyno.sweeps.study.ranking import Gain, RankedConfiguration, Ranking
    from modeldyno.sweeps.study.study import Study

_TIMES = 1.95
"""Gains from this factor on are written as a factor, smaller ones in percent."""
_DOUBTS = 4
"""Most doubts about the best configuration that are shown."""


def blocks(study: Study, options: ViewOptions = PLAIN, ranked: Ranking | None = None) -> Iterator[Block]:
    """Lay out a study: the sentence, the bounds, the best rows and the default, the failures."""
    ranked = ranked or ranking(study)
    if options.configurations:
        rows = configuration_rows(study, ranked, options.configurations)
        yield from configuration_summary(study, rows, options)
        return
    yield Notice(severity=Severity.VERDICT, text=headline(study, ranked))
    described = ranked.best or next((row for row in ranked.rows if not row.failure), None)
    if described is not None:
        for judgement in described.judgements:
            yield Notice(severity=Severity(judgement.verdict), text=judgement.sentence())
    if ranked.rows:
        yield best_table(study, ranked, options.top)
    if study.goal.rank is Rank.EACH and ranked.each:
        yield best_by_load_table(study, ranked)
    elif ranked.best is not None:
        yield from configuration_load_table(study, ranked.best)
    yield from failure_tables(study)
    if described is not None:
        yield from _doubts(study, described, options)
    yield from _search_doubts(study, ranked, stored=options.stored)


def _doubts(study: Study, row: RankedConfiguration, options: ViewOptions) -> Iterator[Notice]:
    """Yield the doubts about a configuration: several in a line, with `verbose` each with its sentence."""
    telling = study.candidates[key(row.point)].quoted_trials
    codes = sorted(row.doubts, key=seriousness)[:_DOUBTS]
    if len(codes) > 1 and options.stored and not options.verbose:
        doubts = [
            Doubt(code=code, seen=_begin_small(CODES.get(code, code)), advice="") for code in row.doubts
        ]
        yield doubts_in_a_line(doubts, f"modeldyno show {study.id[:6]} -v")
        return
    for code in codes:
        doubted = [trial for trial in telling if code in trial.doubts]
        share = f", in {len(doubted)} of {len(telling)} measurements" if len(telling) > 1 else ""
        result_id = doubted[-1].result[:6] if options.stored and code == codes[-1] else ""
        yield Notice(
            severity=Severity.DOUBT,
            code=code,
            text=CODES.get(code, "See the result of the trial.").removesuffix(".") + share,
            advice=f"modeldyno show {result_id}" if result_id else "",
        )


def _begin_small(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


def _search_doubts(study: Study, ranked: Ranking, *, stored: bool) -> Iterator[Notice]:
    """Yield the doubts about the search, with the command that goes on with it."""
    stored = stored and not study.job.model.live  # that is gone with its process
    resume = f"modeldyno sweep --resume {study.id[:6]}" if stored else ""
    unstored = "store the study, so that --resume can continue it, or allow more with --max-time"
    if study.job.model.live:
        unstored = "sweep it again with more time, max_time=: a study of a live object cannot be continued"
    for doubt in ranked.doubts:
        advice = f"{spell_for_command_line(doubt.advice)}: {resume}" if stored else unstored
        yield Notice(
            severity=Severity.DOUBT, code=doubt.code, text=doubt.seen, advice=advice if doubt.advice else ""
        )


# --- the sentence ----------------------------------------------------------------------------------


def headline(study: Study, ranked: Ranking | None = None) -> str:
    """Summarize in one sentence: the best configuration, its gain over the default, and its certainty."""
    ranked = ranked or ranking(study)
    made = f"{count(ranked.measurements, 'measurement')} over {count(ranked.configurations, 'configuration')}"
    if not ranked.measurements:
        return f"Nothing was measured{_why_nothing(study)}."
    if all(row.failure for row in ranked.rows):
        return f"{made}, and all failed: {shorten_text(next(row.failure for row in ranked.rows))}"
    if ranked.best is None:
        return f"{made}: {_nearest(study, ranked)}."
    return f"{_answer(study, ranked, ranked.best)}; {made}."


def title(study: Study) -> str:
    """Return the title of its page."""
    return f"{study.name or study.job.model.argument}: {brief(study)}"


def brief(study: Study, ranked: Ranking | None = None) -> str:
    """Return a short summary for a list."""
    ranked = ranked or ranking(study)
    best = ranked.best
    if best is None:
        failed = ranked.measurements > 0 and all(row.failure for row in ranked.rows)
        return "all failed" if failed else _none_holds(study, ranked) if ranked.rows else "nothing measured"
    values = ", ".join(_values(study, best)) + _held_text(best)
    certain = f", {_percent(ranked.near_best)} certain" if ranked.configurations > 1 else ""
    scope = f" (best of {tried_text(ranked)})" if certain or ranked.explored.untried else ""
    return f"{values}{scope}: {format_point(study.resolved(best.point))}{certain}"


def tried_text(ranked: Ranking) -> str:
    """Say how many points were tried: ``2 of 8 tried``, ``all 8``."""
    tried, points = ranked.explored.tried, ranked.explored.points
    return f"{tried:,} of {points:,} tried" if ranked.explored.left else f"all {points:,}"


def _answer(study: Study, ranked: Ranking, best: RankedConfiguration) -> str:
    alone = ranked.configurations == 1
    name = (alone and format_point(study.resolved(best.point))) or _row_name(study, best)
    cheapest = not alone and [o.query.metric for o in study.goal.objectives] == ["cost"]
    values = join_nonempty(*_values(study, best))
    what = f"cheapest: {name} at {values}" if cheapest else f"{name} gives {values}"
    rival = any(row.default for row in ranked.rivals[1:])  # the first rival is named below
    if best.gain is not None and not best.default and (rival or not best.gain.low <= 1 <= best.gain.high):
        what += f", {_gain_text(best, best.gain, study, ranked.default)}"
    bounds = _held_text(best)
    what += f",{bounds}" if bounds else ""
    certain = _certainty_text(ranked)
    rivals = _rivals_text(study, ranked, best) if ranked.rivals and not alone else ""
    return "; ".join(filter(None, (what, certain, rivals, _safe_alternative(study, ranked))))


def _held_text(best: RankedConfiguration) -> str:
    """Say behind the values of a configuration how its bounds fare; empty without bounds."""
    held = [f"{j.constraint.query}{_value(j)} {_bound_text(j)}" for j in best.judgements]
    return f" at {' and '.join(held)}" if held else ""


def _certainty_text(ranked: Ranking) -> str:
    """Say how certain the answer is, and of how many points: nothing is known of the others."""
    tried, points = ranked.explored.tried, ranked.explored.points
    if ranked.configurations == 1 and not ranked.explored.untried:  # only the load varies
        return ""
    if tried <= 1:
        return f"only {tried:,} of {points:,} points was tried"
    certain = f"{_percent(ranked.near_best)} certain to be the best or within {NEAR:.0%} of it"
    if not ranked.explored.left:
        return f"{certain}, of all {points:,} points"
    return f"{certain}, of the {tried:,} of {points:,} points that were tried"


def _row_name(study: Study, row: RankedConfiguration) -> str:
    """Return the name of a row; of the default, with its load."""
    name = format_point(study.resolved(row.point))
    if not row.default:
        return name
    return f"the default ({name})" if name else "the default"


def _bound_text(judgement: Judgement) -> str:
    """Describe a bound by its verdict."""
    bound = str(judgement.constraint).partition(" ")[2]
    prefixes = {Verdict.HELD: "", Verdict.BROKEN: "breaking ", Verdict.UNDECIDED: "not certainly "}
    return prefixes[judgement.verdict] + bound


def _value(judgement: Judgement) -> str:
    """Return the value after a space; nothing for a percentile that is not certified, which can hold too."""
    answer, bounds = judgement.answer, judgement.answer.bounds()
    if answer.value is None:
        return ""
    return f" {format_estimate(answer.value, bounds.low, bounds.high, answer.query.unit)[0]}"


def _gain_text(
    best: RankedConfiguration, gain: Gain, study: Study, default: RankedConfiguration | None
) -> str:
    """Describe the gain over the default, as far as the samples support it."""
    several = len(study.goal.objectives) > 1
    first, mine = study.goal.objectives[0], best.objectives[0]
    other = None if default is None else default.objectives[0]
    if gain.low <= 1 <= gain.high:
        return "not distinguishable from the default"
    if not isfinite(gain.times) or not gain.times:
        return "while the default has none"
    if not several and not first.maximize and mine is not None and not mine.value and other is not None:
        return f"compared with {format_quantity(other.value, first.query.unit, 3)} for the default"
    if several or (gain.times >= _TIMES and first.maximize):
        weighed = " as good as the default by the weighted objectives" if several else " that of the default"
        return f"{factor(gain.times, 2)} times{weighed}{_between(factor(gain.low, 2), factor(gain.high, 2))}"
    ratio = gain.times if first.maximize else 1 / gain.times
    ends = sorted(
        abs((times if first.maximize else 1 / times) - 1) for times in (gain.low, gain.high) if times
    )
    return (
        f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'} than the default"
        f"{_between(*(f'{end:.0%}' for end in ends))}"
    )


def _between(*ends: str) -> str:
    """Show the ends of a 95 % interval behind a figure, unless one is unknown or both read alike."""
    return f" ({ends[0]} to {ends[1]})" if len(set(ends)) > 1 and "inf" not in "".join(ends) else ""


def _percent(certainty: float) -> str:
    """Format a share of resamples as a certainty, which is never 100%."""
    return f"{'over 99' if certainty > _NEARLY else f'{100 * certainty:.0f}'}%"


_NEARLY = 0.995


def _rivals_text(study: Study, ranked: Ranking, best: RankedConfiguration) -> str:
    """Name the configurations that may be as good as the best, and which to choose."""
    favourite = max(ranked.rivals, key=lambda row: row.share)
    if best.verified and not favourite.verified and favourite.share > best.share:
        shares = f"best in {100 * favourite.share:.0f} against {100 * best.share:.0f} of 100 resamples"
        name = _row_name(study, _without_load(study, favourite))
        return f"{name} looks better ({shares}), but was not measured again: continue the study to choose"
    first, *more = ranked.rivals
    others = f" and {count(len(more), 'other')}" if more else ""
    shares = f"best in {100 * best.share:.0f} against {100 * first.share:.0f} of 100 resamples"
    same = (
        f"it is not distinguishable from {_row_name(study, _without_load(study, first))}{others} ({shares})"
    )
    cheaper = cheaper_word(study)
    if ranked.cheaper is None:
        return f"{same}; take it, as nothing {cheaper} is about as good"
    name = _row_name(study, _without_load(study, ranked.cheaper))
    share = f"{100 * ranked.cheaper_near:.0f} of 100 resamples"
    return (
        f"{same}; prefer the {cheaper} one, {name}, which is the best or within {NEAR:.0%} of it in {share}"
    )


def _safe_alternative(study: Study, ranked: Ranking) -> str:
    """Name the best configuration that certainly holds the bounds, if the best overall may not."""
    safe = ranked.safe
    if safe is None:
        return ""
    name = format_point(study.resolved(safe.point)) if ranked.configurations == 1 else _row_name(study, safe)
    return f"certain to hold the bounds: {name}, which gives {join_nonempty(*_values(study, safe))}"


def _without_load(study: Study, row: RankedConfiguration) -> RankedConfiguration:
    """Return the row without its load, if other knobs remain."""
    configuration = study.configuration(row.point)
    return replace(row, point=configuration or row.point)


def _nearest(study: Study, ranked: Ranking) -> str:
    row = next(row for row in ranked.rows if not row.failure)
    bounds = " and ".join(str(bound) for bound in study.goal.constraints)
    if not bounds:
        return f"no configuration has a value for {_unknown(study, row)}"
    if row.verdict is Verdict.HELD:
        unknown = _unknown(study, row)
        return f"{_row_name(study, row)} holds {bounds}, but no configuration has a value for {unknown}"
    if row.verdict is Verdict.BROKEN:
        closest = f"{_row_name(study, row)}, which misses by {format_miss(row.miss)}"
        return f"no configuration holds {bounds}; the closest is {closest}"
    apparent = f", which seems to miss by {format_miss(row.miss)}" if row.miss else ""
    closest = f"{_row_name(study, row)}{apparent}"
    return f"it is undecided whether any configuration holds {bounds}; the closest is {closest}"


def _unknown(study: Study, row: RankedConfiguration) -> str:
    """Name the objectives of which a configuration has no value, such as a percentile of too few samples."""
    pairs = zip(study.goal.objectives, row.objectives, strict=True)
    unknown = [objective.query for objective, value in pairs if value is None]
    codes = [code for code in row.doubts if code in {SHORT_LOAD, LITTLE_LAW}]
    withheld = codes and any(query.metric in RATES_OF_LOADS for query in unknown)
    return " and ".join(map(str, unknown)) + (f", which was withheld ({codes[0]})" if withheld else "")


def _none_holds(study: Study, ranked: Ranking) -> str:
    """Describe whether the configuration closest to the bounds breaks them or is undecided."""
    nearest = next(row for row in ranked.rows if not row.failure)
    if nearest.verdict is Verdict.HELD:
        return f"no value for {_unknown(study, nearest)}"
    broken = nearest.verdict is Verdict.BROKEN
    return "no configuration holds the bounds" if broken else "undecided whether the bounds hold"


def _values(study: Study, row: RankedConfiguration) -> Sequence[str]:
    pairs = zip(study.goal.objectives, row.objectives, strict=True)
    candidate = study.candidates[key(row.point)]
    further = [
        (query, shown)
        for query in shown_queries(study)
        if query not in study.goal.queries and (shown := shown_estimate(study, candidate, query))
    ]
    return [
        *(_value_text(objective.query, value, study.goal.price) for objective, value in pairs),
        *(_value_text(query, shown, study.goal.price) for query, shown in further),
    ]


def _value_text(query: Query, value: Estimate | None, price: Price | None) -> str:
    if value is None:
        return f"no {query}"
    text = format_estimate(value.value, value.low, value.high, query.unit)[0]
    if price is not None and query.metric in COSTS:
        return cost_text(query, text, price)
    return f"{query} {'' if value.certified else 'about '}{text}"


def _why_nothing(study: Study) -> str:
    if not study.skipped:
        return ""
    first = next(iter(study.skipped.values()))
    return f": none of the configurations is possible ({shorten_text(trial_failure(first))})"
