"""How a Result displays itself: the layout is registered here, as the core knows no format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike


class Presentation(Protocol):
    """Lays out Results."""

    def text(self, result: Any) -> str:
        """Return the report as plain text of 80 columns."""

    def fragment(self, result: Any) -> str:
        """Return the report as static HTML for a notebook."""

    def page(self, result: Any) -> str:
        """Return the report as one self-contained page."""

    def show(self, result: Any) -> None:
        """Print the report."""

    def data_frame(self, result: Any) -> Any:
        """Return a pandas.DataFrame with a row for each number."""

    def save(self, result: Any, path: str | PathLike[str]) -> None:
        """Write the report in the format of the suffix of `path`."""


_loaders: list[Callable[[], Presentation]] = []


def use_presentation(load: Callable[[], Presentation]) -> None:
    """Register `load`, which returns the presentation and is called when the first Result is shown."""
    _loaders[:] = [load]


def presentation() -> Presentation:
    """Return the registered presentation."""
    (load,) = _loaders
    return load()
