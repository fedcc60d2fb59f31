"""Where a change comes from: the parts that contribute most, what the others make up, and the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.block import Align, Block, Column, Notice, Severity, Table, clean, shorten
from modeldyno.core.units import format_quantity
from modeldyno.views.words import count, ending, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.comparison import Cause, Part

_PARTS, _WHERE, _KIND = 6, 34, 26
"""Parts that are shown, and characters of a place and of a class."""
_COUNTED = {"flops", "weight_bytes", "activation_peak", "memory_peak", "load_time"}
"""Metrics of which one sentence tells where a change comes from."""


def explained(cause: Cause, *, everything: bool = False) -> Iterator[Block]:
    """Show the parts that contribute most, what the others make up, and the rest, which sum to the change."""
    yield Notice(severity=Severity.NOTE, text=_dearest(cause))
    if cause.query.metric in _COUNTED and not everything:
        return
    parts = _told(cause)
    others = [part for part in cause.parts if part not in parts]
    unit = cause.query.unit

    def row(
        name: str, before: float | None, now: float | None, size: float, *, sure: bool = True
    ) -> tuple[str, ...]:
        sides = (
            "—" if each is None else format_quantity(each, unit, 3) if each else "—" for each in (before, now)
        )
        return name, *sides, _size(size, unit) + ("" if sure else _UNSURE), _part_of(size, cause.total)

    rows = [
        row(_where(part), part.baseline, part.candidate, part.difference, sure=part.sure) for part in parts
    ]
    if others:
        before, now = (sum(getattr(part, side) for part in others) for side in ("baseline", "candidate"))
        rows.append(row(f"{count(len(others), 'other')}", before, now, now - before))
    rows.append(row(f"in no {_single(cause)} (rest)", None, None, cause.rest))
    titles = (cause.by, "baseline", "candidate", "difference", "of it")
    yield Table(
        title=f"Where the {_size(cause.total, unit)} of {cause.query} come from, by {cause.by}",
        columns=tuple(
            Column(title=t, align=Align.RIGHT if place else Align.LEFT) for place, t in enumerate(titles)
        ),
        rows=tuple(rows),
    )


def _single(cause: Cause) -> str:
    """Name one part: a layer, an operator, a place."""
    return cause.by.removesuffix("s")


_UNSURE = " (or noise)"
"""Said of a difference that is within its own interval."""


def _told(cause: Cause) -> tuple[Part, ...]:
    """Choose the parts to show: the first and the largest, in the order of the cause."""
    largest = sorted(cause.parts[1:], key=lambda part: -abs(part.difference))[: _PARTS - 1]
    return tuple(part for part in cause.parts if part in largest or part is cause.parts[0])


def _dearest(cause: Cause) -> str:
    """Name the part that contributes most, or say that none surely does."""
    first = cause.parts[0]
    doubt = "" if first.sure else f"; no more than its noise, as is that of any {_single(cause)} behind it"
    how = "" if first.baseline and first.candidate else " (new)" if first.candidate else " (gone)"
    unit = cause.query.unit
    return (
        f"most of the change of {cause.query} by {cause.by}: {_where(first)}{how}, "
        f"{_size(first.difference, unit)} of {_size(cause.total, unit)}{doubt}"
    )


def _where(part: Part) -> str:
    place = ending(clean(part.scope), _WHERE) or "the model itself"
    kind = shorten(clean(part.kind), _KIND)
    return f"{place} ({kind})" if kind and kind not in {"operator", "kernel", "stage"} else place


def _size(size: float, unit: str) -> str:
    sign = "+" if size > 0 else "-" if size < 0 else ""
    return f"{sign}{format_quantity(abs(size), unit, 3)}"


def _part_of(size: float, whole: float) -> str:
    if not whole:
        return "—"
    return f"{'-' if size * whole < 0 else ''}{share(abs(size), abs(whole))}"
