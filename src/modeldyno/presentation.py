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

    def data_frame(self, document: Any) -> Any:
        """Return a pandas.DataFrame of its numbers."""

    def save(self, document: Any, path: str | PathLike[str]) -> None:
        """Write a document in the format of the suffix of `path`."""

    def brief(self, document: Any) -> str:
        """Return its verdict in a line."""


_loaders: list[Callable[[], Presentation]] = []


def use_presentation(load: Callable[[], Presentation]) -> None:
    """Register `load`, which returns the presentation and is called when the first document is shown."""
    _loaders[:] = [load]


def presentation() -> Presentation:
    """Return the registered presentation."""
    (load,) = _loaders
    return load()


class Presented:
    """A document: ``print`` shows its report, as a cell of a notebook does, and it can be saved."""

    __slots__ = ()

    def __repr__(self) -> str:
        identifier = str(getattr(self, "id", ""))[:6]
        return f"<{type(self).__name__}{identifier and f' {identifier}'}: {presentation().brief(self)}>"

    def save(self, path: str | PathLike[str]) -> None:
        """Write it in the format of the suffix: .json is the whole document, .html .md .csv its report.

        Raises:
            RequestError: no report has this suffix, or the file cannot be written.
            MissingExtra: the format needs a program that is not installed.
        """
        presentation().save(self, path)

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame of its numbers, in base units; of what has none, of what it says.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return presentation().data_frame(self)

    def __str__(self) -> str:
        return presentation().text(self)

    def _repr_html_(self) -> str:
        return presentation().fragment(self)
