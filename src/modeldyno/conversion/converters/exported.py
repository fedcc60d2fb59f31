"""``exported``: a program of torch.export (.pt2), which needs none of the module's code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.conversion.converters import torch_program
from modeldyno.conversion.interface import ConvertedFile
from modeldyno.models.interface import SourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.conversion.interface import ConversionSource

sources = {SourceKind.TORCH: ("torch",)}
file = "model.pt2"
loader = "exported"
backend = "torch"
lossy = False


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Export the module and save the program."""
    del opset
    import torch  # heavy

    program = torch_program.export_program(source)
    with torch_program.quiet():
        torch.export.save(program, path)
    return ConvertedFile(converter=f"torch.export {torch.__version__}")
