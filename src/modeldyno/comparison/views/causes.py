"""Causes of a change: the parts that contribute most, the sum of the others, and the unattributed rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, clean, make_table, note
from modeldyno.base.stats.units import format_quantity
from modeldyno.base.views.text import count, keep_ending, share, shorten_text
from modeldyno.comparison.change.causes import LAYERS, PLACES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.comparison.change.comparison import Cause, CausePart

_PARTS, _WHERE, _KIND = 6, 34, 26
"""Most parts that are shown, and most characters of a path and of a class."""
_IN_A_SENTENCE = {
    "flops", "weight_bytes", "activation_peak", "memory_peak", "load_time",
    "process_memory", "device_memory", "allocated_peak",
}  # fmt: skip
"""Metrics whose cause needs no table: exact, or in the table of the memory at the measured peak."""


def explain_cause(cause: Cause, *, everything: bool = False) -> Iterator[Block]:
    """Lay out the largest parts, the sum of the others, and the rest; they add up to the change.

    Where what no part explains exceeds the change, the parts explain nothing, and that is all that is said.
    """
    if cause.total and abs(cause.rest) > abs(cause.total):
        unit = cause.query.unit
        yield note(
            f"the parts do not explain the change of {cause.query} ({_signed(cause.total, unit)}): "
            f"{_signed(cause.rest, unit)} lies outside every {_part_noun(cause)}"
        )
        return
    yield note(_largest_part_sentence(cause))
    if cause.query.metric in _IN_A_SENTENCE and not everything:
        return
    parts = _parts_shown(cause)
    others = [part for part in cause.parts if part not in parts]
    unit = cause.query.unit

    def row(
        name: str, before: float | None, now: float | None, size: float, *, sure: bool = True
    ) -> tuple[str, ...]:
        before_and_after = (
            "—" if value is None else format_quantity(value, unit, 3) if value else "—"
            for value in (before, now)
        )
        return (
            name,
            *before_and_after,
            _signed(size, unit) + ("" if sure else _UNSURE),
            _share(size, cause.total),
        )

    rows = [
        row(_part_name(part), part.baseline, part.candidate, part.difference, sure=part.sure)
        for part in parts
    ]
    sizes = [part.difference for part in parts]
    if others:
        before, now = (sum(getattr(part, side) for part in others) for side in ("baseline", "candidate"))
        rows.append(row(f"{count(len(others), 'other')}", before, now, now - before))
        sizes.append(now - before)
    if _matters(cause.rest, cause):
        rows.append(row("not attributed", None, None, cause.rest))
        sizes.append(cause.rest)
    titles: tuple[str, ...] = (cause.by, "baseline>", "candidate>", "difference>", "share>")
    if not _have_shares(sizes, cause.total):
        titles, rows = titles[:-1], [cells[:-1] for cells in rows]
    change = f"{cause.query}, {_signed(cause.total, unit)},"
    yield make_table(f"Where the change of {change} comes from, by {_part_noun(cause)}", titles, rows)


def _have_shares(sizes: Sequence[float], total: float) -> bool:
    """Whether shares of the change make sense: not if differences cancel each other out."""
    return bool(total) and all(-_OPPOSING <= size / total <= 1 + _OPPOSING for size in sizes)


_OPPOSING = 0.1
"""Largest share of a change by which single parts may go in the other direction."""


def _matters(size: float, cause: Cause) -> bool:
    """Whether a size is more than floating-point rounding error."""
    return abs(size) > _ROUNDING * max(abs(part.difference) for part in cause.parts)


_ROUNDING = 1e-9


def _part_noun(cause: Cause) -> str:
    """Return the noun for one part: layer, operator, place."""
    return cause.by.removesuffix("s")


_UNSURE = " (or noise)"
"""Added to a difference that is within its own interval."""


def _parts_shown(cause: Cause) -> tuple[CausePart, ...]:
    """Return the parts to show: the first one and the largest, in their order."""
    largest = sorted(cause.parts[1:], key=lambda part: -abs(part.difference))[: _PARTS - 1]
    return tuple(part for part in cause.parts if part in largest or part is cause.parts[0])


def _largest_part_sentence(cause: Cause) -> str:
    """Describe the part that contributes most; or state that no part has certainly changed."""
    first, unit = cause.parts[0], cause.query.unit
    both = (first.baseline and first.candidate) or (cause.by == LAYERS and not first.changed)
    how = "" if both else ", new" if first.candidate else ", gone"
    noun = "" if cause.by == PLACES else f"{_part_noun(cause)} "
    place = f"{noun}{_part_name(first)}{how}"
    difference, total = _signed(first.difference, unit), _signed(cause.total, unit)
    if not first.sure:
        return (
            f"no {_part_noun(cause)} clearly explains the change of {cause.query} ({total}); the largest "
            f"difference, in {place}: {difference}, may be noise"
        )
    if not cause.total or not 0 <= first.difference / cause.total <= 1:
        others = _signed(cause.total - first.difference, unit)
        return f"{cause.query} changed by {total}: {difference} in {place}, and {others} in everything else"
    if difference == total:
        return f"the change of {cause.query}, {total}, is in {place}"
    part = "most" if first.difference / cause.total > 1 / 2 else "the largest part"
    return f"{part} of the change of {cause.query} is in {place}: {difference} of {total}"


def _part_name(part: CausePart) -> str:
    place = keep_ending(clean(part.scope), _WHERE) or "the model itself"
    kind = shorten_text(part.kind, _KIND)
    return f"{place} ({kind})" if kind and kind not in {"operator", "kernel", "stage"} else place


def _signed(size: float, unit: str) -> str:
    sign = "+" if size > 0 else "-" if size < 0 else ""
    return f"{sign}{format_quantity(abs(size), unit, 3)}"


def _share(size: float, total: float) -> str:
    return "—" if not total or size / total < 0 else share(abs(size), abs(total))
