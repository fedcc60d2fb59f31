"""What a torch module has against being called on shadows, as a sentence for whoever gave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from modeldyno.core.trace.source_line import raised_at

if TYPE_CHECKING:
    from torch.nn import Module

    from modeldyno.adapters.loaders.torch_tracing.recorder import Recorder
    from modeldyno.interfaces import Tracing


class Objection(Exception):
    """An error of the model's own in its course, in words; it may be for a flag that was made up."""

    @classmethod
    def of(cls, module: Module, tracing: Tracing, error: Exception, recorder: Recorder) -> Self:
        """Say what was called, with which shapes, what went wrong in which part, and what to do."""
        said = (str(error).strip().splitlines() or [""])[0]
        if "data is not allocated" in said or "data pointer" in said:
            said = "a kernel reads the numbers of a tensor, which an analysis does not have"
        shapes = ", ".join(f"{spec.name}={'x'.join(map(str, spec.shape or ()))}" for spec in tracing.inputs)
        left, name = recorder.objected
        line = raised_at(error)
        place = f" ({line})" if line else ""
        where = f" in {name}" if name and left == id(error) else ""
        return cls(
            f"{type(module).__name__} cannot be analysed with {shapes or 'no inputs'}: "
            f"{type(error).__name__}{where}: {said[:300]}{place}{_advice(error)}."
        )


def _advice(error: Exception) -> str:
    """Say what to do where torch or the model objects to the inputs."""
    about_inputs = isinstance(error, RuntimeError | ValueError | TypeError | IndexError | AssertionError)
    return "; give other shapes by --input" if about_inputs else ""
