"""Tables of all numbers of a Result, and of all that is in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.job.knob import BATCH_SIZE
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, why_void
from modeldyno.base.metrics.metric import END_TO_END, METRICS, fraction_of
from modeldyno.base.metrics.queries import STATISTICS_SHOWN
from modeldyno.base.report.blocks import Table, clean, make_table, shorten
from modeldyno.base.result.result import KINDS, scopes
from modeldyno.base.stats.units import BYTES, COUNT
from modeldyno.base.views.text import (
    amount,
    count,
    exact_text,
    figure,
    format_utc,
    join_nonempty,
    median_text,
    number,
    shorten_ids,
    shorten_text,
)
from modeldyno.profiling.views.result.served import is_streamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.stores.interface import ConclusionEntry, Entry, StudyEntry

_FIELDS = ("metric", "scope", "statistic", "value", "low", "high", "unit", "n", "note")
_MODEL, _SIZES = "model", "sizes"
_TEXTS = {_MODEL, "metric", "scope", _SIZES, "statistic", "unit", "note"}

Row = tuple[str, ...]
"""Cells in the order of _FIELDS."""


def numbers(*results: Result, modules: bool = True) -> Table:
    """Return every number in base units, unrounded: a row for each metric, scope and statistic.

    With several Results, the first column names the model; if there are numbers at other input sizes, the
    last column holds the sizes, such as ``batch=8 seq=128``.

    Args:
        results: the Results to list.
        modules: whether to include the numbers of each module.
    """
    rows = [
        {**dict(zip(_FIELDS, row, strict=True)), _MODEL: clean(result.name), _SIZES: sizes}
        for result in results
        for sizes, row in (*_own_rows(result, modules=modules), *_other_size_rows(result))
    ]
    names = (*((_MODEL,) if len(results) > 1 else ()), *_FIELDS, _SIZES)
    titles = (name if name in _TEXTS else f"{name}>" for name in names[:-1])
    return make_table("Numbers", (*titles, f"{_SIZES}?"), ([row[name] for name in names] for row in rows))


def _own_rows(result: Result, *, modules: bool) -> Iterator[tuple[str, Row]]:
    hidden = frozenset() if modules else scopes(result)
    for measurement in result.measurements:
        if measurement.scope not in hidden:
            yield from (("", row) for row in _number_rows(measurement))


def _other_size_rows(result: Result) -> Iterator[tuple[str, Row]]:
    """Yield the totals at the additional input sizes that were requested."""
    for point in result.outline.points if result.outline else ():
        sizes = " ".join(f"{name}={size}" for name, size in point.sizes.items())
        for query, value in point.values.items():
            metric, _, scope = query.partition("@")
            unit = METRICS[metric].unit
            is_integer = unit in {BYTES, COUNT} and value.is_integer()
            yield (
                sizes,
                (metric, scope, "", exact_text(int(value) if is_integer else value), "", "", unit, "", ""),
            )


def _number_rows(measurement: Measurement) -> Iterator[Row]:
    metric, unit = measurement.metric, measurement.row.unit
    if not isinstance(measurement.value, Distribution):
        statistic, ends = measurement.reported_statistic, _interval_cells(measurement.interval)
        scope, note = ("", "reported without samples") if statistic else (measurement.scope, "")
        n = str(len(measurement.runs)) if measurement.runs else ""
        yield metric, scope, statistic, exact_text(measurement.value), *ends, unit, n, note
        return
    n = str(len(measurement.value))
    for name in STATISTICS_SHOWN:
        missing = measurement.value.missing(name)
        lacks = f"not certified: {count(missing, 'more effective sample')} needed"
        note = why_void(void) if (void := measurement.value.void) else measurement.value.stop
        note = lacks if missing and not void else note
        ends = _interval_cells(measurement.value.interval(name))
        unknown = void or (missing and fraction_of(name) is None)
        shown = "" if unknown else exact_text(measurement.value.statistic(name))
        yield metric, measurement.scope, name, shown, *ends, unit, n, note


def _interval_cells(interval: Interval | None) -> tuple[str, str]:
    return ("", "") if interval is None else (exact_text(interval.low), exact_text(interval.high))


# --- lists -------------------------------------------------------------------------------------


def listing(entries: Sequence[Entry]) -> Table:
    """List the Results of a store, one row each."""
    cells = [(_name_with_tags(e), _summary(e)) for e in entries]
    return _list(("id", "created", "model", "summary"), entries, cells)


WHAT, WHEN, ID = "model", "when", "id"
"""Titles of the columns that each list of a page has: what leads to the document, its time, and its id."""


def runs(
    entries: Sequence[Entry], figures: Sequence[Mapping[str, str]], titles: Mapping[str, str] | None = None
) -> Table:
    """List the Results of a store for a page: model and settings, figures, time, id.

    Args:
        entries: what is listed.
        figures: those of each entry by metric, as text; a column without any is left out.
        titles: titles of the columns of metrics that need a shorter one.
    """
    names = dict.fromkeys(name for own in figures for name in own)
    rows = (
        (
            f"{shorten_text(entry.name, _LONG_NAME)} · {settings}".removesuffix(" · "),
            *(own.get(name, "") for name in names),
            "" if any(own.values()) else _summary(entry),
            ", ".join(map(clean, entry.tags)),
            format_utc(entry.created)[:16],
            short,
        )
        for entry, settings, own, short in zip(
            entries, settings_of(entries), figures, shorten_ids([entry.id for entry in entries]), strict=True
        )
    )
    shown = (f"{(titles or {}).get(name, name)}>?" for name in names)
    return make_table("", (WHAT, *shown, "outcome?", "tags?", WHEN, ID), rows)


def settings_of(entries: Sequence[Entry]) -> list[str]:
    """Describe how each Result was measured, such as ``onnxruntime, batch 8, threads=2``.

    Settings that all of them have alike are left out, unless the summary of a Result begins with them.
    """
    known = dict.fromkeys(name for entry in entries for name in entry.config)
    varied = [
        name
        for name in known
        if name not in _PLACES
        and len({str(entry.config[name]) for entry in entries if entry.config.get(name) is not None}) > 1
    ]

    def describe(entry: Entry) -> str:
        head, colon, _ = _without_name(entry).partition(": ")
        parts = [shorten(head, _SUMMARY_CHARS)] if colon and not entry.failed else []
        has_batch = any(part.startswith("batch ") for part in head.split(", "))
        parts += [
            clean(f"{name}={entry.config[name]}")
            for name in varied
            if entry.config.get(name) is not None and not (has_batch and name == BATCH_SIZE.name)
        ][:_SETTINGS]
        return ", ".join(parts)

    return list(map(describe, entries))


_SETTINGS = 4
"""Most settings that are named besides those of the summary."""
_PLACES = ("server", "ports")
"""Settings that say where, not how."""
_LONG_NAME = 40
"""Most characters of a name in a list of a page."""


def documents(entries: Sequence[StudyEntry | ConclusionEntry], kinds: Sequence[str] = ()) -> Table:
    """List other documents than Results for a page: the outcome of each in a sentence.

    Args:
        entries: what is listed.
        kinds: what each of them is, where they are of several kinds.
    """
    rows = zip(
        (shorten_text(entry.name, _LONG_NAME) for entry in entries),
        kinds or [""] * len(entries),
        (shorten_text(entry.headline, _SENTENCE) for entry in entries),
        (format_utc(entry.created)[:16] for entry in entries),
        shorten_ids([entry.id for entry in entries]),
        strict=True,
    )
    return make_table("", (WHAT, "kind?", "outcome", WHEN, ID), rows)


_SENTENCE = 160
"""Most characters of an outcome in a list of a page."""


def studies(entries: Sequence[StudyEntry]) -> Table:
    """List the studies of a store, one row each."""
    return _list(("study", "created", "model", "summary"), entries, map(_name_and_headline, entries))


def conclusions(entries: Sequence[ConclusionEntry]) -> Table:
    """List the stored comparisons, searches, conversions and other conclusions, one row each."""
    cells = [(_KINDS.get(entry.kind, entry.kind), *_name_and_headline(entry)) for entry in entries]
    return _list(("id", "created", "kind", "model", "summary"), entries, cells)


def _list(
    titles: Sequence[str],
    entries: Sequence[Entry | StudyEntry | ConclusionEntry],
    cells: Iterable[tuple[str, ...]],
) -> Table:
    names = shorten_ids([entry.id for entry in entries])
    times = (format_utc(entry.created)[:16] for entry in entries)
    rows = tuple((name, time, *own) for name, time, own in zip(names, times, cells, strict=True))
    return make_table("", titles, rows)


def _name_and_headline(entry: StudyEntry | ConclusionEntry) -> tuple[str, str]:
    return shorten_text(entry.name, _NAME_CHARS), shorten_text(entry.headline, _SUMMARY_CHARS)


_KINDS = {"capacity": "search"}
_NAME_CHARS, _SUMMARY_CHARS = 18, 72
"""Most characters of a name and of a summary."""


def _name_with_tags(entry: Entry) -> str:
    tags = f" ({clean(', '.join(entry.tags))})" if entry.tags else ""
    return shorten_text(entry.name, _NAME_CHARS) + tags


def _summary(entry: Entry) -> str:
    """Return the headline in a line; of a long one the load is shortened, and the figures after it stay."""
    head, colon, figures = _without_name(entry).partition(": ")
    room = _SUMMARY_CHARS - len(colon) - len(figures)
    return shorten(
        f"{head}{colon}{figures}" if room < _LEAST_HEAD else f"{shorten(head, room)}{colon}{figures}",
        _SUMMARY_CHARS,
    )


_LEAST_HEAD = 24
"""Characters of what was loaded that are worth showing."""


def _without_name(entry: Entry) -> str:
    return clean(entry.headline).removeprefix(f"{clean(entry.name)} ")


def brief(result: Result) -> str:
    """Summarize a Result in a few words for a list: backend and speed, or size and cost."""
    if failure := result.failure:
        return f"failed in {clean(failure.where)}: {KINDS[failure.kind]}"
    latency, end_to_end = result.distribution("latency"), result.distribution("latency", END_TO_END)
    if latency is not None:
        batch = result.job.config.get(BATCH_SIZE.name)
        load = "" if result.job.load is None else clean(str(result.job.load))
        at = join_nonempty(clean(result.job.backend), "" if batch is None else f"batch {batch}", load)
        if is_streamed(result) and (tokens := figure(result, "token_rate")):
            first = result.distribution("time_to_first_token")
            started = "" if first is None else f"first after {_median(first)}"
            return f"{at}: {join_nonempty(tokens.replace('/s', ' tokens/s'), started)}"
        return f"{at}: {join_nonempty(_median(latency), figure(result, 'throughput'))}"
    if end_to_end is not None:
        median = _median(end_to_end)
        return f"{clean(result.job.backend)}: {median} end to end"
    parameters, macs = figure(result, "parameters"), result.find("macs")
    size = f"{parameters} parameters" if parameters else ""
    return join_nonempty(size, "" if macs is None else _macs(macs)) or "nothing measured"


def _median(times: Distribution) -> str:
    """Format the median; of too few samples with ``about``, and where a load has none, why."""
    if times.void:
        return times.void
    return median_text(times)


def _macs(macs: Measurement) -> str:
    value, interval = number(macs)
    is_open = interval is not None and interval.low < interval.high
    return f"{'at least ' if is_open else ''}{amount(value, 'MACs')}"
