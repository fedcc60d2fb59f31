"""What each layer of a torch model takes and returns in one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.conversion.reference import opened
from modeldyno.core.agreement.inner_values import End, InnerValue, Moment, keep_value, most_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy import ndarray

    from modeldyno.interfaces.loader import Feed, Model


def source_moments(model: Model, backend: str, feed: Feed, batch: int | None) -> list[Moment]:
    """Call a torch model once, and return what its layers took and returned, in their order.

    Layers that are called several times are left out: a graph does not tell which call is which.
    """
    layers = {module: path for path, module in model.value.named_modules() if path}
    most = most_values(len(layers))
    moments: list[Moment] = []

    def note(module: Any, end: End, *parts: Any) -> None:
        values = tuple(keep_value(array, batch, most) for array in arrays_of(parts))
        moments.append(Moment(layer=layers[module], kind=type(module).__name__, end=end, values=values))

    with ExitStack() as stack:
        for module in layers:
            for hook in (
                module.register_forward_pre_hook(
                    lambda module, args, kwargs: note(module, End.INPUT, args, kwargs), with_kwargs=True
                ),
                module.register_forward_hook(lambda module, _args, output: note(module, End.OUTPUT, output)),
            ):
                stack.callback(hook.remove)
        with opened(model, backend) as run:
            moments.clear()
            run(feed)
    calls = Counter(moment.layer for moment in moments if moment.end is End.INPUT)
    return [moment for moment in moments if calls[moment.layer] == 1]


def values_of(moments: list[Moment]) -> dict[tuple[str, End], tuple[InnerValue, ...]]:
    """Return the values by layer and end."""
    return {(moment.layer, moment.end): moment.values for moment in moments}


def arrays_of(part: Any) -> Iterator[ndarray]:
    """Yield the tensors within what a module takes or returns, as arrays."""
    if hasattr(part, "detach"):
        tensor = part.detach().cpu()
        yield (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    elif isinstance(part, Mapping):
        for item in part.values():
            yield from arrays_of(item)
    elif isinstance(part, list | tuple):
        for item in part:
            yield from arrays_of(item)
    elif is_dataclass(part) and not isinstance(part, type):
        for entry in fields(part):
            yield from arrays_of(getattr(part, entry.name))
