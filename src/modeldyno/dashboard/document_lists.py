"""Lists of loads, sweeps and comparisons: what each was of, its figures in columns, and its bounds."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeldyno.base.errors import ModelDynoError
from modeldyno.base.job.knob import BATCH_SIZE
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.report.blocks import clean, make_table
from modeldyno.base.stats.units import format_quantity
from modeldyno.base.views.text import format_ends, format_utc, shorten_ids, shorten_text
from modeldyno.comparison.change.comparison import Comparison
from modeldyno.profiling.views import lists
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.load_curve import LoadCurve, LoadSeries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.metrics.constraints import Answer, Constraint, Judgement
    from modeldyno.base.report.blocks import Table
    from modeldyno.serving.load.load_curve import LoadPoint
    from modeldyno.stores.interface import ConclusionEntry, Store, StudyEntry

_NAME, _SENTENCE = 40, 160
"""Most characters of a name and of a sentence."""
_HELD, _BROKEN, _OPEN = "✓", "✗", "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What a list says of a document, beside its kind, time and id."""

    settings: str = ""
    """How it was measured, behind the name of the model."""
    cells: dict[str, str] = field(default_factory=dict)
    """By the title of the column."""
    sentence: str = ""
    """The outcome, where there are no figures."""


def load_list(store: Store, entries: Sequence[ConclusionEntry], kinds: Sequence[str]) -> Table:
    """List load curves and searches: the load that each of them found, and the figures under it.

    Args:
        store: that has them.
        entries: what is listed.
        kinds: what each of them is called.
    """
    rows = [_row_of_load(_read(store, entry), entry) for entry in entries]
    return _make_list(entries, kinds, rows, ("at", "rate>", "p50>", "p99>", "bounds"))


def study_list(entries: Sequence[StudyEntry]) -> Table:
    """List sweeps: the best configuration of each, its figures, and how certain it is that it is the best."""
    rows = [_row_of_study(entry) for entry in entries]
    return _make_list(entries, (), rows, ("best", "bounds", "certain"))


def comparison_list(store: Store, entries: Sequence[ConclusionEntry]) -> Table:
    """List comparisons: the verdict of each, and its sentence."""
    rows = [
        _Row(
            cells={"verdict": _verdict_of_comparison(_read(store, entry))},
            sentence=shorten_text(entry.headline, _SENTENCE),
        )
        for entry in entries
    ]
    return _make_list(entries, (), rows, ("verdict",))


def _read(store: Store, entry: ConclusionEntry) -> object:
    """Return the document of an entry; None if it is damaged, which its own page tells."""
    with suppress(ModelDynoError):
        return store.conclusion(entry.id)
    return None


def _make_list(
    entries: Sequence[StudyEntry | ConclusionEntry],
    kinds: Sequence[str],
    rows: Sequence[_Row],
    titles: Sequence[str],
) -> Table:
    names = (
        f"{shorten_text(entry.name, _NAME)} · {row.settings}"
        for entry, row in zip(entries, rows, strict=True)
    )
    return make_table(
        "",
        (lists.WHAT, "kind?", *(f"{title}?" for title in titles), "outcome?", lists.WHEN, lists.ID),
        (
            (
                name.removesuffix(" · "),
                kind,
                *(row.cells.get(title.rstrip(">"), "") for title in titles),
                row.sentence,
                format_utc(entry.created)[:16],
                short,
            )
            for entry, name, kind, row, short in zip(
                entries,
                names,
                kinds or [""] * len(entries),
                rows,
                shorten_ids([entry.id for entry in entries]),
                strict=True,
            )
        ),
    )


# --- loads ---------------------------------------------------------------------------------------


def _row_of_load(document: object, entry: ConclusionEntry) -> _Row:
    point = _point_of(document) if isinstance(document, LoadCurve | Capacity) else None
    if point is None or not isinstance(document, LoadCurve | Capacity):
        return _Row(sentence=shorten_text(entry.headline, _SENTENCE))
    load, why = point
    figures = {
        "rate": load.find("request_rate") or load.find("throughput"),
        "p50": load.find("latency", "p50"),
        "p99": load.find("latency", "p99"),
    }
    return _Row(
        settings=_settings(document),
        cells={
            "at": f"{document.knob} {_number(load.load)} ({why})",
            "bounds": "; ".join(_bounds(document)),
            **{name: _figure(answer) for name, answer in figures.items()},
        },
    )


def _point_of(document: LoadCurve | Capacity) -> tuple[LoadPoint, str] | None:
    """Return the load that a document has found, and what it is: the largest within bounds, or the knee."""
    measured = [point for point in document.rungs if not point.failure]
    if not measured:
        return None
    if isinstance(document, Capacity):
        smallest = min(measured, key=lambda point: point.load)
        return (smallest, "smallest") if document.best is None else (document.best, _WITHIN)
    if judged := document.judged:
        held = [bound.held for bound in judged]
        within = [one[0] for one in held if one is not None]
        if len(within) < len(judged):
            return document.by_load[0], "smallest"
        return min(within, key=lambda point: point.load), _WITHIN
    knee = document.knee
    if knee is not None:
        return next(point for point in measured if point.load == knee.load), "knee"
    return max(measured, key=_rate_of), "fastest"


_WITHIN = "largest within bounds"


def _rate_of(point: LoadPoint) -> float:
    rate = point.find("request_rate") or point.find("throughput")
    return -1.0 if rate is None or rate.value is None else rate.value


def _settings(document: LoadSeries) -> str:
    """Say of a job what most people ask first: the backend and the batch size."""
    if document.job is None:
        return ""
    batch = document.job.config.get(BATCH_SIZE.name)
    return ", ".join(filter(None, (clean(document.job.backend), "" if batch is None else f"batch {batch}")))


def _bounds(document: LoadCurve | Capacity) -> Iterator[str]:
    """Say of each bound up to which load it holds, and at which it is broken, with the figure."""
    if isinstance(document, Capacity):
        broken = {judgement.constraint: judgement for judgement in document.broke}
        for bound in document.search.bounds:
            fails = document.failed if bound in broken else None
            yield _bound(bound, document.passed, fails, broken.get(bound))
        return
    for one in document.judged:
        (point, judgement), *_ = one.of_verdict(Verdict.BROKEN) or ((None, None),)
        held = None if one.held is None else one.held[0].load
        yield _bound(one.constraint, held, None if point is None else point.load, judgement)


def _bound(bound: Constraint, held: float | None, broken: float | None, judgement: Judgement | None) -> str:
    figure = "" if judgement is None else _figure(judgement.answer)
    parts = [
        "" if held is None else f"{_HELD} up to {_number(held)}",
        "" if broken is None else f"{_BROKEN} at {_number(broken)}{f': {figure}' if figure else ''}",
    ]
    return f"{bound} {', '.join(filter(None, parts)) or _OPEN}"


def _number(load: float) -> str:
    return f"{load:,.4g}" if load < _LARGE else f"{load:,.0f}"


_LARGE = 10_000


def _figure(answer: Answer | None) -> str:
    """Format a figure; of one that is not certified what bounds it."""
    if answer is None:
        return ""
    if answer.value is not None:
        return format_quantity(answer.value, answer.query.unit, 3)
    ends = answer.bounds()
    return format_ends(ends.low, ends.high, answer.query.unit)


# --- sweeps and comparisons ----------------------------------------------------------------------


def _row_of_study(entry: StudyEntry) -> _Row:
    """Take apart what a sweep says of itself in brief: to rank its configurations anew takes too long."""
    brief = _BRIEF.fullmatch(entry.headline)
    if brief is None:
        return _Row(cells={"best": shorten_text(entry.headline, _SENTENCE)})
    bounds = brief["bounds"] or ""
    unsure = _BREAKING in bounds, _UNSURE in bounds
    mark = _BROKEN if unsure[0] else _OPEN if unsure[1] else _HELD
    plain = bounds.replace(_BREAKING, "").replace(_UNSURE, "")
    return _Row(
        settings=shorten_text(brief["point"], _SENTENCE),
        cells={
            "best": brief["figures"],
            "bounds": f"{mark} {plain}" if bounds else "",
            "certain": ", ".join(filter(None, (brief["certain"], brief["tried"]))),
        },
    )


_BREAKING, _UNSURE = "breaking ", "not certainly "
"""Words before a bound that does not hold, or of which nobody is sure."""
_BRIEF = re.compile(
    r"(?P<figures>[^:(]*?\d[^:(]*?)(?: at (?P<bounds>[^:(]*[<>][^:(]*))?(?: \(best of (?P<tried>[^)]*)\))?"
    r": (?P<point>.+?)(?:, (?P<certain>(?:over |under )?[\d.]+ ?%) certain)?"
)


def _verdict_of_comparison(document: object) -> str:
    """Return the verdict of a comparison; of several candidates, each verdict once."""
    contrasts = document.contrasts if isinstance(document, Comparison) else ()
    return ", ".join(dict.fromkeys(str(one.outcome) for one in contrasts))
