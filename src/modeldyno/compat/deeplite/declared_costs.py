"""Costs that modules declare themselves, as quantised layers do whose kernels no formula knows."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

from modeldyno.compat.deeplite.forward_pass import leaves, map_leaves
from modeldyno.compat.deeplite.frameworks import evaluation_mode
from modeldyno.compat.deeplite.status_metrics import InvalidFunction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.compat.deeplite.forward_pass import ForwardPass

_DECLARES = "compute_module_complexity"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredCost:
    """What a module says that it costs in one call of the model."""

    macs: float
    parameter_bytes: float
    activation_bytes: float
    outputs: tuple[Any, ...] = ()
    """Of each call, with forms in place of tensors."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A tensor without values; no tensor of torch, since the analysis would take it for a weight."""

    shape: Any
    dtype: Any


def declared_costs(
    model: Any, forward_pass: ForwardPass, inputs: Any, device: Any, num_bytes: float | None = None
) -> dict[str, DeclaredCost]:
    """Call a torch module once, and return what its outermost declaring modules say, by path.

    Such a module has a method ``compute_module_complexity(inputs, output)``, which returns a dict: ``flops``
    (multiply-accumulates) and, where they differ from the data types, ``param_size`` (bytes of an element, by
    the name of a parameter or buffer of the module) and ``activation_size`` (bytes of an element of the
    output). A parameter that is not named counts `num_bytes`, or in its own data type. The MACs of several
    calls of one module add up. The model is not called if no module declares anything.

    Raises:
        InvalidFunction: a module returns something else.
    """
    declaring: dict[str, Any] = {}
    for path, module in model.named_modules():
        parents = (outer for outer in declaring if not outer or path.startswith(f"{outer}."))
        if callable(getattr(module, _DECLARES, None)) and not any(True for _ in parents):
            declaring[path] = module
    if not declaring:
        return {}
    import torch  # slow to import

    costs: dict[str, DeclaredCost] = {}

    def keep(path: str, module: Any, arguments: Any, output: Any) -> None:
        cost = _read_declaration(
            path, module, getattr(module, _DECLARES)(arguments, output), output, num_bytes
        )
        before = costs.get(path)
        forms = map_leaves(
            lambda leaf: _Form(leaf.shape, leaf.dtype) if hasattr(leaf, "device") else leaf, output
        )
        costs[path] = DeclaredCost(
            macs=cost.macs + (before.macs if before else 0),
            parameter_bytes=cost.parameter_bytes,
            activation_bytes=max(cost.activation_bytes, before.activation_bytes if before else 0),
            outputs=(*(before.outputs if before else ()), forms),
        )

    hooks = [
        module.register_forward_hook(
            lambda module, arguments, output, path=path: keep(path, module, arguments, output)
        )
        for path, module in declaring.items()
    ]
    try:
        with evaluation_mode(model, device), torch.no_grad():
            forward_pass.model_call(model, inputs, device)
    finally:
        for hook in hooks:
            hook.remove()
    return costs


@contextmanager
def standing_in(model: Any, costs: Mapping[str, DeclaredCost]) -> Iterator[None]:
    """Let modules with a declared cost return empty outputs, as no rule may know their kernels."""
    changed = [model.get_submodule(path) for path in costs]
    own = [module.__dict__.get("forward") for module in changed]
    for module, cost in zip(changed, costs.values(), strict=True):
        module.forward = partial(_empty_outputs, cycle(cost.outputs))
    try:
        yield
    finally:
        for module, forward in zip(changed, own, strict=True):
            del module.forward
            if forward is not None:
                module.forward = forward


def _empty_outputs(outputs: Iterator[Any], *arguments: Any, **named: Any) -> Any:
    import torch  # slow to import

    place = next((leaf.device for leaf in leaves((arguments, named)) if hasattr(leaf, "device")), "cpu")

    return map_leaves(
        lambda leaf: (
            torch.empty(leaf.shape, dtype=leaf.dtype, device=place) if isinstance(leaf, _Form) else leaf
        ),
        next(outputs),
    )


def _read_declaration(
    path: str, module: Any, declared: Any, output: Any, num_bytes: float | None
) -> DeclaredCost:
    parameters = dict(module.named_parameters())
    tensors = {**parameters, **dict(module.named_buffers())}
    place = f"{_DECLARES} of {type(module).__name__} at '{path}'"
    try:
        sizes = {name: float(size) for name, size in (declared.get("param_size") or {}).items()}
        unknown = sizes.keys() - tensors.keys()
        if unknown:
            raise InvalidFunction(
                f"{place} names '{min(unknown)}' in param_size, but its "
                f"parameters and buffers are {', '.join(tensors) or 'none'}."
            )
        undeclared = {
            name: tensor.element_size() if num_bytes is None else num_bytes
            for name, tensor in parameters.items()
            if name not in sizes
        }
        element = declared.get("activation_size")
        written = [leaf for leaf in leaves(output) if hasattr(leaf, "numel")]
        return DeclaredCost(
            macs=float(declared["flops"]),
            parameter_bytes=float(
                sum(tensors[name].numel() * size for name, size in (sizes | undeclared).items())
            ),
            activation_bytes=float(
                sum(leaf.numel() * (leaf.element_size() if element is None else element) for leaf in written)
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidFunction):
            raise
        raise InvalidFunction(
            f"{place} must return a dict of flops and, if they differ, param_size (bytes of an element by "
            f"name) and activation_size (bytes of an element); it returned {declared!r}."
        ) from error
