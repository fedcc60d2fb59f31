"""Two models side by side, in words; and the table of five rows that reports of compression have."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from modeldyno.core.block import Align, Block, Column, Notice, Severity, Table, clean, shorten
from modeldyno.core.measurement import Distribution
from modeldyno.core.units import SECONDS, format_quantity
from modeldyno.views.totals import exact
from modeldyno.views.words import amount, number, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.measurement import Measurement
    from modeldyno.core.result import Result

_FEWER, _SMALLER, _FASTER = ("fewer", "more"), ("smaller", "larger"), ("faster", "slower")
_COMPARED = {
    "parameters": _FEWER, "weight_bytes": _SMALLER, "file_bytes": _SMALLER, "macs": _FEWER, "flops": _FEWER,
    "memory_peak": _SMALLER, "activation_peak": _SMALLER,
}  # fmt: skip
_NAME, _KINDS = 18, 300


def comparison(first: Result, second: Result) -> tuple[Block, ...]:
    """Compare what two models cost."""
    names = called((first, second))
    rows = tuple(
        (metric, _plain(one), _plain(other), _ratio_of(one, other, words))
        for metric, words in _COMPARED.items()
        for one, other in ((first.find(metric), second.find(metric)),)
        if one is not None or other is not None
    )
    titles = (
        ("metric", Align.LEFT),
        (names[0], Align.RIGHT),
        (names[1], Align.RIGHT),
        ("second against first", Align.LEFT),
    )
    columns = tuple(Column(title=title, align=align) for title, align in titles)
    return (
        Notice(severity=Severity.VERDICT, text=_sentence(first, second, names)),
        *(
            _failures(result, name)
            for result, name in zip((first, second), names, strict=True)
            if result.failures
        ),
        *((Table(title="Side by side", columns=columns, rows=rows),) if rows else ()),
        *_reservations(first, second, names),
    )


def called(results: Sequence[Result]) -> tuple[str, ...]:
    """Name models, short enough for columns; those of one name are numbered."""
    names = [shorten(clean(result.name), _NAME) or "the model" for result in results]
    return tuple(
        f"{shorten(name, _NAME - 4)} ({place})" if names.count(name) > 1 else name
        for place, name in enumerate(names, 1)
    )


def _sentence(first: Result, second: Result, names: Sequence[str]) -> str:
    told = [
        f"{what} {_ratio_of(one, other, words)}"
        for metric, words, what in (
            ("parameters", _FEWER, "parameters"),
            ("macs", _FEWER, "MACs"),
            ("memory_peak", _SMALLER, "memory at the peak"),
        )
        for one, other in ((first.find(metric), second.find(metric)),)
        if one is not None and other is not None and not (_unbounded(one) or _unbounded(other))
    ]
    if not told:
        return f"{names[1]} and {names[0]} have nothing that can be compared."
    return f"{names[1]} against {names[0]}: {', '.join(told)}."


def _failures(result: Result, name: str) -> Notice:
    failure = result.failures[0]
    return Notice(
        severity=Severity.FAILURE,
        code=f"{name}: {shorten(clean(failure.where), _NAME)}",
        text=shorten(clean(failure.message), _KINDS),
        log=failure.log,
    )


def _reservations(first: Result, second: Result, names: Sequence[str]) -> Iterator[Notice]:
    for result, name in zip((first, second), names, strict=True):
        macs = result.find("macs")
        if macs is not None and macs.interval is not None and macs.interval.low < macs.interval.high:
            ends = [amount(end, "MACs") for end in (macs.interval.low, macs.interval.high)]
            open_ = f"at least {ends[0]}" if macs.interval.high == inf else f"between {ends[0]} and {ends[1]}"
            text = f"{name} has operators that are not counted: it takes {open_}"
            yield Notice(severity=Severity.NOTE, text=text)
    kinds = [{m.kind for m in r.outline.modules if m.path} if r.outline else set() for r in (first, second)]
    if all(kinds):
        for mine, others, name in ((kinds[0], kinds[1], names[0]), (kinds[1], kinds[0], names[1])):
            if only := sorted(map(clean, mine - others)):
                text = shorten(f"only {name} has {', '.join(only)}", _KINDS)
                yield Notice(severity=Severity.NOTE, text=text)
    sizes = [result.outline.sizes if result.outline else {} for result in (first, second)]
    if sizes[0] != sizes[1] and all(sizes):
        yield Notice(severity=Severity.NOTE, text="the two were analysed at different sizes; see --json")


def _plain(found: Measurement | None) -> str:
    if found is None:
        return "—"
    return f"≥ {plain(exact(found))}" if _unbounded(found) else plain(exact(found))


def _ratio_of(
    one: Measurement | None, other: Measurement | None, words: tuple[str, str], digits: int = 2
) -> str:
    if one is None or other is None or _unbounded(one) or _unbounded(other):
        return "—"
    return ratio(number(one)[0], number(other)[0], words, digits)


def _unbounded(found: Measurement) -> bool:
    return found.interval is not None and found.interval.high == inf


def ratio(first: float, second: float, words: tuple[str, str], digits: int = 2) -> str:
    """Say how the second compares with the first: ``4.2x fewer``, ``1.3x more``, ``equal``."""
    if first == second:
        return "equal"
    if not first or not second:
        return "none" if first else f"{words[1]}, the first has none"
    large, small = max(first, second), min(first, second)
    times = large / small
    word = words[0] if second < first else words[1]
    if times < _NEAR:
        return f"{100 * (times - 1):.2g}% {word}"
    return f"{times:,.{_places(times, digits)}f}x {word}"


_NEAR = 1.05
"""Ratios nearer to one are told in percent."""


def _places(times: float, digits: int) -> int:
    return max(0, digits - len(f"{times:.0f}"))


# --- the table of compression ------------------------------------------------------------------


def summary(results: Sequence[Result]) -> Table:
    """Give the rows that reports of compression have; for two models, what the second is better in.

    Sizes are in decimal megabytes, and multiply-accumulates are called by their name.
    """
    rows = (
        ("Model size", "weight_bytes", _SMALLER),
        ("Computational complexity", "macs", _FEWER),
        ("Total parameters", "parameters", _FEWER),
        ("Memory footprint", "memory_peak", _SMALLER),
        ("Execution time", "latency", _FASTER),
    )
    two = len(results) == 2  # noqa: PLR2004 - a pair
    names = called(results)
    titles = ["Evaluation metric", *names, *(["Enhancement"] if two else [])]
    return Table(
        title="",
        columns=tuple(
            Column(title=title, align=Align.RIGHT if place else Align.LEFT)
            for place, title in enumerate(titles)
        ),
        rows=tuple((title, *_summarised(results, metric, words)) for title, metric, words in rows),
    )


def _summarised(results: Sequence[Result], metric: str, words: tuple[str, str]) -> Iterator[str]:
    values = [_value(result.find(metric)) for result in results]
    nouns = {"macs": "MACs", "parameters": "", "latency": ""}
    for value in values:
        if value is None:
            yield "—"
        elif metric == "latency":
            yield format_quantity(value, SECONDS, 3)
        else:
            yield amount(value, nouns.get(metric, "B"))
    if len(values) == 2:  # noqa: PLR2004 - a pair
        one, other = values
        yield "—" if one is None or other is None else ratio(one, other, words, 3)


def _value(found: Measurement | None) -> float | None:
    """Give the one number; a latency is told by its median."""
    if found is None:
        return None
    return found.value.statistic("p50") if isinstance(found.value, Distribution) else number(found)[0]
