"""A chart of a study that a user chose: what is along its axes."""

from __future__ import annotations

from dataclasses import dataclass

from modeldyno.base.errors import RequestError

_PARTS = ("x", "y", "title", "monotonic")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPlot:
    """A chart of the loads of each configuration, one line for each."""

    x: str
    """A query, such as ``latency.p99``, or an axis of the study, such as ``concurrency``."""
    y: str
    """The same, upwards."""
    title: str = ""
    """``y against x`` if empty."""
    monotonic: bool = False
    """Whether a line leaves out the points at which `y` does not grow."""

    def __str__(self) -> str:
        """Return its title."""
        return self.title or f"{self.y} against {self.x}"


def parse_plot(text: str) -> ChosenPlot:
    """Read ``x=latency.p99,y=throughput``, with ``title=...`` and ``monotonic`` if wanted.

    Raises:
        RequestError: the text is none, or names no x and y.
    """
    parts: dict[str, str] = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if name.strip() == "monotonic" and not separator:
            value = "true"
        parts[name.strip()] = value.strip()
    return plot_of_parts(parts, text)


def plot_of_parts(parts: dict[str, str], name: str) -> ChosenPlot:
    """Make a plot of its parts by name; `name` is what errors call it.

    Raises:
        RequestError: a part is unknown, or there is no x or y.
    """
    unknown = [part for part in parts if part not in _PARTS]
    if unknown or not (parts.get("x") and parts.get("y")):
        why = f"there is no '{unknown[0]}' in a plot" if unknown else "it needs x and y"
        raise RequestError(
            f"`plots` '{name}': {why}; write x=latency.p99,y=throughput, title=TEXT, monotonic."
        )
    monotonic = parts.get("monotonic", "").lower()
    if monotonic not in {"", "true", "false"}:
        raise RequestError(f"`plots` '{name}': monotonic is true or false, not {parts['monotonic']}.")
    return ChosenPlot(x=parts["x"], y=parts["y"], title=parts.get("title", ""), monotonic=monotonic == "true")
