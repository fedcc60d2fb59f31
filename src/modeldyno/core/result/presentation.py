"""How a Result shows itself: whatever lays out pages says so here; the core knows no format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike


class Presentation(Protocol):
    """What lays a Result out."""

    def text(self, result: Any) -> str:
        """Give the report as plain text of 80 columns."""

    def fragment(self, result: Any) -> str:
        """Give the report as a piece of HTML that runs nothing, for a notebook."""

    def page(self, result: Any) -> str:
        """Give the report as one self-contained page."""

    def show(self, result: Any) -> None:
        """Print the report."""

    def data_frame(self, result: Any) -> Any:
        """Give a pandas.DataFrame, a row for each number."""

    def save(self, result: Any, path: str | PathLike[str]) -> None:
        """Write it in the format that the suffix of `path` names."""


_loaders: list[Callable[[], Presentation]] = []


def use_presentation(load: Callable[[], Presentation]) -> None:
    """Have Results laid out by what `load` gives; it is called when the first one is shown."""
    _loaders[:] = [load]


def presentation() -> Presentation:
    """Give what lays Results out."""
    (load,) = _loaders
    return load()
