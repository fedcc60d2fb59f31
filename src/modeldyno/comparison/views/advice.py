"""Lay out advice: the recommended settings, the settings tried with their gains, and findings not tried."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.job.input_spec import BATCH
from modeldyno.base.report.blocks import Block, Notice, Severity, Table, make_table, note, shorten
from modeldyno.base.stats.units import format_quantity
from modeldyno.base.views.text import TEXT_LIMIT, count, shorten_message, shorten_name
from modeldyno.comparison.change.advice import (
    can_be_tried,
    fixed_batch,
    format_settings,
    of_any_batch,
    relative_gain,
)
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.views.changes import VERDICTS, describe_change, format_relative_change
from modeldyno.profiling.views.findings import bottleneck_notices, finding_notice
from modeldyno.serving.views.replicas import cost_text, money_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.result.cost import Price
    from modeldyno.comparison.change.advice import Advice, TriedSetting
    from modeldyno.comparison.change.comparison import Change

_SETTINGS = 32


def advice(advice: Advice) -> Iterator[Block]:
    """Lay out advice."""
    yield Notice(severity=Severity.VERDICT, text=sentence(advice))
    if advice.command:
        yield note(advice.command, code="use")
    yield from bottleneck_notices(advice.bottleneck)
    if advice.finals:
        yield _table(advice, "Measured again, in separate rounds", advice.finals)
    if advice.tried:
        single_run = not any(tried.rounds for tried in advice.tried)
        title = "Tried, one run of each" if single_run else "Tried, each in turns with the baseline"
        yield _table(advice, title, _best_first(advice.tried))
    yield from _notes(advice)
    yield from (finding_notice(advice.baseline, item) for item in advice.findings if not can_be_tried(item))


def sentence(advice: Advice) -> str:
    """Summarize in one sentence: the best settings and their gain."""
    name = shorten_name(advice.baseline.name)
    now = _first_run_value(advice)
    if advice.best is not None and advice.best.change is not None:
        settings = format_settings(advice.best.candidate.settings)
        cost = _cost_change(advice, advice.best)
        answers = f"{_output_difference(advice.best)}{_answer_changes(advice.best)}"
        return (
            f"{name}: with {settings}, "
            f"{describe_change(advice.best.change)}{_latency_increase(advice.best)}, over "
            f"{count(advice.best.rounds, 'round')} in turns with the baseline{now}{cost}; {answers}."
        )
    if not advice.tried:
        why = "there was no time to try anything" if advice.left_out else "there is nothing to try"
        return f"{name}: {why}{now}."
    if any(t.outcome is ChangeVerdict.BETTER and t.rounds for t in advice.tried):
        return f"{name}: settings that seemed to help could not be confirmed{now}."
    tried = count(len(advice.tried), "setting")
    if not any(t.rounds for t in advice.tried):
        return f"{name}: {tried} tried with one run each, too few to confirm a gain{now}."
    return f"{name}: {tried} tried; none is confirmed to be better than the current ones{now}."


def _first_run_value(advice: Advice) -> str:
    """Return the value of the first run, in parentheses."""
    answer = advice.baseline.ask(advice.query)
    value = answer.value
    return "" if value is None else f" ({format_quantity(value, advice.query.unit, 3)} in the first run)"


def _latency_increase(tried: TriedSetting) -> str:
    """Return by how much the latency increases, if it does, as with a larger batch."""
    latency = _latency_change(tried)
    is_slower = (
        latency is not None and latency.difference is not None and latency.difference > latency.smallest
    )
    return f" and {describe_change(replace(latency, interval=None))}" if latency and is_slower else ""


def _cost_change(advice: Advice, tried: TriedSetting) -> str:
    """Say what inferences cost with the settings, and without, where there is a price."""
    cost = _cost_of(tried)
    if advice.price is None or cost is None or cost.candidate is None or cost.baseline is None:
        return ""
    before, after = (
        format_quantity(amount, cost.query.unit, 3) for amount in (cost.baseline, cost.candidate)
    )
    text = cost_text(cost.query, after, advice.price)
    return f"; {text}, before it was {money_text(before, advice.price)}"


def _cost_of(tried: TriedSetting) -> Change | None:
    changes = (change for change in (tried.change, *tried.beside) if change is not None)
    return next((change for change in changes if change.query.metric == "cost"), None)


def _answer_changes(tried: TriedSetting) -> str:
    """Describe how the answers to labelled samples change."""
    same = [str(change.query) for change in tried.answers if change.outcome is ChangeVerdict.SAME]
    other = [describe_change(change) for change in tried.answers if change.outcome is not ChangeVerdict.SAME]
    parts = (*other, *([f"{', '.join(same)} the same"] if same else []))
    return f"; on labelled samples {', '.join(parts)}" if parts else ""


def _latency_change(tried: TriedSetting) -> Change | None:
    return next((change for change in tried.beside if change.query.metric == "latency"), None)


def _output_difference(tried: TriedSetting) -> str:
    """Describe how much the outputs differ from the baseline's."""
    if tried.unlike:
        return f"outputs not compared: {tried.unlike}"
    if not tried.outputs:
        return "outputs not compared"
    if not tried.error:
        return "the outputs are the same"
    cosine = min(agreement.cosine for agreement in tried.outputs)
    return f"outputs differ by at most {tried.error:.2g} of their largest value, cosine {cosine:.6f}"


def _best_first(tried: Sequence[TriedSetting]) -> list[TriedSetting]:
    """Sort the tried settings: those measured in turns first, by gain, and those that failed last."""
    return sorted(tried, key=lambda t: (bool(t.failure), not t.rounds, -relative_gain(t.change)))


def _table(advice: Advice, title: str, tried: Sequence[TriedSetting]) -> Table:
    costs = ("cost per million>",) if advice.price is not None else ()
    titles = ("settings", str(advice.query), "verdict", "latency>", *costs, "outputs")
    return make_table(title, titles, (_row(advice, each) for each in tried))


def _row(advice: Advice, tried: TriedSetting) -> tuple[str, ...]:
    settings = shorten(format_settings(tried.candidate.settings), _SETTINGS)
    costs = () if advice.price is None else (_cost_cell(tried, advice.price),)
    if tried.failure or tried.change is None:
        return settings, "—", "did not run", "", *("" for _ in costs), ""
    latency = _latency_change(tried)
    change, single_run = tried.change, not tried.rounds  # a single run has no useful interval
    return (
        settings,
        format_relative_change(replace(change, interval=None) if single_run else change),
        "one run only" if single_run else VERDICTS[tried.outcome],
        "" if latency is None else format_relative_change(replace(latency, interval=None)),
        *costs,
        _outputs_cell(tried),
    )


def _cost_cell(tried: TriedSetting, price: Price) -> str:
    cost = _cost_of(tried)
    if cost is None or cost.candidate is None:
        return "—"
    return money_text(format_quantity(cost.candidate, cost.query.unit, 3), price)


def _outputs_cell(tried: TriedSetting) -> str:
    if not tried.outputs:
        return "—"
    return "same" if not tried.error else f"±{tried.error:.1g}"


def _notes(advice: Advice) -> Iterator[Notice]:
    """Yield notes on settings that failed, change the outputs too much, or were not tried in time."""
    for tried in advice.tried:
        if tried.failure:
            yield note(
                f"{format_settings(tried.candidate.settings)} did not run: {shorten_message(tried.failure)}"
            )
        elif tried.error > advice.tolerance and tried.outcome is ChangeVerdict.BETTER:
            yield note(
                f"{format_settings(tried.candidate.settings)} is not combined with others: outputs differ by "
                f"{tried.error:.2g}, more than the tolerance of {advice.tolerance:.2g}",
                advice="allow it with --tolerance if your application permits",
            )
    spec = fixed_batch(advice.baseline)
    if spec is not None and of_any_batch(advice.query.metric):
        batch, *others = map(str, spec.shape or ())
        free = f"{spec.name}={'x'.join((BATCH, *others))}".removeprefix("=")
        yield note(
            f"other batch sizes were not tried: the given input shape fixes the batch at {batch}",
            advice=f"make it variable with --input {free} -b {batch}",
        )
    if advice.left_out:
        names = "; ".join(format_settings(candidate.settings) for candidate in advice.left_out)
        yield note(
            f"no time was left for {shorten(names, TEXT_LIMIT)}", advice="allow more time with --max-time"
        )
