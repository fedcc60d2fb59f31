"""A history: where it stands, its course in one line or as a picture, its levels, and what else changed."""

from __future__ import annotations

from math import isfinite, nan
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.core.comparison.comparison import Outcome
from modeldyno.core.report.blocks import (
    Align,
    Block,
    Column,
    Heading,
    Notice,
    Severity,
    Table,
    clean,
    shorten,
)
from modeldyno.core.report.charts import Plot, Rule, Scale, Series
from modeldyno.core.stats.units import format_quantity
from modeldyno.views.text import NAME_LIMIT, TEXT_LIMIT, count, joined, moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.comparison.comparison import Difference
    from modeldyno.core.comparison.trend import Mark, Reading, Step, Trend

WIDTH = 60
"""Characters of the course."""
_BARS = "▁▂▃▄▅▆▇█"
_MARKS = 6
_SHOWN = {Outcome.WORSE: Severity.BROKEN, Outcome.BETTER: Severity.HELD}


def trend(found: Trend) -> Iterator[Block]:
    """Lay a history out."""
    yield Notice(severity=Severity.VERDICT, text=sentence(found))
    yield Notice(severity=Severity.NOTE, code="course", text=_course(found))
    if len(found.levels) > 1:
        yield _levels(found)
    for step in found.steps:
        yield _step(found, step)
    yield from _astray(found)
    yield from _other_marks(found)
    yield Notice(severity=Severity.NOTE, code="history", text=_rests_on(found))


def page(found: Trend) -> Iterator[Block]:
    """Lay a history out as a page: the sentence, what changed when, the picture, the levels."""
    blocks = [block for block in trend(found) if not (isinstance(block, Notice) and block.code == "course")]
    yield from (block for block in blocks if isinstance(block, Notice))
    yield Heading(title="The history")
    yield picture(found)
    yield from (block for block in blocks if not isinstance(block, Notice))
    yield Heading(title="The results")
    yield _readings(found)


def sentence(found: Trend) -> str:
    """Say where the history stands."""
    name, now = shorten(clean(found.name), NAME_LIMIT), _value(found, found.levels[-1].value)
    if len(found.readings) < 2 * 3:
        made = count(len(found.readings), "result makes", "results make")
        return f"{name}: {found.query} is {now}; {made} no history yet, six may show a step."
    if not found.steps:
        return f"{name}: {found.query} is level at {now} over {len(found.readings):,} results."
    wrong = found.regressions
    if wrong:
        last = wrong[-1]
        return (
            f"{name}: {found.query} has got worse by {abs(last.change):.1%} since "
            f"{_when(found, last.at)}, and is {now}."
        )
    step = found.steps[-1]
    return f"{name}: {found.query} is {now}, after a step of {step.change:+.1%} at {_when(found, step.at)}."


def picture(found: Trend) -> Plot:
    """Draw the history, with its levels, the steps between them, and what changed in the environment."""
    values = tuple(reading.value for reading in found.readings)
    places = tuple(map(float, range(1, len(values) + 1)))
    unit = found.query.unit
    ends = [_ends(reading) for reading in found.readings]
    marks = [mark for mark in found.marks if mark.environment]
    return Plot(
        title=f"{found.query} of {shorten(clean(found.name), NAME_LIMIT)}",
        x=Scale(label="result, the oldest first"),
        y=Scale(label=str(found.query), unit=unit),
        series=(
            Series(
                name="results",
                x=places,
                y=values,
                labels=tuple(f"{r.result[:6]}, {r.created[:10]}" for r in found.readings),
                joined=False,
                low=tuple(low for low, _ in ends),
                high=tuple(high for _, high in ends),
            ),
            Series(
                name="level",
                x=tuple(end + 0.5 for level in found.levels for end in (level.first, level.last + 1)),
                y=tuple(level.value for level in found.levels for _ in range(2)),
                marked=True,
            ),
        ),
        rules=(
            *(Rule(name=shorten(_changed(mark), 40), at=mark.at + 0.5, vertical=True) for mark in marks),
            *(
                Rule(name=f"{step.change:+.1%}", at=step.at + 0.5, vertical=True)
                for step in found.steps
                if step.at not in {mark.at for mark in marks}
            ),
        ),
        note="with 95 % intervals where they are known; a line stands where level or environment changed",
    )


def _ends(reading: Reading) -> tuple[float, float]:
    ends = reading.interval
    known = ends is not None and isfinite(ends.low) and isfinite(ends.high)
    return (ends.low, ends.high) if ends is not None and known else (nan, nan)


def _readings(found: Trend) -> Table:
    """List what the history is made of, the newest first."""
    level = {place: each for each in found.levels for place in range(each.first, each.last + 1)}
    rows = tuple(
        (
            moment(reading.created)[:16],
            reading.result[:6],
            _value(found, reading.value),
            f"{reading.value / level[place].value - 1:+.1%}",
            reading.digest.removeprefix("sha256:")[:8],
        )
        for place, reading in reversed(tuple(enumerate(found.readings)))
    )
    titles = ("measured<", "result<", str(found.query), "off its level", "model<")
    return Table(title="", columns=_columns(titles), rows=rows)


def numbers(found: Trend) -> Table:
    """Give every result of the history, in base units and unrounded."""
    rows = tuple(
        (reading.created, reading.result, repr(reading.value), *map(_plain, _ends(reading)), reading.digest)
        for reading in found.readings
    )
    titles = ("created<", "result<", str(found.query), "low", "high", "digest<")
    return Table(title="History", columns=_columns(titles), rows=rows)


def _plain(value: float) -> str:
    return repr(value) if isfinite(value) else ""


def _columns(titles: Sequence[str]) -> tuple[Column, ...]:
    return tuple(
        Column(title=t.removesuffix("<"), align=Align.LEFT if t.endswith("<") else Align.RIGHT)
        for t in titles
    )


# --- the course ------------------------------------------------------------------------------------


def _course(found: Trend) -> str:
    values = [reading.value for reading in found.readings]
    low, high = _value(found, min(values)), _value(found, max(values))
    return f"{sparkline(values, WIDTH)} {low} to {high}"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw numbers as bars in one line; of more than fit, the median of each part stands for it."""
    n = min(width, len(values))
    parts = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    heights = [median(part) for part in parts]
    low, high = min(heights), max(heights)
    span = high - low or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int((h - low) / span * len(_BARS)))] for h in heights)


def _levels(found: Trend) -> Table:
    steps = {step.at: step for step in found.steps}
    titles = ("since<", "result<", "results", str(found.query), "change", "95 % interval", "<")
    return Table(
        title="Levels",
        columns=_columns(titles),
        rows=tuple(
            (
                found.readings[level.first].created[:10],
                found.readings[level.first].result[:6],
                f"{len(level):,}",
                _value(found, level.value),
                *(_change(steps[level.first]) if level.first in steps else ("", "", "")),
            )
            for level in found.levels
        ),
    )


def _change(step: Step) -> tuple[str, str, str]:
    return f"{step.change:+.1%}", f"{step.interval.low:+.1%} to {step.interval.high:+.1%}", str(step.outcome)


def _step(found: Trend, step: Step) -> Notice:
    text = f"{_when(found, step.at)}: {step.change:+.1%}, {_cause(step)}"
    if not step.standing:
        text += "; undone since"
    blamed = step.standing and step.blamed
    return Notice(severity=_SHOWN.get(step.outcome, Severity.NOTE) if blamed else Severity.NOTE, text=text)


def _cause(step: Step) -> str:
    """Say what changed at a step, as far as it is known."""
    mark = step.mark
    if mark is None:
        return "where neither the content of the model nor the environment is known to have changed"
    if mark.environment:
        also = ", and the model with it" if mark.model else ""
        return f"where the environment changed ({_environment(mark)}){also}: not held against the model"
    return "where the model changed"


def _changed(mark: Mark) -> str:
    return joined("the model" if mark.model else "", _environment(mark))


def _environment(mark: Mark) -> str:
    named = [_fact(each) for each in (*mark.hardware, *mark.software)]
    more = f" and {len(named) - _MARKS} more" if len(named) > _MARKS else ""
    return shorten(clean(", ".join(named[:_MARKS]) + more), TEXT_LIMIT)


def _fact(found: Difference) -> str:
    before, after = ("none" if value is None else value for value in (found.baseline, found.candidate))
    return f"{found.name.replace('_', ' ')} {before} → {after}"


def _astray(found: Trend) -> Iterator[Notice]:
    if not found.astray:
        return
    off = found.readings[found.astray[-1]].value / found.levels[-1].value - 1
    several = len(found.astray) > 1
    newest = f"{len(found.astray)} results lie" if several else "result lies"
    yield Notice(
        severity=Severity.UNDECIDED,
        text=f"the newest {newest} {off:+.1%} off its level, "
        f"too few to be another: measure {'once' if several else 'twice'} more",
    )


def _other_marks(found: Trend) -> Iterator[Notice]:
    """Tell of changes of the environment that no step comes with: the newest few."""
    told = {step.mark.at for step in found.steps if step.mark}
    quiet = [mark for mark in found.marks if mark.environment and mark.at not in told]
    for mark in quiet[-_MARKS:]:
        text = f"{_when(found, mark.at)}: {_environment(mark)}; no step comes with it"
        yield Notice(severity=Severity.NOTE, code="environment", text=text)


def _rests_on(found: Trend) -> str:
    left_out = (
        f"{count(found.left_out, 'stored result')} of another setup, or without this number, left out"
        if found.left_out
        else ""
    )
    return joined(
        f"{count(len(found.readings), 'result')} of {', '.join(found.setup) or 'one setup'}",
        f"which scatter by {found.noise:.1%} around their level",
        f"so that a step of {found.detectable:.1%} shows after five results",
        left_out,
    )


def _when(found: Trend, at: int) -> str:
    reading = found.readings[at]
    return f"{moment(reading.created)[:16]} ({reading.result[:6]})"


def _value(found: Trend, value: float) -> str:
    return format_quantity(value, found.query.unit, 3)
