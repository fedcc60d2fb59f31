"""``torchscript``: an archive of TorchScript (.pt), traced; it runs in C++ without Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.conversion.converters import torch_program
from modeldyno.conversion.interface import ConvertedFile
from modeldyno.models.interface import SourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.conversion.interface import ConversionSource

sources = {SourceKind.TORCH: ("torch",)}
file = "model.pt"
loader = "torchscript"
backend = "torch"
lossy = False


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Trace the module: what its code decides from values or sizes becomes fixed, which the check finds."""
    del opset
    import torch  # heavy

    with torch_program.quiet():
        example = torch_program.example_tensors(source)
        traced = torch.jit.trace(torch_program.flat_module(source), example, check_trace=False, strict=False)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, str(path))
    return ConvertedFile(converter=f"torch.jit {torch.__version__}")
