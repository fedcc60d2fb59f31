"""Writes a ``torch.nn.Linear`` as a linear layer in a file of JSON, which our loader reads."""

from __future__ import annotations

import json
from pathlib import Path

from modeldyno.plugin import ConversionSource, ConvertedFile, Converter, SourceKind


class LinearConverter(Converter):
    """Converts a ``torch.nn.Linear`` with a bias."""

    sources = {SourceKind.TORCH: ("torch",)}
    file = "model.linear"
    loader = "linear"
    backend = "python"
    lossy = False

    def convert(self, source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
        """Write the weights. Any error tells the user why a model cannot be converted."""
        module = source.model.value
        if type(module).__name__ != "Linear" or module.bias is None:
            raise ValueError(f"this is a {type(module).__name__}; only a Linear with a bias has this form")
        layer = {"weights": module.weight.tolist(), "bias": module.bias.tolist()}
        path.write_text(json.dumps({"linear": layer}), encoding="utf-8")
        return ConvertedFile(converter="dyno-plugins 1.0")
