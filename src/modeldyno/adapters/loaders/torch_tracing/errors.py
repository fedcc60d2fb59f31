"""Explains why a torch module cannot be analysed, in a sentence for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from modeldyno.core.trace.source_line import format_error_location

if TYPE_CHECKING:
    from torch.nn import Module

    from modeldyno.adapters.loaders.torch_tracing.recorder import Recorder
    from modeldyno.interfaces.loader import Tracing


class AnalysisError(Exception):
    """An error raised by the model while it is traced, explained; a made-up flag may have caused it."""

    @classmethod
    def of(cls, module: Module, tracing: Tracing, error: Exception, recorder: Recorder) -> Self:
        """Describe the call, its shapes, the error, the module it came from, and what to do."""
        message = (str(error).strip().splitlines() or [""])[0]
        if "data is not allocated" in message or "data pointer" in message:
            message = "a kernel reads the values of a tensor, which an analysis does not have"
        shapes = ", ".join(f"{spec.name}={'x'.join(map(str, spec.shape or ()))}" for spec in tracing.inputs)
        error_id, name = recorder.failed_in
        line = format_error_location(error)
        location = f" ({line})" if line else ""
        where = f" in {name}" if name and error_id == id(error) else ""
        return cls(
            f"{type(module).__name__} cannot be analysed with {shapes or 'no inputs'}: "
            f"{type(error).__name__}{where}: {message[:300]}{location}{_advice(error)}."
        )


def _advice(error: Exception) -> str:
    """Return advice where torch or the model rejects the inputs."""
    about_inputs = isinstance(error, RuntimeError | ValueError | TypeError | IndexError | AssertionError)
    return "; give other shapes by --input" if about_inputs else ""
