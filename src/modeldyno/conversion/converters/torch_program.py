"""A torch module as one that takes tensors by name and returns a tuple of them, and its exported program."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.models.torch_signature import Forward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.conversion.interface import ConversionSource


def flat_module(source: ConversionSource) -> Any:
    """Return a module in evaluation mode that takes each tensor as a parameter of its name.

    What it returns is a tuple of the tensors of the module's own output, in their order; other parts, such as
    a cache of keys and values, are left out.

    Raises:
        RequestError: an input is no tensor.
    """
    import torch  # heavy

    inner, names = source.model.value, tuple(source.example)
    if source.model.borrowed and any(part.training for part in inner.modules()):
        inner = copy.deepcopy(inner).eval()  # the caller's own stays in training
    nested = next((name for name, array in source.example.items() if array.dtype == object), "")
    if nested:
        raise RequestError(
            f"The input '{nested}' is a list or dict, and an exported model takes tensors only; wrap the "
            "module in one that takes each tensor as an input of its own."
        )
    forward = Forward.of(inner)

    def call(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        args, kwargs = forward.arguments(dict(zip(names, tensors, strict=True)))
        return tuple(part for part in _parts(inner(*args, **kwargs)) if isinstance(part, torch.Tensor))

    class Flat(torch.nn.Module):
        """The module, without structure in its inputs and outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

    Flat.forward = _with_parameters(names, call)
    module = Flat()
    module.training = False  # an exported program refuses eval()
    return module


def _with_parameters(names: tuple[str, ...], call: Any) -> Any:
    """Return a method with parameters of these names: exporters keep the names of a signature."""
    parameters = [name if name.isidentifier() else f"input_{index}" for index, name in enumerate(names)]
    code = f"def forward(self, {', '.join(parameters)}):\n    return call(({', '.join(parameters)},))\n"
    space: dict[str, Any] = {"call": call}
    exec(code, space)  # noqa: S102 - the names are identifiers
    return space["forward"]


def _parts(output: Any) -> Iterator[Any]:
    """Yield the parts of an output in the order in which outputs are compared."""
    if isinstance(output, Mapping):
        for part in output.values():
            yield from _parts(part)
    elif isinstance(output, list | tuple):
        for part in output:
            yield from _parts(part)
    elif is_dataclass(output) and not isinstance(output, type):
        for entry in fields(output):
            yield from _parts(getattr(output, entry.name))
    else:
        yield output


def example_tensors(source: ConversionSource) -> tuple[Any, ...]:
    """Return the example as tensors."""
    import torch  # heavy

    return tuple(torch.from_numpy(array.copy()) for array in source.example.values())


def dynamic_axes(source: ConversionSource) -> tuple[dict[int, str], ...]:
    """Return the free axes of each input, with their names."""
    return tuple(
        {axis: size for axis, size in enumerate(spec.shape or ()) if isinstance(size, str)}
        for spec in source.inputs
    )


def export_program(source: ConversionSource) -> Any:
    """Return the program of torch.export, with free dimensions where the module allows them."""
    import torch  # heavy

    auto = torch.export.Dim.AUTO
    shapes = tuple(dict.fromkeys(axes, auto) for axes in dynamic_axes(source))
    with quiet():
        return torch.export.export(
            flat_module(source), example_tensors(source), dynamic_shapes=shapes, strict=False
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Export without gradients and without the exporters' deprecation warnings."""
    import torch  # heavy

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield
