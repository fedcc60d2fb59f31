"""Lay out a comparison: the verdict, the changes, the other differences, and the causes."""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import CODES, seriousness
from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.blocks import Block, Column, Notice, Severity, Table, make_table, note, shorten
from modeldyno.base.stats.schedule import FIRST_CALL, OWN_INPUTS, share_inputs
from modeldyno.base.stats.units import FRACTION, format_quantity
from modeldyno.base.views.text import (
    TEXT_LIMIT,
    count,
    doubts_in_a_line,
    format_utc,
    short_model_names,
    shorten_message,
    shorten_name,
    shorten_text,
)
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.comparison.change.build import unjudged
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.views.causes import explain_cause
from modeldyno.comparison.views.changes import (
    change_tables,
    explain_rate,
    overview,
    prefix_interruption,
    sentence,
    side_by_side_table,
    times_sentence,
    undecided_notices,
)
from modeldyno.comparison.views.memory_diff import memory_blocks, memory_sentence, memory_table_and_curves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.result.output_agreement import OutputAgreement
    from modeldyno.base.result.result import Fact, Failure, Result
    from modeldyno.comparison.change.comparison import CandidateComparison, Comparison

_VALUE, _SETTINGS, _FAILURE = 26, 14, 160
"""Most characters of a value, settings, and characters of a failure that are shown."""


def blocks(comparison: Comparison, options: ViewOptions = PLAIN) -> tuple[Block, ...]:
    """Lay out a comparison; unchanged metrics are only named, unless the options are verbose."""
    names = short_model_names(comparison.results)
    several = len(comparison.contrasts) > 1
    laid: list[Block] = []
    if several:
        laid += [
            Notice(
                severity=Severity.VERDICT, text=prefix_interruption(comparison, overview(comparison, names))
            ),
            side_by_side_table(comparison, names),
        ]
    for contrast, name in zip(comparison.contrasts, names[1:], strict=True):
        laid += _candidate_blocks(
            comparison, contrast, (names[0], name), everything=options.verbose, several=several
        )
    return (*laid, _how_run_table(comparison, names, everything=options.verbose))


def quick_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """Lay out a quick look: how many times slower or faster each candidate is, and how it was measured."""
    names = short_model_names(comparison.results)
    laid: list[Block] = []
    for contrast, name in zip(comparison.contrasts, names[1:], strict=True):
        pair = (names[0], name)
        text = times_sentence(comparison.baseline, contrast, pair, comparison.level)
        if comparison.baseline.failure or contrast.candidate.failure:
            text = _conclusion(comparison, contrast, pair)
        elif contrast.unlike:
            text = f"{sentence(contrast, pair)} {text}"
        laid.append(_verdict(prefix_interruption(comparison, text), contrast))
        laid += _failures((comparison.baseline, contrast.candidate), pair)
        codes = dict.fromkeys(
            d.code for d in (*comparison.baseline.doubts, *contrast.candidate.doubts, *contrast.doubts)
        )
        if codes:
            laid.append(note(f"doubts: {', '.join(codes)}; a verdict with causes: leave out --quick"))
    return (*laid, _how_run_table(comparison, names, everything=False))


def title(comparison: Comparison) -> str:
    """Return the title of its page."""
    names = short_model_names(comparison.results)
    return f"{', '.join(names[1:])} against {names[0]}"


def headline(comparison: Comparison) -> str:
    """Return the verdict in one sentence."""
    names = short_model_names(comparison.results)
    if len(comparison.contrasts) > 1:
        return prefix_interruption(comparison, overview(comparison, names))
    return prefix_interruption(
        comparison, _conclusion(comparison, comparison.contrasts[0], (names[0], names[1]))
    )


def _candidate_blocks(
    comparison: Comparison,
    contrast: CandidateComparison,
    names: tuple[str, str],
    *,
    everything: bool,
    several: bool,
) -> Iterator[Block]:
    """Lay out the comparison of one candidate with the baseline."""
    text = _conclusion(comparison, contrast, names)
    yield _verdict(text if several else prefix_interruption(comparison, text), contrast)
    yield from _failures((comparison.baseline, contrast.candidate), names)
    yield from undecided_notices(contrast)
    yield from change_tables(contrast, names, everything=everything or several)
    yield from explain_rate(contrast, names)
    yield from _differences_table(contrast, names, everything=everything)
    yield from _agreements(contrast.outputs)
    for cause in contrast.causes:
        yield from explain_cause(cause, everything=everything)
    yield from memory_blocks(comparison.baseline, contrast.candidate, names)
    yield from _doubts(comparison.baseline, contrast, names, everything=everything)


def memory_diff_blocks(baseline: Result, candidate: Result) -> tuple[Block, ...]:
    """Lay out how the memory at the peak of two Results differs, and what else does.

    Raises:
        RunFailed: one of the two holds no snapshot of memory.
    """
    names = ("before", "after")
    return (
        Notice(severity=Severity.VERDICT, text=memory_sentence(baseline, candidate)),
        *_differences_table(unjudged(baseline, candidate), names, everything=False),
        *memory_table_and_curves(baseline, candidate, names),
    )


def _conclusion(comparison: Comparison, contrast: CandidateComparison, names: tuple[str, str]) -> str:
    """Say how a candidate compares with the baseline; of a model that failed, that it did."""
    pair = comparison.baseline, contrast.candidate
    for result, name in zip(pair, names, strict=True):
        if result.failure:
            message = shorten_message(result.failure.message, _FAILURE).rstrip(".")
            advice = _failure_advice(result.failure, pair)
            how = f"; {advice}" if advice else ""
            return f"{name} failed in {result.failure.where}, so it is not judged: {message}{how}."
    return sentence(contrast, names)


def _failure_advice(failure: Failure, pair: Sequence[Result]) -> str:
    """Say what to do about a model that does not take the inputs that all were given; empty for others."""
    shared = failure.where == FIRST_CALL and share_inputs([side.job for side in pair])
    return spell_for_command_line(OWN_INPUTS) if shared else ""


def _verdict(text: str, contrast: CandidateComparison) -> Notice:
    failed = contrast.unlike or contrast.candidate.failure
    outcome = Severity.BROKEN if failed else _OUTCOMES.get(contrast.outcome)
    return Notice(severity=Severity.VERDICT, text=text, outcome=outcome)


_OUTCOMES = {
    ChangeVerdict.BETTER: Severity.HELD,
    ChangeVerdict.WORSE: Severity.BROKEN,
    ChangeVerdict.UNDECIDED: Severity.UNDECIDED,
}


# --- other differences -------------------------------------------------------------------------------


def _differences_table(
    contrast: CandidateComparison, names: tuple[str, str], *, everything: bool
) -> Iterator[Block]:
    """Tabulate the differences in settings, software and hardware, unless the candidate has their name."""
    model_differs = any(difference.name == "model" for difference in contrast.settings)
    settings = [
        difference
        for difference in contrast.settings
        if everything
        or (not (model_differs and difference.name == "content") and not difference.name.startswith("plan."))
    ]
    rows = (
        *(("setting", difference) for difference in settings),
        *(("software", difference) for difference in contrast.software),
        *(("hardware", difference) for difference in contrast.hardware),
    )
    named = not everything and all(
        kind == "setting" and f"{diff.name}={diff.candidate}" in names[1].split() for kind, diff in rows
    )
    if not rows or named:
        return
    rows_shown = rows if everything else rows[:_SETTINGS]
    yield Table(
        title="Other differences",
        columns=tuple(Column(title=title) for title in ("kind", "what", *names)),
        rows=tuple(
            (kind, shorten_text(diff.name, _VALUE), _fact(diff.baseline), _fact(diff.candidate))
            for kind, diff in rows_shown
        ),
    )
    if more := len(rows) - len(rows_shown):
        differ = "differs; --all shows it" if more == 1 else "differ; --all shows them"
        yield note(f"{count(more, 'more setting')} {differ}")


def _fact(value: Fact | None) -> str:
    return "—" if value is None else shorten_text(str(value), _VALUE)


def _agreements(agreements: Sequence[OutputAgreement]) -> Iterator[Notice]:
    for agreement in agreements:
        name = shorten_name(agreement.output)
        if not agreement.largest:
            text = f"the output '{name}' is identical in both"
        else:
            largest = "infinite" if agreement.largest == inf else f"{agreement.largest:.2g}"
            relative = (
                "" if agreement.relative == inf else f" ({agreement.relative:.2g} of the largest value)"
            )
            text = (
                f"the output '{name}' differs by at most {largest}{relative}, cosine {agreement.cosine:.6f}"
            )
        yield note(text)


# --- doubts, and how it was run ----------------------------------------------------------------------


def _failures(results: Sequence[Result], names: Sequence[str]) -> Iterator[Notice]:
    for result, name in zip(results, names, strict=True):
        for failure in result.failures[:1]:
            text = shorten_message(failure.message)
            code = f"{name}: {shorten_name(failure.where)}"
            advice = _failure_advice(failure, results)
            yield Notice(severity=Severity.FAILURE, code=code, text=text, advice=advice, log=failure.log)


def _doubts(
    baseline: Result, contrast: CandidateComparison, names: tuple[str, str], *, everything: bool
) -> Iterator[Notice]:
    """Yield the doubts about the comparison, and a line about each of its two Results."""
    for doubt in contrast.doubts:
        message, advice = spell_for_command_line(doubt.seen), spell_for_command_line(doubt.advice)
        yield Notice(severity=Severity.DOUBT, code=doubt.code, text=message, advice=advice)
    by_side = [
        (name, {doubt.code: doubt for doubt in result.doubts})
        for result, name in zip((baseline, contrast.candidate), names, strict=True)
    ]
    if not everything and by_side[0][1].keys() == by_side[1][1].keys():
        by_side = [("both", by_side[0][1])]
    for name, by_code in by_side:
        if by_code and not everything:
            yield doubts_in_a_line(tuple(by_code.values()), "--all", model=name)
        for code in sorted(by_code, key=seriousness) if everything else ():
            text = f"{name}: {CODES.get(code, 'see its result')}"
            yield Notice(severity=Severity.DOUBT, code=code, text=text)


_ORDERS = {
    "stored": "measured separately",
    "alternating": "in turns",
    "interleaved": "interleaved in short slices",
    "block": "block by block",
}


def _how_run_table(comparison: Comparison, names: Sequence[str], *, everything: bool) -> Table:
    """Tabulate which Results were compared and how they were run, in brief in two lines."""
    if not everything:
        return make_table("", ("", ""), _brief_rows(comparison, names))
    rows = [
        (
            "baseline" if not place else "candidate",
            ", ".join(
                (
                    f"{name}: {result.id}",
                    count(result.processes, "process", "processes"),
                    format_utc(result.created),
                )
            ),
        )
        for place, (result, name) in enumerate(zip(comparison.results, names, strict=True))
    ]
    if _varies(comparison):
        letters = " ".join(_letter(side) for side in comparison.sequence)
        runs = _ORDERS.get(comparison.order, comparison.order) + (f": {letters}" if letters else "")
        level = format_quantity(comparison.level, FRACTION, 3)
        rows.append(("runs", shorten(runs, TEXT_LIMIT)))
        rows.append(("intervals", f"{level}, simultaneous for all metrics of a candidate"))
    return make_table("", ("", ""), rows)


def _brief_rows(comparison: Comparison, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield which Results were compared, and how they were run."""
    ids = (f"{result.id[:_ID]} ({name})" for result, name in zip(comparison.results, names, strict=True))
    yield "results", shorten(", ".join(ids), TEXT_LIMIT)
    if _varies(comparison):
        counts = [result.processes for result in comparison.results]
        alike = len({*counts}) == 1
        processes = (
            f"{count(counts[0], 'process', 'processes')} each" if alike else f"{_joined(counts)} processes"
        )
        order = _ORDERS.get(comparison.order, comparison.order)
        level = format_quantity(comparison.level, FRACTION, 3)
        yield "measured", f"{processes}, {order}; {level} intervals, simultaneous for all metrics"


_ID = 6
"""Characters of an id that are shown."""


def _joined(counts: Sequence[int]) -> str:
    return f"{', '.join(map(str, counts[:-1]))} and {counts[-1]}"


def _varies(comparison: Comparison) -> bool:
    """Whether anything compared is not an exact count; runs and intervals mean nothing for exact counts."""
    spans = (change.interval for contrast in comparison.contrasts for change in contrast.changes)
    return comparison.order != "stored" or any(span is not None and span.low < span.high for span in spans)


def _letter(side: int) -> str:
    return chr(ord("A") + side) if side < 26 else str(side)


def numbers(comparison: Comparison) -> Table:
    """Tabulate every change for other programs: base units, unrounded."""
    names = short_model_names(comparison.results)
    rows = tuple(
        (
            name, str(change.query), METRICS[change.query.metric].unit, str(change.outcome), change.why,
            *map(_exact_text, (
                change.baseline, change.candidate, change.difference,
                *((change.interval.low, change.interval.high) if change.interval else (None, None)),
                change.smallest,
            )),
        )
        for contrast, name in zip(comparison.contrasts, names[1:], strict=True)
        for change in contrast.changes
    )  # fmt: skip
    titles = ("candidate", "metric", "unit", "verdict", "why",
        "baseline>", "value>", "difference>", "low>", "high>", "smallest>")  # fmt: skip
    return make_table("", titles, rows)


def _exact_text(value: float | None) -> str:
    return "" if value is None or not isfinite(value) else f"{value:.12g}"
