"""What every document can do. Its layout is registered here, as values know no format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

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


class Document:
    """A document: ``print`` shows its report, as a cell of a notebook does, and it can be saved."""

    __slots__ = ()
    KIND: ClassVar[str]
    """Name of its entry point in the group ``modeldyno.documents``."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAt:
    """Host, device, engine and batch size of a measurement; a text is empty where nobody knows."""

    host: str = ""
    """The server's host, or the processor of the machine."""
    device: str = ""
    """Such as ``cpu`` or ``cuda:0``."""
    engine: str = ""
    """The backend, such as ``onnxruntime`` or ``triton``."""
    batch_size: int = 1


class StoredDocument(Document):
    """A document that a file or the store keeps, and that is read back."""

    __slots__ = ()
    if TYPE_CHECKING:  # fields of some documents, properties of others

        @property
        def id(self) -> str:
            """Twelve hexadecimal digits; any unambiguous prefix names it."""

        @property
        def created(self) -> str:
            """UTC time, ISO 8601."""

        @property
        def name(self) -> str:
            """Of the model."""

    @property
    def measured_at(self) -> MeasuredAt | None:
        """Where it was measured; None of a study or a conversion."""
        return None

    @property
    def model_digests(self) -> frozenset[str]:
        """Digests of the models that it has figures of; none of a study or a conversion."""
        return frozenset()


class Conclusion(StoredDocument):
    """A document drawn from several Results, or from a model in several forms; the store keeps it whole."""

    __slots__ = ()
