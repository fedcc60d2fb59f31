"""Lay out a conversion: the verdict, a line for each form, and what to do about failures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.blocks import Block, Heading, Notice, Severity, Table, make_table
from modeldyno.base.stats.units import BYTES, SECONDS, format_quantity
from modeldyno.base.views.text import count, shorten_name
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.conversion.agreement.rule import Equivalence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.conversion.agreement.agreement import ModelAgreement
    from modeldyno.conversion.agreement.conversion import Conversion, Converted


def headline(conversion: Conversion) -> str:
    """Say in one sentence how many forms are still the model."""
    return f"{title(conversion)}: {brief(conversion)}."


def brief(conversion: Conversion) -> str:
    """Return a short summary for a list, which has the name beside it."""
    if conversion.first and conversion.usable:
        made = conversion.converted[-1]
        before = [each.recipe for each in conversion.converted[:-1]]
        skipped = f"; before it came {', '.join(before)}" if before else ""
        return f"{made.recipe} is the first form that is still the model ({made.verdict}){skipped}"
    total = len(conversion.converted)
    agreeing = len(conversion.agreeing)
    close = sum(made.usable for made in conversion.converted) - agreeing
    verb = "agrees" if 1 in (agreeing, total) else "agree"
    parts = [f"{agreeing} of {count(total, 'converted form')} {verb} with it"]
    parts += [f"{close} {'is' if close == 1 else 'are'} close, as declared"] if close else []
    wrong = sum(made.verdict == Equivalence.DIFFERS for made in conversion.converted)
    parts += [f"{wrong} differ{'s' if wrong == 1 else ''}"] if wrong else []
    failed = total - agreeing - close - wrong
    parts += [f"{failed} failed"] if failed else []
    return ", ".join(parts)


def title(conversion: Conversion) -> str:
    """Return the name of the model."""
    return shorten_name(conversion.name)


def blocks(conversion: Conversion, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out a conversion; `verbose` adds every output of every form."""
    yield Notice(severity=Severity.VERDICT, text=headline(conversion))
    folder = _folder(conversion)
    titles = ("form", "verdict", "error>", "allowed>", "size>", "time>", "file")
    yield make_table("", titles, (_row(made, folder) for made in conversion.converted))
    yield from failures(conversion, verbose=options.verbose)
    for made in conversion.converted:
        if made.failure is None and made.agreement is not None and _is_conditional(made.agreement):
            yield Notice(severity=Severity.NOTE, code=made.recipe, text=f"{made.agreement.sentence}.")
    yield from _basis(conversion, folder)
    if options.verbose:
        yield from _details(conversion)


def failures(conversion: Conversion, *, verbose: bool = False) -> Iterator[Notice]:
    """Say of each form that cannot be used why, and what to do; `verbose` adds the logs."""
    for made in conversion.converted:
        if made.failure is not None:
            yield Notice(
                severity=Severity.FAILURE,
                code=f"{made.recipe} {made.failure.kind}",
                text=f"{spell_for_command_line(made.failure.message)}.{_place(made)}",
                advice=spell_for_command_line(made.failure.advice.strip()),
                log=made.failure.log if verbose else "",
            )


def _is_conditional(agreement: ModelAgreement) -> bool:
    """Return whether a usable form needs a word: it is only close, or agrees by a tolerance."""
    by_tolerance = any(figures.ruled is not None for figures in agreement.outputs)
    return agreement.verdict == Equivalence.CLOSE or by_tolerance


def _place(made: Converted) -> str:
    """Say where it first differs."""
    first = None if made.agreement is None else made.agreement.first
    return "" if first is None else f" {first.sentence[0].upper()}{first.sentence[1:]}."


def page(conversion: Conversion, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out a conversion as a page: the forms, what was compared, and each output."""
    laid = list(blocks(conversion, options))
    yield from (block for block in laid if isinstance(block, Notice))
    yield Heading(title="The forms")
    yield from (block for block in laid if isinstance(block, Table))
    if not options.verbose:
        yield from _details(conversion)


def numbers(conversion: Conversion) -> Table:
    """Return every number: a row for each output of each form."""
    rows = []
    for made in conversion.converted:
        for figures in made.agreement.outputs if made.agreement is not None else ():
            top = figures.top
            shares = (None, None, None) if top is None else (top.same, top.of, top.low)
            values = (
                figures.largest, figures.relative, figures.error, figures.bound, figures.floor,
                figures.cosine, *shares, made.size, made.seconds,
            )  # fmt: skip
            texts = (made.recipe, figures.output, str(figures.verdict))
            rows.append((*texts, *("" if value is None else repr(value) for value in values)))
        if made.agreement is None:
            rows.append((made.recipe, "", made.verdict, *[""] * 9, repr(made.size), repr(made.seconds)))
    titles = (
        "form", "output", "verdict", "largest>", "relative>", "error>", "bound>", "floor>", "cosine>",
        "same>", "of>", "low>", "size>", "seconds>",
    )  # fmt: skip
    return make_table("Numbers", titles, rows)


def _row(made: Converted, folder: str) -> tuple[str, ...]:
    worst = None if made.agreement is None else made.agreement.worst
    return (
        made.recipe,
        made.verdict,
        "" if worst is None else _error(worst.error),
        "" if worst is None else _error(worst.bound),
        format_quantity(made.size, BYTES, 3) if made.size else "",
        format_quantity(made.seconds, SECONDS, 2) if made.seconds else "",
        os.path.relpath(made.path, folder) if made.path else "",
    )


def _error(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}" if value else "0"


def _folder(conversion: Conversion) -> str:
    """Return the folder that all files have in common."""
    folders = [str(Path(made.path).parent.parent) for made in conversion.converted if made.path]
    return os.path.commonpath(folders) if folders else "."


def _basis(conversion: Conversion, folder: str) -> Iterator[Notice]:
    """Say where the files are, and what was compared."""
    if any(made.path for made in conversion.converted):
        again = (
            "; reproduce.py beside each makes it again"
            if any(m.reproduce for m in conversion.converted)
            else ""
        )
        yield Notice(severity=Severity.NOTE, code="files", text=f"in {folder}{again}.")
    compared = [made.agreement for made in conversion.converted if made.agreement is not None]
    if not compared:
        return
    agreement = compared[0]
    yield Notice(severity=Severity.NOTE, code="compared", text=_compared(conversion, agreement))
    for note in agreement.notes:
        yield Notice(severity=Severity.DOUBT, code="compared", text=f"{note}.")


def _compared(conversion: Conversion, agreement: ModelAgreement) -> str:
    files = [spec.source for spec in conversion.inputs if spec.source]
    kind = f"samples of {', '.join(files)}" if files else "random samples"
    floors = f"; noise floor from {', '.join(agreement.floors)}" if agreement.floors else ""
    return f"{agreement.samples} {kind} at {', '.join(agreement.calls)}{floors}."


def _details(conversion: Conversion) -> Iterator[Table]:
    """Yield the figures of every output of every form."""
    for made in conversion.converted:
        if made.agreement is None:
            continue
        rows = tuple(
            (
                figures.output,
                str(figures.verdict),
                *map(_error, (figures.largest, figures.error, figures.bound, figures.floor)),
                "" if figures.cosine is None else f"{figures.cosine:.6f}",
                "" if figures.top is None else f"{figures.top.same} of {figures.top.of}",
            )
            for figures in made.agreement.outputs
        )
        title = f"{made.recipe}, by {made.converter}" if made.converter else made.recipe
        titles = ("output", "verdict", "largest>", "worst>", "allowed>", "floor>", "cosine>", "same top>")
        yield make_table(title, titles, rows)
