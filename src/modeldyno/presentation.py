"""How documents display themselves: the layout is registered here, as the core knows no format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike


class Presentation(Protocol):
    """Lays out documents."""

    def text(self, document: Any) -> str:
        """Return the report of a document as plain text of 80 columns."""

    def fragment(self, document: Any) -> str:
        """Return the report of a document as static HTML for a notebook."""

    def page(self, result: Any) -> str:
        """Return the report of a Result as one self-contained page."""

    def show(self, result: Any) -> None:
        """Print the report of a Result."""

    def data_frame(self, result: Any) -> Any:
        """Return a pandas.DataFrame with a row for each number."""

    def save(self, result: Any, path: str | PathLike[str]) -> None:
        """Write the report of a Result in the format of the suffix of `path`."""


_loaders: list[Callable[[], Presentation]] = []


def use_presentation(load: Callable[[], Presentation]) -> None:
    """Register `load`, which returns the presentation and is called when the first document is shown."""
    _loaders[:] = [load]


def presentation() -> Presentation:
    """Return the registered presentation."""
    (load,) = _loaders
    return load()


class Presented:
    """What prints its report: ``print(document)`` in Python, and the value of a cell in a notebook."""

    __slots__ = ()

    def __str__(self) -> str:
        return presentation().text(self)

    def _repr_html_(self) -> str:
        return presentation().fragment(self)
