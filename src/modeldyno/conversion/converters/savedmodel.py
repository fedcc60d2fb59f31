"""``savedmodel``: a SavedModel of TensorFlow, from Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.conversion.interface import ConvertedFile
from modeldyno.models.interface import SourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.conversion.interface import ConversionSource

sources = {SourceKind.KERAS: ("keras", "tensorflow")}
file = "model"
loader = "savedmodel"
backend = "tensorflow"
lossy = False


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Export by Keras itself: its signature calls the model as at inference."""
    del opset
    import keras  # optional, and heavy

    source.model.value.model.export(str(path), verbose=False)
    return ConvertedFile(converter=f"keras {keras.__version__}")
