"""Formatting helpers that the views share."""

from __future__ import annotations

from collections import Counter
from math import inf, isfinite
from typing import TYPE_CHECKING

from modeldyno.base.job.input_spec import BATCH
from modeldyno.base.job.knob import BATCH_SIZE
from modeldyno.base.metrics.doubt import Trust, seriousness, trust
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement
from modeldyno.base.metrics.metric import METRICS, ReportSection
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.blocks import Notice, Severity, Table, clean, make_table, shorten
from modeldyno.base.stats.units import COUNT, SECONDS, format_estimate, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modeldyno.base.document import Document
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.result.result import Result


NAME_LIMIT, TEXT_LIMIT, LOG_LINES = 60, 600, 12
"""Most characters of a name and of a sentence, and most lines of a log, in a report."""
NOISE = {row.name: row.label for row in METRICS.values() if row.section is ReportSection.NOISE}
"""Metrics that show noise on the machine, with their labels; they are not results of the model."""


def estimate(value: float | None, interval: Interval | None, unit: str) -> tuple[str, str]:
    """Format an estimate and its interval; without an interval, with three digits."""
    if interval is None:
        return "" if value is None else format_quantity(value, unit, 3), ""
    return format_estimate(value, interval.low, interval.high, unit)


def format_ends(low: float, high: float, unit: str) -> str:
    """Format what bounds a value that is not certified: both ends, or the only one; ``""`` for none."""
    if low > 0 and isfinite(high):
        return estimate(None, Interval(low=low, high=high), unit)[1]
    ends = [f">{format_quantity(low, unit, 3)}" if 0 < low < inf else ""]
    ends += [f"<{format_quantity(high, unit, 3)}" if isfinite(high) else ""]
    return "".join(ends)


def marked_median(times: Distribution) -> tuple[str, str]:
    """Format the median in seconds of a table and its interval; ``~`` marks one of too few samples."""
    value, span = format_statistic(times, "p50")
    return median_text(times, UNCERTIFIED) if times.missing("p50") else value, span


def median_text(times: Distribution, mark: str = "about ") -> str:
    """Format the median in seconds of any view; one of too few samples to two digits, with a mark."""
    if times.missing("p50"):
        return f"{mark}{format_quantity(times.statistic('p50'), SECONDS, 2)}"
    return format_statistic(times, "p50")[0]


def explain_mark(title: str, medians: Iterable[str]) -> str:
    """Add to the title of a table what ``~`` means, if a cell has it."""
    marked = any(median.startswith(UNCERTIFIED) for median in medians)
    return f"{title}; {UNCERTIFIED}: of too few samples" if marked else title


UNCERTIFIED = "~"
"""Marks a statistic of too few samples to be certified."""


def estimate_with_half_width(value: float, interval: Interval | None, unit: str) -> str:
    """Format an estimate with half of its interval: ``3.9 ms ±6%``."""
    text = estimate(value, interval, unit)[0]
    half = 0.0 if interval is None or not value else (interval.high - interval.low) / 2 / abs(value)
    if not half or not isfinite(half):
        return text
    if half > 1:
        return f"{text} ±>100%"
    return f"{text} ±{half:.{0 if half >= _PERCENT else 1}%}" if half >= _LEAST_HALF else f"{text} ±<0.1%"


_PERCENT = 0.0095
"""Share from which on a percentage needs no digit after its point."""
_LEAST_HALF = 0.0005
"""Share below which a percentage with one digit is 0."""


def estimate_near_zero(value: float, low: float, high: float, unit: str) -> tuple[str, str]:
    """Format an estimate and its interval, whose ends may be much further from zero than the estimate.

    The unit that suits a difference near zero does not suit such ends: each has its own, with two digits.
    """
    if all(isfinite(end) and abs(end) <= _FARTHEST * abs(value) for end in (low, high)):
        return format_estimate(value, low, high, unit)
    first, last = (format_quantity(end, unit, 2) if isfinite(end) else "" for end in (low, high))
    text = f"{first} to {last}" if first and last else f"at least {first}" if first else f"at most {last}"
    return format_quantity(value, unit, 2), text


_FARTHEST = 100
"""Multiple of an estimate up to which its interval is told in its unit."""


def shorten_text(text: str, limit: int = TEXT_LIMIT) -> str:
    """Make text from outside printable on one line of at most `limit` characters."""
    return shorten(clean(text), limit)


def shorten_name(name: str) -> str:
    """Make a name from outside printable, and short enough for a sentence or a cell."""
    return shorten_text(name, NAME_LIMIT)


def list_codes(codes: Iterable[str]) -> str:
    """List codes of doubts, each once: ``time-limit (2), interference``."""
    counted = Counter(codes)
    return ", ".join(code if number == 1 else f"{code} ({number})" for code, number in counted.items())


def doubts_in_a_line(
    doubts: Sequence[Doubt], command: str, *, model: str = "", more: str = "", limit: int = TEXT_LIMIT
) -> Notice:
    """Tell doubts in a line, the most serious one first: ``trust limited: a trend is left; 1 more: steal``.

    Args:
        doubts: at least one.
        command: the option or the command that tells each with its sentence.
        model: whose doubts they are, where a page is about several.
        more: what the command does besides, such as ``and shows all figures``.
        limit: most characters of the line after its beginning.
    """
    first, *others = sorted(doubts, key=lambda doubt: seriousness(doubt.code))
    name = trust_name(doubt.code for doubt in doubts)
    explains = f"; {command} explains {'them' if others else 'it'}{more and f', {more}'}"
    text = shorten_message(first.seen.rstrip("."), limit // 2 if others else limit)
    if others:
        text += f"; {len(others)} more: {list_codes(doubt.code for doubt in others)}"
    return Notice(
        severity=Severity.DOUBT,
        code=f"{model}: {name}" if model else name,
        text=f"{shorten_text(text, limit - len(explains))}{explains}",
    )


def trust_name(codes: Iterable[str]) -> str:
    """Name doubts by how far the figures can be trusted: ``trust limited``; else ``doubts``."""
    level = trust(codes)
    return "doubts" if level is Trust.UNAFFECTED else f"trust {level}"


def factor(times: float, digits: int = 3) -> str:
    """Format a factor to significant digits, and without an exponent: ``1.9``, ``15``, ``1,540``."""
    return f"{times:,.0f}" if times >= 10**digits - 0.5 else f"{times:.{digits}g}"


def shorten_message(message: str, limit: int = TEXT_LIMIT) -> str:
    """Make a message of a document printable and short, with the options of the command line in it."""
    return shorten_text(spell_for_command_line(message), limit)


def format_known(value: float | None, unit: str, digits: int = 3, unknown: str = "—") -> str:
    """Format a quantity that may be unknown."""
    return unknown if value is None else format_quantity(value, unit, digits)


def format_statistic(samples: Distribution, name: str, unit: str = SECONDS) -> tuple[str, str]:
    """Format a statistic of samples and its interval."""
    return estimate(samples.statistic(name), samples.interval(name), unit)


def about(samples: Distribution, name: str, unit: str = SECONDS) -> str:
    """Format a statistic that too few samples certify: what was seen, to two digits."""
    return about_number(samples.statistic(name), unit)


def about_number(seen: float | None, unit: str = SECONDS) -> str:
    """Format what was seen and is not certified, to two digits; empty if nothing was."""
    return "" if seen is None else f"about {format_quantity(seen, unit, 2)}"


def figure(result: Result, metric: str, scope: str = "", missing: str = "") -> str:
    """Format a figure of a Result without its interval; `missing` if it was not measured, or is void."""
    measurement = result.find(metric, scope)
    return missing if measurement is None or measurement.void else format_measurement(measurement)


def number(measurement: Measurement) -> tuple[float, Interval | None]:
    """Return the value of a measurement and its interval; of a distribution, the mean."""
    if isinstance(measurement.value, Distribution):
        return measurement.value.statistic("mean"), measurement.value.interval("mean")
    return measurement.value, measurement.interval


def format_measurement(measurement: Measurement) -> str:
    """Format a measurement without its interval."""
    value, interval = number(measurement)
    return estimate(value, interval, measurement.row.unit)[0]


def exact_text(value: float | None) -> str:
    """Format a number unrounded; ``""`` for what is missing or not finite."""
    return repr(value) if value is not None and isfinite(value) else ""


def count(number: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun: ``1 call``, ``2,400 calls``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def interruption_prefix(result: Result, rounds: int) -> str:
    """Return ``Interrupted after N rounds; `` as a prefix for the verdict; empty if not interrupted."""
    return f"Interrupted after {count(rounds, 'round')}; " if result.interrupted and rounds else ""


def unit_of_work(result: Result) -> str:
    """Return what one latency sample measures: ``call`` or ``request``."""
    return "call" if result.job.load is None else "request"


def join_nonempty(*parts: str) -> str:
    """Join the non-empty parts with commas."""
    return ", ".join(filter(None, parts))


def shorten_ids(ids: Sequence[str]) -> list[str]:
    """Shorten ids to the length that keeps them distinct, at least six characters."""
    longest = max(map(len, ids), default=_SHORT)
    enough = (size for size in range(_SHORT, longest) if len({text[:size] for text in ids}) == len({*ids}))
    size = next(enough, longest)
    return [text[:size] for text in ids]


_SHORT = 6


def format_utc(created: str) -> str:
    """Format a UTC time to the second."""
    return created[:19].replace("T", " ") + " UTC"


def document_foot(document: Document) -> str:
    """Say of what a document is, of when, and its id, for the foot of its pages: as far as it has them."""
    name, created, identifier = (str(getattr(document, part, "")) for part in ("name", "created", "id"))
    return join_nonempty(shorten_name(name), created and format_utc(created), identifier)


def amount(value: float, noun: str) -> str:
    """Format an amount with a decimal prefix: ``1.41 GMACs``, ``640 MACs``, ``90.9 MB``."""
    text = format_quantity(value, COUNT, 3)
    return text + noun if text[-1:].isalpha() else f"{text} {noun}"


def span(low: float, high: float) -> str:
    """Format a range of counts: ``0 to 3.20 M``; ``1.41 G or more`` without an upper bound."""
    if high == inf:
        return f"{format_quantity(low, COUNT, 3)} or more"
    ends = tuple(dict.fromkeys(format_quantity(end, COUNT, 3) for end in (low, high)))
    return " to ".join(ends)


def share(part: float, total: float) -> str:
    """Format a share to a tenth of a percent; a share above zero is never shown as 0%."""
    if not part or not total:
        return "—" if not total else "0%"
    percent = 100 * part / total
    return "<0.1%" if 0 < percent < _LEAST else f"{percent:.1f}%".replace("100.0", "100")


_LEAST = 0.05


def list_sizes(sizes: Mapping[str, int]) -> str:
    """List input sizes by name: ``batch 8, seq 128``; the batch comes first."""
    return ", ".join(f"{clean(name)} {sizes[name]:,}" for name in batch_first(sizes))


def analysed_at(result: Result) -> str:
    """Return the input sizes of an analysis: ``batch 8, seq 128``, or the shapes if no size is free."""
    sizes = result.outline.sizes if result.outline else {}
    shapes = [(spec.name, spec.shape) for spec in result.inputs if spec.shape]
    fixed = all(isinstance(size, int) for _, shape in shapes for size in shape)
    if sizes or not result.outline or not fixed or len(shapes) > _SHAPES:
        return list_sizes(sizes)
    return _join_shapes(shapes)


def measured_at(result: Result) -> str:
    """Return the batch of a measured call, or the input shapes that tell it; empty at batch 1 or unknown."""
    sizes = result.outline.sizes if result.outline else {}
    setting = result.job.config.get(BATCH_SIZE.name)
    batch = sizes.get(BATCH, 1) if setting is None else setting
    if setting is not None or batch != 1:
        return f"batch {shorten(clean(str(batch)), NAME_LIMIT)}"
    shapes = [(spec.name, spec.shape) for spec in result.inputs if spec.shape]
    batched = [(n, s) for n, s in shapes if s[0] != 1 and all(isinstance(size, int) for size in s)]
    return shorten(_join_shapes(batched[:_SHAPES]), NAME_LIMIT)


def _join_shapes(shapes: Sequence[tuple[str, tuple[int | str, ...]]]) -> str:
    return ", ".join(f"{clean(name)}={'x'.join(map(str, shape))}" for name, shape in shapes)


_SHAPES = 2
"""Most input shapes that a sentence names."""


def batch_first(names: Iterable[str]) -> list[str]:
    """Sort dimension names: the batch first, the others in their given order."""
    return sorted(names, key=lambda name: name != BATCH)


def keep_ending(text: str, limit: int) -> str:
    """Shorten text from the left to at most `limit` characters; paths differ at their end."""
    return text if len(text) <= limit else f"…{text[len(text) - limit + 1 :]}"


def short_model_names(results: Sequence[Result]) -> tuple[str, ...]:
    """Return names of models short enough for column titles.

    Equal names are replaced by the one setting in which the results differ, or numbered.
    """
    names = [clean(result.name) or "the model" for result in results]
    if len(set(names)) == 1 and (settings := _names_by_setting(results)):
        return settings
    shortened = [shorten(name, _NAME) for name in names]
    if len(set(shortened)) < len(set(names)):  # they begin alike
        shortened = [keep_ending(name, _NAME) for name in names]
    return tuple(
        f"{shorten(name, _NAME - 4)} ({place})" if shortened.count(name) > 1 else name
        for place, name in enumerate(shortened, 1)
    )


def _names_by_setting(results: Sequence[Result]) -> tuple[str, ...]:
    """Return the value of the only knob that differs, such as ``batch_size=8``; empty if there is no such."""
    configs = [result.job.config for result in results]
    knobs = {knob for config in configs for knob in config if len({str(c.get(knob)) for c in configs}) > 1}
    if len(knobs) != 1:
        return ()
    knob = knobs.pop()
    values = [config.get(knob) for config in configs]
    names = tuple(
        "the default" if value is None else f"{clean(knob)}={format_knob_value(value)}" for value in values
    )
    return names if len(set(names)) == len(names) and max(map(len, names)) <= _NAME else ()


def format_knob_value(value: KnobValue) -> str:
    """Format a knob value as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else clean(str(value))


_NAME = 18


def format_rough_duration(seconds: float) -> str:
    """Write how long something takes: to the second below ten minutes, so that a limit is told as given."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 600:
        whole_minutes, remaining = divmod(round(seconds), 60)
        return f"{whole_minutes} min {remaining} s" if remaining else f"{whole_minutes} min"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{round(minutes / 60, 1):g} h"


def facts_table(title: str, facts: Mapping[str, str]) -> Table:
    """Tabulate facts by name; one without a text is left out."""
    return make_table(title, ("", ""), ((name, shorten_text(text)) for name, text in facts.items() if text))


def draw_bars(heights: Sequence[float], low: float, high: float) -> str:
    """Draw numbers from `low` to `high` as bars beside each other, in one line."""
    span = high - low or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int((h - low) / span * len(_BARS)))] for h in heights)


_BARS = "▁▂▃▄▅▆▇█"
