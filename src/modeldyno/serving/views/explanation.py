"""Lay out an explanation of a latency: the sentence, the waterfall of its hops, how each was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import noteworthy_doubts
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.blocks import Block, Heading, Notice, Severity, Table, make_table, note
from modeldyno.base.report.charts import AxisScale, Waterfall, WaterfallStep
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.base.views.text import (
    count,
    doubts_in_a_line,
    estimate,
    estimate_near_zero,
    share,
    shorten_name,
)
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.profiling.views.result.waiting import waiting
from modeldyno.serving.load.explanation import (
    ECHO,
    HopName,
    RunLevel,
    are_stamped,
    explanation_doubts,
    hop_changes,
    last_result,
    measured_time,
    tail_time,
    unexplained_share,
)
from modeldyno.serving.load.request_stages import STAGE_TIME, UNTRACED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.serving.load.explanation import Explanation, Hop, LevelHops, TimeEstimate

_SMALL = 0.01
"""Share of the whole below which a hop is not named in the sentence."""
_MOST = 0.5
"""Share of the whole from which a hop is most of it."""
_UNCLEAR = 0.2
"""Share of the whole in the rests from which on no hop is called the largest."""
_STATISTIC_NAMES = {"mean": "mean", "p50": "median"}
_TAIL = "p99"


def title(explanation: Explanation) -> str:
    """Return the name of the model."""
    return shorten_name(explanation.name)


def headline(explanation: Explanation) -> str:
    """Say in one sentence what the latency, or its change, consists of."""
    levels = explanation.levels
    if not levels:
        failure = next(iter(explanation.failures.values()), "")
        return f"{title(explanation)}: no latency was measured{failure and f'; {failure}'}."
    return _change_sentence(explanation) if explanation.baseline else _sentence(explanation, levels)


def brief(explanation: Explanation) -> str:
    """Say the latency and its largest part, for a list; of a comparison its whole sentence."""
    levels = explanation.levels
    if explanation.baseline or not levels:
        return headline(explanation)
    measured = [hop for level in levels for hop in level.hops if hop.time is not None]
    largest = max(measured, key=_size)
    text = f"{_time(levels[-1].whole)} {levels[-1].level}"
    return text if largest.time is None else f"{text}, most of it {largest.label} ({_time(largest.time)})"


def _sentence(explanation: Explanation, levels: tuple[LevelHops, ...]) -> str:
    total = levels[-1].whole
    statistic = _STATISTIC_NAMES[explanation.statistic]
    hops = [hop for level in levels for hop in level.hops]
    largest = max((hop for hop in hops if hop.time is not None), key=_size)
    assert largest.time is not None
    part = largest.time.seconds / total.seconds if total.seconds > 0 else 0.0
    name = f"what the hardware needs at least, the {largest.label}" if _is_bound(largest) else largest.label
    most = "" if part < _SMALL else f", {'most' if part >= _MOST else 'the largest part'} of it {name}"
    size = "" if part < _SMALL else f" ({_time(largest.time)}, {min(part, 1.0):.0%})"
    others = _named_parts([hop for hop in hops if hop is not largest], total.seconds)
    takes = f"{title(explanation)} takes {_time(total)} {levels[-1].level} ({statistic})"
    if others and unexplained_share(levels) > _UNCLEAR:
        return f"{takes}; where it goes is not clear: {name} {_time(largest.time)}, {others}."
    return f"{takes}{most}{size}{f'; also {others}' if others else ''}."


def _named_parts(hops: Sequence[Hop], total: float) -> str:
    """List the hops that matter, and the sum of all rests; those under load bear the level in their label."""
    parts = [
        f"{hop.label} {_time(hop.time)}{' (the least that the hardware needs)' if _is_bound(hop) else ''}"
        for hop in hops
        if hop.time is not None
        and hop.name is not HopName.REST
        and abs(hop.time.seconds) >= _SMALL * abs(total)
    ]
    remaining = sum(hop.time.seconds for hop in hops if hop.time is not None and hop.name is HopName.REST)
    if abs(remaining) >= _SMALL * abs(total):
        rest = format_quantity(abs(remaining), SECONDS, 2)
        parts.append(f"rest {rest}" if remaining > 0 else f"the parts exceed the whole by {rest}")
    return ", ".join(parts)


def _is_bound(hop: Hop) -> bool:
    return hop.name is HopName.BOUND


def _time(time: TimeEstimate) -> str:
    """Format a time with the digits that the chart and the tables give it."""
    return _texts(time)[0]


def _change_sentence(explanation: Explanation) -> str:
    before, now = explanation.levels_before, explanation.levels
    if not before:
        return f"{title(explanation)}: the baseline has no latency."
    change = now[-1].whole - before[-1].whole
    statistic = _STATISTIC_NAMES[explanation.statistic]
    head = f"{title(explanation)}, {now[-1].level}: the {statistic} latency"
    if change.may_be_zero or not change.seconds:
        interval = estimate(change.seconds, change.interval, SECONDS)[1]
        return f"{head} has not surely changed ({_time(change)}{interval and f', {interval}'})."
    verb = "rose" if change.seconds > 0 else "fell"
    hops = sorted(hop_changes(before, now), key=_size, reverse=True)
    parts = [
        f"{format_quantity(hop.time.seconds, SECONDS, 2)} of it {hop.label}"
        for hop in hops
        if hop.time is not None and abs(hop.time.seconds) >= _TOLD * abs(change.seconds)
    ]
    by = format_quantity(abs(change.seconds), SECONDS, 2)
    return f"{head} {verb} by {by}: {', '.join(parts[:_MOST_PARTS]) or 'by many small parts'}."


_TOLD, _MOST_PARTS = 0.05, 3
"""Share of a change from which on its part is told, and how many are."""


def _size(hop: Hop) -> float:
    return 0.0 if hop.time is None else abs(hop.time.seconds)


# --- blocks ------------------------------------------------------------------------------------------


def blocks(explanation: Explanation, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out an explanation for a terminal; `verbose` adds how each hop was measured."""
    yield Notice(severity=Severity.VERDICT, text=headline(explanation))
    yield from _waterfalls(explanation)
    yield from _notices(explanation, verbose=options.verbose)
    if options.verbose and not explanation.baseline:
        yield _how_table(explanation)


def page(explanation: Explanation, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out an explanation as a page."""
    del options
    yield Notice(severity=Severity.VERDICT, text=headline(explanation))
    yield from _notices(explanation, verbose=True)
    yield Heading(title="What has changed" if explanation.baseline else "Where the time goes")
    yield from _waterfalls(explanation)
    if explanation.baseline:
        yield Heading(title="Before and now")
        yield _both_table(explanation)
    else:
        yield Heading(title="How it was measured")
        yield _how_table(explanation)


def _waterfalls(explanation: Explanation) -> Iterator[Waterfall]:
    levels = explanation.levels
    if levels and not explanation.baseline:
        statistic = _STATISTIC_NAMES[explanation.statistic]
        yield Waterfall(
            title=f"Where the {statistic} latency goes, {levels[-1].level}",
            scale=AxisScale(label="time", unit=SECONDS),
            steps=tuple(_steps(levels)),
            note="" if len(levels) > 1 else "the sum is the latency of a call",
        )
    elif levels and explanation.levels_before:
        yield _change_waterfall(explanation.levels_before, levels)


def _steps(levels: Sequence[LevelHops]) -> Iterator[WaterfallStep]:
    for level in levels:
        yield from (_step(hop) for hop in level.hops)
        yield _sum_step(_LEVEL_NAMES[level.level], level.whole)


_LEVEL_NAMES = {
    RunLevel.IN_PROCESS: "= call in process",
    RunLevel.ALONE: "= request alone",
    RunLevel.LOADED: "= request under load",
}


def _step(hop: Hop) -> WaterfallStep:
    low, high = (None, None) if hop.time is None else _ends(hop.time)
    size = None if hop.time is None else hop.time.seconds
    return WaterfallStep(name=hop.label, size=size, low=low, high=high, is_rest=hop.name is HopName.REST)


def _sum_step(name: str, time: TimeEstimate) -> WaterfallStep:
    low, high = _ends(time)
    return WaterfallStep(name=name, size=time.seconds, low=low, high=high, is_sum=True)


def _ends(time: TimeEstimate) -> tuple[float | None, float | None]:
    return (None, None) if time.interval is None else (time.interval.low, time.interval.high)


def _change_waterfall(before: Sequence[LevelHops], now: Sequence[LevelHops]) -> Waterfall:
    changes = [_step(hop) for hop in hop_changes(tuple(before), tuple(now))]
    begin, end = _sum_step("= baseline", before[-1].whole), _sum_step("= now", now[-1].whole)
    return Waterfall(
        title="What changed from the baseline",
        scale=AxisScale(label="time", unit=SECONDS),
        steps=(begin, *changes, end),
        note="each difference by the independent intervals of both",
    )


# --- notices -----------------------------------------------------------------------------------------


def _notices(explanation: Explanation, *, verbose: bool) -> Iterator[Notice]:
    for name, message in explanation.failures.items():
        yield Notice(severity=Severity.FAILURE, code=name, text=f"{message.rstrip('.')}.")
    if RunLevel.IN_PROCESS in explanation.results:
        yield from waiting(explanation.results[RunLevel.IN_PROCESS])
    yield from _sum_notices(explanation)
    yield from _trace_notices(explanation)
    yield from _tail_notices(explanation)
    for name, reason in explanation.missing.items():
        text = spell_for_command_line(f"{reason.rstrip('.')}.")
        yield note(text, code=_MISSING_NAMES.get(name, name))
    yield from _doubts(explanation, verbose=verbose)
    yield from _basis(explanation, verbose=verbose)


def _doubts(explanation: Explanation, *, verbose: bool) -> Iterator[Notice]:
    """Yield the doubts about the hops and their measurements: in a line, or each with its advice."""
    all_doubts = [("", doubt) for doubt in explanation_doubts(explanation.levels)]
    for name, result in explanation.results.items():
        all_doubts += [(name, doubt) for doubt in noteworthy_doubts(result.doubts)]
    if verbose or len(all_doubts) == 1:
        for name, doubt in all_doubts:
            yield Notice(
                severity=Severity.DOUBT,
                code=doubt.code,
                text=f"{name and f'{name}: '}{spell_for_command_line(doubt.seen).rstrip('.')}.",
                advice=spell_for_command_line(doubt.advice),
            )
    elif all_doubts:
        yield doubts_in_a_line([doubt for _, doubt in all_doubts], "-v")


_MISSING_NAMES = {ECHO: "no echo"}


def _sum_notices(explanation: Explanation) -> Iterator[Notice]:
    levels = explanation.levels
    if not levels or explanation.baseline:
        return
    unexplained = unexplained_share(levels)
    noise = [
        hop.label
        for level in levels
        for hop in level.hops
        if hop.name is HopName.REST and hop.time is not None and hop.time.may_be_zero
    ]
    text = f"the rests are {share(unexplained, 1)} of the whole"
    if noise:
        text += f"; within its interval 0: {', '.join(noise)}"
    yield note(f"{text}.", code="sum")


def _trace_notices(explanation: Explanation) -> Iterator[Notice]:
    """Say how the requests that the server stamped differ from all, for which they stand."""
    if explanation.baseline or not are_stamped(explanation.results):
        return
    differences = {
        name: measured_time(result, STAGE_TIME, "mean", UNTRACED)
        for name, result in explanation.results.items()
    }
    parts = [
        f"{format_quantity(abs(time.seconds), SECONDS, 2)} {'less' if time.seconds > 0 else 'more'} ({name})"
        for name, time in differences.items()
        if time is not None and abs(time.seconds) >= _NANO  # where it is less, all were stamped
    ]
    if parts:
        text = f"requests that the server stamped took {', '.join(parts)} than all, taken off in proportion."
        yield note(text, code="time stamps")


_NANO = 1e-9


def _tail_notices(explanation: Explanation) -> Iterator[Notice]:
    """Say what is known of the slowest requests, or of their change."""
    if RunLevel.LOADED not in explanation.results:
        return
    now = tail_time(explanation.results[RunLevel.LOADED], _TAIL)
    before = None
    if explanation.baseline:
        before = tail_time(last_result(explanation.baseline), _TAIL)
    if now is None or (explanation.baseline and before is None):
        return
    means = "; a server's stages are means over requests, so that of the slowest alone none is known"
    if before is None:
        text = (
            f"{_time(now.latency)} ({_TAIL}); the slowest {count(now.requests, 'request')} waited "
            f"{format_quantity(now.waited, SECONDS, 2)} for the client and were served in "
            f"{format_quantity(now.served, SECONDS, 2)}, on average{means}"
        )
    else:
        change = now.latency - before.latency
        interval = estimate(change.seconds, change.interval, SECONDS)[1]
        text = (
            f"{_TAIL} changed by {_time(change)}{interval and f' ({interval})'}; of the slowest requests the "
            f"wait for the client by {format_quantity(now.waited - before.waited, SECONDS, 2)}, the time at "
            f"the server by {format_quantity(now.served - before.served, SECONDS, 2)}{means}"
        )
    yield note(f"{text}.", code="slowest requests")


def _basis(explanation: Explanation, *, verbose: bool) -> Iterator[Notice]:
    """Say what ran where, and how often it was measured."""
    described = []
    for name, result in explanation.results.items():
        if name == ECHO and not verbose:
            continue
        at = "" if result.job.load is None else f" at {result.job.load}"
        rounds = count(max(1, result.processes), "round")
        described.append(f"{name} on {shorten_name(result.job.backend)}{at} ({rounds})")
    if described:
        yield note(f"{'; '.join(described)}.", code="measured")


# --- tables ------------------------------------------------------------------------------------------


def _how_table(explanation: Explanation) -> Table:
    rows = [(hop.label, hop.how) for hop in explanation.hops]
    return make_table("", ("hop", "how"), rows)


def _texts(time: TimeEstimate) -> tuple[str, str]:
    if time.interval is not None and time.interval.low == time.interval.high:
        return estimate(time.seconds, None, SECONDS)[0], "computed"
    if time.interval is None:
        return estimate(time.seconds, None, SECONDS)
    return estimate_near_zero(time.seconds, time.interval.low, time.interval.high, SECONDS)


def _both_table(explanation: Explanation) -> Table:
    now = {(hop.level, hop.name): hop for hop in explanation.hops}
    before = {(hop.level, hop.name): hop for level in explanation.levels_before for hop in level.hops}
    changes = hop_changes(explanation.levels_before, explanation.levels)
    rows = tuple(
        (
            change.label,
            *(
                "unknown" if hop is None or hop.time is None else _texts(hop.time)[0]
                for hop in (group.get((change.level, change.name)) for group in (before, now))
            ),
            *(("unknown", "") if change.time is None else _texts(change.time)),
        )
        for change in changes
    )
    titles = ("hop", "before>", "now>", "change>", "95 % interval")
    return make_table("", titles, rows)


def numbers(explanation: Explanation) -> Table:
    """Return every number in base units: a row for each hop and whole, and for the wholes of the results."""
    rows: list[tuple[str, ...]] = []
    for level in explanation.levels:
        rows += [(str(hop.level), str(hop.name), *_raw(hop.time)) for hop in level.hops]
        rows.append((str(level.level), "whole", *_raw(level.whole)))
    for hop in hop_changes(explanation.levels_before, explanation.levels) if explanation.baseline else ():
        rows.append((str(hop.level), f"change of {hop.name}", *_raw(hop.time)))
    titles = ("level", "hop", "seconds>", "low>", "high>")
    return make_table("Hops", titles, rows)


def _raw(time: TimeEstimate | None) -> tuple[str, str, str]:
    if time is None:
        return "", "", ""
    low, high = _ends(time)
    return repr(time.seconds), "" if low is None else repr(low), "" if high is None else repr(high)
