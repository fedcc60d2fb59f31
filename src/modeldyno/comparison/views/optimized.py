"""Lay out what was chosen among the forms of a model: the choice, a line for each form, what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, Notice, Severity, make_table, note
from modeldyno.base.stats.units import format_quantity
from modeldyno.base.views.text import count, shorten_name
from modeldyno.comparison.change.choice import SOURCE
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.views.changes import VERDICTS, describe_change, figures
from modeldyno.conversion.views.blocks import failures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.comparison.change.choice import Optimized
    from modeldyno.comparison.change.comparison import Change


def headline(optimized: Optimized) -> str:
    """Say in one sentence which form was chosen, and why."""
    unmet = optimized.choice.unmet
    before = f" Not met: {'; '.join(unmet)}." if unmet and optimized.form else ""
    return f"{shorten_name(optimized.conversion.name)}: {_sentence(optimized)}.{before}"


def _sentence(optimized: Optimized) -> str:
    choice = optimized.choice
    usable = sum(made.usable for made in optimized.conversion.converted)
    forms = f"{count(usable, 'form')} that {'is' if usable == 1 else 'are'} still the model"
    if not choice.form:
        return f"no preference can be met, by the model or {forms}"
    assert choice.preference is not None
    if choice.form == SOURCE:
        if choice.preference.form:
            return "keep the model as it is, as none of the forms before it is still the model"
        if not usable:
            return "keep the model as it is, as none of its forms can be used"
        agree = "one form agrees and is not" if usable == 1 else f"{usable} forms agree, and none is"
        return f"keep the model as it is: {agree} surely better in {choice.preference.query}"
    if choice.change is None:
        return f"{choice.form}, the first preferred form that is still the model"
    held = f", with {' and '.join(map(str, choice.preference.bounds))}" if choice.preference.bounds else ""
    better = "" if choice.change.outcome is ChangeVerdict.BETTER else f", {VERDICTS[choice.change.outcome]}"
    best = f"the best of {forms}" if usable > 1 else "the only form that is still the model"
    return f"{choice.form}, {best}{held}: {describe_change(choice.change)} than the source{better}"


def blocks(optimized: Optimized) -> Iterator[Block]:
    """Lay out the choice."""
    yield Notice(severity=Severity.VERDICT, text=headline(optimized))
    comparison = optimized.comparison
    usable = [made.recipe for made in optimized.conversion.converted if made.usable]
    queries = [] if comparison is None else [change.query for change in comparison.contrasts[0].verdicts]
    by_form: dict[str, dict[str, Change]] = {}
    for form, contrast in zip(usable, () if comparison is None else comparison.contrasts, strict=False):
        by_form[form] = {str(change.query): change for change in contrast.changes}
    rows = [_row(SOURCE, "", [_source_cell(by_form, str(query)) for query in queries], optimized)]
    for made in optimized.conversion.converted:
        cells = [_cell(by_form.get(made.recipe, {}).get(str(query))) for query in queries]
        rows.append(_row(made.recipe, made.verdict, cells, optimized))
    yield make_table("", ("form", "verdict", *(f"{query}>" for query in queries), "choice"), rows)
    yield from failures(optimized.conversion)
    if optimized.path:
        yield note(f"package: {optimized.path}; call it with modeldyno.open_model('{optimized.path}')")


def _row(form: str, verdict: str, cells: list[str], optimized: Optimized) -> tuple[str, ...]:
    return (form, verdict, *cells, "chosen" if optimized.choice.form == form else "")


def _source_cell(by_form: dict[str, dict[str, Change]], query: str) -> str:
    change = next((changes[query] for changes in by_form.values() if query in changes), None)
    return (
        ""
        if change is None or change.baseline is None
        else format_quantity(change.baseline, change.query.unit, 3)
    )


def _cell(change: Change | None) -> str:
    if change is None:
        return ""
    return f"{figures(change)[1]} ({VERDICTS[change.outcome]})"
