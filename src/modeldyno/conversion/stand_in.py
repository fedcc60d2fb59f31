"""A ``torch.nn.Module`` that stands where another was, and calls a model that is open."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from modeldyno.base.errors import RequestError


class Callee(Protocol):
    """A model that is open."""

    reference: str
    inputs: tuple[str, ...]
    """Their names, in order."""

    def __call__(self, **named: Any) -> dict[str, Any]:
        """Return the outputs by name."""


@dataclass(frozen=True, slots=True)
class _Arguments:
    """How the arguments of a call become inputs of the model."""

    opened: Callee
    defaults: Mapping[str, Any]
    """Parameters of the original, in order, with their defaults; the model's inputs without an original."""

    def inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs by name; other arguments must have the value that the original has by default.

        Raises:
            RequestError: an argument has another one, which the model cannot follow.
        """
        takes = ", ".join(self.opened.inputs)
        if len(args) > len(self.defaults):
            raise RequestError(f"{self.opened.reference} takes {takes}, not {len(args)} arguments.")
        given = dict(zip(self.defaults, args, strict=False)) | dict(kwargs)
        for name, value in given.items():
            if name in self.opened.inputs or value is None or value is self.defaults.get(name):
                continue
            raise RequestError(f"{self.opened.reference} was made without '{name}'; it takes {takes}.")
        return {name: value for name, value in given.items() if name in self.opened.inputs}


@dataclass(frozen=True, slots=True)
class _Returned:
    """What the original returns: its structure, and what of it are tensors."""

    leaves: list[Any]
    structure: Any

    @classmethod
    def by(cls, original: Any, example: Mapping[str, Any]) -> _Returned:
        """Call the original once, on its own device."""
        import torch  # slow to import
        from torch.utils import _pytree as pytree

        device = next((parameter.device for parameter in original.parameters()), None)
        with torch.no_grad():
            returned = original(
                **{name: torch.as_tensor(value).to(device) for name, value in example.items()}
            )
        return cls(*pytree.tree_flatten(returned))

    @property
    def count(self) -> int:
        """Number of tensors."""
        return sum(hasattr(leaf, "shape") for leaf in self.leaves)

    def filled(self, tensors: list[Any]) -> Any:
        """Return the structure with other tensors."""
        from torch.utils import _pytree as pytree

        remaining = iter(tensors)
        leaves = [next(remaining) if hasattr(leaf, "shape") else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(leaves, self.structure)


def make_stand_in(opened: Callee, original: Any, example: Any) -> Any:
    """Return a module that calls `opened` and returns what the original would.

    Args:
        opened: the model that is called.
        original: a module; without it, calls return a tensor, or a dict of several by name.
        example: inputs of the original, which is called once to see what it returns.

    Raises:
        RequestError: the original returns another number of tensors, or there is no example for it.
    """
    if original is None:
        return _make_module(opened, None, _Arguments(opened, dict.fromkeys(opened.inputs)), None)
    parameters = inspect.signature(original.forward).parameters
    arguments = _Arguments(opened, {name: parameter.default for name, parameter in parameters.items()})
    inputs = _named(example, tuple(parameters))
    returned = _Returned.by(original, inputs)
    outputs = len(opened(**arguments.inputs((), inputs)))
    if outputs != returned.count:
        raise RequestError(
            f"{opened.reference} returns {outputs} tensors, and the original {returned.count}: it is another "
            "model."
        )
    return _make_module(opened, original, arguments, returned)


def _named(example: Any, order: tuple[str, ...]) -> dict[str, Any]:
    """Return an example by the names of the original's parameters."""
    if example is None or (isinstance(example, Mapping) and not example):
        raise RequestError("Give example= with the inputs of the original, which is called once.")
    if isinstance(example, Mapping):
        return dict(example)
    return dict(zip(order, example if isinstance(example, tuple | list) else (example,), strict=False))


def _make_module(opened: Callee, original: Any, arguments: _Arguments, returned: _Returned | None) -> Any:
    import torch  # slow to import

    class StandIn(torch.nn.Module):
        """Calls a model in another form where the original module was."""

        def __init__(self) -> None:
            super().__init__()
            self.__dict__["original"] = original  # not registered: its parameters are none of this module
            self.__dict__["opened"] = opened

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            inputs = arguments.inputs(args, kwargs)
            device = next((value.device for value in inputs.values() if hasattr(value, "device")), None)
            outputs = {
                name: torch.from_numpy(array.copy()).to(device) for name, array in opened(**inputs).items()
            }
            if returned is not None:
                return returned.filled(list(outputs.values()))
            return next(iter(outputs.values())) if len(outputs) == 1 else outputs

        def train(self, mode: bool = True) -> Any:
            if mode:
                raise RequestError(f"{opened.reference} cannot be trained; train the original.")
            return super().train(mode)

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                if original is None:
                    raise
                return getattr(original, name)

    return StandIn().eval()
