"""Advice in words: what to use, what was tried and what it gave, and what only was seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.advice.advice import fixed_batch, gain, shown, tries
from modeldyno.core.comparison.comparison import Outcome
from modeldyno.core.metrics.metric import METRICS, Better
from modeldyno.core.report.blocks import Align, Block, Column, Notice, Severity, Table, clean, shorten
from modeldyno.core.spec.input_spec import BATCH
from modeldyno.core.stats.units import format_quantity
from modeldyno.views.advice.findings import finding, limited
from modeldyno.views.comparison.changes import VERDICTS, moved, relative
from modeldyno.views.text import NAME_LIMIT, TEXT_LIMIT, count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.advice.advice import Advice, Tried
    from modeldyno.core.comparison.comparison import Change

_SETTINGS = 32


def advice(found: Advice) -> Iterator[Block]:
    """Lay advice out."""
    yield Notice(severity=Severity.VERDICT, text=sentence(found))
    if found.best is not None:
        yield Notice(severity=Severity.NOTE, code="use", text=found.command)
    yield from limited(found.bottleneck)
    if found.finals:
        yield _table(found, "Measured again, in rounds of their own", found.finals)
    if found.tried:
        once = not any(tried.rounds for tried in found.tried)
        title = "Tried, one run of each" if once else "Tried, each in turns with the baseline"
        yield _table(found, title, _ordered(found.tried))
    yield from _notes(found)
    yield from (finding(found.baseline, each) for each in found.findings if not tries(each))


def sentence(found: Advice) -> str:
    """Say what is best, and what it gains."""
    name = shorten(clean(found.baseline.name), NAME_LIMIT)
    now = _now(found)
    if found.best is not None and found.best.change is not None:
        settings, price = shown(found.best.candidate.settings), _price(found.best)
        return (
            f"{name}: with {settings}, {moved(found.best.change)}{_slower(found.best)}, over "
            f"{count(found.best.rounds, 'round')} in turns with what it was{now}; {price}."
        )
    if not found.tried:
        why = "there was no time to try anything" if found.left_out else "there is nothing to try"
        return f"{name}: {why}{now}."
    if any(t.outcome is Outcome.BETTER and t.rounds for t in found.tried):
        return f"{name}: what seemed to help could not be confirmed{now}."
    tried = count(len(found.tried), "setting")
    if not any(t.rounds for t in found.tried):
        return f"{name}: {tried} tried, with one run each, which confirms nothing{now}."
    return f"{name}: {tried} tried, and none is shown to be better than the present ones{now}."


def _now(found: Advice) -> str:
    """Say what it was at the first look."""
    answer = found.baseline.ask(found.query)
    value = answer.value
    return "" if value is None else f" ({format_quantity(value, found.query.unit, 3)} in the first run)"


def _slower(tried: Tried) -> str:
    """Say by how much a call takes longer, where it does: that of a larger batch may."""
    beside = _latency(tried)
    longer = beside is not None and beside.difference is not None and beside.difference > beside.smallest
    return f" and {moved(replace(beside, interval=None))}" if beside and longer else ""


def _latency(tried: Tried) -> Change | None:
    return next((each for each in tried.beside if each.query.metric == "latency"), None)


def _price(tried: Tried) -> str:
    """Say what it costs in the outputs."""
    if tried.unlike:
        return f"outputs not compared: {tried.unlike}"
    if not tried.outputs:
        return "outputs not compared"
    if not tried.error:
        return "the outputs are the same"
    cosine = min(agreement.cosine for agreement in tried.outputs)
    return f"outputs differ by {tried.error:.2g} of their largest at most, cosine {cosine:.6f}"


def _ordered(tried: Sequence[Tried]) -> list[Tried]:
    """Put what was measured in turns first, by what it gains, and what did not run last."""
    return sorted(tried, key=lambda t: (bool(t.failure), not t.rounds, -gain(t.change)))


def _table(found: Advice, title: str, tried: Sequence[Tried]) -> Table:
    titles = ("settings", str(found.query), "verdict", "latency", "outputs")
    return Table(
        title=title,
        columns=tuple(Column(title=t, align=Align.RIGHT if t == "latency" else Align.LEFT) for t in titles),
        rows=tuple(map(_row, tried)),
    )


def _row(tried: Tried) -> tuple[str, ...]:
    settings = shorten(shown(tried.candidate.settings), _SETTINGS)
    if tried.failure or tried.change is None:
        return settings, "—", "did not run", "", ""
    beside = _latency(tried)
    change, once = tried.change, not tried.rounds  # one look has no interval to speak of
    return (
        settings,
        relative(replace(change, interval=None) if once else change),
        "one run only" if once else VERDICTS[tried.outcome],
        "" if beside is None else relative(replace(beside, interval=None)),
        _outputs(tried),
    )


def _outputs(tried: Tried) -> str:
    if not tried.outputs:
        return "—"
    return "same" if not tried.error else f"±{tried.error:.1g}"


def _notes(found: Advice) -> Iterator[Notice]:
    """Say what did not run, what changes the outputs too much, and what there was no time for."""
    for tried in found.tried:
        if tried.failure:
            text = (
                f"{shown(tried.candidate.settings)} did not run: {shorten(clean(tried.failure), TEXT_LIMIT)}"
            )
            yield Notice(severity=Severity.NOTE, text=text)
        elif tried.error > found.tolerance and tried.outcome is Outcome.BETTER:
            text = (
                f"{shown(tried.candidate.settings)} is not combined: outputs differ by {tried.error:.2g}, "
                f"more than the tolerance of {found.tolerance:.2g}"
            )
            yield Notice(
                severity=Severity.NOTE, text=text, advice="allow it with --tolerance, if your data bear it"
            )
    given = fixed_batch(found.baseline)
    if given is not None and METRICS[found.query.metric].better is Better.HIGHER:
        batch, *rest = map(str, given.shape or ())
        free = f"{given.name}={'x'.join((BATCH, *rest))}".removeprefix("=")
        yield Notice(
            severity=Severity.NOTE,
            text=f"other sizes of the batch were not tried, as the shape that was given fixes it: {batch}",
            advice=f"leave it free with --input {free} -b {batch}",
        )
    if found.left_out:
        named = "; ".join(shown(candidate.settings) for candidate in found.left_out)
        text = f"no time was left for {shorten(named, TEXT_LIMIT)}"
        yield Notice(severity=Severity.NOTE, text=text, advice="give it more with --max-time")
