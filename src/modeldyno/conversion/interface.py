"""What a converter offers: a model in another form, as a file that a loader reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.models.interface import Feed, Model, source_kind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionSource:
    """The model to convert, with inputs that it accepts and what it returns for them."""

    model: Model
    inputs: tuple[InputSpec, ...]
    """In the order of `example`; a free dimension has a name, the batch is called ``batch``."""
    example: Feed
    """Two samples, or as many as its fixed batch has."""
    outputs: tuple[InputSpec, ...]
    """What it returned for the example: names, concrete shapes and dtypes, in its order."""

    @property
    def kind(self) -> str:
        """The kind of the model, as `source_kind` gives it."""
        return source_kind(self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedFile:
    """What a converter says of the file that it wrote."""

    converter: str
    """The program that converted it, and its version: ``torch.onnx 2.13.0``."""
    narrows: bool = False
    """Whether it computes in float32 what the source computes in float64."""


class Converter(ABC):
    """Writes a model in another form."""

    sources: Mapping[str, tuple[str, ...]]
    """Kind of source to the importable names that this conversion needs."""
    file: str
    """Name of the file or folder that it writes, such as ``model.onnx``."""
    loader: str
    """The loader that reads it."""
    backend: str
    """The backend that runs it."""
    lossy: bool
    """Whether it loses precision on purpose."""

    @abstractmethod
    def convert(self, source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
        """Write the model to `path`, with the source's names of inputs and outputs and its free dimensions.

        It may raise any error: the caller reads the reason from it. `opset` is for ONNX only.
        """
