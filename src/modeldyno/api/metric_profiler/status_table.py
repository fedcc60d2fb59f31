"""The tables of one profiler's metrics, and of two; and where they are written."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from modeldyno.api.metric_profiler.status_metrics import Comparative, InvalidStatus, Metric

NOT_COMPUTED = "<NotComputed>"
_chosen: dict[str, logging.Logger] = {}


def getLogger() -> logging.Logger:  # noqa: N802 - the name that users of deeplite-profiler know
    """Return the logger of tables: that of `setLogger`, or ``modeldyno``."""
    return _chosen.get("logger", logging.getLogger("modeldyno"))


def setLogger(logger: logging.Logger | None) -> None:  # noqa: N802 - as above
    """Write tables to this logger from now on, at the level `print_mode`; None: to standard output again."""
    _chosen.clear()
    if logger is not None:
        _chosen["logger"] = logger


def write_table(text: str, print_mode: str) -> None:
    """Print a table, or log it where `setLogger` was called.

    Raises:
        InvalidStatus: `print_mode` is no level of a logger.
    """
    if print_mode.lower() not in ("debug", "info", "warning", "error", "critical"):
        raise InvalidStatus(f"There is no print_mode {print_mode!r}; use 'debug', 'info' or 'warning'.")
    if "logger" in _chosen:
        getattr(_chosen["logger"], print_mode.lower())(text)
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
    def enhancement(self) -> str:
        """Return the ratio or the difference as text; a dash where there is none."""
        if self.comparative is Comparative.DIFF and _is_number(self.x) and _is_number(self.y):
            return f"{self.x - self.y:.2f}"
        if self.ratio is None or self.comparative is Comparative.DIFF:
            return "---"
        return "INF" if self.ratio == float("inf") else f"{self.ratio:.2f}x"

    def direction(self, name: str, other: str) -> str:
        """Return who has how many times fewer or more, in words; empty if that cannot be said."""
        if not (_is_number(self.x) and _is_number(self.y)) or 0 in (self.x, self.y):
            return ""
        if self.x == self.y:
            return f"{name}: the same as {other}"
        times = max(self.x / self.y, self.y / self.x)
        return f"{name}: {times:.1f}x {'fewer' if self.x < self.y else 'more'} than {other}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusComparison:
    """The metrics of two profilers side by side; ``str`` of it is the table."""

    name: str
    other: str
    changes: tuple[StatusChange, ...]
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
        said = [(c.label, c.direction(self.name, self.other)) for c in self.changes]
        lines = [f"{label}: {text}" for label, text in said if text]
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


def describe_metric(metric: Metric, *, computed: bool) -> tuple[str, str]:
    """Return the label with the unit, and the value as text."""
    unit = metric.get_units() if computed and metric.value is not None else ""
    label = f"{metric.friendly_name()} ({unit})" if unit else metric.friendly_name()
    value = metric.get_value() if computed and metric.value is not None else None
    if not computed:
        return label, NOT_COMPUTED
    return label, f"{value:.4f}" if _is_number(value) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
