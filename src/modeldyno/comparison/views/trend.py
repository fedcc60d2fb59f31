"""Lay out the history of a metric: current state, sparkline or chart, levels and steps, other changes."""

from __future__ import annotations

from math import isfinite, nan
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, Heading, Notice, Severity, Table, make_table, note, shorten
from modeldyno.base.report.charts import AxisScale, Plot, ReferenceLine, Series
from modeldyno.base.stats.units import format_quantity
from modeldyno.base.views.text import (
    count,
    draw_bars,
    exact_text,
    format_utc,
    join_nonempty,
    shorten_name,
    shorten_text,
)
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.change.trend import FEWEST_FOR_A_STEP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.comparison.change.comparison import SettingDiff
    from modeldyno.comparison.change.trend import HistoryMark, LevelStep, Reading, Trend

WIDTH = 60
"""Width of the sparkline in characters."""
_MARKS = 6
_STABLE = 0.1
"""The smallest visible change up to which a history is called stable."""
_SHOWN = {ChangeVerdict.WORSE: Severity.BROKEN, ChangeVerdict.BETTER: Severity.HELD}


def blocks(history: Trend, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out a history; no option applies."""
    del options
    yield Notice(severity=Severity.VERDICT, text=headline(history))
    yield note(_sparkline_text(history), code="trend")
    if len(history.levels) > 1:
        yield _levels(history)
    for step in history.steps:
        yield _step(history, step)
    yield from _outlier_notice(history)
    yield from _other_marks(history)
    yield note(_basis(history), code="history")


def page(history: Trend, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out a history as a page: the verdict, the changes, the chart, the levels."""
    laid = [
        block
        for block in blocks(history, options)
        if not (isinstance(block, Notice) and block.code == "trend")
    ]
    yield from (block for block in laid if isinstance(block, Notice))
    yield Heading(title="The history")
    yield picture(history)
    yield from (block for block in laid if not isinstance(block, Notice))
    yield Heading(title="The results")
    yield _readings(history)


def headline(history: Trend) -> str:
    """Describe the current state of the history in one sentence."""
    name, now = shorten_name(history.name), _value(history, history.levels[-1].value)
    if len(history.readings) < FEWEST_FOR_A_STEP:
        results = count(len(history.readings), "result")
        return f"{name}: {history.query} is {now}; only {results}, and a step needs at least six."
    if not history.steps:
        over = f"{now} over {len(history.readings):,} results"
        size = f"{history.visible:.{0 if history.visible >= _STABLE else 1}%}"
        if history.visible > _STABLE:
            return f"{name}: {history.query} is {over}; no change of less than {size} could have been seen."
        return f"{name}: {history.query} is stable at {over}; a change of {size} would have been seen."
    regressions = history.regressions
    if regressions:
        last = regressions[-1]
        return (
            f"{name}: {history.query} has been worse by {abs(last.change):.1%} since "
            f"{_when(history, last.at)}, and is now {now}."
        )
    step = history.steps[-1]
    return (
        f"{name}: {history.query} is {now}, after a step of {step.change:+.1%} at {_when(history, step.at)}."
    )


def picture(history: Trend) -> Plot:
    """Draw the history with its levels, its steps and the changes of the environment."""
    values = tuple(reading.value for reading in history.readings)
    places = tuple(map(float, range(1, len(values) + 1)))
    unit = history.query.unit
    ends = [_interval_ends(reading) for reading in history.readings]
    marks = [mark for mark in history.marks if mark.environment]
    return Plot(
        title=f"{history.query} of {shorten_name(history.name)}",
        x=AxisScale(label="result, oldest first", names=tuple(r.created[:10] for r in history.readings)),
        y=AxisScale(label=str(history.query), unit=unit),
        series=(
            Series(
                name="results",
                x=places,
                y=values,
                labels=tuple(f"{r.result[:6]}, {r.created[:10]}" for r in history.readings),
                joined=False,
                low=tuple(low for low, _ in ends),
                high=tuple(high for _, high in ends),
            ),
            Series(
                name="level",
                x=tuple(end + 0.5 for level in history.levels for end in (level.first, level.last + 1)),
                y=tuple(level.value for level in history.levels for _ in range(2)),
                marked=True,
            ),
        ),
        rules=(
            *(
                ReferenceLine(
                    name=shorten(join_nonempty("the model" if mark.model else "", _environment(mark)), 40),
                    at=mark.at + 0.5,
                    vertical=True,
                )
                for mark in marks
            ),
            *(
                ReferenceLine(name=f"{step.change:+.1%}", at=step.at + 0.5, vertical=True)
                for step in history.steps
                if step.at not in {mark.at for mark in marks}
            ),
        ),
        note="with 95 % intervals where known; vertical lines mark changes of level or environment",
    )


def _interval_ends(reading: Reading) -> tuple[float, float]:
    ends = reading.interval
    finite = ends is not None and isfinite(ends.low) and isfinite(ends.high)
    return (ends.low, ends.high) if ends is not None and finite else (nan, nan)


def _readings(history: Trend) -> Table:
    """List the Results of the history, the newest first."""
    level_of = {place: level for level in history.levels for place in range(level.first, level.last + 1)}
    rows = tuple(
        (
            format_utc(reading.created)[:16],
            reading.result[:6],
            _value(history, reading.value),
            f"{reading.value / level_of[place].value - 1:+.1%}",
            reading.digest.removeprefix("sha256:")[:8],
        )
        for place, reading in reversed(tuple(enumerate(history.readings)))
    )
    titles = ("measured", "result", f"{history.query}>", "deviation>", "model")
    return make_table("", titles, rows)


def numbers(history: Trend) -> Table:
    """Tabulate every Result of the history, in base units and unrounded."""
    rows = tuple(
        (
            reading.created,
            reading.result,
            repr(reading.value),
            *map(exact_text, _interval_ends(reading)),
            reading.digest,
        )
        for reading in history.readings
    )
    titles = ("created", "result", f"{history.query}>", "low>", "high>", "digest")
    return make_table("History", titles, rows)


# --- sparkline and levels --------------------------------------------------------------------------


def _sparkline_text(history: Trend) -> str:
    values = [reading.value for reading in history.readings]
    low, high = _value(history, min(values)), _value(history, max(values))
    return f"{sparkline(values, WIDTH)} {low} to {high}"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw numbers as bars in one line; if they do not fit, each bar is the median of several."""
    n = min(width, len(values))
    parts = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    heights = [median(part) for part in parts]
    return draw_bars(heights, min(heights), max(heights))


def _levels(history: Trend) -> Table:
    steps = {step.at: step for step in history.steps}
    titles = ("since", "result", "results>", f"{history.query}>", "change>", "95 % interval>", "")
    return make_table(
        "Levels",
        titles,
        (
            (
                history.readings[level.first].created[:10],
                history.readings[level.first].result[:6],
                f"{len(level):,}",
                _value(history, level.value),
                *(_change(steps[level.first]) if level.first in steps else ("", "", "")),
            )
            for level in history.levels
        ),
    )


def _change(step: LevelStep) -> tuple[str, str, str]:
    return f"{step.change:+.1%}", f"{step.interval.low:+.1%} to {step.interval.high:+.1%}", str(step.outcome)


def _step(history: Trend, step: LevelStep) -> Notice:
    text = f"{_when(history, step.at)}: {step.change:+.1%}, {_cause(step)}"
    if not step.standing:
        text += "; reverted since"
    blamed = step.standing and step.blamed
    return Notice(severity=_SHOWN.get(step.outcome, Severity.NOTE) if blamed else Severity.NOTE, text=text)


def _cause(step: LevelStep) -> str:
    """Describe what changed at a step, as far as it is known."""
    mark = step.mark
    if step.disturbed and (mark is None or not mark.environment):
        slower = "from there on" if step.outcome is ChangeVerdict.WORSE else "before"
        return f"other processes used its cores {slower}; not counted as a change of the model"
    if mark is None:
        return "with no known change of the model or the environment"
    if mark.environment:
        also = " together with the model" if mark.model else ""
        what = f"when the environment changed ({_environment(mark)}){also}"
        return f"{what}; not counted as a regression of the model"
    return "when the model changed"


def _environment(mark: HistoryMark) -> str:
    names = [_fact(difference) for difference in (*mark.hardware, *mark.software)]
    more = f" and {len(names) - _MARKS} more" if len(names) > _MARKS else ""
    return shorten_text(", ".join(names[:_MARKS]) + more)


def _fact(difference: SettingDiff) -> str:
    before, after = (
        "none" if value is None else value for value in (difference.baseline, difference.candidate)
    )
    return f"{difference.name.replace('_', ' ')} {before} → {after}"


def _outlier_notice(history: Trend) -> Iterator[Notice]:
    if not history.astray:
        return
    distance = history.readings[history.astray[-1]].value / history.levels[-1].value - 1
    several = len(history.astray) > 1
    newest = f"{len(history.astray)} results are" if several else "result is"
    yield Notice(
        severity=Severity.UNDECIDED,
        text=f"the newest {newest} {distance:+.1%} off the current level, "
        f"too few to be a new one: measure {'once' if several else 'twice'} more",
    )


def _other_marks(history: Trend) -> Iterator[Notice]:
    """Yield the most recent changes of the environment that did not cause a step."""
    explained = {step.mark.at for step in history.steps if step.mark}
    unexplained = [mark for mark in history.marks if mark.environment and mark.at not in explained]
    for mark in unexplained[-_MARKS:]:
        text = f"{_when(history, mark.at)}: {_environment(mark)}; no step in the metric"
        yield note(text, code="environment")


def _basis(history: Trend) -> str:
    left_out = (
        f"{count(history.left_out, 'stored result')} left out: another setup, or the metric was not certified"
        if history.left_out
        else ""
    )
    return join_nonempty(
        f"{count(len(history.readings), 'result')} of {', '.join(history.setup) or 'one setup'}",
        f"scatter around the level {history.noise:.1%}",
        f"a step of {history.detectable:.1%} is detectable after five results",
        left_out,
    )


def _when(history: Trend, at: int) -> str:
    reading = history.readings[at]
    return f"{format_utc(reading.created)[:16]} ({reading.result[:6]})"


def _value(history: Trend, value: float) -> str:
    return format_quantity(value, history.query.unit, 3)
