"""Changes of a comparison as a sentence and tables: their size, their interval, and the verdict."""

from __future__ import annotations

from dataclasses import replace
from math import floor, isfinite, log10
from typing import TYPE_CHECKING

from modeldyno.base.metrics.metric import METRICS, Query
from modeldyno.base.report.blocks import (
    Block,
    Column,
    Notice,
    Severity,
    Table,
    make_columns,
    make_table,
    note,
    shorten,
)
from modeldyno.base.stats.units import (
    FARTHEST,
    NOT_BOUNDED,
    RATE,
    SECONDS,
    format_change,
    format_changes,
    format_percent,
    format_quantity,
)
from modeldyno.base.views.text import TEXT_LIMIT, factor, interruption_prefix, shorten_name
from modeldyno.comparison.change.comparison import (
    ChangeVerdict,
    difference_in_points,
    in_points,
    points,
    signed_points,
)
from modeldyno.comparison.change.default_metrics import metric_family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.comparison.change.comparison import CandidateComparison, Change, Comparison


def sentence(contrast: CandidateComparison, names: tuple[str, str]) -> str:  # noqa: PLR0911 - one a verdict
    """Summarize in one sentence how the candidate compares with the baseline, with figures."""
    before, now = names
    groups = {outcome: [c for c in contrast.verdicts if c.outcome is outcome] for outcome in ChangeVerdict}
    texts = {outcome: _join_with_and(map(describe_change, changes)) for outcome, changes in groups.items()}
    same = _join_with_and(str(change.query) for change in groups[ChangeVerdict.SAME])
    if contrast.unlike:
        better = texts[ChangeVerdict.BETTER]
        also = f"; better is {better}" if groups[ChangeVerdict.BETTER] else ""
        return f"{now} does not return what {before} does: {contrast.unlike}{also}."
    match contrast.outcome:
        case ChangeVerdict.WORSE:
            also = f", but better: {texts[ChangeVerdict.BETTER]}" if groups[ChangeVerdict.BETTER] else ""
            return f"{now} is worse than {before}: {texts[ChangeVerdict.WORSE]}{also}."
        case ChangeVerdict.BETTER:
            also = f"; unchanged: {same}" if same else ""
            return f"{now} is better than {before}: {texts[ChangeVerdict.BETTER]}{also}."
        case ChangeVerdict.SAME:
            return f"{now} performs the same as {before}: {_same_clause(groups[ChangeVerdict.SAME])}."
        case ChangeVerdict.UNDECIDED:
            if not contrast.verdicts:
                return f"{now} and {before} have no metric that could be compared."
            open_ones = [*map(_undecided_clause, groups[ChangeVerdict.UNDECIDED])]
            if contrast.outputs_verdict is ChangeVerdict.UNDECIDED:
                open_ones.append("its outputs could not be judged")
            undecided = _join_with_and(open_ones)
            if groups[ChangeVerdict.BETTER]:
                better = texts[ChangeVerdict.BETTER]
                return f"{now} is partly better than {before}: {better}. Undecided: {undecided}."
            return f"It is undecided whether {now} is better or worse than {before}: {undecided}."


def times_sentence(
    baseline: Result, contrast: CandidateComparison, names: tuple[str, str], level: float
) -> str:
    """Say how many times slower or faster a call of the candidate is, with half or all of its interval.

    The interval is that of the verdict; one that reaches across 1 leaves open which of the two is faster.
    """
    before, now = names
    change = next((change for change in contrast.changes if change.query == MEDIAN_CALL), None)
    if change is None or change.difference is None:
        ratio = _ratio_of_raw_medians(baseline, contrast.candidate)
        if ratio is None:
            return sentence(contrast, names)
        about, few = f"about {factor(ratio, 2)}", "by too few independent calls"
        return f"{now} took {about} times as long as {before}, {few} {_HOW_CERTAIN}"
    ratio, span = 1 + change.difference, change.interval
    if (
        span is None
        or not isfinite(span.high)
        or format_changes(span.low, span.high) == NOT_BOUNDED
        or span.low <= -1
    ):
        return f"{now} took {factor(ratio)} times as long as {before}, in too few processes {_HOW_CERTAIN}"
    low, high = 1 + span.low, 1 + span.high
    certain = f"{100 * level:.1f}".removesuffix(".0")
    if low <= 1 <= high:
        between = f"{factor(low)} to {factor(high)} times as long"
        return f"{now} may be faster or slower than {before}: {between} ({certain} % interval)."
    word = "slower"
    if ratio < 1:
        ratio, low, high, word = 1 / ratio, 1 / high, 1 / low, "faster"
    half = (high - low) / 2
    digits = min(3, max(0, 1 - floor(log10(half)))) if half else 3
    text = f"{ratio:,.{digits}f} ± {half:,.{digits}f} times"
    if half >= min(ratio / 2, ratio - 1):  # far from symmetric: it would reach across 1
        text = f"{factor(low)} to {factor(high)} times"
    return f"{now} is {text} {word} than {before} ({certain} % interval)."


_HOW_CERTAIN = "to say how certain that is; leave out --quick, or give --max-time 30s."


def _ratio_of_raw_medians(baseline: Result, candidate: Result) -> float | None:
    """Return how many times as long the median call took, certified or not; None if it has no meaning."""
    before, now = baseline.distribution("latency"), candidate.distribution("latency")
    if before is None or now is None or before.void or now.void or not before.statistic("p50"):
        return None
    return now.statistic("p50") / before.statistic("p50")


MEDIAN_CALL = Query(metric="latency", statistic="p50")


def prefix_interruption(comparison: Comparison, text: str) -> str:
    """Prefix the sentence if the rounds were interrupted; stored Results were not measured by this run."""
    prefix = (
        ""
        if comparison.order == "stored"
        else interruption_prefix(comparison.baseline, comparison.baseline.processes)
    )
    return prefix + (
        text[0].lower() + text[1:] if prefix and text.startswith(("It is ", "Compared ")) else text
    )


def overview(comparison: Comparison, names: Sequence[str]) -> str:
    """Summarize in one sentence how each of several candidates compares with the baseline."""
    verdicts = _join_with_and(
        f"{name} failed" if contrast.candidate.failure else f"{name} is {VERDICTS[contrast.outcome]}"
        for contrast, name in zip(comparison.contrasts, names[1:], strict=True)
    )
    return f"Compared with {names[0]}, {verdicts}."


VERDICTS = {
    ChangeVerdict.BETTER: "better",
    ChangeVerdict.WORSE: "worse",
    ChangeVerdict.SAME: "the same",
    ChangeVerdict.UNDECIDED: "undecided",
}


def _join_with_and(parts: Iterable[str]) -> str:
    """Join parts with commas, and the last one with ``and``."""
    *most, last = tuple(parts) or ("",)
    return f"{', '.join(most)} and {last}" if most else last


def describe_change(change: Change) -> str:
    """Describe by how much a metric is higher or lower: ``latency.p50 12.3% higher (10.1% to 14.5%)``.

    A change of a factor of ten or more is written as a factor: ``latency.p50 2,600 times faster``.
    """
    ratio, span = change.difference, change.interval
    if ratio is None:
        before, after = figures(change)
        return f"{change.query} {after} instead of {before}"
    if in_points(change):
        return f"{change.query} {_bound_text(ratio, change)}{_points_interval(change)}"
    if factor := _factor(ratio):
        return f"{change.query} {factor:,.0f} times {_direction(change)}{_factor_interval(change)}"
    word = "higher" if ratio > 0 else "lower"
    size = format_percent(abs(ratio))
    if span is None or span.low == span.high:
        return f"{change.query} {size} {word}"
    if span.low * span.high <= 0 or _factor(span.high):
        return f"{change.query} {size} {word}{_interval_text(change)}"
    low, high = sorted((abs(span.low), abs(span.high)))
    return f"{change.query} {size} {word} ({format_percent(low)} to {format_percent(high)})"


def _points_interval(change: Change) -> str:
    """Format the interval of a change in points, unsigned where the words before it say the direction."""
    span = change.interval
    if span is None or span.low == span.high:
        return ""
    if span.low * span.high <= 0:
        return f" ({signed_points(span.low, change)} to {signed_points(span.high, change)})"
    low, high = sorted((span.low, span.high), key=abs)
    return f" ({points(low, change)} to {points(high, change)})"


def _factor(ratio: float) -> float | None:
    """Return a change as a factor above 1, up or down; None if it is shown in percent."""
    factor = 1 + ratio
    return factor if factor >= _TIMES else 1 / factor if 0 < factor <= 1 / _TIMES else None


def _factor_interval(change: Change) -> str:
    """Format the interval of a change that is told as a factor; in changes where it includes none at all."""
    span = change.interval
    if span is None or span.low == span.high or span.low * span.high <= 0 or span.low <= -1:
        return _interval_text(change)
    low, high = sorted(max(1 + end, 1 / (1 + end)) for end in (span.low, span.high))
    return f" ({_times(low)} to {_times(high)})"


def _times(factor: float) -> str:
    return f"{factor:,.0f}" if factor >= _TIMES else f"{factor:.1f}"


def _interval_text(change: Change) -> str:
    span = change.interval
    return "" if span is None or span.low == span.high else f" ({format_changes(span.low, span.high)})"


def _direction(change: Change) -> str:
    """Return the direction of a factor: for the time of a call, faster or slower."""
    more = (change.difference or 0.0) > 0
    if metric_family(change.query) == metric_family(_CALL) and change.query.unit in {SECONDS, RATE}:
        return "slower" if more is (change.query.unit == SECONDS) else "faster"
    return "as much" if more else "less"


_CALL = Query(metric="latency")
_TIMES = 10
"""Changes from this factor on are written as a factor, as in `format_change`."""


def _same_clause(changes: Iterable[Change]) -> str:
    """Describe how the metrics are the same: within the smallest change that matters, or equal."""
    equal, within = [], []
    for change in changes:
        if change.interval is not None and change.interval.low == change.interval.high == 0:
            equal.append(str(change.query))
        else:
            within.append(f"{change.query} within {format_percent(change.smallest)}")
    return _join_with_and((*within, *([f"{_join_with_and(equal)} equal"] if equal else [])))


def _undecided_clause(change: Change) -> str:
    """Describe the range in which the true change may lie."""
    span = change.interval
    if span is None:
        reason, *_ = (change.why or "no data").rstrip(".").split(";")
        return f"{change.query} cannot be judged ({reason})"
    if format_changes(span.low, span.high) == NOT_BOUNDED:
        return f"{change.query} may have changed by any amount"
    return (
        f"{change.query} may be between {_bound_text(span.low, change)} and {_bound_text(span.high, change)}"
    )


def _bound_text(ratio: float, change: Change) -> str:
    if not ratio:
        return "unchanged"
    if in_points(change):
        return f"{points(ratio, change)} points {'higher' if ratio > 0 else 'lower'}"
    if factor := _factor(ratio):
        times = f"over {FARTHEST:,}" if factor > FARTHEST else f"{factor:,.0f}"
        return f"{times} times {'as much' if ratio > 0 else 'less'}"
    return f"{format_percent(abs(ratio))} {'higher' if ratio > 0 else 'lower'}"


# --- tables of changes -------------------------------------------------------------------------------


def change_tables(
    contrast: CandidateComparison, names: tuple[str, str], *, everything: bool
) -> Iterator[Block]:
    """Tabulate what has changed, and name the rest."""
    with_row = [change for change in contrast.changes if everything or _has_own_row(change, contrast)]
    if with_row:
        labels = names if max(map(len, names)) <= _SIDE else ("baseline", "candidate")
        titles = ("metric", *(f"{label}>" for label in labels), "change", "verdict")
        yield make_table("What has changed", titles, map(_row, with_row))
    if others := [change for change in contrast.changes if change not in with_row]:
        also = [
            f"{change.query} {format_relative_change(change)}" for change in others if _surely_changed(change)
        ]
        same = [change for change in others if change.outcome is ChangeVerdict.SAME]
        slight = [
            f"{change.query} {format_relative_change(change)}" for change in same if _changed_slightly(change)
        ]
        equal = [str(change.query) for change in same if not _changed_slightly(change)]
        undecided = [
            str(c.query) for c in others if c.outcome is not ChangeVerdict.SAME and not _surely_changed(c)
        ]
        parts = (
            f"also changed: {', '.join(also)}" if also else "",
            f"changed too little to matter: {', '.join(slight)}" if slight else "",
            f"unchanged: {_some_names(equal)}" if equal else "",
            f"undecided: {', '.join(undecided)}" if undecided else "",
        )
        yield note(shorten("; ".join(filter(None, parts)), TEXT_LIMIT))


def _some_names(names: Sequence[str]) -> str:
    """Name the first of several, and count the others."""
    shown = names if len(names) <= _NAMED + 1 else (*names[:_NAMED], f"{len(names) - _NAMED} others")
    return ", ".join(shown) if len(shown) == len(names) else f"{', '.join(shown[:-1])} and {shown[-1]}"


_NAMED = 4
"""Unchanged metrics that are named."""


def explain_rate(contrast: CandidateComparison, names: tuple[str, str]) -> Iterator[Notice]:
    """Explain a change of a rate that is not that of the median: slow calls count in a rate alone."""
    by_query = {str(change.query): change for change in contrast.changes}
    median, rate = by_query.get("latency.p50"), by_query.get("batch_rate")
    if median is None or rate is None or not _surely_changed(rate):
        return
    pairs = [(median.baseline, rate.baseline), (median.candidate, rate.candidate)]
    known = [(p50, 1 / per_second) for p50, per_second in pairs if p50 and per_second]
    shares = [mean / p50 for p50, mean in known]
    if len(known) == len(pairs) and max(shares) >= _FAR * min(shares):
        calls = " and ".join(
            f"{format_quantity(mean, SECONDS, 2)} with {name} (median {format_quantity(p50, SECONDS, 2)})"
            for (p50, mean), name in zip(known, names, strict=True)
        )
        text = f"slow calls count in throughput and not in latency.p50: a call takes on average {calls}"
        yield note(text, code="slow-calls")


_FAR = 1.25
"""Ratio of the shares that slow calls have on two sides from which on they make a change of their own."""
_SIDE = 11
"""Longest name that is used as a column title, so that the table fits 80 columns."""


def _changed_slightly(change: Change) -> bool:
    """Whether a metric has certainly changed, by less than matters."""
    span = change.interval
    return bool(change.difference) and span is not None and span.low == span.high


def _surely_changed(change: Change) -> bool:
    """Whether a metric has certainly changed."""
    if change.outcome in {ChangeVerdict.BETTER, ChangeVerdict.WORSE}:
        return True
    span = change.interval
    return change.outcome is ChangeVerdict.UNDECIDED and span is not None and (span.low > 0 or span.high < 0)


def _has_own_row(change: Change, contrast: CandidateComparison) -> bool:
    """Whether a change has its own row when not everything is shown."""
    if change in contrast.verdicts:
        return change.outcome is not ChangeVerdict.SAME
    return _surely_changed(change) and not METRICS[change.query.metric].derived


def _row(change: Change) -> tuple[str, ...]:
    return (
        shorten_name(str(change.query)),
        *figures(change),
        format_relative_change(change),
        str(change.outcome),
    )


def figures(change: Change) -> tuple[str, str]:
    """Format both values with as many digits as distinguish them, up to a limit."""
    values, unit = (change.baseline, change.candidate), change.query.unit
    for digits in range(_FEWEST, _MOST + 1):
        before, after = ("—" if value is None else format_quantity(value, unit, digits) for value in values)
        if before != after or values[0] == values[1]:
            break
    return before, after


_FEWEST, _MOST = 3, 6
"""Fewest and most digits of a figure."""


def format_relative_change(change: Change) -> str:
    """Format a difference with its interval: ``+12.3% (+10.1 to +14.5%)``."""
    if change.difference is None:
        return "new" if change.baseline == 0 else "—"
    span = change.interval
    if in_points(change):
        return difference_in_points(change)
    size = format_change(change.difference)
    if span is None or span.low == span.high:
        return size
    return f"{size} ({format_changes(span.low, span.high)})"


def _value(value: float | None, change: Change) -> str:
    return "—" if value is None else format_quantity(value, change.query.unit, 3)


def side_by_side_table(comparison: Comparison, names: Sequence[str]) -> Table:
    """Tabulate every judged metric for all candidates."""
    queries = dict.fromkeys(change.query for contrast in comparison.contrasts for change in contrast.verdicts)
    rows = []
    for query in queries:
        changes = [
            next((c for c in contrast.changes if c.query == query), None) for contrast in comparison.contrasts
        ]
        reference = next(c for c in changes if c is not None)
        cells = (
            "—"
            if c is None
            else f"{_value(c.candidate, c)} "
            f"({format_relative_change(replace(c, interval=None))} {VERDICTS[c.outcome]})"
            if c.difference is not None
            else _value(c.candidate, c)
            for c in changes
        )
        rows.append((str(query), _value(reference.baseline, reference), *cells))
    candidates = (Column(title=name) for name in names[1:])
    columns = (*make_columns("metric", f"{names[0]} (reference)>"), *candidates)
    return Table(title="Side by side", columns=columns, rows=tuple(rows))


def undecided_notices(contrast: CandidateComparison) -> Iterator[Notice]:
    """Yield why verdicts are undecided, each reason once."""
    reasons: dict[str, list[str]] = {}
    for change in contrast.verdicts:
        if change.outcome is ChangeVerdict.UNDECIDED and change.why:
            reasons.setdefault(change.why, []).append(str(change.query))
    for why, queries in reasons.items():
        yield Notice(severity=Severity.UNDECIDED, code=", ".join(queries), text=why)
