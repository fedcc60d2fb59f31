"""The tables of one profiler's metrics, and of two; and where they are written."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import hypot, isfinite
from textwrap import shorten
from typing import Any

from modeldyno.compat.deeplite.status_metrics import (
    Comparative,
    DynamicEvalMetric,
    InvalidStatus,
    Metric,
    NumberWithInterval,
    StatusKey,
)

NOT_COMPUTED = "<NotComputed>"
_LONGEST_REASON = 40
"""Characters of a failure in a cell; the line below the table has all of it."""
_EQUAL_TIMES, _CLOSE_TIMES = 1.005, 1.5
"""Below the first, two values are about the same; below the second, their ratio has two decimals."""


class TableLogger:
    """Stands for the logger of tables, also for one that `setLogger` names later, and has what it has."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger, self.is_chosen = logger, False

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the logger."""
        return getattr(self.logger, name)


_tables = TableLogger(logging.getLogger("modeldyno"))


def getLogger(name: str | None = None) -> TableLogger:
    """Return the logger of tables, whatever name is given: that of `setLogger`, or ``modeldyno``."""
    del name
    return _tables


def setLogger(logger: logging.Logger | None) -> None:
    """Write tables to this logger from now on, at the level `print_mode`; None: to standard output again."""
    _tables.is_chosen = logger is not None
    _tables.logger = logging.getLogger("modeldyno") if logger is None else logger


def write_table(text: str, print_mode: str) -> None:
    """Print a table, or log it where `setLogger` was called.

    Raises:
        InvalidStatus: `print_mode` is no level of a logger.
    """
    if print_mode.lower() not in ("debug", "info", "warning", "error", "critical"):
        raise InvalidStatus(f"There is no print_mode {print_mode!r}; use 'debug', 'info' or 'warning'.")
    if _tables.is_chosen:
        getattr(_tables, print_mode.lower())(text)
    else:
        print(text)  # noqa: T201 - who asks for a table wants to see it


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """A metric of two models, x of this one and y of the other, both in base units; None if not computed."""

    key: str
    label: str
    x: Any
    y: Any
    shown: tuple[str, str]
    comparative: Comparative
    description: str = ""
    timed_once: bool = False
    """Whether each is the time of a single run."""

    @property
    def ratio(self) -> float | None:
        """Return x / y, or y / x if fewer is better; None if there is none."""
        if not (_is_number(self.x) and _is_number(self.y)) or self.comparative is Comparative.NONE:
            return None
        over, under = (self.y, self.x) if self.comparative is Comparative.RECIPROCAL else (self.x, self.y)
        if under == 0:
            return 1.0 if over == 0 else float("inf")
        return float(over / under)

    @property
    def difference_interval(self) -> tuple[float, float] | None:
        """Return the 95 % interval of x - y by those of both, as Newcombe's method does; None without them.

        It takes both for independent. On the same samples the true interval is mostly shorter.
        """
        if not (isinstance(self.x, NumberWithInterval) and isinstance(self.y, NumberWithInterval)):
            return None
        x, y = self.x, self.y
        return x - y - hypot(x - x.low, y.high - y), x - y + hypot(x.high - x, y - y.low)

    @property
    def doubt(self) -> str:
        """Return why the difference may be none, in words; empty if there is no reason to think so."""
        if self.x == self.y:
            return ""
        if self.timed_once and _is_number(self.x) and _is_number(self.y):
            return "the difference may be chance, as each was timed once"
        if self.difference_interval is None:
            return ""
        low, high = self.difference_interval
        if not (isfinite(low) and isfinite(high)):
            return "the difference may be chance, as too few independent calls were timed to bound it"
        if low <= 0 <= high:
            return f"the difference may be chance, its 95 % interval is {low:.4g} to {high:.4g}"
        disturbed = self.x.doubt or self.y.doubt
        return (
            f"the difference may be due to what disturbed the measurement: {disturbed}" if disturbed else ""
        )

    @property
    def enhancement(self) -> str:
        """Return the ratio or the difference as text; a dash where there is none."""
        if self.comparative is Comparative.DIFF and _is_number(self.x) and _is_number(self.y):
            return f"{self.x - self.y:.2f}"
        if self.ratio is None or self.comparative is Comparative.DIFF:
            return "---"
        return "INF" if self.ratio == float("inf") else f"{self.ratio:.2f}x"

    def direction(self, name: str, other: str) -> str:
        """Return who has how much or how many times fewer or more, in words; empty if that cannot be said."""
        if not (_is_number(self.x) and _is_number(self.y)):
            return ""
        if self.x == self.y:
            return f"{name}: the same as {other}"
        if self.comparative is Comparative.DIFF:
            return f"{name}: {abs(self.x - self.y):.2f} {'less' if self.x < self.y else 'more'} than {other}"
        if 0 in (self.x, self.y):
            return ""
        times = max(self.x / self.y, self.y / self.x)
        if times < _EQUAL_TIMES:
            return f"{name}: about the same as {other}"
        text = f"{times:.2f}" if times < _CLOSE_TIMES else f"{times:.1f}"
        return f"{name}: {text}x {'fewer' if self.x < self.y else 'more'} than {other}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusComparison:
    """The metrics of two profilers side by side; ``str`` of it is the table."""

    name: str
    other: str
    changes: tuple[StatusChange, ...]
    failures: tuple[str, ...] = ()
    short: bool = True

    def __getitem__(self, key: str) -> StatusChange:
        """Return the row of a key.

        Raises:
            KeyError: there is none.
        """
        return {change.key: change for change in self.changes}[key]

    def __str__(self) -> str:
        head = ("Param Name", "Enhancement", f"Value ({self.name})", f"Value ({self.other})")
        table = make_table(head, [(c.label, c.enhancement, *c.shown) for c in self.changes])
        notes = [
            (c.label, text) for c in self.changes for text in (c.direction(self.name, self.other), c.doubt)
        ]
        lines = [f"{label}: {text}" for label, text in notes if text]
        lines += self.failures
        lines += (
            [] if self.short else [f"* {c.label}: {c.description}" for c in self.changes if c.description]
        )
        return "\n".join((table, *lines))


def make_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return rows of text as a table with right-aligned columns."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    bar = "+" + "+".join("-" * (width + 2) for width in widths) + "+"

    def line(cells: tuple[str, ...]) -> str:
        return "|" + "|".join(f" {cell:>{width}} " for cell, width in zip(cells, widths, strict=True)) + "|"

    return "\n".join((bar, line(head), bar, *map(line, rows), bar))


@dataclass(slots=True)
class DefaultDisplay:
    """Which metrics a table shows, in which order: the metrics named first, then the others as registered.

    Without an order these are the evaluation with its secondary metrics, then size, complexity, parameters,
    footprint and times.
    """

    order: tuple[str, ...] | None = None
    include_leftovers: bool = True
    exclude: tuple[str, ...] | list[str] | str = ()
    """Keys that are not shown; one may be given as text."""

    def __call__(self, statuses: dict[str, StatusKey]) -> dict[str, StatusKey]:
        """Return those that are shown."""
        first = self.order
        if first is None:
            named = (key for key, status in statuses.items() if isinstance(status, DynamicEvalMetric))
            first = ("eval_metric", *named, *_ORDER)
        keys = dict.fromkeys((*first, *(statuses if self.include_leftovers else ())))
        excluded = (self.exclude,) if isinstance(self.exclude, str) else self.exclude
        return {key: statuses[key] for key in keys if key in statuses and key not in excluded}


_ORDER = ("model_size", "flops", "total_params", "memory_footprint", "execution_time", "inference_time")


def describe_metric(metric: Metric, *, computed: bool, failure: str = "") -> tuple[str, str]:
    """Return the label with the unit, and the value with its interval, or why there is none, as text."""
    unit = metric.get_units() if computed and metric.value is not None else ""
    label = f"{metric.friendly_name()} ({unit})" if unit else metric.friendly_name()
    value = metric.get_value() if computed and metric.value is not None else None
    if failure:
        return label, f"failed: {shorten(failure, _LONGEST_REASON, placeholder='...')}"
    if not computed:
        return label, NOT_COMPUTED
    interval = ""
    if isinstance(value, NumberWithInterval) and isfinite(value.high):
        interval = f" [{value.low:.4g}, {value.high:.4g}]"
    return label, f"{value:.4f}{interval}" if _is_number(value) else str(value)


def doubt_of(metric: Metric) -> str:
    """Return what may have disturbed the value of a metric, or why it has no interval; empty if nothing."""
    value = metric.value
    if not isinstance(value, NumberWithInterval):
        return ""
    unbounded = "" if isfinite(value.high) else "too few independent calls for an interval; measure longer"
    return "; ".join(filter(None, (unbounded, value.doubt)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
